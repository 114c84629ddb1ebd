package daemon

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/report"
	"github.com/rnicd/rnicd/internal/status"
)

// Status asks all Pollers for their counters. Each copies its own in one of its turns; one that
// does not answer within report.Within has the reason in Error.
func (d *Daemon) Status(ctx context.Context) *status.Daemon {
	d.asking.RLock()
	defer d.asking.RUnlock()
	if d.closed {
		return &status.Daemon{Kind: status.KindDaemon, State: status.Draining}
	}
	ctx, cancel := awake.Timeout(ctx, report.Within, nil)
	defer cancel()
	s := &status.Daemon{
		Kind: status.KindDaemon, Version: d.opt.Version, PID: os.Getpid(), Config: d.cfg.File,
		Started: d.since, At: time.Now(), State: status.Serving, Healthy: d.Healthy(),
		LogLost: d.out.Lost(),
	}
	s.CPU = report.CPU()
	s.Loaded, s.ReloadError = d.loads.Last()
	if d.ending.Load() {
		s.State = status.Draining
	}
	watched := d.Pollers()
	var answers []func(context.Context, *status.Queue)
	for _, p := range d.Ports() {
		one := report.Port(p.Name, p.Port, p.Adapter)
		for i, poller := range p.Pollers() {
			q := status.Queue{Queue: i, Core: p.Config().Core(i)}
			for _, w := range watched {
				if w.Poller == poller {
					q.Stalls, q.Still = w.Stalls, w.Still.Seconds()
				}
			}
			one.Queues = append(one.Queues, q)
			answers = append(answers, report.AskQueue(p.Adapter, poller))
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
	for _, c := range d.Connections() {
		for i := range s.Ports {
			if p := &s.Ports[i]; p.Name == c.Port && len(p.Queues) == 0 {
				p.KernelConnections++
			}
		}
	}
	for _, svc := range d.Services() {
		s.Services = append(s.Services, svc.status(d))
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
