package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/internal/sim"
)

// numberedWorkload is what a seed draws.
type numberedWorkload struct {
	sim.Config
	Secret  string
	Couples []coupleDraw
}

// coupleDraw is two queue pairs, and what happens to them in the lives that they have.
type coupleDraw struct {
	Kind   coupleKind
	Swap   bool // the first is on the second host
	Rounds []round
}

type coupleKind string

const (
	coupleApart  coupleKind = "two hosts"
	coupleWithin coupleKind = "one process"
	coupleItself coupleKind = "itself"
)

// round is a life of a couple, from RESET to RESET. Its times count from its beginning, which is
// when both ends are through with the one before.
type round struct {
	Kind  roundKind
	Parts [2]part
	Who   int           // the part that goes astray, or ends
	Wrong wrongPeer     // where it goes
	At    time.Duration // when it ends
	// a stranger asks during it, and what was asked before is asked again after it
	Stranger, Replay bool
}

type roundKind string

const (
	roundMeet  roundKind = "meet"          // both connect to each other in time
	roundLate  roundKind = "late"          // one is in RTR when the other has lost patience
	roundStray roundKind = "wrong peer"    // the first connects to nobody that wants it
	roundGone  roundKind = "destroyed"     // the second is destroyed meanwhile
	roundLeft  roundKind = "program ended" // the second's program ends meanwhile
	roundCut   roundKind = "cable cut"     // meanwhile
	roundErr   roundKind = "moved to ERR"  // the second is, meanwhile
)

type wrongPeer string

const (
	wrongNumber wrongPeer = "a number that nobody has"
	wrongPort   wrongPeer = "a port that nobody has"
	wrongHost   wrongPeer = "an address that nobody has"
	wrongTaken  wrongPeer = "a queue pair of others"
)

var wrongPeers = []wrongPeer{wrongNumber, wrongPort, wrongHost, wrongTaken}

// part is what the program of one end does.
type part struct {
	Reset          time.Duration // of the life before
	RTR, RTS, Post time.Duration // the first request is posted at Post
	Gap            time.Duration // between requests
	Recv           time.Duration // receive buffers are posted
	Messages       int           // that it sends
	Timeout        uint          // IBV_QP_TIMEOUT
	Retries        uint          // IBV_QP_RETRY_CNT
	NotReady       uint          // IBV_QP_MIN_RNR_TIMER
}

// patience is how long a request waits for an answer; 0: for ever. It is what timeQP makes of it.
func (p *part) patience() time.Duration {
	if p.Timeout == 0 {
		return 0
	}
	try := 4096 * time.Nanosecond * time.Duration(1<<p.Timeout)
	return max(2*time.Second, try*time.Duration(p.Retries+1))
}

// over is when the first request has waited for so long.
func (p *part) over() time.Duration { return p.Post + p.patience() }

// impatient says that there is such a moment.
func (p *part) impatient() bool { return p.Timeout > 0 && p.Messages > 0 }

// last is when the last request is posted.
func (p *part) last() time.Duration { return p.Post + time.Duration(max(0, p.Messages-1))*p.Gap }

// connects is how long a connection may take from when both ends are in RTR.
func (wl *numberedWorkload) connects() time.Duration {
	if wl.calm() {
		return againLast + 200*time.Millisecond // the next attempt
	}
	return 100 * time.Second
}

// calm says that the network loses nothing.
func (wl *numberedWorkload) calm() bool { return wl.Faults.Drop+wl.Faults.Reorder == 0 }

type numberedDrawer struct{ *rand.Rand }

func (d numberedDrawer) chance(percent int) bool { return d.IntN(100) < percent }

func pickOf[T any](d numberedDrawer, of ...T) T { return of[d.IntN(len(of))] }

// span is a time below limit, to the microsecond.
func (d numberedDrawer) span(limit time.Duration) time.Duration {
	return time.Duration(d.Int64N(int64(limit/time.Microsecond)+1)) * time.Microsecond
}

// drawNumbered draws a seed's workload.
func drawNumbered(seed uint64) *numberedWorkload {
	d := numberedDrawer{rand.New(rand.NewPCG(seed, 0x9a17))}
	wl := &numberedWorkload{}
	wl.Seed, wl.V6, wl.MTU = seed, d.chance(40), pickOf(d, 1500, 1500, 9000)
	if d.chance(30) {
		wl.Secret = "a secret of both programs"
	}
	wl.Faults.Delay = int64(pickOf(d, 0, 0, 20*time.Microsecond, 5*time.Millisecond))
	if d.chance(40) {
		wl.Faults = fault.Faults{Delay: wl.Faults.Delay, Jitter: int64(d.span(2 * time.Millisecond)),
			Drop: pickOf(d, 0.005, 0.03), Reorder: pickOf(d, 0, 0.05), Duplicate: pickOf(d, 0, 0.05)}
	}
	for range 1 + d.IntN(3) {
		c := coupleDraw{Swap: d.chance(50)}
		c.Kind = pickOf(d, coupleApart, coupleApart, coupleApart, coupleWithin, coupleItself)
		for range 1 + d.IntN(3) {
			c.Rounds = append(c.Rounds, d.round(wl, c.Kind))
		}
		wl.Couples = append(wl.Couples, c)
	}
	d.ends(wl)
	return wl
}

// ends draws an end that concerns all, or one couple, in their last round.
func (d numberedDrawer) ends(wl *numberedWorkload) {
	if !d.chance(40) {
		return
	}
	kind := pickOf(d, roundGone, roundErr, roundLeft, roundCut)
	host := d.IntN(2)
	at := 1 + d.span(pickOf(d, 50*time.Millisecond, 2*time.Second, 8*time.Second))
	for i := range wl.Couples {
		c := &wl.Couples[i]
		own := (kind == roundGone || kind == roundErr) && c.Kind != coupleItself
		// all are in their last round when the program ends or the cable is cut
		if all := kind == roundLeft || kind == roundCut; !own && !all || all && c.Kind != coupleApart {
			continue
		}
		r := d.round(wl, c.Kind)
		r.Kind, r.At = kind, at
		if kind == roundLeft { // of one host
			r.Who = host
			if c.Swap {
				r.Who = 1 - host
			}
		}
		for k := range r.Parts {
			p := &r.Parts[k]
			p.Messages = max(1, p.Messages)
			p.Timeout, p.Retries = pickOf[uint](d, 1, 18, 19), uint(d.IntN(4))
		}
		c.Rounds = append(c.Rounds, r)
		if own && d.chance(50) {
			return
		}
	}
}

// round draws one of those after which another may come.
func (d numberedDrawer) round(wl *numberedWorkload, kind coupleKind) round {
	for {
		r := round{Kind: pickOf(d, roundMeet, roundMeet, roundMeet, roundMeet, roundLate, roundStray),
			Who: d.IntN(2), Stranger: d.chance(25), Replay: d.chance(50)}
		if kind == coupleItself && r.Kind == roundLate {
			r.Kind = roundMeet
		}
		r.Wrong = pickOf(d, wrongPeers...)
		apart := pickOf(d, 0, 0, 10*time.Microsecond, 3*time.Millisecond, 700*time.Millisecond,
			4*time.Second, requestWait+3*time.Second, 12*time.Second)
		for k := range r.Parts {
			r.Parts[k] = d.part(wl, apart)
		}
		if d.chance(15) { // both ends at once
			p, by := &r.Parts[1], r.Parts[0].RTR-r.Parts[1].RTR
			p.Reset, p.RTR, p.RTS = r.Parts[0].Reset, p.RTR+by, p.RTS+by
			p.Post, p.Recv = p.Post+by, p.Recv+by
		}
		if kind == coupleItself {
			r.Parts[1] = r.Parts[0]
		}
		if r.clear(wl) {
			return r
		}
	}
}

func (d numberedDrawer) part(wl *numberedWorkload, apart time.Duration) part {
	p := part{Messages: pickOf(d, 0, 1, 1, 3, 8),
		Gap:   pickOf(d, 0, time.Millisecond, 300*time.Millisecond),
		Reset: d.span(pickOf(d, 0, time.Millisecond, time.Second, requestWait+2*time.Second))}
	p.RTR = p.Reset + d.span(apart)
	p.RTS = p.RTR + d.span(pickOf(d, 0, 10*time.Microsecond, 10*time.Millisecond))
	p.Post = p.RTS + d.span(pickOf(d, 0, 10*time.Microsecond, time.Second))
	p.Recv = p.RTR + d.span(pickOf(d, 0, 0, 5*time.Millisecond, time.Second))
	p.Timeout, p.Retries = pickOf[uint](d, 0, 0, 1, 18, 19, 20), uint(d.IntN(8))
	p.NotReady = pickOf[uint](d, 14, 20, 26)
	if !wl.calm() && d.chance(80) {
		p.Timeout = 0
	}
	return p
}

// both is when both ends are in RTR.
func (r *round) both() time.Duration { return max(r.Parts[0].RTR, r.Parts[1].RTR) }

// ends says whether it is the last one of its couple.
func (r *round) ends() bool { return r.At > 0 }

// clear says whether the round's end is sure: not by a race of a handshake with patience.
func (r *round) clear(wl *numberedWorkload) bool {
	both := r.both()
	impatient := slices.ContainsFunc(r.Parts[:], func(p part) bool { return p.impatient() })
	switch r.Kind {
	case roundMeet:
		for _, p := range r.Parts {
			// A message waits for its receive buffer, and in a lossy network for TCP.
			if p.impatient() && (p.over() < both+wl.connects()+2*time.Second || !wl.calm()) {
				return false
			}
		}
	case roundLate:
		first := time.Duration(-1)
		for _, p := range r.Parts {
			if p.impatient() && (first < 0 || p.over() < first) {
				first = p.over()
			}
		}
		return impatient && first < both-10*time.Millisecond
	}
	return true
}

func (wl *numberedWorkload) String() string {
	text := fmt.Sprintf("seed %d, IPv6 %v, MTU %d, secret %v, faults %+v", wl.Seed, wl.V6, wl.MTU,
		wl.Secret != "", wl.Faults)
	for i, c := range wl.Couples {
		text += fmt.Sprintf("\ncouple %d, %s, swapped %v", i, c.Kind, c.Swap)
		for k, r := range c.Rounds {
			text += fmt.Sprintf("\n  round %d: %s (%s), part %d at %v, stranger %v, replay %v\n    %+v\n    %+v",
				k, r.Kind, r.Wrong, r.Who, r.At, r.Stranger, r.Replay, r.Parts[0], r.Parts[1])
		}
	}
	return text
}
