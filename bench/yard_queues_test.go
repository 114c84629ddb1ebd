package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/bench/yard"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// manyQueues is one Adapter over all queues, one or two, of an endless device: a Poller each, of
// one Group, and endlessConns connections on each.
type manyQueues struct {
	*together // its hosts are the queues'
	device    *endless
	hosts     []*host
	writers   [][]*endlessWriter // by queue
	told      uint64             // octets
	crossed   uint64             // frames, as each member overhears another's ARP
}

// endlessWriter writes its region to the far end, over and over, or has it written.
type endlessWriter struct {
	*end
	posted, done uint64
	failed       error
	cs           [32]rnic.Completion
}

const farSTag = mem.STag(0x1234_5600) // of the far end, which looks at none

func (w *endlessWriter) step() int {
	n := w.cq.Poll(w.cs[:])
	for i := range w.cs[:n] {
		if w.cs[i].Status != rnic.Success {
			w.failed = fmt.Errorf("%v", w.cs[i])
		}
	}
	w.done += uint64(n)
	for w.posted-w.done < outstanding && w.failed == nil {
		_, err := w.qp.PostSend(rnic.WorkRequest{ID: w.posted, Op: rnic.OpWrite,
			Local: w.region.Slice(0, pieceMessage), Signaled: true, RemoteSTag: farSTag})
		if err != nil {
			w.failed = err
			break
		}
		w.posted++
		n++
	}
	return n
}

func newManyQueues(t testing.TB, queues int) *manyQueues {
	m := &manyQueues{together: &together{}, device: newEndless(queues),
		writers: make([][]*endlessWriter, queues)}
	group := must(stack.NewGroup(queues))(t)
	var pollers []*stack.Poller
	for i := range queues {
		bufs := testhost.PoolConfig(4096, endlessMTU)
		pool := must(mem.NewPool(newArena(t, int64(bufs.Bytes())+4096), bufs))(t)
		queue := must(m.device.Open(i, pool))(t)
		h := &host{}
		h.poller = testhost.NewPoller(t, m.device, stack.Config{
			Name: fmt.Sprint("endless", i), Queue: queue, Pool: pool,
			Addr: netip.MustParsePrefix("10.9.0.1/24"), MTU: endlessMTU, ConnsMax: 2 * endlessConns,
			TCP: tcp.Config{ReceiveWindow: 1 << 20}, Group: group, Member: i, OnTurn: h.turned,
			Clock: m.clock.now, NoAnnounce: true,
		})
		m.hosts, pollers = append(m.hosts, h), append(pollers, h.poller)
	}
	dev, err := rnic.Open(rnic.Config{Pollers: pollers})
	require.NoError(t, err)
	for _, h := range m.hosts {
		h.dev = dev
	}
	m.server = m.hosts[0]
	if queues == 2 {
		m.client = m.hosts[1]
	}
	t.Cleanup(m.own)
	m.lend()
	for k := range queues * endlessConns { // an Adapter dials from each of its Pollers in turn
		w := &endlessWriter{end: newEnd(t, m.hosts[k%queues], pieceMessage,
			opts{rnic.QPOptions{SendDepth: 64}, rnic.ConnParam{NoMarkers: true}})}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		require.NoError(t, w.qp.Connect(ctx, "10.9.0.2:7174", w.conn))
		cancel()
		m.writers[k%queues] = append(m.writers[k%queues], w)
	}
	m.crossed, err = m.crossings()
	require.NoError(t, err)
	park(t, m.together)
	for _, q := range m.device.queues {
		require.Len(t, q.peers, endlessConns, "connections are not spread over the queues")
		require.NoError(t, q.failed)
	}
	return m
}

// contender turns each queue on a core of its own.
func (m *manyQueues) contender(name string, check func() error) *yard.Contender {
	k := &yard.Contender{
		Name: name, Unit: "octets/s", Resume: m.clock.resume, Pause: m.clock.pause,
		Left: func(s *yard.Slice) {
			m.told = m.octets()
			for !s.Over() {
				for range 8 {
					m.hosts[0].poller.Turn()
				}
				now := m.octets()
				s.Did(float64(now - m.told))
				m.told = now
			}
		},
		Check: func() error {
			m.clock.resume()
			err := check()
			for _, h := range m.hosts {
				h.app = nil
			}
			return errors.Join(err, m.inOrder())
		},
	}
	k.Right = func(s *yard.Slice) {
		for !s.Over() { // with one queue it only keeps others off the second core, as two queues do
			if len(m.hosts) == 2 {
				m.hosts[1].poller.Turn()
			}
		}
	}
	return k
}

// octets that all queues have carried.
func (m *manyQueues) octets() (n uint64) {
	for _, q := range m.device.queues {
		n += q.octets.Load()
	}
	return n
}

// crossings are the frames that went from one Poller to the other. For while somebody turns both.
func (m *manyQueues) crossings() (sum uint64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, h := range m.hosts {
		n, err := h.poller.Counters(ctx)
		if err != nil {
			return 0, err
		}
		sum += n.Crossed
	}
	return sum, nil
}

// inOrder: no segment came twice or out of order at a far end, and none had to cross from one
// Poller to the other.
func (m *manyQueues) inOrder() error {
	m.lend()
	n, err := m.crossings()
	m.own()
	if err == nil && n != m.crossed {
		err = fmt.Errorf("%d frames crossed", n-m.crossed)
	}
	for _, q := range m.device.queues {
		err = errors.Join(err, q.failed)
	}
	return err
}

// turnUntil turns all queues on this goroutine.
func (m *manyQueues) turnUntil(t testing.TB, what string, done func() bool) error {
	late := lateness(t)
	for !done() {
		m.turn()
		if late.Load() {
			return errors.New(what)
		}
	}
	return nil
}

// writingOut is bulk Write out of all queues.
func writingOut(t testing.TB, name string, queues int) *yard.Contender {
	m := newManyQueues(t, queues)
	for i, h := range m.hosts {
		for _, w := range m.writers[i] {
			newNoise(t).fill(w.region.Bytes())
		}
		h.app = func() (n int) {
			for _, w := range m.writers[i] {
				n += w.step()
			}
			return n
		}
	}
	// What comes out at the far ends is what the regions hold.
	return m.contender(name, func() error {
		for i, q := range m.device.queues {
			for _, p := range q.peers {
				p.mirror, p.mirrored = make([]byte, pieceMessage), 0
			}
			q.verify = true
			for k, p := range q.peers {
				if err := m.turnUntil(t, "a connection sends nothing", func() bool {
					return p.mirrored >= 2*pieceMessage || q.failed != nil
				}); err != nil {
					return err
				}
				w := m.writers[i][k]
				if !bytes.Equal(p.mirror, w.region.Bytes()) {
					return fmt.Errorf("queue %d, connection %d: what is placed is not what was written", i, k)
				}
			}
			q.verify = false
		}
		return m.failed()
	})
}

func (m *manyQueues) failed() error {
	var errs []error
	for _, ws := range m.writers {
		for _, w := range ws {
			errs = append(errs, w.failed)
		}
	}
	return errors.Join(errs...)
}

// writingIn is bulk Write into all queues.
func writingIn(t testing.TB, name string, queues int) *yard.Contender {
	m := newManyQueues(t, queues)
	sent := make([]byte, pieceMessage)
	newNoise(t).fill(sent)
	for i, q := range m.device.queues {
		for k, w := range m.writers[i] {
			q.feed(k, w.region.STag(), w.region.Base(), sent)
		}
	}
	// All octets of each region come again, after they were erased.
	return m.contender(name, func() error {
		for i, q := range m.device.queues {
			for k, p := range q.peers {
				if p.una == 1001 {
					return fmt.Errorf("queue %d, connection %d: nothing was acknowledged", i, k)
				}
				region := m.writers[i][k].region.Bytes()
				clear(region)
				from := p.una
				if err := m.turnUntil(t, "nothing is acknowledged", func() bool {
					return p.una-from > 3*pieces*endlessMSS
				}); err != nil {
					return err
				}
				p.paused = true
				if err := m.turnUntil(t, "not everything is acknowledged", func() bool {
					return p.una == p.seq
				}); err != nil {
					return err
				}
				if !bytes.Equal(region, sent) {
					return fmt.Errorf("queue %d, connection %d: what was placed is not what was written", i, k)
				}
				p.paused = false
			}
		}
		return nil
	})
}

// queuesPart is what a second queue on a core of its own brings where nothing else is the limit.
func queuesPart(y *yardstick) {
	for _, way := range []struct {
		name string
		make func(testing.TB, string, int) *yard.Contender
	}{{"out of", writingOut}, {"into", writingIn}} {
		s := y.take(way.make(y, "Write "+way.name+" one queue", 1),
			way.make(y, "Write "+way.name+" two queues", 2))
		y.row("Write "+way.name+" one queue, MTU 1500", "Gbit/s", yard.Goal{}, yard.Rate(s[0], 8e-9),
			"a device whose far end costs nothing, four connections on each queue")
		y.row("Write "+way.name+" two queues to one, a core each", "x", atLeast(1.8),
			yard.Ratio(s[1], s[0]), "")
	}
}
