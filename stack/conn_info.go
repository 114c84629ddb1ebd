package stack

import (
	"context"
	"net/netip"
	"runtime"
	"sync/atomic"

	"github.com/rnicd/rnicd/tcp"
)

// ConnInfo is a connection as it was at one moment.
type ConnInfo struct {
	Local, Remote netip.AddrPort
	State         string // TCP's
	Recovery      string // what the sender is doing about losses, in Linux's words
	Congestion    string // the algorithm's name
	SoftError     string // trouble that may pass, since the peer acknowledged something
	Waits         bool   // for packet buffers, or for records of sent segments
	TCP           tcp.Stats
}

// Info fills in what is known of c. Poller goroutine.
func (c *Conn) Info(i *ConnInfo) {
	*i = ConnInfo{Local: c.Local(), Remote: c.Remote(), Congestion: c.Congestion(),
		Waits: c.marks&markWaiting != 0, TCP: c.Stats()}
	i.State, i.Recovery = i.TCP.State.String(), i.TCP.Recovery.String()
	if err := c.SoftError(); err != nil {
		i.SoftError = err.Error()
	}
}

// Upper is what stands above c; nil: nothing does, as in TIME-WAIT. Poller goroutine.
func (c *Conn) Upper() Upper {
	if c.phase != phaseOpening && c.phase != phaseOpen {
		return nil
	}
	return c.upper
}

// What EachConn does in one Turn at most.
const (
	eachVisits = 128  // connections that are visited
	eachSlots  = 1024 // slots that are looked at
)

// EachConn calls visit on the Poller's goroutine for every connection, TIME-WAIT included, not
// for half-open ones; between Turns it calls between on the caller's, where what visit has
// collected can be taken over: no visit runs meanwhile. A Turn sees no more than 128 visits of
// one EachConn, so that a Poller with many connections goes on. One that is opened or closed
// meanwhile may be visited or not, none is visited twice.
//
// It returns ctx's error or between's; a Poller that has stopped has no connections. visit must
// neither block nor keep its Conn, and is no longer called when EachConn has returned. Any
// goroutine but the Poller's.
func (p *Poller) EachConn(ctx context.Context, visit func(*Conn), between func() error) error {
	w := &visitor{p: p, visit: visit, stepped: make(chan struct{}, 1)}
	step := w.step
	for !w.done {
		switch err := p.Submit(step); err {
		case nil:
		case ErrBusy:
			if ctx.Err() != nil {
				return ctx.Err()
			}
			runtime.Gosched()
			continue
		default:
			return nil
		}
		select {
		case <-w.stepped:
		case <-ctx.Done():
			if w.state.CompareAndSwap(visitorIdle, visitorGivenUp) {
				return ctx.Err()
			}
			<-w.stepped // it is running, or has run
			return ctx.Err()
		}
		if err := between(); err != nil {
			return err
		}
	}
	return nil
}

const (
	visitorIdle int32 = iota
	visitorRuns
	visitorGivenUp
)

// visitor is one EachConn.
type visitor struct {
	p       *Poller
	visit   func(*Conn)
	at      int    // the next slot
	turn    uint64 // of the last step, plus 1
	done    bool
	state   atomic.Int32
	stepped chan struct{}
}

// step is what one Turn does. Two in one Turn count as one.
func (w *visitor) step() {
	if !w.state.CompareAndSwap(visitorIdle, visitorRuns) {
		return // no caller waits any more
	}
	if turn := w.p.n.Turns + 1; turn != w.turn {
		w.turn = turn
		w.walk()
	}
	w.state.Store(visitorIdle)
	w.stepped <- struct{}{} // there is room: each step is waited for
}

func (w *visitor) walk() {
	conns := w.p.slab.conns
	visits := 0
	for end := min(w.at+eachSlots, len(conns)); w.at < end && visits < eachVisits; w.at++ {
		if c := &conns[w.at]; c.phase != phaseFree {
			w.visit(c)
			visits++
		}
	}
	w.done = w.at == len(conns)
}

// Counts is the part of Stats that is counted.
func (c *Conn) Counts() tcp.Counts { return c.tcp.Counts() }
