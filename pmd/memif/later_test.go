package memif

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/mem"
)

// later is a client that does what it likes to its memory and its descriptors once it has attached.
type later struct {
	fd, bell, waker int
	memory          []byte
	tx, rx          ring
}

const laterPage = 4096

// do is one step: what, and with what.
func (c *later) do(what, with byte) {
	at := int64(with%(rawBytes/laterPage)) * laterPage
	one := make([]byte, 8)
	native.PutUint64(one, 1)
	switch what % 12 {
	case 0: // a frame, of a page
		c.tx.store(c.tx.head(), newDesc(0, 0, 60, uint32(at)))
		c.tx.advance(1)
	case 1: // a buffer
		c.rx.store(c.rx.head(), newDesc(0, 0, 2048, uint32(at)))
		c.rx.advance(1)
	case 2:
		_ = unix.Fallocate(c.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, laterPage)
	case 3:
		_ = unix.Madvise(c.memory[at:][:laterPage], unix.MADV_REMOVE)
	case 4:
		c.memory[at+laterPage-1] = with // made again
	case 5:
		_ = unix.SetNonblock(c.bell, with&1 == 0)
	case 6: // as full as it gets
		_ = unix.SetNonblock(c.bell, true)
		native.PutUint64(one, 1<<64-2)
		_, _ = unix.Write(c.bell, one)
		_ = unix.SetNonblock(c.bell, false)
	case 7:
		_, _ = unix.Preadv2(c.bell, [][]byte{one}, -1, unix.RWF_NOWAIT)
	case 8:
		_ = unix.SetNonblock(c.waker, true)
		_, _ = unix.Write(c.waker, one)
	case 9:
		c.rx.unmaskInterrupts() // it wants to be woken
	case 10:
		c.tx.advance(uint16(with) << 8)
	case 11:
		_ = unix.Ftruncate(c.fd, at)
	}
}

// FuzzLater has a client change its memory and its descriptors' flags while it is attached. Each
// call of the server's queue returns, no Buf is lost, and port and listener can be closed.
func FuzzLater(f *testing.F) {
	f.Add([]byte{0, 2, 2, 2, 0, 2, 1, 3})
	f.Add([]byte{9, 0, 1, 3, 6, 0, 1, 4, 1, 5, 5, 1, 7, 0})
	f.Add([]byte{1, 9, 3, 9, 4, 9, 11, 0, 8, 1, 8, 1})
	f.Add([]byte{2, 0, 0, 5, 10, 255, 1, 5})
	f.Fuzz(func(t *testing.T, script []byte) {
		script = script[:min(len(script), 64)]
		lay := layout{bell: rawEventfd(t), waker: rawEventfd(t)}
		h := newHostile(t, ListenConfig{}, lay)
		server := h.server
		c := &later{h.fd, lay.bell, lay.waker, h.memory, h.tx, h.rx}
		over := make(chan struct{})
		go func() {
			defer close(over)
			q, pool := server.queues[0], server.pools[0]
			in, out := make([]mem.Buf, 8), make([]mem.Buf, 1)
			for ; len(script) >= 2; script = script[2:] {
				c.do(script[0], script[1])
				q.Arm(script[1]&2 == 0)
				pool.FreeN(in[:q.Rx(in)])
				if out[0] = pool.Alloc(); out[0] != mem.NoBuf {
					pool.Desc(out[0]).Len = 60
					q.Tx(out)
					pool.Free(out[0])
				}
			}
			_ = h.conn.Close()
			_ = server.port.Close()
			_ = h.l.Close()
		}()
		select {
		case <-over:
		case <-time.After(patience):
			require.Fail(t, "the queue, or Close, waits for its peer")
		}
		require.Equal(t, server.pools[0].Size(), server.pools[0].Available())
		c.do(7, 0) // or its goroutine stays
	})
}
