package main

import (
	"github.com/rnicd/rnicd/bench/peers/measure"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// serveStream is what an application does that wants octets and a net.Conn: the program at the
// kernel's end, over package stream. It stands in a goroutine beside the Poller, as gVisor's
// program does beside its dispatcher.
func serveStream(o *options, p *stack.Poller, d measure.Direction) outcome {
	l, err := stream.Listen([]*stack.Poller{p}, measure.Port, stream.Options{
		SendBuffer: o.sendBuffer, ReceiveWindow: o.window, ReceiveWindowMax: o.window,
	})
	if err != nil {
		return outcome{err: err}
	}
	defer l.Close()
	ready()
	c, err := l.Accept()
	if err != nil {
		return outcome{err: err}
	}
	r, err := measure.Move(c, d, o.length)
	return outcome{r, err}
}
