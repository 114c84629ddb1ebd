package rnic

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// In acknowledged mode messages wait for shared buffers: each buffer that is given goes to one of
// those that wait, of whichever queue pair asks first, and the others go on waiting.
func TestSharedReceiveQueueAcknowledged(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		const pairs, each = 2, 3
		pd := r.server.AllocPD()
		p := newPool(t, pd, 16, 1)
		opt := ackOpts(QPOptions{PD: pd, SRQ: p.SharedReceiveQueue, RecvDepth: 2}, ConnParam{})
		var ss, cs [pairs]*end
		for k := range pairs {
			ss[k], cs[k] = r.connect(opt, ackOpts(QPOptions{}, ConnParam{}))
			ss[k].qp.SetRetry(Retry{Wait: 100 * time.Microsecond, Tries: -1})
		}
		r.tell(cs[1], "a buffer is there")
		got := ss[1].await(1)[0]
		require.Equal(t, "a buffer is there", string(p.octets(got)))

		text := func(k, i int) string { return fmt.Sprintf("message %d of %d", i, k) }
		for k, c := range cs {
			for i := range each {
				at := 32 * i
				copy(c.source.Bytes()[at:], text(k, i))
				c.post(c.send(uint64(i), at, len(text(k, i))))
			}
		}
		r.until("neither has a buffer", func() bool {
			return notReady(r, cs[0]) > 1 && notReady(r, cs[1]) > 1
		})
		var came [pairs]int
		for n := range pairs * each {
			require.Equal(t, n, came[0]+came[1])
			require.NoError(t, p.post(uint64(n)))
			r.until("one message", func() bool {
				for k, s := range ss {
					s.poll()
					for _, c := range s.done {
						require.Equal(t, Success, c.Status)
						require.EqualValues(t, n, c.ID)
						require.Equal(t, text(k, came[k]), string(p.octets(c)))
						came[k]++
					}
					s.done = nil
				}
				return came[0]+came[1] > n
			})
			require.Zero(t, p.Left())
		}
		require.Equal(t, [pairs]int{each, each}, came)
		for k, c := range cs {
			require.Equal(t, []uint64{0, 1, 2}, ids(t, c.await(each)))
			st := r.stats(ss[k].qp)
			require.EqualValues(t, each+k, st.SharedTaken)
			require.Zero(t, st.SharedHeld)
			r.close(ss[k], c)
			require.Zero(t, ss[k].cq.promised())
		}
	})
}

// One that waits for a shared buffer for ever holds up no other: Reads and atomics of its peer wait
// behind the message, those of its own, and all of another queue pair's, go on.
func TestSharedReceiveQueueAcknowledgedGoesOn(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		pd := r.server.AllocPD()
		p := newPool(t, pd, 16, 0)
		conn := ConnParam{IRD: 2, ORD: 2}
		opt := ackOpts(QPOptions{PD: pd, SRQ: p.SharedReceiveQueue}, conn)
		s, c := r.connect(opt, ackOpts(QPOptions{}, conn))
		other, peer := r.connect(opt, ackOpts(QPOptions{}, conn))
		s.qp.SetRetry(Retry{Wait: 100 * time.Microsecond, Tries: -1})
		c.post(c.send(1, 0, 10), c.readFrom(r.readable(s, 4096, RemoteRead), 2, 0, 100))
		r.until("not ready", func() bool { return notReady(r, c) > 0 })
		s.post(s.readFrom(r.readable(c, 4096, RemoteRead), 3, 0, 3000), s.write(c, 4, 0, 100))
		require.Equal(t, []uint64{3, 4}, ids(t, s.await(2)))
		peer.post(peer.write(other, 5, 0, 100),
			peer.readFrom(r.readable(other, 4096, RemoteRead), 6, 0, 9))
		require.Equal(t, []uint64{5, 6}, ids(t, peer.await(2)))
		require.Empty(t, c.done)
		require.NoError(t, p.post(0))
		require.Equal(t, []uint64{1, 2}, ids(t, c.await(2)))
		require.Equal(t, []uint64{0}, ids(t, s.await(1)))
		r.close(s, c)
		r.close(other, peer)
	})
}
