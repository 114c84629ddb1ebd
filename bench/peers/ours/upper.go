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

func (e *end) Established(c *stack.Conn) {
	e.clock = measure.Start()
	if e.length > 0 {
		e.sending = true
		e.until = c.Poller().Now() + int64(e.length)
		c.SetTimer(e.until)
		c.Send()
	}
}

func (e *end) Arrive(_ *stack.Conn, off uint64, _ mem.Buf, data []byte) stack.Verdict {
	at := int(off % uint64(len(e.memory)))
	n := copy(e.memory[at:], data)
	copy(e.memory, data[n:])
	return stack.Taken
}

func (e *end) Edge(_ *stack.Conn, edge uint64) { e.octets = edge }

func (e *end) Pull(c *stack.Conn, dst []byte) int {
	if !e.sending {
		return 0
	}
	at := int(e.octets % uint64(len(e.memory)))
	n := copy(dst, e.memory[at:])
	n += copy(dst[n:], e.memory)
	e.octets += uint64(n)
	return n
}

func (e *end) More(*stack.Conn) bool   { return e.sending }
func (e *end) Pushed(*stack.Conn) bool { return false }

// Timer ends a source's time.
func (e *end) Timer(c *stack.Conn, _ int64) {
	e.sending = false
	c.CloseSend()
}

// PeerClosed is the end of what a sink gets; a source's kernel closes when it has read the source's
// FIN.
func (e *end) PeerClosed(c *stack.Conn) {
	e.peerEnded = true
	e.result = e.clock.Stop(e.octets)
	c.CloseSend()
}

func (e *end) Closed(_ *stack.Conn, err error) {
	if !e.peerEnded && err == nil {
		err = stack.ErrAborted
	}
	e.done <- outcome{e.result, err}
}

func (e *end) Acked(*stack.Conn, uint64) {}
func (e *end) Woken(*stack.Conn)         {}
