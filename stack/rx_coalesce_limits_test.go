package stack

import (
	"testing"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// Only the last of those coalesced may be shorter than the first, and none longer: what they stand
// for is then n of a size.
func TestJoinedAreOfOneSize(t *testing.T) {
	for _, x := range []struct {
		sizes     []int
		coalesced uint64
	}{
		{[]int{500, 500, 500}, 2}, {[]int{1000, 500, 500}, 1}, {[]int{500, 1000}, 0},
		{[]int{500, 500, 1000, 1000, 10, 10}, 3},
	} {
		l, u, v := offloaded(t, nil).opened()
		total := 0
		for _, n := range x.sizes {
			u.chunk = n
			u.send(n)
			l.a.Turn()
			total += n
		}
		l.b.Turn()
		require.EqualValues(t, total, v.edge)
		require.Equal(t, x.coalesced, l.b.counters().Coalesced, "%v", x.sizes)
		l.stop()
	}
}

// doubting is a queue whose device says nothing of one frame's checksums.
type doubting struct {
	pmd.Queue
	pool *mem.Pool
	at   int // in the next burst; -1: in none
}

func (q *doubting) Rx(bufs []mem.Buf) int {
	n := q.Queue.Rx(bufs)
	if q.at >= 0 && q.at < n {
		q.pool.Desc(bufs[q.at]).Flags = 0
		q.at = -1
	}
	return n
}

// A frame that the device does not call good is not taken on the word of the one
// before it.
func TestJoinedAreAllVerified(t *testing.T) {
	l, u, v := offloaded(t, nil).opened()
	l.b.nic.Queue = &doubting{l.b.nic.Queue, l.b.pool, 2}
	u.send(6 * 1448)
	l.a.Turn()
	l.b.Turn()
	require.EqualValues(t, 1, l.b.counters().TCP[tcp.DropChecksumLeft], "what left no host has none")
	require.EqualValues(t, 2*1448, v.edge)
	l.until("sent again", func() bool { return v.edge == 6*1448 })
}

// Headers are copied within a Turn only: what else they say may change between Turns.
func TestTemplateIsOfOneTurn(t *testing.T) {
	l, u, _ := offloaded(t, nil).opened()
	var ttl []byte
	l.a.nic.onSend = func(f []byte) { ttl = append(ttl, f[14+8]) }
	u.send(2 * 1448)
	l.a.Turn()
	l.a.cfg.TTL = 9
	u.send(2 * 1448)
	l.a.Turn()
	require.Equal(t, []byte{64, 64, 9, 9}, ttl)
}

// A Turn that finds many octets acknowledges before it has taken all of them, and says that there
// are more; of large frames a burst is fewer.
func TestTurnEndsAfterManyOctets(t *testing.T) {
	l, u, v := newLab(t, func(i int, cfg *Config) {
		cfg.TCP.InitialWindow, cfg.TCP.ReceiveWindow = 200, 1<<20
	}).opened()
	u.send(2 * u.conn.EMSS()) // whose ACK tells the window, with its scale
	l.turns()
	before := v.gotCount
	const segments = 150
	u.send(segments * u.conn.EMSS())
	for range 10 {
		l.a.Turn()
	}
	require.Equal(t, u.toSend, u.sent)
	bursts := (receivedOctetsMax + 32*1514 - 1) / (32 * 1514)
	l.b.Turn()
	require.EqualValues(t, bursts*32*u.conn.EMSS(), v.gotCount-before)
	require.True(t, l.b.rx.more)
	l.a.Turn()
	require.Equal(t, v.gotCount, u.acked)
	l.turns()
	require.Equal(t, u.toSend, v.gotCount)
	require.Zero(t, u.conn.Stats().Retransmits)
	l.stop()

	for mtu, want := range map[int]int{576: 32, 1500: 32, 9000: 10, 65000: burstMin} {
		require.Equal(t, want, receiveBurst(&Config{MTU: mtu, BurstMax: 32}), "MTU %d", mtu)
	}
	require.Equal(t, 2, receiveBurst(&Config{MTU: 65000, BurstMax: 2}))
}
