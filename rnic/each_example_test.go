package rnic_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"

	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

// hostAt is an Adapter on a Poller at one end of a cable in memory. each is the application's
// part of every Turn; nil: none.
func hostAt(port *wire.Port, addr string, each func() int) (*rnic.Adapter, *stack.Host) {
	h, err := stack.Open(port, stack.Config{
		// nobody else is on the cable
		Addr: netip.MustParsePrefix(addr), NoDAD: true, OnTurn: each,
	})
	must(err)
	a, err := rnic.Open(rnic.Config{Pollers: h.Pollers})
	must(err)
	return a, h
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// echo sends back what it receives. It runs to completion on its Poller: no second core, no
// goroutine to wake, and an answer leaves in the Turn in which its question came. Only the
// Poller's goroutine touches it once it is serving.
type echo struct {
	qp *rnic.QueuePair
	cq *rnic.CompletionQueue
	mr *rnic.MemoryRegion
	cs [32]rnic.Completion
}

func (e *echo) step() int {
	n := e.cq.Poll(e.cs[:])
	for i := range e.cs[:n] {
		switch c := &e.cs[i]; {
		case c.Status != rnic.Success: // the connection is over
		case c.Op == rnic.OpRecv:
			_, _ = e.qp.PostSend(rnic.WorkRequest{Op: rnic.OpSend, Local: e.mr.Slice(0, int(c.Len)),
				Signaled: true})
		default: // the answer has left, and the octets are ours again
			_, _ = e.qp.PostRecv(rnic.WorkRequest{Local: e.mr.Slice(0, 64)})
		}
	}
	return n
}

// A server whose application runs to completion on the Poller's core (stack.Config.OnTurn).
func Example_runToCompletion() {
	ctx := context.Background()
	connection, err := wire.New(wire.Config{})
	must(err)
	var serving *echo // the Poller's goroutine alone reads and writes it
	server, host := hostAt(connection.Port(0), "192.0.2.1/24", func() int {
		if serving == nil {
			return 0
		}
		return serving.step()
	})
	client, other := hostAt(connection.Port(1), "192.0.2.2/24", nil)
	defer host.Close()
	defer other.Close()

	e := &echo{}
	pd := server.AllocPD()
	e.mr, err = pd.Register(make([]byte, 64), rnic.LocalWrite)
	must(err)
	e.cq, err = server.CreateCQ(8)
	must(err)
	e.qp, err = server.CreateQP(rnic.QPOptions{PD: pd, SendCQ: e.cq, RecvCQ: e.cq})
	must(err)
	_, err = e.qp.PostRecv(rnic.WorkRequest{Local: e.mr.Slice(0, 64)})
	must(err)
	l, err := server.Listen(ctx, ":7174", rnic.ListenOptions{})
	must(err)
	defer l.Close()
	go func() {
		req, err := l.Accept(ctx)
		must(err)
		must(req.Accept(ctx, e.qp, rnic.ConnParam{}))
		must(host.Pollers[0].Submit(func() { serving = e }))
	}()

	cpd := client.AllocPD()
	buf := make([]byte, 64)
	mr, err := cpd.Register(buf, rnic.LocalWrite)
	must(err)
	cq, err := client.CreateCQ(8)
	must(err)
	qp, err := client.Dial(ctx, "192.0.2.1:7174", rnic.QPOptions{PD: cpd, SendCQ: cq, RecvCQ: cq},
		rnic.ConnParam{})
	must(err)
	_, err = qp.PostRecv(rnic.WorkRequest{Local: mr.Slice(32, 32)})
	must(err)
	copy(buf, "hello")
	_, err = qp.PostSend(rnic.WorkRequest{Op: rnic.OpSend, Local: mr.Slice(0, 5)})
	must(err)
	must(cq.Wait(ctx))
	var done [1]rnic.Completion
	for cq.Poll(done[:]) == 0 {
	}
	fmt.Println(done[0].Op, string(buf[32:32+done[0].Len]))
	// Output: Receive hello
}
