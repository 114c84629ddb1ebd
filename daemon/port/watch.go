package port

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/rnicd/rnicd/awake"
	"github.com/rnicd/rnicd/inet"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/dpdk"
	"github.com/rnicd/rnicd/pmd/tap"
	"github.com/rnicd/rnicd/stack"
)

const (
	lostPeriod      = time.Second // how often the device is looked for
	countersTimeout = time.Second // bounds the question to a Poller
	conflictPeriod  = time.Minute // between reports about one address
	fullPeriod      = 10 * time.Second
	// StuckAfter is how long a queue of the device takes nothing before that is told.
	StuckAfter = 5 * time.Second
)

// ErrAddrTaken is why a Port ends that has no address left.
var ErrAddrTaken = errors.New("no address is left to serve on")

// IsLost is true of the errors with which Watch's context ends by itself.
func IsLost(err error) bool {
	return errors.Is(err, tap.ErrGone) || errors.Is(err, dpdk.ErrGone) || errors.Is(err, ErrAddrTaken)
}

// Reporter is told, by one goroutine of Watch's, what becomes of a Port.
type Reporter interface {
	// Conflict: another host claims an address of ours. Lost: we do not use it any more; otherwise we
	// defend it, and this comes again once a minute.
	Conflict(addr netip.Addr, rival inet.MAC, lost bool)
	// Full: so many more segments that open a connection were not answered, for Config.PeerMax.
	Full(segments uint64)
	// Link has changed.
	Link(dpdk.Link)
	// Stuck: a queue of the device has taken no frame for StuckAfter; or it does again.
	Stuck(queue int, stuck bool, link dpdk.Link)
	// Capture: the file of Config.Capture cannot be written any more. Once.
	Capture(err error)
	// Offences: so many more connections ended because memory of a memif peer went away, or was slow.
	Offences(n uint64)
}

// Watch returns a context that ends when ctx does, or the device is gone, or our last address
// another's; lost then says that. Meanwhile it tells the Reporter what happens. For after Start,
// once; it ends with Close, which waits for it.
func (p *Port) Watch(ctx context.Context, r Reporter) (while context.Context, lost func() error) {
	if p.device == nil {
		return ctx, func() error { return nil }
	}
	gone := func() error { return nil }
	if device, ok := p.device.(interface{ Lost() error }); ok {
		gone = device.Lost
	}
	c, full, health := conflicts{told: map[netip.Addr]told{}}, fullness{}, newHealth(p.device)
	offended := uint64(0)
	while, cancel := context.WithCancelCause(ctx)
	p.watch.Go(func() {
		defer cancel(nil)
		tick := time.NewTicker(lostPeriod)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				err := gone()
				if err == nil {
					err = c.look(while, p.pollers[0], r)
					full.look(while, p.pollers, r)
					health.look(time.Now(), r)
					p.lookAtCapture(r)
					offended = p.lookAtOffences(offended, r)
				}
				if err != nil {
					cancel(err)
					return
				}
			case <-p.stopped:
				return
			}
		}
	})
	return while, func() error {
		if err := context.Cause(while); IsLost(err) {
			return err
		}
		return nil
	}
}

// offender is a device with a peer that can do wrong.
type offender interface{ Offences() uint64 }

// lookAtOffences tells of those since so many.
func (p *Port) lookAtOffences(told uint64, r Reporter) uint64 {
	d, ok := p.device.(offender)
	if !ok {
		return 0
	}
	n := d.Offences()
	if n > told {
		r.Offences(n - told)
	}
	return n
}

// lookAtCapture tells once that the file is incomplete.
func (p *Port) lookAtCapture(r Reporter) {
	if p.capture == nil || p.spoilt.Load() {
		return
	}
	if err := p.capture.Err(); err != nil {
		r.Capture(err)
		p.spoilt.Store(true)
	}
}

// conflicts tells of other hosts that claim addresses of ours.
type conflicts struct {
	told map[netip.Addr]told
}

// told is what was said of an address.
type told struct {
	conflicts uint64
	at        time.Time
	lost      bool
}

// look asks what has become of our addresses and tells of what is new. Its error says that none is
// left.
func (c *conflicts) look(ctx context.Context, p *stack.Poller, r Reporter) error {
	ctx, cancel := awake.Timeout(ctx, countersTimeout, nil)
	defer cancel()
	all, err := p.Addrs(ctx)
	if err != nil {
		return nil // it ends, or is asked again
	}
	return c.tell(all, time.Now(), r)
}

func (c *conflicts) tell(all []stack.AddrStatus, now time.Time, r Reporter) error {
	left := 0
	for _, s := range all {
		was := c.told[s.Addr]
		switch {
		case s.State == stack.AddrDuplicate && !was.lost:
			was = told{s.Conflicts, now, true}
			r.Conflict(s.Addr, s.Rival, true)
		case s.State == stack.AddrUsable && s.Conflicts > was.conflicts && now.Sub(was.at) >= conflictPeriod:
			was = told{s.Conflicts, now, false}
			r.Conflict(s.Addr, s.Rival, false)
		}
		c.told[s.Addr] = was
		if s.State != stack.AddrDuplicate && !s.Addr.IsLinkLocalUnicast() {
			left++
		}
	}
	if left == 0 {
		return ErrAddrTaken
	}
	return nil
}

// fullness tells of connections that our stack did not answer, for Config.PeerMax: a client that
// dials hears nothing at all.
type fullness struct {
	count uint64 // that was told of
	at    time.Time
}

// look asks the Pollers, and tells of what is new.
func (f *fullness) look(ctx context.Context, pollers []*stack.Poller, r Reporter) {
	ctx, cancel := awake.Timeout(ctx, countersTimeout, nil)
	defer cancel()
	var n uint64
	for _, p := range pollers {
		k, err := p.Counters(ctx)
		if err != nil {
			return // it ends, or is asked again
		}
		n += k.Own[stack.DropPeerMax]
	}
	f.tell(n, time.Now(), r)
}

func (f *fullness) tell(n uint64, now time.Time, r Reporter) {
	if n == f.count || !f.at.IsZero() && now.Sub(f.at) < fullPeriod {
		return
	}
	r.Full(n - f.count)
	f.count, f.at = n, now
}

// monitored is a device that says how it is.
type monitored interface {
	Link() dpdk.Link
	Stuck(now time.Time, atLeast time.Duration) (queues []int)
}

// health tells of a device's link, and of queues that take nothing, when that has changed.
type health struct {
	device monitored // nil: it says nothing
	link   dpdk.Link
	stuck  []int
}

func newHealth(port pmd.Port) *health {
	h := &health{}
	if m, ok := port.(monitored); ok {
		h.device, h.link = m, m.Link()
	}
	return h
}

// look is called about once a second.
func (h *health) look(now time.Time, r Reporter) {
	if h.device == nil {
		return
	}
	if link := h.device.Link(); link != h.link {
		h.link = link
		r.Link(link)
	}
	stuck := h.device.Stuck(now, StuckAfter)
	for _, i := range stuck {
		if !slices.Contains(h.stuck, i) {
			r.Stuck(i, true, h.link)
		}
	}
	for _, i := range h.stuck {
		if !slices.Contains(stuck, i) {
			r.Stuck(i, false, h.link)
		}
	}
	h.stuck = stuck
}

// XStats are the statistics of the device's driver, if it has some. One that cannot say them now has
// none.
func (p *Port) XStats() []dpdk.XStat {
	if p == nil {
		return nil
	}
	if d, ok := p.device.(interface{ XStats() ([]dpdk.XStat, error) }); ok {
		x, _ := d.XStats()
		return x
	}
	if d, ok := p.device.(offender); ok {
		return []dpdk.XStat{{Name: "peer_offences", Value: d.Offences()}}
	}
	return nil
}
