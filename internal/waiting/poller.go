package waiting

// Step is what a Poller does before its next Turn.
type Step uint8

const (
	Turn  Step = iota // nothing
	Relax             // some PAUSE instructions
	Let               // lets other goroutines run on its thread
	Yield             // gives the core to another thread that wants it
	Nap               // sleeps for Next.Ns
	Doze              // sleeps until its device, its bell or its deadline ends that
)

// Next is a Step and how to do it.
type Next struct {
	Step Step
	Ns   int64 // of a Nap, at most; of a Doze, if it is not 0: a short one that the bell does not end
	// Company says that goroutines use this thread: a Nap or a Doze is to leave it to them.
	Company bool
}

// state is what a Poller has come to since it last found work. A Turn with work leads from each of
// them to busy.
//
//	busy ─── an empty Turn ──► spinning ◄────────┐
//	                              │              │ no yields now, besideNs are not over
//	                              │ spinTurns    │ (not beside a C program)
//	                              ▼              │
//	                           yielding ─────────┤
//	                              │ yieldTurns,  │
//	                              │ or a yield   │
//	             Adaptive, Sleep  │ took longNs  │  Interrupt
//	       napping ◄──────────────┴──────────────┴────────► dozing
//
// An answer that may come soon (reply) holds the Poller where it is, and has it turn at once. Spin
// and Pause stay in spinning.
type state uint8

const (
	busy state = iota
	spinning
	yielding
	napping
	dozing
)

// Poller is the rules by which a Poller waits. Its goroutine alone calls it.
type Poller struct {
	n      *numbers
	policy Policy
	shares bool // goroutines may use its thread
	beside bool // a program that looks at memory waits for it, or for the peer

	state state
	empty int   // Turns in a row without work
	full  int   // Turns with work since goroutines were let run
	since int64 // time of the first of the empty ones
	nap   int64 // the next one's length

	yield, let away
	ran        bool // another thread did in the last yield
	met        int  // times in a row at which a goroutine ran

	reply reply
	bell  bell
	last  int64 // the Turn before, if the Poller has stayed on its core since; else 0
	kept  int64 // it was kept from a Turn not long ago: until when that counts
}

// NewPoller follows policy. sharesThread says that its goroutine has no thread of its own;
// besideProgram that it rings for a C program (stack.Bell).
func NewPoller(policy Policy, sharesThread, besideProgram bool) *Poller {
	return &Poller{n: &standard, policy: policy, shares: sharesThread, beside: besideProgram}
}

// Turned is what a Turn was like.
type Turned struct {
	Now             int64 // when it began
	Work            bool  // it found some
	Arrivals, Asked uint64
	Frames          uint64 // that have ever come
}

// After is called after each Turn.
func (p *Poller) After(t Turned) Next {
	p.back(t.Now)
	if p.beside {
		p.reply.turned(t.Now, t.Arrivals, t.Asked, p.n.replyMaxNs)
	}
	if p.last != 0 && t.Now-p.last >= p.n.longNs {
		p.kept = t.Now + p.n.keptNs
	}
	p.last = t.Now
	next := p.next(&t)
	if next.Step != Turn {
		p.last = 0
	}
	return next
}

// Crowded says that the Poller has to share its core with threads that run.
func (p *Poller) Crowded(now int64) bool { return p.ran || now < p.kept }

// back takes note of how long the core was away.
func (p *Poller) back(now int64) {
	n := p.n
	if took, was := p.let.back(now); was {
		if p.met++; took <= n.letAloneNs {
			p.met = 0
		}
		if took > n.longNs {
			p.let.from = now + min(took, n.awayMaxNs)
		}
	}
	if took, was := p.yield.back(now); was {
		p.ran = took > n.ranNs && (took <= n.longNs || p.policy == Interrupt)
		if took > n.longNs {
			p.yield.from = now + n.longShare*min(took, n.awayMaxNs)
		}
	}
}

// company: once, the Turn may have been slow.
func (p *Poller) company() bool { return p.met > 1 }

func (p *Poller) next(t *Turned) Next {
	if t.Work {
		return p.busy(t.Now)
	}
	if p.policy == Spin || p.reply.soon(t.Now) {
		return Next{}
	}
	if p.empty++; p.empty == 1 {
		p.since, p.nap = t.Now, p.n.napMinNs
	}
	if p.policy == Pause {
		return Next{Step: Relax}
	}
	p.state = p.after(t.Now)
	if p.state != dozing && p.empty%p.n.letEvery == 0 && p.mayLet(t.Now) {
		return Next{Step: Let} // what has just run may have posted something
	}
	switch p.state {
	case yielding:
		p.yield.leave(t.Now)
		return Next{Step: Yield}
	case napping:
		ns := p.nap
		p.nap = min(2*ns, p.n.napMaxNs)
		return Next{Step: Nap, Ns: ns, Company: p.company()}
	case dozing:
		next := Next{Step: Doze, Company: p.company()}
		if p.beside && p.bell.deaf(t, p.n.bellSoonNs) {
			next.Ns = p.n.bellDeafNs
		}
		return next
	}
	return Next{}
}

// busy lets goroutines run now and then.
func (p *Poller) busy(now int64) Next {
	p.state, p.empty = busy, 0
	if p.full++; p.full >= p.n.letBusyEvery {
		p.full = 0
		if p.mayLet(now) {
			return Next{Step: Let}
		}
	}
	return Next{}
}

func (p *Poller) mayLet(now int64) bool {
	if !p.shares || !p.let.may(now) {
		return false
	}
	p.let.leave(now)
	return true
}

// after is the state after one more empty Turn.
func (p *Poller) after(now int64) state {
	if p.empty <= p.n.spinTurns {
		return spinning
	}
	mayYield := p.yield.may(now) && p.policy != Sleep
	switch {
	case mayYield && p.empty <= p.n.spinTurns+p.n.yieldTurns:
		return yielding
	case !mayYield && !p.beside && now-p.since < p.n.besideNs:
		return spinning
	case p.policy == Interrupt:
		return dozing
	}
	return napping
}

// Dozed is called after a Doze. slept: its last look before found no work; rung: its bell was
// rung meanwhile.
func (p *Poller) Dozed(slept, rung bool) {
	p.bell.rung = slept && rung
	if !slept {
		p.state, p.empty = busy, 0
	}
}
