package wire

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
)

// The receiver has the sender's memory, and the sender has its Buf back when the receiver has freed
// it, not before: whatever becomes of the sender's own hold.
func TestABufIsLentAndComesBack(t *testing.T) {
	h := newHosts(t, Config{ZeroCopy: true}, 4)
	a, b := h[0], h[1]
	buf := a.load(frame(b.port.MAC(), a.port.MAC(), 1, 100))
	require.Equal(t, 1, a.q.Tx([]mem.Buf{buf}))
	require.True(t, a.pool.InDevice(buf))
	a.pool.Free(buf)
	require.Equal(t, 3, a.pool.Available())

	var in [4]mem.Buf
	require.Equal(t, 1, b.q.Rx(in[:]))
	require.Equal(t, buf, in[0])
	require.Same(t, &a.pool.Slot(buf)[0], &b.pool.Slot(buf)[0])
	require.True(t, b.pool.Lent(buf))
	require.False(t, a.pool.Lent(buf))
	require.True(t, filled(b.pool.Data(buf)[14:], 1))
	require.Empty(t, a.recv(1))
	require.True(t, a.pool.InDevice(buf), "the receiver has it")

	b.pool.Free(buf)
	require.Empty(t, b.recv(1))
	require.Empty(t, a.recv(1))
	require.False(t, a.pool.InDevice(buf))
	require.Equal(t, 4, a.pool.Available())
	require.Equal(t, 4, b.pool.Available(), "it lent none")
}

// A sender that never receives has its Bufs back as well.
func TestTxTakesBack(t *testing.T) {
	h := newHosts(t, Config{ZeroCopy: true}, 2)
	f := frame(h[1].port.MAC(), h[0].port.MAC(), 1, 100)
	for range 10 {
		require.Equal(t, 1, h[0].send(f))
		require.Len(t, h[1].recv(1), 1)
		require.Empty(t, h[1].recv(1))
		require.Zero(t, h[0].q.Tx(nil))
		require.Equal(t, 2, h[0].pool.Available())
	}
}

// A retransmission while the receiver still has the Buf, and a frame that was received itself, go
// out as copies.
func TestWhatIsNotOursToLendIsCopied(t *testing.T) {
	h := newHosts(t, Config{ZeroCopy: true}, 4)
	a, b := h[0], h[1]
	buf := a.load(frame(b.port.MAC(), a.port.MAC(), 7, 100))
	require.Equal(t, 2, a.q.Tx([]mem.Buf{buf, buf}))
	var in [4]mem.Buf
	require.Equal(t, 2, b.q.Rx(in[:]))
	require.NotEqual(t, in[0], in[1])
	require.Equal(t, b.pool.Data(in[0]), b.pool.Data(in[1]))

	require.Equal(t, 1, b.q.Tx(in[:1]), "sent on")
	require.Equal(t, 3, b.pool.Available())
	b.pool.FreeN(in[:2])
	var back [1]mem.Buf
	require.Equal(t, 1, a.q.Rx(back[:]))
	require.NotEqual(t, buf, back[0])
	require.True(t, filled(a.pool.Data(back[0])[14:], 7))
	a.pool.Free(back[0])
	a.pool.Free(buf)
	for range 2 {
		require.Empty(t, a.recv(1))
		require.Empty(t, b.recv(1))
	}
	require.Equal(t, 4, a.pool.Available())
	require.Equal(t, 4, b.pool.Available())

	// Without a Buf for the copy the device is full.
	bufs := []mem.Buf{a.pool.Alloc(), a.pool.Alloc(), a.pool.Alloc(), a.pool.Alloc()}
	a.pool.Desc(bufs[0]).Len = 64
	require.Equal(t, 1, a.q.Tx([]mem.Buf{bufs[0], bufs[0]}))
	require.EqualValues(t, 1, a.q.Counters().TxFull)
}

// When a port is closed its peer has back what it did not receive, once.
func TestBufsOnTheWayToAClosedPort(t *testing.T) {
	h := newHosts(t, Config{ZeroCopy: true, Slots: 4}, 8)
	a, b := h[0], h[1]
	f := frame(b.port.MAC(), a.port.MAC(), 1, 100)
	for range 3 { // the ring goes round
		require.Equal(t, 2, a.send(f, f))
		require.Len(t, b.recv(2), 2)
		require.Empty(t, b.recv(1))
	}
	require.Equal(t, 3, a.send(f, f, f))
	require.Len(t, b.recv(1), 1)
	require.NoError(t, b.port.Close())
	require.Empty(t, a.recv(1))
	require.Equal(t, 7, a.pool.Available(),
		"all but the one that the receiver got and had no time to return")
	require.Equal(t, 2, a.send(f, f))
	require.Equal(t, Drops{Down: 2}, a.q.Drops())
	require.Equal(t, 7, a.pool.Available())
}

func TestPoolsThatAreNoPair(t *testing.T) {
	const want = "wire: wire1: a link without copying needs the two Pools of one mem.NewPair, one " +
		"at each end"
	l, err := New(Config{ZeroCopy: true})
	require.NoError(t, err)
	pools := newPools(t, Config{ZeroCopy: true}, 2, 4, 1500)
	_, err = l.Port(0).Open(0, newPool(t, 4, 1500))
	require.ErrorContains(t, err, "mem.NewPair")
	_, err = l.Port(0).Open(0, pools[0])
	require.NoError(t, err)
	_, err = l.Port(1).Open(0, pools[0])
	require.EqualError(t, err, want)
	_, err = l.Port(1).Open(0, newPools(t, Config{ZeroCopy: true}, 2, 4, 1500)[1])
	require.EqualError(t, err, want)
	_, err = l.Port(1).Open(0, pools[1])
	require.NoError(t, err)
}
