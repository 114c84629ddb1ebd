package stream_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/netip"
	"syscall"

	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// host runs a Poller at one end of a cable in memory. A program would give it a port of pmd/tap
// (docs/examples/tap) or pmd/dpdk.
func host(port *wire.Port, addr string) *stack.Host {
	h, err := stack.Open(port, stack.Config{
		Addr: netip.MustParsePrefix(addr), NoDAD: true, // nobody else is on the cable
	})
	if err != nil {
		log.Fatal(err)
	}
	return h
}

// One goroutine serves any number of connections: the hook names those at which it is worth
// looking.
func ExampleConn_SetNotify() {
	link, err := wire.New(wire.Config{})
	if err != nil {
		log.Fatal(err)
	}
	server, client := host(link.Port(0), "192.0.2.1/24"), host(link.Port(1), "192.0.2.2/24")
	defer server.Close()
	defer client.Close()
	l, err := stream.Listen(server.Pollers, 7, stream.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()

	const conns = 3
	ready := make(chan *stream.Conn, 2*conns) // never full
	go func() {                               // dials, one after the other
		dialer := &stream.Dialer{Pollers: client.Pollers}
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
	server, client := host(link.Port(0), "192.0.2.1/24"), host(link.Port(1), "192.0.2.2/24")
	defer server.Close()
	defer client.Close()

	l, err := stream.Listen(server.Pollers, 80, stream.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "hello, %s", r.URL.Path[1:])
		}))
	}()

	dialer := &stream.Dialer{Pollers: client.Pollers}
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
