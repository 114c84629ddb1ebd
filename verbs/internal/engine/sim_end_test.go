package engine

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// couple is two queue pairs, or one that is connected to itself.
type couple struct {
	*coupleDraw
	n     *numbered
	index int
	ends  []*end
}

// end is a queue pair with what its program knows of it.
type end struct {
	*udEnd
	q       *qp
	n       *numbered
	c       *couple
	index   int // of the couple's ends
	host    *process
	name    name
	base    int // of its messages in the program's memory
	again   bool
	polling sync.Mutex
	over    atomic.Bool // it is through with the round
	tally
}

// tally is what came of a round so far.
type tally struct {
	round     int
	begin     int64
	requests  []int64 // when each request was
	awaited   int
	sent, got []done
}

// done is a completion, and when it came.
type done struct {
	status rnic.Status
	at     int64
}

// Messages are all of a size, each in a slot of its own.
const (
	messageLen  = 96
	messagesMax = 8
)

// newCouple makes the queue pairs.
func (n *numbered) newCouple(index int) *couple {
	c := &couple{coupleDraw: &n.wl.Couples[index], n: n, index: index}
	for k := range 2 {
		p := n.hosts[k]
		if c.Kind != coupleApart {
			p = n.hosts[0]
		}
		if c.Swap && c.Kind == coupleApart {
			p = n.hosts[1-k]
		} else if c.Swap {
			p = n.hosts[1]
		}
		e := &end{n: n, c: c, index: k, host: p, base: p.used}
		p.used += 2 * messagesMax * messageLen
		e.udEnd, e.q = p.newNumbered()
		e.name = name{p.gid, e.number}
		if c.ends = append(c.ends, e); c.Kind == coupleItself {
			break
		}
	}
	return c
}

// other is the couple's other end.
func (e *end) other() *end { return e.c.ends[len(e.c.ends)-1-e.index] }

func (e *end) part() *part { return &e.draw().Parts[e.index] }

func (e *end) draw() *round { return &e.c.Rounds[e.round] }

// outbound and inbound are the slots of message i.
func (e *end) outbound(i int) []byte { return e.host.memory[e.base+i*messageLen:][:messageLen] }
func (e *end) inbound(i int) []byte {
	return e.host.memory[e.base+(messagesMax+i)*messageLen:][:messageLen]
}

// message is what the end sends as message i of its round.
func (e *end) message(i int) []byte {
	b := make([]byte, messageLen)
	r := rand.NewChaCha8([32]byte{byte(e.c.index), byte(e.index), byte(e.round), byte(i), 1})
	_, _ = r.Read(b)
	return b
}

// call makes a control call.
func (e *end) call(op uint32, data []byte, args ...uint64) {
	if _, err := e.p.call(op, data, append([]uint64{e.handle}, args...)...); err != 0 {
		e.n.fail("%v: call %d: %v", e, op, err)
	}
}

func (e *end) String() string {
	return fmt.Sprintf("couple %d, end %d, 0x%06x, round %d", e.c.index, e.index, e.number, e.round)
}

// step is something that the program does at a time of the round.
type step struct {
	at time.Duration
	do func()
}

// steps are those of the round, in order.
func (e *end) steps() []step {
	p := e.part()
	all := []step{{p.Reset, e.restart}}
	if d := e.draw(); d.Kind == roundStray && e.index != d.Who && len(e.c.ends) > 1 {
		return all
	}
	all = append(all, step{p.RTR, e.ready}, step{p.RTS, e.patient}, step{p.Recv, e.postBuffers})
	for i := range p.Messages {
		all = append(all, step{p.Post + time.Duration(i)*p.Gap, func() { e.postMessage(i) }})
	}
	return all
}

// restart moves the queue pair to RESET, for its next life.
func (e *end) restart() {
	if !e.again {
		e.again = true
		return
	}
	e.call(ring.ResetQP, nil)
	e.polling.Lock()
	defer e.polling.Unlock()
	e.restarted()
}

// ready is the move to RTR.
func (e *end) ready() {
	peer := e.peer()
	e.call(ring.ConnectQP, append(e.host.gid[:], peer.gid[:]...), uint64(peer.number), 4)
}

// peer is who the program connects the queue pair to.
func (e *end) peer() name {
	d, other := e.draw(), e.other().name
	if d.Kind != roundStray {
		return other
	}
	switch d.Wrong {
	case wrongNumber:
		other.number ^= 0x800
	case wrongPort:
		other.number ^= 0x10 << numberBits
	case wrongHost:
		other.gid[15] ^= 0x40
	case wrongTaken:
		if e.c.index > 0 || len(e.n.pairs) == 1 { // or two could go astray to each other
			other.number ^= 0x800
			break
		}
		at := e.n.pairs[1]
		other = at.ends[len(at.ends)-1].name
	}
	return other
}

// patient is the move to RTS.
func (e *end) patient() {
	p := e.part()
	e.call(ring.TimeQP, nil, uint64(p.Timeout), uint64(p.Retries), forEver,
		uint64(p.NotReady), 1)
}

// postBuffers posts a buffer for each message that is to come.
func (e *end) postBuffers() {
	e.awaited = e.draw().Parts[e.other().index].Messages
	for i := range e.awaited {
		clear(e.inbound(i))
		e.udEnd.recv(uint64(i), e.p.sge(e.base+(messagesMax+i)*messageLen, messageLen))
	}
	if atomic.LoadUint32(&e.rq.Over) != 0 {
		e.p.ring(e.udEnd)
	}
}

func (e *end) postMessage(i int) {
	copy(e.outbound(i), e.message(i))
	e.requests = append(e.requests, e.n.Now())
	e.send(wq.WQE{ID: uint64(i), Op: wq.OpSend, Flags: wq.FlagSignaled,
		Local: e.p.sge(e.base+i*messageLen, messageLen)})
}

// drain takes what has completed.
func (e *end) drain() {
	e.polling.Lock()
	defer e.polling.Unlock()
	for {
		slot := &e.done[int(e.polled)%len(e.done)]
		if !wq.There(slot, e.polled) {
			return
		}
		c := *slot
		e.polled++
		atomic.StoreUint32(&e.cq.Head, e.polled)
		e.complete(&c)
	}
}

// run plays the couple's rounds from one to another.
func (c *couple) run(from, to int) {
	for i := from; i < to && c.n.err() == nil; i++ {
		for _, e := range c.ends {
			e.tally = tally{round: i, begin: c.n.Now()}
			e.over.Store(false)
		}
		var ends sync.WaitGroup
		for _, e := range c.ends {
			ends.Go(e.play)
		}
		if c.Rounds[i].Stranger {
			ends.Go(c.stranger)
		}
		ends.Wait()
		if c.Rounds[i].Kind == roundMeet && c.n.err() == nil {
			for _, e := range c.ends {
				e.once()
			}
			if c.Rounds[i].Replay {
				c.replay()
			}
		}
	}
}

// play does the round, and returns when the end is through with it.
func (e *end) play() {
	begin, d, steps := e.begin, e.draw(), e.steps()
	dies := d.ends() && d.Kind != roundCut && e.index == d.Who
	for len(steps) > 0 {
		next := 0
		for i := range steps { // of those at one time the first
			if steps[i].at < steps[next].at {
				next = i
			}
		}
		s := steps[next]
		steps = append(steps[:next], steps[next+1:]...)
		if dies && s.at >= d.At {
			break
		}
		if e.wait(begin+int64(s.at), func() bool { return false }); e.n.err() != nil {
			return
		}
		s.do()
	}
	if dies {
		e.wait(begin+int64(d.At), func() bool { return false })
		e.die()
		return
	}
	e.judge()
}

// wait is the world's until, and takes what completes meanwhile.
func (e *end) wait(at int64, cond func() bool) bool {
	return e.n.until(at, func() bool {
		e.drain()
		return cond()
	})
}

// die ends the end.
func (e *end) die() {
	switch e.draw().Kind {
	case roundGone:
		e.destroy()
	case roundErr:
		e.call(ring.AbortQP, nil)
		e.flushed()
	case roundLeft: // the world ends the program
	}
}

// destroy destroys the queue pair, if it is still there.
func (e *end) destroy() {
	if e.handle == 0 {
		return
	}
	e.call(ring.DestroyQP, nil)
	e.handle = 0
	e.n.until(e.n.Now()+int64(2*lingerMax), func() bool { return len(e.q.way.ends()) == 0 })
}
