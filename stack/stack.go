// Package stack is the Poller: one core, one queue, its neighbours, connections and timers. It knows nothing of RDMA.
package stack

import (
	"context"
	"errors"
	"net/netip"

	"github.com/rnicd/rnicd/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/tcp"
)

// Errors an Upper's Closed is given.
var (
	ErrReset    = errors.New("stack: connection reset by peer")
	ErrRefused  = errors.New("stack: connection refused")
	ErrTimeout  = errors.New("stack: connection timed out")
	ErrAborted  = errors.New("stack: connection aborted")
	ErrNoRoute  = errors.New("stack: no route to host")
	ErrConnMax  = errors.New("stack: too many connections")
	ErrPortUsed = errors.New("stack: port is in use")
	ErrBusy     = errors.New("stack: control ring is full")
	ErrStopped  = errors.New("stack: poller has stopped")
)

// Idle says what a Poller does when a turn found no work.
type Idle uint8

const (
	IdleAdaptive Idle = iota // spin, then yield, then sleep up to 50 us: for shared machines
	IdleSpin                 // never give up the core
)

// Config of a Poller.
type Config struct {
	Name     string // in errors and metrics
	Queue    pmd.Queue
	Pool     *mem.Pool // the pool Queue was opened with
	Caps     pmd.Caps
	MAC      inet.MAC
	Addr     netip.Prefix // our address and its on-link prefix
	Gateway  netip.Addr   // optional
	MTU      int          // IP packet; default Caps.MTU
	TCP      tcp.Config   // MSS 0: from MTU
	ConnsMax int          // default 1024
	BurstMax int          // default 32
	Core     int          // CPU to pin Run to; -1 none
	Idle     Idle
	Clock    func() int64 // monotonic ns; nil: the system's
	Secret   [16]byte     // keys ISNs, ports, timestamp offsets; zero: from crypto/rand
}

// Verdict of Upper.Arrive on the offered octets.
type Verdict uint8

const (
	Taken   Verdict = iota // consumed; the Poller frees the Buf
	Kept                   // the Upper keeps the Buf and frees it to the Poller's pool later
	Refused                // not taken: not committed, the peer sends them again
)

// Upper stands above one connection: a byte stream or a QueuePair. All calls come on the Poller's goroutine.
type Upper interface {
	Established(c *Conn)
	// Arrive offers new octets at a stream offset, in any order, each octet once. data aliases b's slot.
	Arrive(c *Conn, off uint64, b mem.Buf, data []byte) Verdict
	// Edge says that all octets before edge have arrived and were taken.
	Edge(c *Conn, edge uint64)
	// Pull fills dst (at most one segment's payload) with the next octets to send and returns how many; 0: nothing now.
	// dst is the payload room of the Buf that will be sent.
	Pull(c *Conn, dst []byte) int
	// Acked says that our octets before edge have been acknowledged.
	Acked(c *Conn, edge uint64)
	PeerClosed(c *Conn)        // the peer's FIN is in order
	Closed(c *Conn, err error) // last call; nil after an orderly close of both halves
	Woken(c *Conn)             // somebody called Wake
	Timer(c *Conn, now int64)  // the time of SetTimer has come
}

// Poller drives one queue.
type Poller struct{}

func New(cfg Config) (*Poller, error) { panic("skeleton") }

// Run pins itself and turns until ctx ends or Stop. Call on a goroutine of its own.
func (p *Poller) Run(ctx context.Context) error { panic("skeleton") }
func (p *Poller) Stop()                         { panic("skeleton") }

// Turn does one round and returns the amount of work found. For Run, simulations and tests.
func (p *Poller) Turn() int { panic("skeleton") }

// Deadline is when the next timer is due (math.MaxInt64: none). Poller goroutine.
func (p *Poller) Deadline() int64 { panic("skeleton") }

// Submit runs fn on the Poller's goroutine. Any goroutine; bounded: ErrBusy when the ring is full.
func (p *Poller) Submit(fn func()) error { panic("skeleton") }

func (p *Poller) Now() int64       { panic("skeleton") } // of this turn
func (p *Poller) Pool() *mem.Pool  { panic("skeleton") }
func (p *Poller) Addr() netip.Addr { panic("skeleton") }

// Listen accepts connections to port. accept is called when the handshake is done and returns the Upper, or nil to reset. Poller goroutine.
func (p *Poller) Listen(port uint16, backlog int, accept func(c *Conn) Upper) error {
	panic("skeleton")
}
func (p *Poller) Unlisten(port uint16) { panic("skeleton") }

// Dial starts an active open. Poller goroutine.
func (p *Poller) Dial(remote netip.AddrPort, u Upper) (*Conn, error) { panic("skeleton") }

// Conn is a connection of a Poller. Methods are for the Poller's goroutine except Wake.
type Conn struct{}

func (c *Conn) Wake()                  { panic("skeleton") } // any goroutine; coalesced; leads to Upper.Woken, then Pull
func (c *Conn) Send()                  { panic("skeleton") } // there is something to Pull
func (c *Conn) CloseSend()             { panic("skeleton") } // FIN after what was pulled
func (c *Conn) Abort()                 { panic("skeleton") } // RST
func (c *Conn) SetTimer(at int64)      { panic("skeleton") } // one Upper timer; 0 clears
func (c *Conn) EMSS() int              { panic("skeleton") }
func (c *Conn) Local() netip.AddrPort  { panic("skeleton") }
func (c *Conn) Remote() netip.AddrPort { panic("skeleton") }
func (c *Conn) SentOffset() uint64     { panic("skeleton") } // stream offset of the next pulled octet
func (c *Conn) Stats() tcp.Stats       { panic("skeleton") }
func (c *Conn) Poller() *Poller        { panic("skeleton") }
func (c *Conn) SetReceiveWindow(n int) { panic("skeleton") }
