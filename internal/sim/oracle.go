package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/tcp"
)

// check judges a session that is over and whose completions have all been taken.
func (s *session) check() error {
	for i, p := range s.peers {
		if err := p.check(); err != nil {
			return err
		}
		if i == s.ending.Host && s.frozen != nil && !bytes.Equal(s.frozen, p.region.Bytes()) {
			return fmt.Errorf("%s: octet %d was written after Revoke returned", p.name,
				diffAt(s.frozen, p.region.Bytes()))
		}
	}
	whole := s.whole()
	if whole == nil || s.damaged() || s.excused() {
		return nil
	}
	return whole
}

// whole says what was not as it is when a connection lives until everybody has said everything, or
// nil.
func (s *session) whole() error {
	for _, p := range s.peers {
		switch err := p.qp.Err(); {
		case err != nil:
			return fmt.Errorf("%s: connection ended: %w (the other end: %v; aborted after waiting: %v)",
				p.name, err, p.remote.qp.Err(), s.aborted)
		case p.left > 0 && s.ending.Kind != Shutdown:
			return fmt.Errorf("%s: %d messages were never posted", p.name, p.left)
		}
		if err := errors.Join(p.arrived(), p.checkAsks(true)); err != nil {
			return err
		}
	}
	return nil
}

// arrived says what of the peer's Sends and Writes did not arrive, or nil.
func (p *peer) arrived() error {
	got := p.remote.region.Bytes()
	switch {
	case p.failed || len(p.sends) > 0:
		return fmt.Errorf("%s: %d Sends did not arrive, work failed: %v", p.name, len(p.sends), p.failed)
	case !bytes.Equal(got, p.want):
		return fmt.Errorf("%s: memory differs at octet %d from what was written", p.remote.name,
			diffAt(got, p.want))
	}
	return nil
}

// check holds for every peer whatever became of its connection: its region holds what was written
// or nothing, nothing around it was touched, and each work request was completed once.
func (p *peer) check() error {
	want := p.remote.want
	for i, b := range p.region.Bytes() {
		if b != want[i] && b != 0 {
			return fmt.Errorf("%s: octet %d is %#x; %#x was written, or nothing", p.name, i, b, want[i])
		}
	}
	n := len(p.guarded)
	if k := max(firstNot(p.guarded[:canaryBytes], canary),
		firstNot(p.guarded[n-canaryBytes:], canary)); k >= 0 {
		return fmt.Errorf("%s: octet %d of the guard around the region was written", p.name, k)
	}
	for _, w := range p.pending {
		if w.signaled || p.failed {
			return fmt.Errorf("%s: work request %d was never completed", p.name, w.id-recvIDs)
		}
	}
	if p.pool == nil && p.received+p.flushed != p.recvPosted {
		return fmt.Errorf("%s: %d receives filled and %d flushed of %d", p.name, p.received, p.flushed,
			p.recvPosted)
	}
	return p.checkAsks(false)
}

// timely says what was taken for lost of a path that has lost nothing, however slow a device was,
// or nil. A connection beside others has its turn, and its peer an ACK, before a retransmission
// timer thinks otherwise.
func (r *run) timely() error {
	if !r.lossless() {
		return nil
	}
	for _, h := range r.Hosts {
		if n := h.counters().Memory.Totals; n.Timeouts > 0 {
			return fmt.Errorf("host %v: %d timeouts and %d retransmissions over a path that has "+
				"lost nothing", h.Addr, n.Timeouts, n.Retransmits)
		}
	}
	return nil
}

// lossless says whether nothing has been lost on the way, or refused at its end.
func (r *run) lossless() bool {
	f := r.wl.Faults
	if f.Drop+f.Duplicate+f.Reorder+f.Corrupt+f.Swap+f.Truncate > 0 || len(r.wl.Paths) > 0 || r.cut {
		return false
	}
	for _, h := range r.Hosts {
		rx, tx := h.faulty.Faults()
		n := h.counters()
		if rx.HoldFull+rx.NoBuf+tx.NoBuf+h.path.Did().Full+n.Queue.RxNoBuf+n.TCP[tcp.DropRefused] > 0 {
			return false
		}
	}
	return true
}

// damaged says whether the connection ended, as it may, because of damage that TCP's checksum does
// not show, and that it had.
func (s *session) damaged() bool {
	return s.struck(0) || s.struck(1)
}

// struck is damaged for what one host received.
func (s *session) struck(host int) bool {
	err := s.peers[host].qp.Err()
	if isStartup(err) {
		return s.hurtReady(host)
	}
	if s.survives(host) {
		return false
	}
	if e := damageOf(err); e != nil {
		return s.hurtFPDU(host, e.Offset, fpduReach)
	}
	if errors.Is(err, rnic.ErrStartupTimeout) { // of a Responder that has seen no whole FPDU
		return s.hurtFPDU(host, 0, rtrReach)
	}
	if s.stalled && errors.Is(err, rnic.ErrLinger) && s.mute(host) && s.hurtFPDU(host, 0, rtrReach) {
		return true
	}
	if !s.hurtFPDU(host, 0, math.MaxUint32) {
		return false
	}
	// A ULPDU_Length that says too much makes the FPDU end where nothing comes, or in the next one.
	// An end that waits for Responses or acknowledgements, which will not come, does not get to
	// close its half: it gives up.
	other := s.peers[1-host].qp.Err()
	return errors.Is(err, rnic.ErrPeerClosed) ||
		s.stalled && (s.c.Depth != [2]int{} || s.c.Acknowledged) && (err != nil || other != nil)
}

// survives says whether damage cannot end what the host receives. A TCP that finds the path to
// swallow large segments sends again in smaller ones, which hold parts of frames: "during changes
// in MTU and EMSS [...] it may be necessary to send FPDUs that do not conform to the segmentation
// rule above" (RFC 5044 appendix A.1).
func (s *session) survives(host int) bool {
	sender, err := s.peers[1-host].qp.Stats(context.Background())
	return s.wl.survives(s.c, host) && err == nil && sender.TCP.BlackHoles == 0
}

// isStartup says whether err is what a damaged Ready-to-Receive frame leads to. It has no CRC, so
// nothing can be dropped for it: "If a received "Key" does not match the expected value [...] the
// TCP/DDP connection MUST be closed, and an error returned to the ULP" (RFC 5044 section 7.1.2 rule
// 5), and likewise for its Rev and PD_Length (section 7.1.1).
func isStartup(err error) bool {
	var e *mpa.Error
	return errors.As(err, &e) && e.Code == mpa.ErrStartup
}

// fpduReach is how far after the front of an FPDU something may stand that makes it invalid: no
// FPDU is longer, and no marker can name one further back.
const fpduReach = 1 << 17

// mute says whether a host is a Responder that may not send, because it has seen no whole FPDU. It
// cannot close its half either: what was posted comes before that.
func (s *session) mute(host int) bool {
	stats, err := s.peers[host].qp.Stats(context.Background())
	return err == nil && stats.Receive.FPDUs == 0 && host != s.c.Dialer && s.c.Dialect != rnic.Culley02
}

// rtrReach is how far the ULPDU_Length of the first FPDU (an RTR message's, say), or the marker
// before it, may stand from the front of the stream of FPDUs. Where it says too much the
// Initiator's other FPDUs are its payload; the Initiator runs out of what it may say before the
// peer has answered, which "MUST receive and validate at least one FPDU before sending any FPDUs"
// (RFC 5044 section 7.1.2 rule 4).
const rtrReach = mpa.MarkerLen + mpa.HeaderLen

// damageOf is what MPA found: a bad CRC, or an FPDU that does not begin where a marker or a length
// that was damaged said.
func damageOf(err error) *mpa.Error {
	var t *rnic.TerminateError
	var e *mpa.Error
	if errors.As(err, &t) && !t.Remote && errors.As(err, &e) &&
		(e.Code == mpa.ErrCRC || e.Code == mpa.ErrMarker) {
		return e
	}
	return nil
}
