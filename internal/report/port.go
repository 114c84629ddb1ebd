package report

import (
	"context"
	"errors"
	"time"

	"github.com/rnicd/rnicd/internal/cgroup"
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/status"
	"github.com/rnicd/rnicd/pmd/dpdk"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// ErrNoAnswer: a Poller has not turned for Within.
var ErrNoAnswer = errors.New("the Poller does not answer")

// Within bounds the question to a Poller.
const Within = time.Second

// CPU is what the control groups of this process leave it of the CPUs.
func CPU() status.CPU {
	q := cgroup.CPUQuota("/")
	return status.CPU{Quota: q.CPUs, Limit: q.Limit, Throttled: q.Throttled,
		Seconds: float64(q.Nanos) / 1e9}
}

// AskQueue has a Poller copy its counters. What it returns waits for them: all are asked before
// one is waited for, so that one that stands still does not take the others' time.
func AskQueue(dev *rnic.Adapter, p *stack.Poller) func(context.Context, *status.Queue) {
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

// Port is all of a port but its Queues.
func Port(name string, p *port.Port, dev *rnic.Adapter) status.Port {
	c := p.Config()
	s := status.Port{Name: name, Driver: c.Driver.Name, Addresses: []string{},
		Startup: dev.StartupCounters(), Regions: dev.Regions()}
	for _, a := range c.Addrs {
		s.Addresses = append(s.Addresses, a.String())
	}
	if host := p.Host(); host != "" {
		s.Addresses = append(s.Addresses, host)
	}
	d := p.Device()
	if d == nil {
		return s
	}
	s.Device, s.MAC, s.MTU = p.Name(), inet.MAC(d.MAC()).String(), c.MTUOr()
	if a := p.Arena(); a != nil {
		s.MemoryOctets, s.Pages = len(a.Bytes()), a.PageSize().String()
	}
	s.Trouble = status.TroubleOf(port.TroubleOf(d))
	if l, ok := d.(interface{ Link() dpdk.Link }); ok {
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
