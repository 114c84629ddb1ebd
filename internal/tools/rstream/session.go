package rstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
)

// Plan is what both ends have been told. The zero value is what rstream measures without being told
// anything.
type Plan struct {
	Size, Transfers, Iterations int // of one Test; with all of them 0 the Standard ones
	All                         bool
}

// Defaults of a Plan, rstream's, once one of its fields is not 0.
const (
	SizeDefault       = 1000
	TransfersDefault  = 1000
	IterationsDefault = 1
)

// Connections are the tests of a Plan, those of each connection by themselves.
func (p Plan) Connections() [][]Test {
	if p.Size != 0 || p.Transfers != 0 || p.Iterations != 0 {
		return [][]Test{{Custom(cmp.Or(p.Size, SizeDefault), cmp.Or(p.Transfers, TransfersDefault),
			cmp.Or(p.Iterations, IterationsDefault))}}
	}
	both := make([][]Test, 2)
	for _, n := range Standard(p.All) {
		both[0] = append(both[0], Latency(n))
		both[1] = append(both[1], Bandwidth(n))
	}
	return both
}

// Tests runs the tests of one connection, and closes it, which ctx does, too.
func (e *End) Tests(ctx context.Context, c net.Conn, tests []Test, result func(Result)) error {
	defer context.AfterFunc(ctx, func() { c.Close() })()
	e.still, e.look = 0, time.Time{}
	for _, t := range tests {
		r, err := e.Run(c, t)
		if err != nil {
			c.Close()
			return cmp.Or(ctx.Err(), err)
		}
		if result != nil {
			result(r)
		}
	}
	if err := e.lastWord(c); err != nil {
		c.Close()
		return cmp.Or(ctx.Err(), err)
	}
	return c.Close()
}

// lastWordMax is how long a server lets the client close first.
const lastWordMax = time.Second

// lastWord is the client's: one of rstream's that polls (-T async) takes a goodbye for an error
// while it has octets to read.
func (e *End) lastWord(c net.Conn) error {
	if e.Client {
		return nil
	}
	_ = c.SetReadDeadline(time.Time{}) // of a connection that is over: Read tells
	defer awake.Deadline(lastWordMax, c.SetReadDeadline).Stop()
	if n, _ := c.Read(make([]byte, 1)); n > 0 {
		return errMore
	}
	return nil
}

var errMore = errors.New("rstream: the client goes on where the test ends; both ends must be " +
	"told the same sizes and counts")

// Client runs a Plan with the server that dial reaches.
func Client(ctx context.Context, dial func(context.Context) (net.Conn, error), p Plan, e End,
	result func(Result)) error {
	e.Client = true
	defer e.release()
	for _, tests := range p.Connections() {
		c, err := dial(ctx)
		if err != nil {
			return err
		}
		if err := e.Tests(ctx, c, tests, result); err != nil {
			return err
		}
	}
	return nil
}

// Served is a client that is gone.
type Served struct {
	Remote  netip.AddrPort // of its last connection
	Results []Result
	Err     error // nil when the Plan was carried out
}

// Server of one client at a time, as rstream is.
type Server struct {
	Plan   Plan
	Verify bool
	Direct bool // riostream's tests
	// ends a client that keeps us waiting for so long, on a connection or for the next one
	Idle time.Duration
	// Done and Refused, if set, are told of each client that is gone, and of connections that were
	// closed because they came from elsewhere than the client's. Called from the goroutine of
	// Serve.
	Done    func(Served)
	Refused func(remote netip.AddrPort, why string)
}

// Serve serves clients of l until ctx ends, with nil, or l does. l is closed when it returns.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	incoming, failed := make(chan net.Conn), make(chan error, 1)
	var accepting sync.WaitGroup
	defer accepting.Wait()
	defer l.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	accepting.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				failed <- err
				return
			}
			select {
			case incoming <- c:
			case <-ctx.Done():
				c.Close()
			}
		}
	})
	for {
		select {
		case c := <-incoming:
			served := s.serve(ctx, c, incoming)
			if s.Done != nil {
				s.Done(served)
			}
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// serve is one client.
func (s *Server) serve(ctx context.Context, c net.Conn, incoming <-chan net.Conn) (served Served) {
	served.Remote = addrPort(c)
	e := End{Verify: s.Verify, Direct: s.Direct, Idle: s.Idle}
	defer e.release()
	for i, tests := range s.Plan.Connections() {
		if i > 0 {
			if c, served.Err = s.next(ctx, served.Remote, incoming); served.Err != nil {
				return served
			}
			served.Remote = addrPort(c)
		}
		if served.Err = e.Tests(ctx, c, tests, func(r Result) {
			served.Results = append(served.Results, r)
		}); served.Err != nil {
			return served
		}
	}
	return served
}

// next waits for the next connection of the same client.
func (s *Server) next(ctx context.Context, client netip.AddrPort,
	incoming <-chan net.Conn) (net.Conn, error) {
	var late <-chan struct{}
	if s.Idle > 0 {
		var stop func()
		late, stop = awake.After(s.Idle)
		defer stop()
	}
	for {
		select {
		case c := <-incoming:
			remote := addrPort(c)
			if remote.Addr() == client.Addr() {
				return c, nil
			}
			c.Close()
			if s.Refused != nil {
				s.Refused(remote, fmt.Sprintf("%v is being served, one client at a time", client.Addr()))
			}
		case <-late:
			return nil, errNoSecond
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

var errNoSecond = errors.New("rstream: the client's second connection, for bandwidth, did not " +
	"come in time; was it told another size or count?")

func addrPort(c net.Conn) netip.AddrPort {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort()
	}
	return netip.AddrPort{}
}
