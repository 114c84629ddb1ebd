package qp

import (
	"runtime/debug"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
)

// The middle of a long message is sent and received several segments at a time: whatever is the
// same for each of them is done once, and each stage's code runs for all before the next one's.

// RunLen is how many segments of size octets PullRun may be asked for: of the message in hand,
// without its end. 0: it is not one for runs.
func (q *Engine) RunLen(size int) int {
	s := &q.send
	f := &s.from
	if !s.seg.Active() || s.carryOff < s.carryEnd || s.term != nil || s.stopped || !s.enabled || s.packFull ||
		f.own != nil || len(f.list) > 0 {
		return 0
	}
	_, rest := s.seg.Rest()
	return int(rest) / size // no segment has so much payload: the last one is not among them
}

// PullRun fills segments in the middle of a message whose octets are one range of memory: as many
// of dst, from the first on, as hold one FPDU of exactly size octets and have no room for another,
// none of them the message's last. It returns how many. What is left, and whatever is wrong, is for
// Pull. RunLen has just allowed it.
func (q *Engine) PullRun(dst [][]byte, size int) int {
	s := &q.send
	f := &s.from
	if len(dst[0])-size >= fpduLenMin { // MULPDU is the most there can be: the end of the message may share a segment
		return 0
	}
	off, rest := s.seg.Rest()
	most := min(rest, uint32(len(dst)*len(dst[0])))
	q.reader.Enter()
	n := 0
	octets, res := q.Table.Check(q.Domain, f.stream, f.first.STag, f.first.Offset+uint64(off), int(most), f.need)
	if res == mem.CheckOK {
		n = q.putRun(dst, size, octets)
	}
	q.reader.Exit()
	return n
}

// runStart is what a run changes, as it was before.
type runStart struct {
	faults bool // debug.SetPanicOnFault
	seg    ddp.Segmenter
	tx     mpa.Sender
}

// putRun writes the FPDUs of PullRun, which has found the next octets of the message. If some of
// these cannot be reached it has written none: Pull comes to them.
func (q *Engine) putRun(dst [][]byte, size int, octets []byte) (n int) {
	s := &q.send
	before := runStart{debug.SetPanicOnFault(true), s.seg, s.tx}
	defer func() {
		debug.SetPanicOnFault(before.faults)
		if q.unreachable(recover()) {
			s.seg, s.tx, n = before.seg, before.tx, 0
			s.forget()
		}
	}()
	emss, payload := len(dst[0]), 0
	for n < len(dst) {
		mulpdu := s.tx.MULPDUHere(emss)
		if s.seg.NextIsLast(mulpdu) || s.tx.Size(s.seg.NextLen(mulpdu)) != size {
			break
		}
		h, _, k := s.seg.Next(mulpdu)
		s.parts = append(s.parts[:1], octets[payload:][:k])
		s.putParts(dst[n], h)
		payload += k
		n++
	}
	s.forget()
	s.fpdus += uint64(n)
	s.payload += uint64(payload)
	s.totals.FPDUsOut += uint64(n)
	s.totals.PayloadOut += uint64(payload)
	return n
}

// ArriveRun is Arrive of segments that continue each other from off, the left edge, on. It ends
// with the first that means something to others than memory: a completion that waits to be
// published, an error, a Buf that is kept or refused. n is how many segments it has taken or, the
// last of them, refused; the Verdict is on that one.
func (q *Engine) ArriveRun(off uint64, bufs []mem.Buf, data [][]byte) (n int, v mpa.Verdict) {
	r := &q.recv
	if r.dead || off != r.edge || q.watch.armed.Load() {
		return 1, q.Arrive(off, bufs[0], data[0])
	}
	q.postBuffers()
	q.reader.Enter()
	n = q.placeRun(off, bufs, data)
	v = r.rx.Verdict()
	q.reader.Exit()
	q.arrived()
	if v == mpa.Refused && r.rx.Short() {
		q.effects |= shortage(true)
	}
	return n, v
}

// placeRun is placeAll for each of the segments of ArriveRun, and returns how many it was for.
func (q *Engine) placeRun(off uint64, bufs []mem.Buf, data [][]byte) (n int) {
	r := &q.recv
	defer q.recoverPlacement(debug.SetPanicOnFault(true))
	for more := true; more; {
		r.rx.Input(off, bufs[n], data[n])
		off += uint64(len(data[n]))
		n++
		for u := r.rx.Next(); u != nil; u = r.rx.Next() {
			q.place(u)
		}
		more = n < len(data) && r.rx.Verdict() == mpa.Done && !q.toldSomething()
	}
	return n
}

// toldSomething says whether the segment that has just arrived means something to others than
// memory.
func (q *Engine) toldSomething() bool {
	r := &q.recv
	return r.batch.n > 0 || q.HasEffects() || !q.send.enabled || q.Source != nil && r.filledWrites != r.writesTold ||
		r.fault != nil || r.terminated || r.ddp.Err() != nil || r.rx.Err() != nil
}
