// Package rstream is the test that rdma-core's rstream makes of a stream socket, at either end of
// it:
//
//	client                                          server
//	  | -- 16 octets --------------------------------> |
//	  | <-------------------------------- 16 octets -- |
//	  | -- so many transfers ------------------------> |  so many iterations of these two
//	  | <------------------------- as many transfers - |
//
// The ends do not exchange options: users give both ends the same. Without options rstream
// measures latency (one transfer an iteration) of several sizes on one connection, closes it, and
// measures bandwidth (one iteration) on another. riostream's test is the same with RDMA Writes to
// the other end's memory (direct.go).
package rstream

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/rnicd/rnicd/hugepages"
)

// DefaultPort is rstream's, too.
const DefaultPort = 7471

// BufferDefault is what rstream asks for in either direction.
const BufferDefault = 512 << 10

// Limits of a Test.
const (
	SizeMax  = 1 << 30
	CountMax = 1 << 30
)

// Test is a row of rstream's table.
type Test struct {
	Name       string
	Size       int // octets of a transfer
	Transfers  int // in one direction, before it is turned
	Iterations int // there and back
}

// Custom is the Test that the flags of rstream name.
func Custom(size, transfers, iterations int) Test {
	return Test{"custom", size, transfers, iterations}
}

// Latency is rstream's test of the latency of transfers of so many octets.
func Latency(size int) Test { return Test{binary(int64(size)) + "_lat", size, 1, countOf(size)} }

// Bandwidth is its test of their bandwidth.
func Bandwidth(size int) Test { return Test{binary(int64(size)) + "_bw", size, countOf(size), 1} }

// Standard are the sizes that are measured unless one is named: a few, or all of them.
func Standard(all bool) (sizes []int) {
	if !all {
		return []int{64, 4 << 10, 64 << 10, 1 << 20}
	}
	for n := 64; n <= 4<<20; n *= 2 {
		if sizes = append(sizes, n); n > 64 {
			sizes = append(sizes, n+n/2)
		}
	}
	return sizes
}

// countOf is how many transfers of a size are worth measuring.
func countOf(size int) int {
	switch {
	case size >= 1<<20:
		return 100
	case size >= 64<<10:
		return 1000
	case size >= 1<<10:
		return 10000
	}
	return 100000
}

// Octets that a Test moves, both ways.
func (t Test) Octets() int64 { return 2 * int64(t.Size) * int64(t.Transfers) * int64(t.Iterations) }

// Result of a Test.
type Result struct {
	Test
	Took time.Duration
}

// Gbps is both directions together, as rstream counts.
func (r Result) Gbps() float64 { return float64(8*r.Octets()) / float64(max(r.Took, 1)) }

// PerTransfer is the time of one, in us.
func (r Result) PerTransfer() float64 {
	return float64(r.Took) / 1e3 / float64(2*r.Transfers*r.Iterations)
}

// Header is above Results as String has them.
const Header = "name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer"

func (r Result) String() string {
	return fmt.Sprintf("%-10s%-8s%-8s%-8s%-8s%8.2fs%10.2f%11.2f", r.Name, binary(int64(r.Size)),
		decimal(r.Transfers), decimal(r.Iterations),
		binary(r.Octets()), r.Took.Seconds(), r.Gbps(), r.PerTransfer())
}

// binary is a number of octets as rstream writes it: 64, 1.5k, 2m.
func binary(n int64) string {
	unit, name := int64(1), ""
	for _, u := range []string{"k", "m", "g"} {
		if n < unit<<10 {
			break
		}
		unit, name = unit<<10, u
	}
	if tenth := n % unit * 10 / unit; n/unit < 10 && tenth > 0 {
		return fmt.Sprintf("%d.%d%s", n/unit, tenth, name)
	}
	return fmt.Sprintf("%d%s", n/unit, name)
}

// decimal is a count as rstream writes it.
func decimal(n int) string {
	for _, u := range []struct {
		n    int
		name string
	}{{1e9, "b"}, {1e6, "m"}, {1e3, "k"}} {
		if n >= u.n {
			return fmt.Sprintf("%d%s", n/u.n, u.name)
		}
	}
	return fmt.Sprint(n)
}

// End is one end of tests, on one connection or several after another.
type End struct {
	Client bool
	// Verify lays octets out that count up and looks at those that come, over all connections. Both
	// ends, or neither.
	Verify bool
	// Direct makes riostream's tests instead of rstream's: transfers are written into the other
	// end's memory.
	Direct bool
	// Idle ends a test in which nothing moves for so long, and an eighth of it longer at the most.
	// 0: never.
	Idle time.Duration

	buf       []byte
	memory    *hugepages.Arena // of Direct
	sent, got byte             // of the count
	still     int              // looks since something moved last
	look      time.Time        // when it is looked at next
}

const syncLen = 16

// Run is one test.
func (e *End) Run(c net.Conn, t Test) (Result, error) {
	if t.Size < 1 || t.Size > SizeMax || t.Transfers < 1 || t.Transfers > CountMax ||
		t.Iterations < 1 || t.Iterations > CountMax {
		return Result{}, fmt.Errorf("rstream: %d times %d transfers of %d octets: want 1 to %d, "+
			"%d and %d", t.Iterations, t.Transfers, t.Size, CountMax, CountMax, SizeMax)
	}
	if e.Direct {
		return e.direct(c, t)
	}
	if n := max(t.Size, syncLen); len(e.buf) < n {
		e.buf = make([]byte, n)
	}
	if err := e.thereAndBack(c, syncLen, 1); err != nil {
		return Result{}, err
	}
	begin := time.Now()
	for range t.Iterations {
		if err := e.thereAndBack(c, t.Size, t.Transfers); err != nil {
			return Result{}, err
		}
	}
	return Result{t, time.Since(begin)}, nil
}

// thereAndBack is so many transfers, and as many back.
func (e *End) thereAndBack(c net.Conn, size, transfers int) error {
	directions := [2]func(net.Conn, []byte) error{e.send, e.receive}
	if !e.Client {
		directions[0], directions[1] = directions[1], directions[0]
	}
	for _, transfer := range directions {
		for range transfers {
			if err := transfer(c, e.buf[:size]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *End) send(c net.Conn, b []byte) error {
	if e.Verify {
		for i := range b {
			b[i] = e.sent
			e.sent++
		}
	}
	return e.ended(e.move(c, b, c.Write))
}

func (e *End) receive(c net.Conn, b []byte) error {
	if err := e.move(c, b, c.Read); err != nil {
		return e.ended(err)
	}
	if e.Verify {
		for i := range b {
			if b[i] != e.got {
				return &MismatchError{At: i, Got: b[i], Want: e.got}
			}
			e.got++
		}
	}
	return nil
}

// ErrVanished: the peer closed the connection in the middle of a test.
var ErrVanished = errors.New("rstream: the peer closed the connection in the middle of a test; " +
	"both ends must be told the same sizes and counts")

// SilenceError: nothing has moved for as long as End.Idle says.
type SilenceError struct{ Idle time.Duration }

func (e *SilenceError) Error() string {
	return fmt.Sprintf("rstream: nothing moved for %v; both ends must be told the same sizes "+
		"and counts", e.Idle)
}

// ended says what the error of a connection means for a test. The caller that prints it has the
// addresses.
func (e *End) ended(err error) error {
	var op *net.OpError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, syscall.EPIPE):
		return ErrVanished
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &SilenceError{e.Idle}
	case errors.As(err, &op):
		return op.Err
	}
	return err
}

// looks is how often an end looks whether something has moved within the time that nothing may.
const looks = 16

// move reads or writes all of b, for as long as some of it moves.
func (e *End) move(c net.Conn, b []byte, step func([]byte) (int, error)) error {
	for {
		if e.Idle > 0 {
			e.postpone(c)
		}
		n, err := step(b)
		if n > 0 {
			e.still = 0
		}
		if b = b[n:]; len(b) == 0 {
			return nil
		}
		switch {
		case err == nil:
		case e.Idle <= 0 || !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		default: // looks are counted: of a time in which this process was stopped there is one
			if e.still++; e.still > looks {
				return err
			}
		}
	}
}

// postpone moves the deadline, now and then.
func (e *End) postpone(c net.Conn) {
	now, tick := time.Now(), max(e.Idle/looks, 1)
	if e.look.Sub(now) < tick/2 {
		e.look = now.Add(tick)
		_ = c.SetDeadline(e.look) // of a connection that is over: the next call tells
	}
}

// MismatchError is an octet that is not the one that was sent.
type MismatchError struct {
	At        int // of the transfer
	Got, Want byte
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("rstream: octet %d of a transfer came as %d, and is to be %d; verify at both "+
		"ends, or at neither", e.At, e.Got, e.Want)
}
