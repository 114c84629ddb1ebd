package rnic

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/rnic/internal/qp"
)

// asking is the options of an end that sends Read Requests, serving of one that answers them.
func asking(ord int) opts  { return connOpts(ConnParam{Dialect: RFC5044, ORD: ord}) }
func serving(ird int) opts { return connOpts(ConnParam{IRD: ird}) }

// readFrom is a Read of n octets at off of m into the same place of e's inbox.
func (e *end) readFrom(m *MemoryRegion, id uint64, off, n int) WorkRequest {
	return WorkRequest{ID: id, Op: OpRead, Local: e.inbox.Slice(off, n), RemoteSTag: m.STag(),
		RemoteOffset: m.Base() + uint64(off), Signaled: true}
}

func (e *end) wordOf(m *MemoryRegion, id uint64, off int) WorkRequest {
	return WorkRequest{ID: id, RemoteSTag: m.STag(), RemoteOffset: m.Base() + uint64(off),
		Signaled: true}
}

// ids are the completions' IDs; all must have succeeded.
func ids(t testing.TB, cs []Completion) (got []uint64) {
	t.Helper()
	for _, c := range cs {
		require.Equal(t, Success, c.Status, "%+v", c)
		got = append(got, c.ID)
	}
	return got
}

// Reads of all sizes, in both directions, more of them than may be outstanding; the sink needs no
// remote right.
//
// req: 5040-5.2.2-3, 5040-5.2.1-7, 5040-5.2.1-6, 5040-5.5-4, 5040-5.5-13, 5040-4.4-3, 5040-5.2.1-4
// req: 5040-5.2.1-5, 5040-5.2.2-2
func TestReads(t *testing.T) {
	for _, depth := range []int{1, 3, 16} {
		over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
			s, c := r.connect(connOpts(ConnParam{IRD: depth, ORD: depth}),
				connOpts(ConnParam{Dialect: RFC6581, IRD: depth, ORD: depth}))
			sizes := []int{1, 0, 7, 1446, 1447, 20000, 3, 64, 65}
			for _, e := range []*end{c, s} { // a Responder may not speak first
				peer := map[*end]*end{s: c, c: s}[e]
				m := r.readable(peer, regionBytes, RemoteRead)
				off := 0
				for i, n := range sizes {
					e.post(e.readFrom(m, uint64(i), off, n))
					off += n
				}
				for i, cm := range e.await(len(sizes)) {
					require.Equal(t, Completion{ID: uint64(i), QP: e.qp.Number(), Op: OpRead,
						Len: uint32(sizes[i])}, cm)
				}
				require.True(t, bytes.Equal(m.Bytes()[:off], e.inbox.Bytes()[:off]))
				require.Equal(t, make([]byte, 100), e.inbox.Bytes()[off:off+100], "nothing after")
			}
			require.EqualValues(t, len(sizes), r.stats(s.qp).ReadsServed)
			r.exchange(s, c)
			r.close(s, c)
		})
	}
}

// peerResponds is a script against an Initiator of ours, RFC 5044 without markers.
func (r *rig) peerResponds(c *end) *peer {
	r.t.Helper()
	p := r.peerAccepts(c)
	p.expectFrame(mpa.Request)
	p.start(mpa.Mode{CRC: true})
	p.write(unhex(r.t, hexRep+"4001 0000"))
	c.expectInService()
	return p
}

// responded is an end of the client's, and a peer that peerResponds.
func (r *rig) responded(opt opts) (*end, *peer) {
	r.t.Helper()
	c := r.newEnd(r.client, opt)
	return c, r.peerResponds(c)
}

// request reads the next Read Request.
func (p *peer) request() rdmap.ReadRequest {
	p.d.t.Helper()
	f := p.nextFPDU()
	require.Equal(p.d.t, messageFPDU(rdmap.OpReadRequest, f.MSN, "").Header, f.Header, "%v", f)
	rr, ok := rdmap.ParseReadRequest(f.payload)
	require.True(p.d.t, ok, "%v", f)
	return rr
}

// answerFPDU is one segment of a Response, from off of the Read on.
func answerFPDU(rr rdmap.ReadRequest, off int, payload string, last bool) fpdu {
	h := rdmap.OpReadResponse.Header(1)
	h.Version, h.Last, h.STag, h.TO = 1, last, rr.SinkSTag, rr.SinkTO+uint64(off)
	return fpdu{h, []byte(payload)}
}

func noMarkers(o opts) opts {
	o.NoMarkers, o.Dialect = true, RFC5044
	return o
}

// At most ORD Requests are outstanding. The next waits for a Response, and later work requests
// wait too. A Read completes when its last segment is delivered, not before.
//
// req: 5040-6.1-3, 5040-5.5-12, 5040-5.2-1
func TestORD(t *testing.T) {
	r, c, p := responded(t, noMarkers(connOpts(ConnParam{ORD: 2})))
	m := r.readable(c, 100, RemoteRead) // any STag will do
	for i := range 10 {
		c.post(c.readFrom(m, uint64(i), 8*i, 8))
	}
	c.post(c.send(10, 0, 4))
	outstanding := []rdmap.ReadRequest{p.request(), p.request()}
	for i := range 10 {
		r.pass(1e9)

		p.expectNothing() // no more than two
		p.inject(answerFPDU(outstanding[i], 0, "1234", false))
		c.expectNoCompletion()
		p.inject(answerFPDU(outstanding[i], 4, "5678", true))
		require.Equal(t, []uint64{uint64(i)}, ids(t, c.await(1)))
		require.Equal(t, "12345678", string(c.inbox.Bytes()[8*i:][:8]))
		if len(outstanding) < 10 {
			outstanding = append(outstanding, p.request())
			if len(outstanding) == 10 {
				require.Equal(t, uint8(0x43), p.nextFPDU().ULP, "the Send")
			}
		}
	}
	require.Equal(t, []uint64{10}, ids(t, c.await(1)))
}

// A work request with Fence begins when all Reads before it were answered; one without goes ahead.
//
// req: 5040-5.5-6
func TestFence(t *testing.T) {
	r, c, p := responded(t, noMarkers(connOpts(ConnParam{ORD: 4})))
	m := r.readable(c, 100, RemoteRead)
	c.post(c.readFrom(m, 1, 0, 4))
	send := WorkRequest{ID: 2, Local: c.source.Slice(0, 4), Signaled: true}
	c.post(as(OpSend, send))
	send.ID, send.Fence, send.Solicited = 3, true, true
	c.post(as(OpSend, send))
	rr := p.request()
	require.Equal(t, uint8(0x43), p.nextFPDU().ULP)
	r.pass(1e9)

	p.expectNothing()
	c.expectNoCompletion() // the Send that went ahead does not complete ahead
	p.inject(answerFPDU(rr, 0, "abcd", true))
	require.Equal(t, uint8(0x45), p.nextFPDU().ULP)
	require.Equal(t, []uint64{1, 2, 3}, ids(t, c.await(3)))
}

// A Response that does not match the oldest Read ends the connection, before placement or at
// delivery. That Read completes as BadResponse, later requests as Flushed.
//
// req: 5040-5.2.2-5, 7306-8.2-1, 7306-5.2.2-1, 5040-7.1-3
func TestBadResponses(t *testing.T) {
	atomic := func(id uint32, n int) func(_ []rdmap.ReadRequest) fpdu {
		return func(_ []rdmap.ReadRequest) fpdu {
			return messageFPDU(rdmap.OpAtomicResponse, 1, binary.BigEndian.AppendUint32(nil, id)[:n])
		}
	}
	for _, tc := range []struct {
		name  string
		cause rdmap.Cause
		say   func(outstanding []rdmap.ReadRequest) fpdu
	}{
		{"another STag", 0x1100, func(a []rdmap.ReadRequest) fpdu {
			a[0].SinkSTag++
			return answerFPDU(a[0], 0, "12345678", true)
		}},
		{"before the sink", 0x1101, func(a []rdmap.ReadRequest) fpdu {
			return answerFPDU(a[0], -1, "1", false)
		}},
		{"after the sink", 0x1101, func(a []rdmap.ReadRequest) fpdu {
			return answerFPDU(a[1], 1, "12345678", true)
		}},
		{"nothing, far away", 0x1101, func(a []rdmap.ReadRequest) fpdu {
			return answerFPDU(a[0], 1<<30, "", true)
		}},
		{"too short", 0x02ff, func(a []rdmap.ReadRequest) fpdu {
			return answerFPDU(a[0], 0, "1234567", true)
		}},
		{"the second's", 0x02ff, func(a []rdmap.ReadRequest) fpdu {
			return answerFPDU(a[1], 0, "12345678", true)
		}},
		{"an atomic's", 0x02ff, atomic(1, 4)},
		{"an empty atomic's", 0x02ff, atomic(1, 0)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, c, p := responded(t, noMarkers(connOpts(ConnParam{ORD: 2})))
			m := r.readable(c, 100, RemoteRead)
			c.post(c.readFrom(m, 1, 0, 8))
			c.post(c.readFrom(m, 2, 8, 8))
			outstanding := []rdmap.ReadRequest{p.request(), p.request()}
			p.inject(tc.say(outstanding))
			p.expectTerminateFor(tc.cause)
			p.ends(c)
			require.Equal(t, []Status{BadResponse, Flushed}, statuses(c.await(2)))
			require.Equal(t, make([]byte, 100), c.inbox.Bytes()[16:116], "after the sinks")
		})
	}
}

// While a Read is unanswered, requests beyond SendDepth wait in the ring, however many the
// application posts. All complete in order after the Response.
func TestManyRequestsAfterAnUnansweredRead(t *testing.T) {
	r, c, p := responded(t, noMarkers(opts{QPOptions{SendDepth: 2}, ConnParam{ORD: 1}}))
	c.post(c.readFrom(c.region, 0, 0, 8))
	outstanding := p.request()
	posted, tries := 1, 0
	r.until("no more go out", func() bool {
		wr := WorkRequest{ID: uint64(posted), Local: c.source.Slice(0, 1), Signaled: true}
		if _, err := c.qp.PostSend(as(OpSend, wr)); err == nil {
			posted++
		} else {
			require.ErrorIs(t, err, ErrSendQueueFull)
		}
		tries++
		return tries == 200
	})
	require.Greater(t, posted, 2)
	require.Zero(t, c.cq.q.Waiting())
	p.inject(answerFPDU(outstanding, 0, "12345678", true))
	for i, id := range ids(t, c.await(posted)) {
		require.EqualValues(t, i, id)
	}
}

// A request that the peer refuses completes with the reason; later requests are flushed, in order.
func TestRemoteStatuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		ird  int
		want Status
		post func(s, c *end, m *MemoryRegion) error
	}{
		{"unknown STag", 4, RemoteAccess, func(s, c *end, m *MemoryRegion) error {
			wr := c.readFrom(m, 2, 0, 8)
			wr.RemoteSTag++
			return errOf(c.qp.PostSend(as(OpRead, wr)))
		}},
		{"right not granted", 4, RemoteAccess, func(s, c *end, m *MemoryRegion) error {
			return errOf(c.qp.PostSend(c.readFrom(s.inbox, 2, 0, 8)))
		}},
		{"atomic past the end", 4, RemoteAccess, func(s, c *end, m *MemoryRegion) error {
			return errOf(c.qp.PostSend(fetchAdd(c.wordOf(m, 2, regionBytes), 1)))
		}},
		{"misaligned", 4, RemoteInvalidRequest, func(s, c *end, m *MemoryRegion) error {
			return errOf(c.qp.PostSend(fetchAdd(c.wordOf(m, 2, 3), 1)))
		}},
		{"not served", 0, RemoteInvalidRequest, func(s, c *end, m *MemoryRegion) error {
			return errOf(c.qp.PostSend(c.readFrom(m, 2, 0, 8)))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, s, c := connected(t, serving(tc.ird), asking(4))
			m := r.readable(s, regionBytes, RemoteRead|RemoteWrite)
			require.NoError(t, tc.post(s, c, m))
			c.post(WorkRequest{Op: OpSend, ID: 3, Local: c.source.Slice(0, 0)})
			c.awaitClosed()
			cs := c.await(2)
			require.Equal(t, [2]uint64{2, 3}, [2]uint64{cs[0].ID, cs[1].ID})
			require.Equal(t, [2]Status{tc.want, Flushed}, [2]Status{cs[0].Status, cs[1].Status})
			require.ErrorAs(t, c.qp.Err(), new(*PeerError))
			require.Zero(t, c.cq.promised())
		})
	}
}

// The sink of a Read must be writable when the Read begins, and when its Response comes.
//
// req: 5042-6.2.2-2
func TestSinks(t *testing.T) {
	r, s, c := connected(t, serving(4), asking(4))
	m := r.readable(s, 100, RemoteRead)
	wr := c.readFrom(m, 1, 0, 8)
	wr.Local = c.source.Slice(0, 8) // cannot be written
	c.post(as(OpRead, wr))
	require.Equal(t, LocalProtection, c.await(1)[0].Status)
	c.expectClosedBy(qp.ErrLocalRange)

	d, p := r.responded(noMarkers(connOpts(ConnParam{ORD: 2})))
	for i := range 2 {
		d.post(d.readFrom(m, uint64(i), 40-20*i, 8))
	}
	rr := p.request()
	p.request()
	require.NotZero(t, rr.SinkTO)
	d.inbox.Revoke()
	p.inject(answerFPDU(rr, 0, "12345678", true))
	p.expectTerminateFor(rdmap.Cause(0x1100))
	p.ends(d)
	require.Equal(t, []Status{LocalProtection, Flushed}, statuses(d.await(2)))
	require.Equal(t, make([]byte, 64), d.inbox.Bytes()[:64])
}

// The peer cannot Write into the sink of an outstanding Read, although the Request carries its
// STag.
func TestSinkIsNoTargetOfWrites(t *testing.T) {
	_, c, p := responded(t, noMarkers(connOpts(ConnParam{ORD: 2})))
	c.post(c.readFrom(c.region, 1, 0, 8))
	rr := p.request()
	p.inject(writeFPDU(mem.STag(rr.SinkSTag), rr.SinkTO, "mischief"))
	p.expectTerminateFor(rdmap.Cause(0x1100))
	p.ends(c)
	require.Equal(t, make([]byte, 8), c.inbox.Bytes()[:8])
}

// A connection of version 0 has no extensions, a connection without ORD no Reads.
//
// req: 7306-4.1-1, 7306-1.1-2
func TestWhatCannotBePosted(t *testing.T) {
	r, s, c := connected(t, serving(2), connOpts(ConnParam{Dialect: RDDP01, ORD: 2}))
	m := r.readable(s, 64, RemoteRead|RemoteWrite)
	require.ErrorIs(t, errOf(c.qp.PostSend(WorkRequest{Op: OpImmediate, Immediate: [8]byte{}})),
		ErrExtension)
	require.ErrorIs(t, errOf(c.qp.PostSend(WorkRequest{Op: OpFetchAdd, Add: 1})), ErrExtension)
	require.ErrorIs(
		t, errOf(c.qp.PostSend(WorkRequest{Op: OpCompareSwap, CompareSwap: CompareSwap{}})), ErrExtension)
	c.post(c.readFrom(m, 1, 0, 64))
	require.Equal(t, []uint64{1}, ids(t, c.await(1)))
	require.ErrorIs(t, errOf(s.qp.PostSend(s.readFrom(m, 1, 0, 64))), ErrReadDepth)
	r.close(s, c)
	require.Zero(t, c.cq.promised())
}

// Close waits for the Reads that were posted before it.
func TestCloseWaitsForReads(t *testing.T) {
	r, s, c := connected(t, serving(2), asking(2))
	m := r.readable(s, regionBytes, RemoteRead)
	for i := range 6 {
		c.post(c.readFrom(m, uint64(i), 10000*i, 10000))
	}
	r.close(s, c)
	require.Equal(t, []uint64{0, 1, 2, 3, 4, 5}, ids(t, c.await(6)))
	require.True(t, bytes.Equal(m.Bytes()[:60000], c.inbox.Bytes()[:60000]))
}

// pair is two operations one after the other, both about one word of the server's that held before.
type pair struct {
	r      *rig
	s, c   *end
	word   *MemoryRegion
	before uint64
	fresh  uint64 // what a Write puts there
}

const (
	pairAdd  = 1 << 32
	pairRead = 64 // where a Read puts the word, in the inbox: by which of the two it is
)

// do posts operation op as the i-th of the pair.
func (p *pair) do(op Opcode, i int, fence bool) error {
	wr := WorkRequest{ID: uint64(i), Signaled: true, Fence: fence, RemoteSTag: p.word.STag(),
		RemoteOffset: p.word.Base()}
	src := p.c.source.Bytes()[8*i:][:8]
	switch op {
	case OpSend:
		wr.Local = p.c.source.Slice(100, 30+i)
		return errOf(p.c.qp.PostSend(as(OpSend, wr)))
	case OpWrite:
		binary.NativeEndian.PutUint64(src, p.fresh+uint64(i))
		wr.Local = p.c.source.Slice(8*i, 8)
		return errOf(p.c.qp.PostSend(as(OpWrite, wr)))
	case OpRead:
		wr.Local = p.c.inbox.Slice(pairRead*(i+1), 8)
		return errOf(p.c.qp.PostSend(as(OpRead, wr)))
	case OpFetchAdd:
		return errOf(p.c.qp.PostSend(fetchAdd(wr, pairAdd)))
	}
	return errOf(p.c.qp.PostSend(immediate(wr, [8]byte{byte(i)})))
}

// now is the word.
func (p *pair) now() uint64 { return binary.NativeEndian.Uint64(p.word.Bytes()) }

// saw is what operation i found, if it is one that looks.
func (p *pair) saw(op Opcode, i int, c *Completion) (uint64, bool) {
	switch op {
	case OpRead:
		return binary.NativeEndian.Uint64(p.c.inbox.Bytes()[pairRead*(i+1):]), true
	case OpFetchAdd:
		return c.Original, true
	}
	return 0, false
}

// after is the word when operation i has been carried out on v.
func (p *pair) after(op Opcode, i int, v uint64) uint64 {
	switch op {
	case OpWrite:
		return p.fresh + uint64(i)
	case OpFetchAdd:
		return v + pairAdd
	}
	return v
}

func tells(op Opcode) bool { return op == OpSend || op == OpImmediate }

// Every pair of operations, over a network that loses and reorders: what the tables of RFC 5040
// (Figure 17) and RFC 7306 (section 7) guarantee of the second. What changes the word after a
// Read is fenced, and a Write after an atomic: there is no guarantee without. The other pairs go
// without.
//
// req: 5040-B-1, 7306-7-1, 5040-5.5-3, 5040-5.5-5, 5040-5.5-9, 7306-5.4-3, 5040-5.5-6
func TestPairs(t *testing.T) {
	ops := []Opcode{OpSend, OpWrite, OpRead, OpFetchAdd, OpImmediate}
	r := newRig(t, turned, rigConfig{faults: true})
	s, c := r.connect(serving(4), asking(4))
	r.faults(fault.Faults{Drop: 0.05, Reorder: 0.2})
	p := &pair{r: r, s: s, c: c, word: r.readable(s, 64, RemoteRead|RemoteWrite|LocalWrite)}
	for round := range 20 {
		for _, first := range ops {
			for _, second := range ops {
				name := fmt.Sprintf("%v, %v, round %d", first, second, round)
				messages := 0
				for i, op := range []Opcode{first, second} {
					if tells(op) {
						messages++
						s.postRecv(s.recvAt(uint64(i), 100*i, 100))
					}
				}
				p.before, p.fresh = p.now(), uint64(round+1)<<40|uint64(first)<<16|uint64(second)<<8
				fence := Opcode(first).IsRequest() && second == OpWrite || first == OpRead &&
					second == OpFetchAdd
				require.NoError(t, p.do(first, 0, false))
				require.NoError(t, p.do(second, 1, fence))
				if second == OpSend && first == OpWrite || second == OpImmediate && first == OpWrite {
					s.await(1)
					messages--
					require.Equal(t, p.fresh, p.now(), name)
				}
				got := s.await(messages)
				for i := range got { // in the order in which they were sent
					require.Equal(t, Success, got[i].Status)
					require.True(t, i == 0 || got[i-1].ID < got[i].ID, name)
				}
				cs := c.await(2)
				require.Equal(t, []uint64{0, 1}, ids(t, cs), name)
				want := p.before
				for i, op := range []Opcode{first, second} {
					if v, looks := p.saw(op, i, &cs[i]); looks {
						require.Equal(t, want, v, name)
					}
					want = p.after(op, i, want)
				}
				if first == OpWrite && second == OpWrite {
					p.settle()
					continue // they overlap: either may be placed last
				}
				p.settle()
				require.Equal(t, want, p.now(), name)
			}
		}
	}
	r.close(s, c)
}

// settle waits until the server has delivered all that was posted: an atomic that adds nothing is
// answered after it.
func (p *pair) settle() {
	p.r.t.Helper()
	wr := WorkRequest{ID: 9, Signaled: true, RemoteSTag: p.word.STag(), RemoteOffset: p.word.Base()}
	p.c.post(fetchAdd(wr, 0))
	require.Equal(p.r.t, []uint64{9}, ids(p.r.t, p.c.await(1)))
}
