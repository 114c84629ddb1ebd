package main

import (
	"time"

	"github.com/rnicd/rnicd/bench/peers/measure"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/stack"
)

// outcome is how a transfer ended.
type outcome struct {
	result measure.Result
	err    error
}

// end is an Upper that does for each octet what an application needs done and no more: one copy
// between the packet and the application's memory, a window on which the stream wraps around.
type end struct {
	conn      *stack.Conn
	memory    []byte
	length    time.Duration // a source sends for so long; 0: a sink
	until     int64         // by the Poller's clock
	octets    uint64
	clock     measure.Clock
	result    measure.Result
	sending   bool
	peerEnded bool
	done      chan outcome // room for one
}

func (e *end) Established() {
	e.clock = measure.Start()
	if e.length > 0 {
		e.sending = true
		e.until = e.conn.Poller().Now() + int64(e.length)
		e.conn.SetTimer(e.until)
		e.conn.Send()
	}
}

func (e *end) Arrive(off uint64, _ []mem.Buf, data [][]byte) (int, stack.Verdict) {
	for _, octets := range data {
		at := int(off % uint64(len(e.memory)))
		n := copy(e.memory[at:], octets)
		copy(e.memory, octets[n:])
		off += uint64(len(octets))
	}
	return len(data), stack.Taken
}

func (e *end) Edge(edge uint64) { e.octets = edge }

func (e *end) Pull(dst [][]byte) stack.Pulled {
	if !e.sending {
		return stack.Pulled{}
	}
	for _, room := range dst {
		at := int(e.octets % uint64(len(e.memory)))
		n := copy(room, e.memory[at:])
		n += copy(room[n:], e.memory)
		e.octets += uint64(n)
	}
	return stack.Pulled{N: len(dst), More: true}
}

// Timer ends a source's time.
func (e *end) Timer(int64) {
	e.sending = false
	e.conn.CloseSend()
}

// PeerClosed is the end of what a sink gets; a source's kernel closes when it has read the source's
// FIN.
func (e *end) PeerClosed() {
	e.peerEnded = true
	e.result = e.clock.Stop(e.octets)
	e.conn.CloseSend()
}

func (e *end) Closed(err error) {
	if !e.peerEnded && err == nil {
		err = stack.ErrAborted
	}
	e.done <- outcome{e.result, err}
}

func (e *end) Acked(uint64)       {}
func (e *end) FinAcked()          {}
func (e *end) Held() (int, int64) { return 0, 0 }
func (e *end) Advice(error)       {}
func (e *end) Woken()             {}
