// Package capture writes what ports send and receive to pcapng files: middleware around a
// pmd.Port, to which Captures are attached, and detached, while it is in use.
//
// The Poller copies each frame that matches the filter into a bounded ring, and a goroutine of
// the Capture writes the rings to the file. The Poller never waits for it, unless Config.Direct has
// it write the file itself: if the writer is too slow, frames are missing from the file, not from
// the network. A comment of the next frame and the Interface Statistics Block say how many. A
// capture around fault records what the Poller sees, inside it what is on the cable. A Point
// without a Capture costs a load and a branch for a burst.
//
// Limits: frames of one queue are in order, frames of several queues in the order in which the
// writer found them; compare timestamps. Checksums that were left to the device are completed in
// the file.
//
//	capture.go  Capture: the file and its writer
//	point.go    Point: where Captures are attached
//	tap.go      the ring from a queue to the writer
//	files.go    Files: what is written, over several files
//	filter/     which frames
package capture

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/rnicd/rnicd/internal/capture/filter"
	"github.com/rnicd/rnicd/pmd"
)

const (
	// SlotsDefault frames of MTU 1500 per queue are 6 MiB, and at 2 Gbit/s 20 ms of traffic.
	SlotsDefault = 4096
	slotsMax     = 1 << 20

	// pollEvery is how often the writer looks for frames: several times while a ring fills, rarely
	// enough to cost nothing when idle. The Poller cannot wake it; that would be a system call on
	// the packet path.
	pollEvery = 2 * time.Millisecond
	// flushEvery is how long a frame may wait in memory for others before it is given to the file.
	flushEvery = 100 * time.Millisecond
	// batchMax is what the writer takes from one ring before it looks at the next.
	batchMax = 256
)

// Config bounds a Capture.
type Config struct {
	// octets kept of a frame; 0: whole frames, but of those an offload left uncut what the MTU allows
	SnapLen int
	// frames per queue between the Poller and the writer; a power of two, SlotsDefault when 0
	Slots int
	Count int // frames to write, after which the Capture is Done; 0: no end
	// Filter says which frames are wanted; nil: all.
	Filter *filter.Program
	// Clock is nanoseconds since 1970, read once per burst that has frames; the system's by
	// default. A simulation gives its own.
	Clock func() int64
	// Direct has the Poller write each burst to the file before it goes on, so that nothing is lost
	// of it however the process ends, except for the last burst of one that is killed. It waits for
	// the file: not for a Poller that serves others.
	Direct bool
}

// Counters of a Capture. Frames are those of all of its ports that the filter wants.
type Counters struct {
	Written uint64 // frames in the file
	Dropped uint64 // frames that found their ring full
	Failed  uint64 // frames that came after the file could no longer be written
}

// Capture is one pcapng file with an interface per port. Its methods may be called from any
// goroutine.
type Capture struct {
	cfg  Config
	out  io.Writer
	file *os.File // when made by Create

	mu      sync.Mutex // everything down to over; before that of a Point, and never on the packet path
	ng      *pcapgo.NgWriter
	points  []*Point // one for each interface of the file
	scratch []byte   // a frame whose checksum is completed on the way out
	err     error    // first failure of out; nothing is written after it
	full    bool     // Config.Count frames are there, or err
	closed  bool

	// What Counters and Err read without mu, which is held while out may block.
	written, failed atomic.Uint64
	failure         atomic.Pointer[error]

	over   chan struct{} // closed when full
	tapsMu sync.Mutex    // taken last, for a moment
	taps   []*tap

	stop chan struct{}
	done chan struct{}
}

// New captures to out, which stays the caller's. Error: a Config out of its bounds.
func New(out io.Writer, cfg Config) (*Capture, error) {
	if cfg.Slots == 0 {
		cfg.Slots = SlotsDefault
	}
	if cfg.Clock == nil {
		cfg.Clock = func() int64 { return time.Now().UnixNano() }
	}
	switch {
	case cfg.Count < 0:
		return nil, fmt.Errorf("capture: %d frames; must be positive, or 0 for no end", cfg.Count)
	case cfg.SnapLen < 0:
		return nil, fmt.Errorf("capture: snap length %d; must be positive, or 0 for whole frames",
			cfg.SnapLen)
	case cfg.Slots < 1 || bits.OnesCount(uint(cfg.Slots)) != 1 || cfg.Slots > slotsMax:
		return nil, fmt.Errorf("capture: %d slots; must be a power of two up to %d", cfg.Slots, slotsMax)
	}
	c := &Capture{cfg: cfg, out: out, over: make(chan struct{}), stop: make(chan struct{}),
		done: make(chan struct{})}
	if cfg.Direct {
		close(c.done)
	} else {
		go c.run()
	}
	return c, nil
}

// Create captures to a file of that name, readable by its owner only. Errors: it cannot be
// written, is a link or no regular file, is another user's, or another Capture writes to it.
func Create(path string, cfg Config) (*Capture, error) {
	f, err := create(path)
	if err != nil {
		return nil, err
	}
	c, err := New(f, cfg)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	c.file = f
	return c, nil
}

// Port puts the capture around p, from the first frame on: an interface of p's name in the file.
// Error: the file cannot be written, or the Capture is closed.
func (c *Capture) Port(p pmd.Port) (*Point, error) {
	point := NewPoint(p)
	return point, c.Attach(point)
}

// Attach captures what goes through p from now on: an interface of its name in the file. Not after
// Close. Errors: the file cannot be written; memory for rings would be too large; or p has
// AttachedMax Captures.
func (c *Capture) Attach(p *Point) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("capture: %s: closed before this port was added", p.Name())
	}
	intf := pcapgo.NgInterface{
		Name:                p.Name(),
		OS:                  runtime.GOOS,
		LinkType:            layers.LinkTypeEthernet,
		SnapLength:          uint32(c.cfg.SnapLen),
		TimestampResolution: 9, // the only one pcapgo writes: nanoseconds
	}
	if c.cfg.Filter != nil {
		intf.Filter = c.cfg.Filter.String()
	}
	// The interface comes first: the writer takes from a ring as soon as it is there.
	id := len(c.points)
	if err := c.addInterface(intf); err != nil {
		return fmt.Errorf("capture: %s: %w", p.Name(), err)
	}
	c.points = append(c.points, p)
	if err := p.attach(c, id); err != nil || !c.cfg.Direct {
		return err
	}
	return c.flush() // without a frame it is a whole file, too
}

func (c *Capture) addInterface(intf pcapgo.NgInterface) error {
	if c.ng != nil {
		_, err := c.ng.AddInterface(intf)
		return err
	}
	opts := pcapgo.DefaultNgWriterOptions
	opts.SectionInfo.Application = "rnicd"
	ng, err := pcapgo.NewNgWriterInterface(c.out, intf, opts)
	c.ng = ng
	return err
}

// Done is closed when Config.Count frames have been written, or nothing more can be written.
func (c *Capture) Done() <-chan struct{} { return c.over }

// fail ends what is written, for good.
func (c *Capture) fail(err error) {
	c.err = err
	c.failure.Store(&err)
	c.finish()
}

func (c *Capture) finish() {
	if !c.full {
		c.full = true
		close(c.over)
	}
}

// run is the writer.
func (c *Capture) run() {
	defer close(c.done)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-c.stop:
			return
		case <-tick.C:
		}
		c.mu.Lock()
		c.drain()
		if n%int(flushEvery/pollEvery) == 0 && c.err == nil && c.ng != nil {
			if err := c.ng.Flush(); err != nil {
				c.fail(err)
			}
		}
		c.mu.Unlock()
	}
}

// drain writes out what is in the rings, at most one ring's worth of each, so that it ends however
// fast frames come. The holder of mu may.
func (c *Capture) drain() {
	more := true
	for turns := c.cfg.Slots/batchMax + 1; more && turns > 0; turns-- {
		more = false
		for _, t := range c.all() {
			n := 0
			for ; n < batchMax; n++ {
				s := t.ring.Peek(n)
				if s == nil {
					break
				}
				c.write(t, s)
			}
			t.ring.Release(n)
			more = more || n == batchMax
		}
	}
}

// Which way a frame went, in its epb_flags.
var (
	inbound  = pcapgo.NgEpbFlags{Direction: pcapgo.NgEpbFlagDirectionInbound}
	outbound = pcapgo.NgEpbFlags{Direction: pcapgo.NgEpbFlagDirectionOutbound}
)

func (c *Capture) write(t *tap, s *slot) {
	switch {
	case c.err != nil:
		c.failed.Add(1)
		return
	case c.full:
		return
	}
	data := t.octets(s)
	if s.incomplete && len(data) == int(s.length) {
		c.scratch = append(c.scratch[:0], data...)
		pmd.CompleteChecksum(c.scratch, s.csumStart, s.csumOffset)
		data = c.scratch
	}
	info := gopacket.CaptureInfo{
		Timestamp:      time.Unix(0, s.at),
		CaptureLength:  len(data),
		Length:         int(s.length),
		InterfaceIndex: t.id,
	}
	opts := pcapgo.NgPacketOptions{Flags: &outbound}
	if s.received {
		opts.Flags = &inbound
	}
	if s.missed > 0 {
		opts.Comments = []string{fmt.Sprintf("%d frames before this one are missing: the writer "+
			"was too slow", s.missed)}
	}
	if err := c.ng.WritePacketWithOptions(info, data, opts); err != nil {
		c.fail(err)
		c.failed.Add(1)
		return
	}
	c.written.Add(1)
	t.written++
	if c.cfg.Count > 0 && c.written.Load() == uint64(c.cfg.Count) {
		c.finish()
	}
}

// Flush writes out what was captured before the call, as far as out.
func (c *Capture) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.flush()
}

func (c *Capture) flush() error {
	c.drain()
	if c.err == nil && c.ng != nil {
		if err := c.ng.Flush(); err != nil {
			c.fail(err)
		}
	}
	return c.Err()
}

// Err says why the file is incomplete, as soon as that is so, or nil. It does not wait for the
// file.
func (c *Capture) Err() error {
	if err := c.failure.Load(); err != nil {
		return fmt.Errorf("capture: %w: the file is incomplete", *err)
	}
	return nil
}

// Counters may be read at any time; they do not wait for the file.
func (c *Capture) Counters() Counters {
	n := Counters{Written: c.written.Load(), Failed: c.failed.Load()}
	for _, t := range c.all() {
		n.Dropped += t.dropped.Load()
	}
	return n
}

// Close detaches the Capture from its Points, writes out the rest and each interface's statistics,
// and ends the writer. The error is the first one of the whole capture. Close again does nothing.
func (c *Capture) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	points := c.points
	c.mu.Unlock()
	for _, p := range points {
		p.detach(c)
	}
	close(c.stop)
	<-c.done

	c.mu.Lock()
	defer c.mu.Unlock()
	c.drain()
	c.writeStatistics()
	err := c.flush()
	if c.file != nil {
		if e := c.file.Close(); e != nil && err == nil {
			err = fmt.Errorf("capture: %w: the file is incomplete", e)
		}
	}
	return err
}

// writeStatistics adds one Interface Statistics Block per port.
func (c *Capture) writeStatistics() {
	now := time.Unix(0, c.cfg.Clock())
	for id := range c.points {
		stats := pcapgo.NgInterfaceStatistics{LastUpdate: now}
		for _, t := range c.all() {
			if t.id == id {
				dropped := t.dropped.Load()
				stats.PacketsReceived += t.written + dropped
				stats.PacketsDropped += dropped
			}
		}
		if c.err != nil {
			return
		}
		if err := c.ng.WriteInterfaceStats(id, stats); err != nil {
			c.fail(err)
		}
	}
}
