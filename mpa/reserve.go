package mpa

// Reserve is what the Receivers of one Pool, of one goroutine, have in common, and the part of the
// Pool that they leave to others.
//
// What waits beyond a gap is refused while fewer than Spare Bufs are free: the peer sends it again,
// and can do without. The next octets in order it cannot do without. Were they refused whenever the
// Pool is short, two hosts that have filled theirs with what they send, each until the other takes
// it, would refuse each other's FPDUs for ever where the path cuts these. So in-order octets of
// frames that are not whole may go below Spare, down to Low, as long as all Receivers together hold
// less than Partial Bufs of such.
type Reserve struct {
	Spare   int // Bufs left free by octets that would have to wait
	Low     int // and by in-order ones
	Partial int // Bufs of in-order ones, beyond which they are as any

	Refusals Refusals // of all of them

	partial int // Bufs that hold them
}

// Refusals count segments that were left to be sent again, as ReceiverStats do for one Receiver.
type Refusals struct{ Budget, CRC, OutOfOrderRuns, Spare, Unverified uint64 }

// refusals are where r counts besides its own.
func (r *Receiver) refusals() *Refusals {
	if r.reserve == nil {
		return &Refusals{}
	}
	return &r.reserve.Refusals
}

// refuses says whether Pool is too short for a segment at off to be held.
func (r *Receiver) refuses(off uint64, data []byte) bool {
	s := r.reserve
	if s == nil || r.pool.Available() >= s.Spare {
		return false
	}
	if r.continues(off) && r.pool.Available() >= s.Low && s.partial < s.Partial {
		return false
	}
	return r.wouldHold(off, data)
}

// continues says whether off is where the next octet in order stands.
func (r *Receiver) continues(off uint64) bool {
	if off == r.next {
		return true
	}
	return len(r.runs) > 0 && r.runs[0].lo == r.next && r.runs[0].hi == off
}

// account brings the Reserve up to date with what the Receiver holds.
func (r *Receiver) account() {
	n := len(r.heldBufs) - r.heldOutOfOrder()
	if r.reserve != nil {
		r.reserve.partial += n - r.partial
	}
	r.partial = n
}
