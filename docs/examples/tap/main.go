// Command tap opens a TAP and runs two programs over our TCP on it: net/http, and a writer into
// memory over RDMA. The clients are the kernel's end of the TAP. As root:
//
//	go run ./docs/examples/tap
//
// With -wait it goes on until it is interrupted, and answers curl http://10.77.0.1/ too.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/netip"
	"os/signal"
	"syscall"

	"github.com/rnicd/rnicd/pmd/tap"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

func main() {
	wait := flag.Bool("wait", false, "go on serving until interrupted")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	// The device, then all that is ours on it: memory, a Poller for each queue, an address.
	port, err := tap.New(tap.Config{Name: "rnic77", Addr: netip.MustParsePrefix("10.77.0.254/24")})
	check(err)
	host, err := stack.Open(port, stack.Config{Addr: netip.MustParsePrefix("10.77.0.1/24"),
		QuickDAD: true}) // only the kernel is on the link
	check(err)
	check(host.Pollers[0].AwaitAddrs(ctx))

	l, err := stream.Listen(host.Pollers, 80, stream.Options{})
	check(err)
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "hello from %v", host.Pollers[0].Addr())
		}))
	}()
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := web.Get("http://10.77.0.1/") // over the kernel's TCP
	check(err)
	body, err := io.ReadAll(resp.Body)
	check(err)
	check(resp.Body.Close())
	fmt.Printf("%s\n", body)

	dev, err := rnic.Open(rnic.Config{Pollers: host.Pollers})
	check(err)
	fmt.Printf("%q\n", written(ctx, dev))

	if *wait {
		<-ctx.Done()
	}
	check(dev.Close(context.Background())) // Adapters and Listeners, then what they are on
	check(l.Close())
	check(host.Close())
}

// written is what a client over the kernel's sockets has sent to dev.
func written(ctx context.Context, dev *rnic.Adapter) string {
	l, err := dev.Listen(ctx, ":7174", rnic.ListenOptions{})
	check(err)
	defer l.Close()
	client, err := rnic.Open(rnic.Config{})
	check(err)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		end, pd := options(client)
		qp, err := client.Dial(ctx, l.Addr().String(), end, rnic.ConnParam{})
		check(err)
		mr, err := pd.Register([]byte("sent over RDMA"), 0)
		check(err)
		_, err = qp.PostSend(rnic.WorkRequest{Op: rnic.OpSend, Local: mr.Slice(0, mr.Len())})
		check(err)
		check(qp.Close(ctx)) // in order: the peer has it
	}()

	req, err := l.Accept(ctx)
	check(err)
	end, pd := options(dev)
	qp, err := dev.CreateQP(end)
	check(err)
	mr, err := pd.Register(make([]byte, 64), rnic.LocalWrite)
	check(err)
	_, err = qp.PostRecv(rnic.WorkRequest{Local: mr.Slice(0, mr.Len())})
	check(err)
	check(req.Accept(ctx, qp, rnic.ConnParam{}))
	check(end.RecvCQ.Wait(ctx))
	var c [1]rnic.Completion
	end.RecvCQ.Poll(c[:])
	<-sent
	check(client.Close(ctx))
	return string(mr.Bytes()[:c[0].Len])
}

func options(dev *rnic.Adapter) (rnic.QPOptions, *rnic.ProtectionDomain) {
	cq, err := dev.CreateCQ(16)
	check(err)
	pd := dev.AllocPD()
	return rnic.QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq}, pd
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
