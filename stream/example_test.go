package stream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/netip"
	"syscall"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// poller runs a Poller at one end of a cable in memory. A program would give it a port of pmd/dpdk
// or pmd/tap, and a core of its own.
func poller(port *wire.Port, addr string) *stack.Poller {
	const bufs, stride = 1024, 2048
	pool, err := mem.NewPool(hugepages.Heap(bufs*stride+4096),
		mem.PoolConfig{Bufs: bufs, Stride: stride})
	if err != nil {
		log.Fatal(err)
	}
	queue, err := port.Open(0, pool)
	if err != nil {
		log.Fatal(err)
	}
	p, err := stack.New(stack.Config{
		Name: port.Name(), Queue: queue, Pool: pool, Caps: port.Caps(), MAC: stack.MAC(port.MAC()),
		Addr: netip.MustParsePrefix(addr), NoDAD: true, Core: -1, // nobody else is on the cable
	})
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = p.Run(context.Background()) }()
	return p
}

// One goroutine serves any number of connections: the hook names those at which it is worth
// looking.
func ExampleConn_SetNotify() {
	link, err := wire.New(wire.Config{})
	if err != nil {
		log.Fatal(err)
	}
	server := poller(link.Port(0), "192.0.2.1/24")
	client := poller(link.Port(1), "192.0.2.2/24")
	defer server.Stop()
	defer client.Stop()
	l, err := stream.Listen([]*stack.Poller{server}, 7, stream.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()

	const conns = 3
	ready := make(chan *stream.Conn, 2*conns) // never full
	go func() {                               // dials, one after the other
		dialer := &stream.Dialer{Pollers: []*stack.Poller{client}}
		for i := range conns {
			c, err := dialer.Dial("tcp", "192.0.2.1:7")
			if err != nil {
				log.Fatal(err)
			}
			fmt.Fprintf(c, "hello from client %d", i)
			c.Close()
		}
	}()
	for range conns {
		c, err := l.AcceptStream()
		if err != nil {
			log.Fatal(err)
		}
		c.SetNotify(func(stream.Readiness) { ready <- c })
		ready <- c // a first look
	}
	buf, octets := make([]byte, 4096), 0
	for open := conns; open > 0; {
		c := <-ready
		n, err := c.TryRead(buf)
		for ; err == nil; n, err = c.TryRead(buf) {
			octets += n
		}
		if errors.Is(err, syscall.EAGAIN) { // the hook is armed
			continue
		}
		c.Close() // io.EOF
		open--
	}
	fmt.Println(octets, "octets")
	// Output: 57 octets
}

// net/http over the userspace stack: the Listener serves, the Dialer fetches.
func Example() {
	link, err := wire.New(wire.Config{})
	if err != nil {
		log.Fatal(err)
	}
	server := poller(link.Port(0), "192.0.2.1/24")
	client := poller(link.Port(1), "192.0.2.2/24")
	defer server.Stop()
	defer client.Stop()

	l, err := stream.Listen([]*stack.Poller{server}, 80, stream.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "hello, %s", r.URL.Path[1:])
		}))
	}()

	dialer := &stream.Dialer{Pollers: []*stack.Poller{client}}
	web := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}}
	resp, err := web.Get("http://192.0.2.1/world")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(body))
	// Output: hello, world
}
