package port

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/pmd/dpdk"
	"github.com/rnicd/rnicd/pmd/tap"
	"github.com/rnicd/rnicd/stack"
)

const (
	lostPeriod      = time.Second // how often the device is looked for
	countersTimeout = time.Second // bounds the question to a Poller
	conflictPeriod  = time.Minute // between reports about one address
	latelyPeriod    = 10 * time.Second
)

// ErrAddrTaken is why a Port ends that has no address left.
var ErrAddrTaken = errors.New("no address is left to serve on")

// IsLost is true of the errors with which Watch's context ends by itself.
func IsLost(err error) bool {
	return errors.Is(err, tap.ErrGone) || errors.Is(err, dpdk.ErrGone) || errors.Is(err, ErrAddrTaken)
}

// Reporter is told, by one goroutine of Watch's, what becomes of a Port.
type Reporter interface {
	DeviceReporter
	// Conflict: another host claims an address of ours. Lost: we do not use it any more; otherwise we
	// defend it, and this comes again once a minute.
	Conflict(addr netip.Addr, rival inet.MAC, lost bool)
	// Full: so many more segments that open a connection were not answered, for Config.PeerMax.
	Full(segments uint64)
	// ChecksumsLeft: so many more packets came without their checksum, which their sender's kernel
	// leaves to its device.
	ChecksumsLeft(packets uint64)
	// Capture: the file of Config.Capture cannot be written any more. Once.
	Capture(err error)
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
	c, health := newConflicts(p.cfg.Addrs), NewHealth(p.device)
	full, left := lately{tell: r.Full}, lately{tell: r.ChecksumsLeft}
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
					p.lookAtDrops(while, &full, &left)
					health.Look(time.Now(), r)
					p.lookAtCapture(r)
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
	ours []netip.Prefix // configured
	told map[netip.Addr]told
}

func newConflicts(ours []netip.Prefix) conflicts {
	return conflicts{ours: ours, told: map[netip.Addr]told{}}
}

// serves is true of an address that clients are meant to reach: not of the link-local one that the
// stack gives itself beside others.
func (c *conflicts) serves(addr netip.Addr) bool {
	return !addr.IsLinkLocalUnicast() ||
		slices.ContainsFunc(c.ours, func(p netip.Prefix) bool { return p.Addr() == addr })
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
		case s.State == stack.AddrUsable && s.Conflicts > was.conflicts &&
			now.Sub(was.at) >= conflictPeriod:
			was = told{s.Conflicts, now, false}
			r.Conflict(s.Addr, s.Rival, false)
		}
		c.told[s.Addr] = was
		if s.State != stack.AddrDuplicate && c.serves(s.Addr) {
			left++
		}
	}
	if left == 0 {
		return ErrAddrTaken
	}
	return nil
}

// lookAtDrops asks the Pollers for what is dropped and is to be told: connections that our stack
// did not answer, for Config.PeerMax, of which a client that dials hears nothing at all; and
// packets without checksums.
func (p *Port) lookAtDrops(ctx context.Context, full, left *lately) {
	ctx, cancel := awake.Timeout(ctx, countersTimeout, nil)
	defer cancel()
	var unanswered, unsummed uint64
	for _, p := range p.pollers {
		k, err := p.Counters(ctx)
		if err != nil {
			return // it ends, or is asked again
		}
		unanswered += k.Own[stack.DropPeerMax]
		unsummed += Unsummed(&k)
	}
	full.look(unanswered, time.Now())
	left.look(unsummed, time.Now())
}

// lately tells of what a counter has counted, now and then.
type lately struct {
	tell  func(more uint64)
	count uint64 // that was told of
	at    time.Time
}

func (l *lately) look(n uint64, now time.Time) {
	if n == l.count || !l.at.IsZero() && now.Sub(l.at) < latelyPeriod {
		return
	}
	l.tell(n - l.count)
	l.count, l.at = n, now
}

// XStats are the statistics of the device's driver, if it has some. One that cannot say them now
// has none.
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
