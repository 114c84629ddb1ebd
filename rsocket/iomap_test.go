package rsocket

import (
	"bytes"
	"io"
	"math"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/testnic"
	"github.com/rnicd/rnicd/rnic"
)

var _ io.WriterAt = (*Conn)(nil)

// said has b hear a word of a's: what a did before has come.
func said(t *testing.T, a, b *Conn) {
	t.Helper()
	must(a.Write([]byte("!")))(t)
	must(io.ReadFull(b, make([]byte, 1)))(t)
}

// offHeap is memory that may be looked at between Writes of the peer's: the race detector does not
// know that the octets of a connection go before what they lead to at the other end.
func offHeap(t *testing.T, n int) []byte {
	t.Helper()
	arena := must(hugepages.New(hugepages.Config{Bytes: int64(n), Page: hugepages.Normal,
		Node: hugepages.AnyNode}))(t)
	t.Cleanup(func() { require.NoError(t, arena.Close()) })
	return arena.Bytes()[:n]
}

// What is written at an offset is in the memory that the peer has mapped there, when the peer hears
// a word that was written after it; in either direction, of any length, whatever else is written.
func TestMap(t *testing.T) {
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		c := pair(t, devs, Options{Maps: 2, SendBuffer: 5000})
		const n = 300_000
		data := bytes.Repeat([]byte("0123456"), n/7+1)[:n]
		for i := range c {
			here, there := c[i], c[1-i]
			memory := offHeap(t, n)
			m := must(here.Map(memory, 1<<40))(t)
			require.EqualValues(t, 1<<40, m.Offset)
			said(t, here, there)
			for _, part := range [][2]int{{0, n}, {n - 1, 1}, {1, 0}, {17, 70_000}} {
				at, length := part[0], part[1]
				clear(memory)
				got := must(there.WriteAt(data[:length], 1<<40+int64(at)))(t)
				require.Equal(t, length, got)
				said(t, there, here)
				require.Equal(t, data[:length], memory[at:at+length])
				require.Equal(t, make([]byte, at), memory[:at])
			}
		}
	})
}

// Entries are as many as the peer said: one more is an error, and one that was closed is used
// again.
func TestMapEntries(t *testing.T) {
	c := pair(t, testnic.Wired(t), Options{Maps: 2})
	var ms []*Mapping
	for i := range 2 {
		m := must(c[0].Map(make([]byte, 100), uint64(1000*i)))(t)
		ms = append(ms, m)
	}
	require.ErrorIs(t, errOf(c[0].Map(make([]byte, 100), 5000)), ErrMapsFull)
	require.NoError(t, ms[0].Close())
	require.NoError(t, ms[0].Close(), "again")
	memory := make([]byte, 100)
	must(c[0].Map(memory, 7000))(t)
	said(t, c[0], c[1])
	must(c[1].WriteAt([]byte("hello"), 7010))(t)
	said(t, c[1], c[0])
	require.Equal(t, "hello", string(memory[10:15]))

	// what the first one had, and around the others
	for _, off := range []int64{0, 99, 999, 1100, 7100, math.MaxInt64} {
		n, err := c[1].WriteAt([]byte("x"), off)
		require.ErrorIs(t, err, ErrMapped, "%d", off)
		require.Zero(t, n)
	}
	for off, want := range map[int64]int{1095: 5, 1099: 1, 1100: 0, -1: 0} {
		require.Equal(t, want, c[1].Mapped(off), "%d", off)
	}
	n, err := c[1].WriteAt(make([]byte, 10), 1095)
	require.ErrorIs(t, err, ErrMapped)
	require.Equal(t, 5, n, "what there is memory for")
	require.Error(t, errOf(c[1].WriteAt(nil, -1)))
	for _, b := range [][]byte{nil, make([]byte, 10)} {
		require.Error(t, errOf(c[0].Map(b, math.MaxUint64-9)))
	}
	none := pair(t, testnic.Wired(t), Options{})
	_, err = none[0].Map(make([]byte, 1), 0)
	require.ErrorIs(t, err, ErrMapsFull, "the peer has no entries")
	_, err = Dial(t.Context(), testnic.Sockets(t)[0], "127.0.0.1:9", Options{Maps: MapsMax + 1})
	require.ErrorContains(t, err, "129 mappings, 0 to 128 possible")
}

// Memory that was taken back is no longer written; a peer that writes there all the same loses
// its connection.
func TestMapClosed(t *testing.T) {
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		c := pair(t, devs, Options{Maps: 1})
		memory := make([]byte, 100)
		m := must(c[0].Map(memory, 0))(t)
		said(t, c[0], c[1])
		require.NoError(t, m.Close())
		must(c[1].WriteAt([]byte("late"), 0))(t)
		require.ErrorContains(t, errOf(io.ReadAll(c[0])), "STag")
		require.Equal(t, make([]byte, 100), memory)
	})
}

// The memory goes with the connection.
func TestMapEndsWithTheConnection(t *testing.T) {
	devs := testnic.Wired(t)
	c := pair(t, devs, Options{Maps: 1})
	m := must(c[0].Map(make([]byte, 100), 0))(t)
	other := make(chan error, 1)
	go func() { other <- c[1].Close() }()
	require.NoError(t, c[0].Close())
	require.NoError(t, <-other)
	require.Zero(t, devs[0].Regions())
	require.NoError(t, m.Close())
	require.Error(t, errOf(c[0].Map(make([]byte, 100), 0)))
	require.Error(t, errOf(c[0].WriteAt(make([]byte, 1), 0)))
}

// Calls end with the deadline, and when nothing is to be written any more.
func TestWriteAtEnds(t *testing.T) {
	c := pair(t, testnic.Wired(t), Options{Maps: 1})
	must(c[0].Map(make([]byte, 100), 0))(t)
	said(t, c[0], c[1])
	require.NoError(t, c[1].SetWriteDeadline(time.Now().Add(-time.Second)))
	require.ErrorIs(t, errOf(c[1].WriteAt(make([]byte, 10), 0)), os.ErrDeadlineExceeded)
	require.ErrorIs(t, errOf(c[1].Map(make([]byte, 10), 0)), os.ErrDeadlineExceeded)
	require.NoError(t, c[1].SetWriteDeadline(time.Time{}))
	require.NoError(t, c[1].CloseWrite())
	require.ErrorIs(t, errOf(c[1].WriteAt(make([]byte, 10), 0)), syscall.EPIPE)
}

// On the wire: the count in start-up's octet, an entry of 24 octets after the list, in the order
// of the messages, and its number in a message; rsockets' rs_iomap.
func TestMapOnTheWire(t *testing.T) {
	devs := testnic.Wired(t)
	p := newRaw(t, devs[0], rnic.ConnParam{})
	p.gives.maps = 3
	c := p.connect(devs[1], Options{Maps: 5})
	require.EqualValues(t, 5, p.theirs.maps)
	p.say(kindControl, keepAlive) // before, a Responder says nothing
	k, _ := p.hears()
	require.Equal(t, kindGrant, k)

	for i := range 2 {
		m := must(c.Map(make([]byte, 100+i), uint64(7+i)))(t)
		k, value := p.hears()
		require.Equal(t, kindIomap, k)
		require.EqualValues(t, i, value)
		at := rawBuffers*messageLen + listLen*entryLen + i*mapLen
		got := parseMap(p.m.Bytes()[at:], p.order)
		require.Equal(t, iomap{uint64(7 + i), entry{m.region.Base(), m.region.STag(), uint32(100 + i)}},
			got)
	}

	// The peer's, its fifth: what comes is where it says.
	where := entry{p.m.Base() + rawBuffers*messageLen + 200, p.m.STag(), 50}
	b := make([]byte, mapLen)
	iomap{1000, where}.put(b, p.order)
	require.NoError(t, errOf(p.qp.PostSend(rnic.WorkRequest{Op: rnic.OpWrite, Inline: b,
		RemoteSTag: p.theirs.list.stag, RemoteOffset: p.theirs.list.to + listLen*entryLen + 4*mapLen})))
	p.say(kindIomap, 0x70000|4) // bits above 16 are reserved
	p.write(0, []byte("x"))
	p.say(kindData, 1)
	must(io.ReadFull(c, make([]byte, 1)))(t)
	must(c.WriteAt([]byte("direct"), 1003))(t)
	must(c.Write([]byte("y")))(t)
	k, _ = p.hears()
	require.Equal(t, kindData, k)
	require.Equal(t, "direct", string(p.m.Bytes()[rawBuffers*messageLen+203:][:6]))

	p.say(kindIomap, 5)
	require.ErrorContains(t, errOf(io.ReadAll(c)), "the peer maps memory as entry 5, where it has 5")
}

// Messages about mappings take receive buffers of a peer that does not count them: there are never
// more under way than buffers, and they are not lost to the messages of data for ever.
func TestMapsAndCredits(t *testing.T) {
	c := pair(t, testnic.Wired(t), Options{Maps: 1, Credits: CreditsMin})
	for range 20 * CreditsMin {
		m := must(c[0].Map(make([]byte, 8), 0))(t)
		said(t, c[0], c[1])
		require.NoError(t, m.Close())
	}
	require.NoError(t, c[0].SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
	var err error
	n := 0
	for ; err == nil; n++ { // nobody reads
		var m *Mapping
		if m, err = c[0].Map(make([]byte, 8), 0); err == nil {
			err = m.Close()
		}
	}
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.LessOrEqual(t, n-1, CreditsMin/2)
	require.NoError(t, c[0].SetWriteDeadline(time.Now().Add(patience)))
	for range CreditsMin { // data goes on
		said(t, c[0], c[1])
	}
	must(c[0].Map(make([]byte, 8), 0))(t)
}

func TestScaled(t *testing.T) {
	for in, want := range map[byte]int{0: 0, 1: 1, 128: 128, 129: 256, 130: 512, 255: 127 << 8} {
		require.Equal(t, want, scaled(in), "%d", in)
	}
}
