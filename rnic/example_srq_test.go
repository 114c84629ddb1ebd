package rnic_test

import (
	"context"
	"fmt"

	"github.com/rnicd/rnicd/rnic"
)

// A server with one set of receive buffers for all its clients. It sleeps until a client asks for
// its attention (Solicited) or something happens to a QueuePair, and hears when buffers run
// short.
func ExampleAdapter_CreateSRQ() {
	ctx, cancel := deadline()
	defer cancel()
	server, client := open(), open()
	const buffers, clients, size = 8, 2, 64

	pd := server.AllocPD()
	inbox, err := pd.Register(make([]byte, buffers*size), rnic.LocalWrite)
	check(err)
	srq, err := server.CreateSRQ(rnic.SRQOptions{PD: pd, Depth: buffers})
	check(err)
	for i := range buffers {
		_, err = srq.PostRecv(rnic.WorkRequest{ID: uint64(i), Local: inbox.Slice(i*size, size)})
		check(err)
	}
	check(srq.Arm(buffers / 2))
	// the shared buffers, and a Send of each QueuePair's
	cq, err := server.CreateCQ(rnic.CQMinSize(buffers, 1, 1))
	check(err)
	events := server.Events()

	l, err := server.Listen(ctx, "127.0.0.1:0", rnic.ListenOptions{})
	check(err)
	defer l.Close()
	go func() {
		for range clients {
			req, err := l.Accept(ctx)
			check(err)
			qp, err := server.CreateQP(rnic.QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq, SRQ: srq,
				SendDepth: 1})
			check(err)
			check(req.Accept(ctx, qp, rnic.ConnParam{}))
		}
	}()
	for i := range clients {
		say(ctx, client, l.Addr().String(), fmt.Sprintf("client %d", i), 3)
	}

	heard := map[string]int{}
	var done [buffers]rnic.Completion
	for got := 0; got < clients*3; {
		n := cq.Poll(done[:])
		for _, c := range done[:n] {
			heard[string(inbox.Bytes()[c.ID*size:][:c.Len])]++
		}
		if got += n; n > 0 {
			continue
		}
		cq.Arm(rnic.NextSolicited)
		select {
		case <-cq.Ready():
		case <-ctx.Done():
			check(ctx.Err())
		}
	}
	fmt.Println(heard)
	for e := range events {
		if e.Kind == rnic.EventSRQLimit {
			fmt.Println("event:", e.Kind, "with", e.Count, "left")
			break
		}
	}
	check(client.Close(ctx))
	check(server.Close(ctx))
	// Output:
	// map[client 0:3 client 1:3]
	// event: SRQ limit with 3 left
}

// say sends text n times over a connection of its own, the last time with an event.
func say(ctx context.Context, a *rnic.Adapter, addr, text string, n int) {
	pd := a.AllocPD()
	source, err := pd.Register([]byte(text), 0)
	check(err)
	cq, err := a.CreateCQ(n)
	check(err)
	qp, err := a.Dial(ctx, addr, rnic.QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq}, rnic.ConnParam{})
	check(err)
	for i := range n {
		_, err = qp.PostSend(rnic.WorkRequest{Op: rnic.OpSend, Local: source.Slice(0, len(text)),
			Solicited: i == n-1, Signaled: true})
		check(err)
	}
	var done [1]rnic.Completion
	for got := 0; got < n; got += cq.Poll(done[:]) {
		check(cq.Wait(ctx))
	}
	check(qp.Close(ctx))
}
