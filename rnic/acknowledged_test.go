package rnic

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ackOpts are those of an end in acknowledged mode.
func ackOpts(o QPOptions, c ConnParam) opts {
	c.Acknowledged = true
	return opts{o, c}
}

// In acknowledged mode a Write that has completed is in the peer's memory, and a Send in its
// buffer, over both transports, whoever began the connection, with and without an RTR message.
func TestCompletedMeansPlaced(t *testing.T) {
	for _, peerToPeer := range []bool{false, true} {
		over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
			opt := ackOpts(QPOptions{SendDepth: 64, RecvDepth: 64}, ConnParam{PeerToPeer: peerToPeer,
				IRD: 4, ORD: 4})
			s, c := r.connect(opt, opt)
			const n = 5000
			for i, x := range [][2]*end{{c, s}, {s, c}, {c, s}} {
				from, to := x[0], x[1]
				to.postRecv(to.recvAt(9, i*n, n))
				from.post(from.send(1, 200, n))
				from.post(from.write(to, 2, i*n, n))
				from.expectCompletions(Completion{ID: 1, Len: n, Op: OpSend},
					Completion{ID: 2, Len: n, Op: OpWrite})
				require.True(t, unordered(from.source.Bytes()[i*n:i*n+n], to.region.Bytes()[i*n:i*n+n]))
				require.True(t, unordered(from.source.Bytes()[200:200+n], to.inbox.Bytes()[i*n:i*n+n]))
				to.expectCompletions(Completion{ID: 9, Len: n, Op: OpRecv})
			}
			r.close(s, c)
			require.Zero(t, c.cq.promised(), "promised entries of the client's queue")
		})
	}
}

// unordered says whether a and b are equal. What orders it after the peer's placement has gone over
// a socket, which the race detector does not see.
//
//go:norace
func unordered(a, b []byte) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

// Messages wait for a receiver that is late, over both transports, also those that are left when
// their queue pair closes the connection.
func TestLateReceiver(t *testing.T) {
	for _, closes := range []bool{false, true} {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			opt := ackOpts(QPOptions{}, ConnParam{PeerToPeer: closes, IRD: 1, ORD: 1})
			s, c := r.connect(opt, opt)
			s.qp.SetRetry(Retry{Wait: time.Millisecond, Tries: -1})
			c.post(c.send(1, 0, 100), c.send(2, 100, 3000))
			r.until("not ready", func() bool { return notReady(r, c) >= 2 })
			require.Empty(t, c.done)
			if closes {
				c.qp.Disconnect()
				before := notReady(r, c)
				r.until("again", func() bool { return notReady(r, c) >= before+2 })
			}
			s.postRecv(s.recvAt(11, 0, 100), s.recvAt(12, 100, 3000))
			s.expectCompletions(Completion{ID: 11, Len: 100, Op: OpRecv},
				Completion{ID: 12, Len: 3000, Op: OpRecv})
			c.expectCompletions(Completion{ID: 1, Len: 100, Op: OpSend},
				Completion{ID: 2, Len: 3000, Op: OpSend})
			require.True(t, bytes.Equal(c.source.Bytes()[:3100], s.inbox.Bytes()[:3100]))
			r.close(s, c)
		})
	}
}

// notReady is how often e's peer was not ready.
func notReady(r *rig, e *end) uint64 {
	st := must(e.qp.Stats(r.ctx))
	return st.NotReadyRecvd
}

// What was carried out before the end succeeds; the oldest request that was not says why, be it the
// peer that ended the connection or refused a Write, or an error of this end's own; the others are
// flushed.
func TestStatusesAtTheEnd(t *testing.T) {
	unanswered := func(leave func(*QueuePair)) func(r *rig, s, c *end) {
		return func(r *rig, s, c *end) {
			c.post(c.write(s, 1, 0, 100), c.send(2, 0, 100), c.send(3, 0, 100))
			r.until("not ready", func() bool { return notReady(r, c) > 0 })
			leave(s.qp)
		}
	}
	ownError := func(n int) func(r *rig, s, c *end) {
		return func(_ *rig, s, c *end) {
			bad := c.write(s, 2, 0, n)
			bad.Local.STag ^= 1 << 8
			c.post(c.write(s, 1, 0, 5000), bad, c.write(s, 3, 0, 100))
		}
	}
	for name, tc := range map[string]struct {
		do   func(r *rig, s, c *end)
		want Status
	}{
		"reset":  {unanswered((*QueuePair).Abort), RetryExceeded},
		"closed": {unanswered((*QueuePair).Disconnect), RetryExceeded},
		"refused": {func(_ *rig, s, c *end) {
			bad := c.write(s, 2, 0, 100)
			bad.RemoteSTag ^= 1 << 8
			c.post(c.write(s, 1, 0, 100), bad, c.write(s, 3, 0, 100))
		}, RemoteAccess},
		"own error, short": {ownError(10), LocalProtection},
		"own error, long":  {ownError(4000), LocalProtection},
	} {
		t.Run(name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				opt := ackOpts(QPOptions{}, ConnParam{})
				s, c := r.connect(opt, opt)
				tc.do(r, s, c)
				require.Equal(t, []Status{Success, tc.want, Flushed}, statuses(c.await(3)))
				awaitClosed(c, s)
				require.Error(t, c.qp.Err())
			})
		})
	}
}

// A queue pair has acknowledged what it has received, however it ends: in order, by a reset, or by
// an error of its own.
func TestAcknowledgedBeforeTheEnd(t *testing.T) {
	for name, end := range map[string]func(s *end){
		"in order": func(s *end) { s.qp.Disconnect() },
		"reset":    func(s *end) { s.qp.Abort() },
		"reset, again": func(s *end) {
			s.qp.Abort()
			s.qp.Abort()
		},
		"own error": func(s *end) {
			bad := s.send(2, 0, 100)
			bad.Local.STag ^= 1 << 8
			s.post(bad)
		},
	} {
		t.Run(name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				opt := ackOpts(QPOptions{}, ConnParam{})
				for range 20 {
					s, c := r.connect(opt, opt)
					s.postRecv(s.recvAt(9, 0, 100))
					c.post(c.send(1, 0, 100))
					s.await(1)
					end(s)
					require.Equal(t, []Status{Success}, statuses(c.await(1)))
					c.qp.Disconnect()
					r.untilDone(c.qp)
					r.untilDone(s.qp)
				}
			})
		})
	}
}

// So it has where what it has sent itself fills the peer's window, behind which the acknowledgement
// stands. Nothing is received after the last of them.
func TestAcknowledgedBehindAFullWindow(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		opt := ackOpts(QPOptions{SendDepth: 64, RecvDepth: 64}, ConnParam{})
		for i := range 20 {
			s, c := r.connect(opt, opt)
			for _, e := range []*end{s, c} {
				for id := range uint64(60) {
					e.postRecv(e.recvAt(id, 0, 4000))
					e.post(e.send(id, 0, 4000))
				}
			}
			received := func() int { return succeeded(s, OpRecv) }
			r.until("some", func() bool { return received() > 2*i })
			s.qp.Abort()
			r.untilDone(s.qp)
			r.untilDone(c.qp)
			require.Equal(t, received(), succeeded(c, OpSend))
		}
	})
}

// succeeded is how many of e's requests of a kind have succeeded.
func succeeded(e *end, op Opcode) (n int) {
	e.poll()
	for _, c := range e.done {
		if c.Op == op && c.Status == Success {
			n++
		}
	}
	return n
}

// In acknowledged mode the peer answers what it was asked for before a request that it refuses:
// only that one fails, and what comes after it is flushed.
func TestAnsweredBeforeTheEnd(t *testing.T) {
	for name, of := range map[string]func(c *end, m *MemoryRegion) WorkRequest{
		"Read": func(c *end, m *MemoryRegion) WorkRequest { return c.readFrom(m, 3, 0, 100) },
		"Write": func(c *end, m *MemoryRegion) WorkRequest {
			return WorkRequest{ID: 3, Op: OpWrite, Local: c.source.Slice(0, 100), Signaled: true,
				RemoteSTag: m.STag()}
		},
		"Atomic": func(c *end, m *MemoryRegion) WorkRequest { return fetchAdd(c.wordOf(m, 3, 0), 1) },
	} {
		t.Run(name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				opt := ackOpts(QPOptions{}, ConnParam{PeerToPeer: true, IRD: 4, ORD: 4})
				for range 20 {
					s, c := r.connect(opt, opt)
					m := r.tied(s, bytes.Repeat([]byte("read"), 1000), RemoteRead)
					refused := of(c, m)
					refused.RemoteSTag ^= 1 << 8
					c.post(c.readFrom(m, 1, 0, 3000), c.readFrom(m, 2, 3000, 1000), refused,
						c.readFrom(m, 4, 0, 10))
					require.Equal(t, []Status{Success, Success, RemoteAccess, Flushed},
						statuses(c.await(4)))
					require.Equal(t, m.Bytes(), c.inbox.Bytes()[:4000])
					r.untilDone(c.qp)
					r.untilDone(s.qp)
				}
			})
		})
	}
}

// A peer that takes what it is sent and never acknowledges it is given up, although its TCP answers
// and it goes on sending.
func TestNeverAcknowledges(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		c := r.newEnd(r.client, ackOpts(QPOptions{}, ConnParam{}))
		p := r.peerResponds(c)
		const wait = 40 * time.Millisecond
		c.qp.SetRetry(Retry{Tries: -1, Unanswered: wait})
		c.post(c.send(1, 0, 100), c.send(2, 0, 100))
		calls := 0
		r.until("the end", func() bool {
			if calls++; calls%256 == 0 && p.ended() == nil {
				p.inject(writeFPDU(0, 0, ""))
			}
			return isDone(c.qp)
		})
		require.ErrorIs(t, c.qp.Err(), ErrNoAnswer)
		require.Equal(t, []Status{RetryExceeded, Flushed}, statuses(c.await(2)))
	})
}

// Two ends that may are in acknowledged mode, over all transports, and say so; with one that may
// not they are as ever, and nothing else differs.
func TestMayAcknowledge(t *testing.T) {
	for _, x := range []struct{ server, client bool }{
		{true, true}, {true, false}, {false, true},
	} {
		over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
			may := func(yes bool) opts {
				return opts{QPOptions{}, ConnParam{PeerToPeer: true, IRD: 1, ORD: 1, MayAcknowledge: yes}}
			}
			s, c := r.connect(may(x.server), may(x.client))
			both := x.server && x.client
			require.Equal(t, both, s.qp.Startup().Acknowledged)
			require.Equal(t, both, c.qp.Startup().Acknowledged)
			if both { // the message waits
				c.post(c.send(1, 0, 100))
				r.until("not ready", func() bool { return notReady(r, c) >= 2 })
				require.Empty(t, c.done)
				s.postRecv(s.recvAt(11, 0, 100))
			} else {
				s.postRecv(s.recvAt(11, 0, 100))
				c.post(c.send(1, 0, 100))
			}
			s.expectCompletions(Completion{ID: 11, Len: 100, Op: OpRecv})
			c.expectCompletions(Completion{ID: 1, Len: 100, Op: OpSend})
			r.close(s, c)
		})
	}
}
