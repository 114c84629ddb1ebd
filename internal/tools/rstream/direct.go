package rstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/rsocket"
)

// riostream is rdma-core's other test of rsockets: transfers go by RDMA into memory that the other
// end has mapped, and the last of so many is known by its last octet, which the other end looks at:
// 0 for the first, and one more in each direction. Octets are laid out and compared in that last
// one only.
//
//	client                                              server
//	  | == map memory ================================> |  each maps as much as a transfer has
//	  | -- 16 octets --------------------------------> |
//	  | <== map memory =============================== |
//	  | <-------------------------------- 16 octets -- |
//	  | == RDMA Writes of so many transfers ==========> |  so many iterations of these two
//	  | <========== RDMA Writes of as many transfers == |

// mapper is what riostream needs of a connection: an *rsocket.Conn.
type mapper interface {
	net.Conn
	io.WriterAt
	Map(b []byte, offset uint64) (*rsocket.Mapping, error)
	Mapped(off int64) int
	QueuePair() *rnic.QueuePair
}

var errNoMapper = errors.New("rstream: memory can be mapped by connections of package rsocket only")

// SizeError: the peer has mapped another length than a transfer of ours has. Without it an end with
// the shorter one could believe that the first octets of a longer transfer were all.
type SizeError struct{ Ours, Theirs int }

func (e *SizeError) Error() string {
	return fmt.Sprintf("rstream: the peer has memory for transfers of %d octets, and ours have %d; "+
		"both ends must be told the same sizes", e.Theirs, e.Ours)
}

// notYet is the last octet before anything has come. No transfer ends in it before the 256th.
const notYet = 0xff

// direct is one test of riostream's.
func (e *End) direct(conn net.Conn, t Test) (Result, error) {
	c, ok := conn.(mapper)
	if !ok {
		return Result{}, errNoMapper
	}
	if err := e.room(t.Size); err != nil {
		return Result{}, err
	}
	d := direct{End: e, c: c, b: e.memory.Bytes()[:t.Size]}
	d.b[t.Size-1] = notYet
	m, err := c.Map(d.b, 0)
	if errors.Is(err, rsocket.ErrMapsFull) {
		return Result{}, fmt.Errorf("%w; was the %s started with --direct?", err,
			map[bool]string{false: "client", true: "server"}[e.Client])
	}
	if err != nil {
		return Result{}, e.ended(err)
	}
	defer m.Close()
	if err := d.meet(); err != nil {
		return Result{}, err
	}
	switch n := c.Mapped(0); n {
	case t.Size:
	case 0:
		return Result{}, rsocket.ErrMapped
	default:
		return Result{}, &SizeError{Ours: t.Size, Theirs: n}
	}
	begin := time.Now()
	for range t.Iterations {
		if err := d.thereAndBack(t.Transfers); err != nil {
			return Result{}, e.ended(err)
		}
	}
	return Result{t, time.Since(begin)}, nil
}

// room sees to so much memory, which is not on the Go heap: it is looked at while it is written.
func (e *End) room(n int) (err error) {
	if e.memory != nil && len(e.memory.Bytes()) >= n {
		return nil
	}
	e.release()
	e.memory, err = hugepages.New(hugepages.Config{Bytes: int64(n), Page: hugepages.Normal,
		Node: hugepages.AnyNode})
	return err
}

// release gives memory back. No connection has it mapped any more.
func (e *End) release() {
	if e.memory != nil {
		_ = e.memory.Close() // unmapping what was mapped
		e.memory = nil
	}
}

// direct is one test.
type direct struct {
	*End
	c    mapper
	b    []byte
	mark byte // of the next last transfer, of either end
}

// meet waits for the other end's mapping. A short transfer of riostream's lies in the octets that
// it receives here.
func (d *direct) meet() error {
	hello := make([]byte, syncLen)
	for i := range hello {
		hello[i] = notYet
	}
	say := func() error { return d.ended(d.move(d.c, hello, d.c.Write)) }
	hear := func() error { return d.ended(d.move(d.c, make([]byte, syncLen), d.c.Read)) }
	steps := [2]func() error{say, hear}
	if !d.Client {
		steps = [2]func() error{hear, say}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// thereAndBack is so many transfers, and as many back.
func (d *direct) thereAndBack(transfers int) error {
	steps := [2]func() error{func() error { return d.send(transfers) }, d.receive}
	if !d.Client {
		steps[0], steps[1] = steps[1], steps[0]
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
		d.mark++
	}
	return nil
}

func (d *direct) send(transfers int) error {
	for i := range transfers {
		if i == transfers-1 {
			last := len(d.b) - 1
			d.b[last] = d.mark
			for j := range d.b[:last] {
				if d.Verify {
					d.b[j] = d.sent
					d.sent++
				}
			}
		}
		at := int64(0)
		err := d.move(d.c, d.b, func(b []byte) (int, error) {
			n, err := d.c.WriteAt(b, at)
			at += int64(n)
			return n, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// receive waits for the last transfer's last octet, and compares the others. Of a transfer of
// several segments it may have come before them, where one was lost: these have some time to come,
// too.
func (d *direct) receive() error {
	idle := d.Idle
	if idle <= 0 {
		idle = directIdle
	}
	if err := d.await(idle, func() bool { return d.last() == d.mark }); err != nil {
		return err
	}
	if !d.Verify {
		return nil
	}
	want := d.got
	d.got += byte(len(d.b) - 1)
	wrong := &MismatchError{}
	err := d.await(min(idle, directLate), func() bool {
		wrong = d.compare(want)
		return wrong == nil
	})
	var silent *SilenceError
	if wrong != nil && (err == nil || errors.As(err, &silent)) {
		return wrong
	}
	return err
}

// compare looks at all octets but the last.
func (d *direct) compare(want byte) *MismatchError {
	for i, b := range d.b[:len(d.b)-1] {
		if b != want {
			return &MismatchError{At: i, Got: b, Want: want}
		}
		want++
	}
	return nil
}

// last looks at the last octet, which the peer may write.
func (d *direct) last() byte {
	at := len(d.b) - 1
	w := atomic.LoadUint32((*uint32)(unsafe.Pointer(&d.b[:cap(d.b)][at&^3])))
	return (*[4]byte)(unsafe.Pointer(&w))[at&3]
}

// How a fruitless look is repeated: without a pause at first, and then with short ones.
const (
	directSpin  = 50 * time.Microsecond
	directNap   = 20 * time.Microsecond
	directYield = 64 // looks
	directIdle  = 30 * time.Second
	directLate  = time.Second // for octets that were to come before the last one
)

// await looks until something is so, the connection ends, or nothing has come for so long.
func (d *direct) await(idle time.Duration, so func() bool) error {
	since := time.Now()
	look, seen, still := since.Add(idle/looks), d.placed(), 0
	for n := 1; !so(); n++ {
		if n%directYield != 0 {
			continue
		}
		runtime.Gosched()
		now := time.Now()
		switch {
		case now.Sub(since) < directSpin:
			continue
		case now.After(look):
			if p := d.placed(); p != seen {
				seen, since, still = p, now, 0
			} else if still++; still > looks { // looks, and not time: this process may have been stopped
				return &SilenceError{idle}
			}
			look = now.Add(idle / looks)
		}
		select {
		case <-d.c.QueuePair().Done():
			if so() {
				return nil
			}
			if err := d.c.QueuePair().Err(); err != nil {
				return err
			}
			return ErrVanished
		case <-time.After(directNap):
		}
	}
	return nil
}

// placed counts what has come.
func (d *direct) placed() rnic.Placed {
	st, err := d.c.QueuePair().Stats(context.Background())
	if err != nil {
		return rnic.Placed{} // of a connection that is over: a caller that waits is told
	}
	return st.Placed
}
