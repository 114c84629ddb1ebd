package daemon

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/cgroup"
	"github.com/rnicd/rnicd/internal/daemon/status"
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/pmd/dpdk"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// ErrNoAnswer: a Poller has not turned for askTimeout.
var ErrNoAnswer = errors.New("the Poller does not answer")

// askTimeout bounds the question to a Poller.
const askTimeout = time.Second

// Status asks all Pollers for their counters. Each copies its own in one of its turns; one that
// does not answer within askTimeout has the reason in Error.
func (d *Daemon) Status(ctx context.Context) *status.Daemon {
	d.asking.RLock()
	defer d.asking.RUnlock()
	if d.closed {
		return &status.Daemon{Kind: status.KindDaemon, State: status.Draining}
	}
	ctx, cancel := awake.Timeout(ctx, askTimeout, nil)
	defer cancel()
	s := &status.Daemon{
		Kind: status.KindDaemon, Version: d.opt.Version, PID: os.Getpid(), Config: d.cfg.File,
		Started: d.since, At: time.Now(), State: status.Serving, Healthy: d.Healthy(),
		LogLost: d.out.Lost(),
	}
	s.CPU = CPU()
	if d.ending.Load() {
		s.State = status.Draining
	}
	watched := d.Pollers()
	var answers []func(context.Context, *status.Queue)
	for _, p := range d.Ports() {
		one := d.portStatus(p)
		for i, poller := range p.Pollers() {
			q := status.Queue{Queue: i, Core: p.Config().Core(i)}
			for _, w := range watched {
				if w.Poller == poller {
					q.Stalls, q.Still = w.Stalls, w.Still.Seconds()
				}
			}
			one.Queues = append(one.Queues, q)
			answers = append(answers, askQueue(p.Adapter, poller))
		}
		s.Ports = append(s.Ports, one)
	}
	for _, one := range s.Ports {
		for i := range one.Queues {
			answers[0](ctx, &one.Queues[i])
			answers = answers[1:]
		}
	}
	for i := range s.Ports {
		s.Ports[i].SumRefused()
	}
	for _, svc := range d.Services() {
		s.Services = append(s.Services, svc.status(d))
	}
	return s
}

// CPU is what the control groups of this process leave it of the CPUs.
func CPU() status.CPU {
	q := cgroup.CPUQuota("/")
	return status.CPU{Quota: q.CPUs, Limit: q.Limit, Throttled: q.Throttled,
		Seconds: float64(q.Nanos) / 1e9}
}

// askQueue has a Poller copy its counters. What it returns waits for them: all are asked before
// one is waited for, so that one that stands still does not take the others' time.
func askQueue(dev *rnic.Adapter, p *stack.Poller) func(context.Context, *status.Queue) {
	type copied struct {
		own  stack.Counters
		rdma rnic.PollerCounters
	}
	answer := make(chan copied, 1)
	err := p.Submit(func() {
		var c copied
		p.Snapshot(&c.own)
		c.rdma = dev.CountersOf(p)
		answer <- c
	})
	return func(ctx context.Context, q *status.Queue) {
		if err != nil {
			q.Error = err.Error()
			return
		}
		var c copied
		select {
		case c = <-answer:
		case <-ctx.Done():
			select {
			case c = <-answer: // it was there in time
			default:
				q.Error = ErrNoAnswer.Error()
				return
			}
		}
		k := &c.own
		q.Counters, q.RDMA, q.Streams, q.Drops = *k, c.rdma, stream.CountersOf(p), map[string]uint64{}
		k.Each(func(layer, reason string, n uint64) {
			if n > 0 {
				q.Drops[layer+"/"+reason] = n
			}
		})
	}
}

func (d *Daemon) portStatus(p *Port) status.Port {
	c := p.Config()
	s := status.Port{Name: p.Name, Driver: c.Driver.Name, Addresses: []string{},
		Startup: p.Adapter.StartupCounters(), Regions: p.Adapter.Regions()}
	for _, a := range c.Addrs {
		s.Addresses = append(s.Addresses, a.String())
	}
	if host := p.Host(); host != "" {
		s.Addresses = append(s.Addresses, host)
	}
	dev := p.Device()
	if dev == nil {
		return s
	}
	s.Device, s.MAC, s.MTU = p.Port.Name(), inet.MAC(dev.MAC()).String(), c.MTUOr()
	if a := p.Arena(); a != nil {
		s.MemoryOctets, s.Pages = len(a.Bytes()), a.PageSize().String()
	}
	s.Trouble = status.TroubleOf(port.TroubleOf(dev))
	if l, ok := dev.(interface{ Link() dpdk.Link }); ok {
		s.Link = l.Link().String()
	}
	if all := p.Capture(); all != nil {
		n := all.Counters()
		s.Capture = &status.Capture{File: c.Capture, Frames: n.Written, Missing: n.Dropped + n.Failed}
		if err := all.Err(); err != nil {
			s.Capture.Error = err.Error()
		}
	}
	for _, x := range p.XStats() {
		if s.XStats == nil {
			s.XStats = map[string]uint64{}
		}
		s.XStats[x.Name] = x.Value
	}
	return s
}

func (s *Service) status(d *Daemon) status.Service {
	c := s.Config()
	out := status.Service{
		Name: c.Name, Type: c.Type, Listen: int(c.Listen),
		ConnectionsMax: c.Connections, Connections: len(s.Connections()),
		Accepted: s.Accepted.Load(), Refused: s.Refused.Load(), Failed: s.Failed.Load(),
		Ports: []string{}, RefusedBy: map[string]uint64{},
	}
	for cause, n := range map[string]*atomic.Uint64{"allow": &s.refusedBy.allow,
		"connections": &s.refusedBy.connections, "peer_connections": &s.refusedBy.peers,
		"request": &s.refusedBy.request} {
		if v := n.Load(); v > 0 {
			out.RefusedBy[cause] = v
		}
	}
	for _, i := range c.On {
		out.Ports = append(out.Ports, d.ports[i].Name)
	}
	return out
}
