package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"sync"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/rnicd/rnicd/internal/capture/filter"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/stretchr/testify/require"
)

// newPoint makes a link whose port 0 is a Point, and opens both of its ports.
func newPoint(t testing.TB, link wire.Config) (p *Point, near, peer side) {
	l := must(wire.New(link))(t)
	p = NewPoint(l.Port(0))
	return p, opened(t, p), opened(t, l.Port(1))
}

// A Capture has what goes through between Attach and Close, and nothing else; two at a time have
// each their own.
func TestAttachAndDetach(t *testing.T) {
	p, near, peer := newPoint(t, wire.Config{Names: []string{"rnic0", "peer"}})
	send := func(tag byte) {
		require.Equal(t, 1, near.send(frame(tag, 60)))
		require.Equal(t, 1, peer.recv())
	}
	var first, second bytes.Buffer
	send(1)
	a := newCapture(t, &first, Config{})
	require.NoError(t, a.Attach(p))
	send(2)
	b := newCapture(t, &second, Config{SnapLen: 30})
	require.NoError(t, b.Attach(p))
	require.ErrorContains(t, b.Attach(p), "rnic0: it is captured into this file already")
	send(3)
	require.NoError(t, a.Close())
	send(4)
	require.NoError(t, b.Close())
	require.Nil(t, near.q.(*Queue).taps.Load(), "what is off costs one branch")
	send(5)

	packets, r := read(t, first.Bytes())
	require.Len(t, packets, 2)
	require.Equal(t, frame(2, 60), packets[0].data)
	require.Equal(t, frame(3, 60), packets[1].data)
	intf := interfaceOf(t, r)
	require.Equal(t, "rnic0", intf.Name)
	packets, _ = read(t, second.Bytes())
	require.Len(t, packets, 2)
	require.Equal(t, frame(3, 60)[:30], packets[0].data)
	require.Equal(t, frame(4, 60)[:30], packets[1].data)
}

func TestAttachedMax(t *testing.T) {
	p, _, _ := newPoint(t, wire.Config{})
	var all []*Capture
	for range AttachedMax + 1 {
		c := newCapture(t, io.Discard, Config{Slots: 1})
		all = append(all, c)
	}
	for _, c := range all[:AttachedMax] {
		require.NoError(t, c.Attach(p))
	}
	require.EqualError(t, all[AttachedMax].Attach(p),
		"capture: wire0: 4 captures are running, and no more at a time")
	require.NoError(t, all[0].Close())
	again := newCapture(t, io.Discard, Config{Slots: 1})
	require.NoError(t, again.Attach(p))
	for _, c := range append(all, again) {
		require.NoError(t, c.Close())
	}
	require.ErrorContains(t, again.Attach(p), "closed before this port was added")
}

// A filter is asked before a frame takes room, and knows its direction.
func TestFilter(t *testing.T) {
	var file bytes.Buffer
	only := must(filter.Compile("inbound and src ether 02:00:00:00:00:01"))(t)
	c := newCapture(t, &file, Config{Filter: only, Slots: 1})
	p, near, peer := newPoint(t, wire.Config{})
	require.NoError(t, c.Attach(p))
	c.mu.Lock() // the writer stands still
	require.Equal(t, 2, near.send(frame(1, 60), frame(2, 60)))
	other := frame(3, 60)
	other[11] = 9
	require.Equal(t, 2, peer.send(other, frame(4, 60)))
	require.Equal(t, 2, near.recv())
	c.mu.Unlock()
	require.NoError(t, c.Close())
	packets, r := read(t, file.Bytes())
	require.Len(t, packets, 1)
	require.Equal(t, frame(4, 60), packets[0].data)
	require.Equal(t, Counters{Written: 1}, c.Counters())
	intf := interfaceOf(t, r)
	require.Equal(t, only.String(), intf.Filter)
}

func TestCount(t *testing.T) {
	var file bytes.Buffer
	c := newCapture(t, &file, Config{Count: 2})
	p, near, peer := newPoint(t, wire.Config{})
	require.NoError(t, c.Attach(p))
	select {
	case <-c.Done():
		require.Fail(t, "done before anything came")
	default:
	}
	require.Equal(t, 3, near.send(frame(1, 60), frame(2, 60), frame(3, 60)))
	require.Equal(t, 3, peer.recv())
	<-c.Done()
	require.NoError(t, c.Close())
	packets, _ := read(t, file.Bytes())
	require.Len(t, packets, 2)
	_, err := New(nil, Config{Count: -1})
	require.EqualError(t, err, "capture: -1 frames; must be positive, or 0 for no end")
}

// A reader has frames while the capture runs, and Done tells when there is no reader left.
func TestLive(t *testing.T) {
	in, out := io.Pipe()
	c := newCapture(t, out, Config{})
	p, near, peer := newPoint(t, wire.Config{})
	attached := make(chan error)
	go func() { attached <- c.Attach(p) }()
	require.NoError(t, <-attached)
	require.Equal(t, 1, near.send(frame(1, 60)))
	r := must(pcapgo.NewNgReader(in, pcapgo.DefaultNgReaderOptions))(t)
	data, _, err := r.ReadPacketData()
	require.NoError(t, err)
	require.Equal(t, frame(1, 60), data)
	require.NoError(t, in.Close())
	require.Equal(t, 1, peer.recv())
	require.Equal(t, 1, near.send(frame(2, 60)))
	<-c.Done()
	require.ErrorIs(t, c.Close(), io.ErrClosedPipe)
}

// The frame after those that found no room says how many they were.
func TestMissingFramesAreTold(t *testing.T) {
	var file bytes.Buffer
	c := newCapture(t, &file, Config{Slots: 2})
	p, near, peer := newPoint(t, wire.Config{})
	require.NoError(t, c.Attach(p))
	c.mu.Lock() // the writer stands still
	require.Equal(t, 5, near.send(frame(1, 60), frame(2, 60), frame(3, 60), frame(4, 60),
		frame(5, 60)))
	require.Equal(t, 5, peer.recv())
	c.drain()
	require.Equal(t, 2, near.send(frame(6, 60), frame(7, 60)))
	c.mu.Unlock()
	require.NoError(t, c.Close())
	r := must(pcapgo.NewNgReader(bytes.NewReader(file.Bytes()), pcapgo.DefaultNgReaderOptions))(t)
	var comments [][]string
	for {
		_, _, opts, err := r.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		comments = append(comments, opts.Comments)
	}
	require.Equal(t, [][]string{nil, nil, {"3 frames before this one are missing: the writer " +
		"was too slow"}, nil}, comments)
	require.Equal(t, Counters{Written: 4, Dropped: 3}, c.Counters())
	intf := interfaceOf(t, r)
	require.EqualValues(t, 3, intf.Statistics.PacketsDropped)
	require.EqualValues(t, 7, intf.Statistics.PacketsReceived)
}

// Captures come and go while a Poller moves frames: each has a run of consecutive frames.
func TestAttachWhileInUse(t *testing.T) {
	p, near, peer := newPoint(t, wire.Config{Slots: 64})
	stop := make(chan struct{})
	var moving sync.WaitGroup
	moving.Go(func() {
		f := frame(0, 60)
		for i := uint32(0); ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			binary.BigEndian.PutUint32(f[14:], i)
			near.send(f)
			peer.recv()
			runtime.Gosched()
		}
	})
	for range 20 {
		var file bytes.Buffer
		c := newCapture(t, &file, Config{Slots: 1 << 12, Count: 50})
		require.NoError(t, c.Attach(p))
		<-c.Done()
		require.NoError(t, c.Close())
		packets, _ := read(t, file.Bytes())
		require.Len(t, packets, 50)
		for i, one := range packets[1:] {
			require.Equal(t, binary.BigEndian.Uint32(packets[i].data[14:])+1,
				binary.BigEndian.Uint32(one.data[14:]))
		}
	}
	close(stop)
	moving.Wait()
}

type interrupting struct {
	pmd.Queue
	armed bool
}

func (q *interrupting) Interrupt() (int, bool) { return 7, true }
func (q *interrupting) Arm(on bool)            { q.armed = on }

func TestInterruptsPassThrough(t *testing.T) {
	inner := &interrupting{}
	q := &Queue{Queue: inner}
	fd, ok := q.Interrupt()
	require.Equal(t, 7, fd)
	require.True(t, ok)
	q.Arm(true)
	require.True(t, inner.armed)
	_, near, _ := newPoint(t, wire.Config{})
	_, ok = near.q.(pmd.Interrupter).Interrupt()
	require.False(t, ok)
}
