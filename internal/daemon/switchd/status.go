package switchd

import (
	"context"
	"os"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/report"
	"github.com/rnicd/rnicd/internal/status"
	"github.com/rnicd/rnicd/internal/vswitch"
)

// askTimeout bounds the question to the threads, when no reload is under way any more.
const askTimeout = time.Second

// Status is what `rnicd status --switch` shows, and metrics are made of. Where a thread does not
// turn it has Error, and no counters. Any goroutine.
func (s *Server) Status(ctx context.Context) *status.Switch {
	ctx, cancel := awake.Timeout(ctx, askTimeout, nil)
	defer cancel()
	out := &status.Switch{Kind: status.KindSwitch, Version: s.version, PID: os.Getpid(),
		Started: s.since, At: time.Now(), Config: s.Config().File, CPU: report.CPU()}
	out.Loaded, out.ReloadError = s.loads.Last()
	if s.logLost != nil {
		out.LogLost = s.logLost()
	}
	if why := s.hung.Load(); why != nil { // it would not answer now either
		out.Error = *why
		return out
	}
	// Between these two a reload may come: what is in one and not in the other is left out.
	st, err := s.sw.Stats(ctx)
	cfg := s.Config()
	if err != nil {
		out.Error = err.Error()
		return out
	}
	out.At, out.Healthy = time.Now(), true
	out.Refused = st.Refused
	peers := s.sw.Peers()
	for i := range st.Cores {
		c := &st.Cores[i]
		out.Threads = append(out.Threads, status.SwitchThread{
			Thread: i, Core: cfg.Cores[i], Turns: c.Turns, BusyTurns: c.Busy, Frames: c.Frames,
			Lookups: c.Lookups, Copies: c.Copies,
			Answers: c.Answers, BufsFree: c.Free, Bufs: c.Bufs, Drops: byReason(&c.Drops),
		})
	}
	for i := range st.Ports {
		p := &st.Ports[i]
		one := portOf(p)
		if p.Uplink {
			for j, u := range cfg.Uplinks {
				if u.Name == p.Name {
					one.Trouble, one.Offences = status.TroubleOf(port.TroubleOf(s.ports[j])),
						port.OffencesOf(s.ports[j])
					one.Queue, one.Thread, one.Driver, one.WaitMax = p.Queue, p.Queue, u.Driver, u.Buffers
				}
			}
			out.Uplinks = append(out.Uplinks, one)
			continue
		}
		for j := range cfg.Programs {
			if g := &cfg.Programs[j]; g.Name == p.Name {
				one.Thread, one.WaitMax = g.Thread, g.Buffers
				one.Program = programOf(g, &cfg.Vswitch.Programs[j], p)
				if !p.Attached && j < len(peers) && peers[j].Name == g.Name && p.Attachments > 0 {
					one.Program.Error = whyGone(peers[j].Err)
				}
				out.Programs = append(out.Programs, one)
			}
		}
	}
	return out
}

func portOf(p *vswitch.PortStats) status.SwitchPort {
	d, r := &p.Device, &p.Ring
	one := status.SwitchPort{
		Name: p.Name, Attached: p.Attached, Attaches: p.Attachments, Received: p.Received,
		ReceivedB: p.ReceivedOctets,
		Sent:      p.Sent, SentB: p.SentOctets, Waiting: p.Waiting, Throttled: p.Throttled,
		Drops: byReason(&p.Drops),
	}
	if p.Uplink {
		one.Device = counted(status.DeviceDrops, d.RxNoBuf, d.RxTooLong, d.RxErrors,
			d.RxOtherVLAN, d.TxErrors)
	} else {
		one.Rings = counted(status.RingErrors, r.Descriptor, r.Index, r.Length, r.Fault, r.Slow)
	}
	return one
}

func programOf(g *config.SwitchGuest, v *vswitch.Program,
	p *vswitch.PortStats) *status.SwitchProgram {
	return &status.SwitchProgram{
		Socket: v.Socket, ID: v.ID, Uplink: g.Uplink, Addresses: g.Addresses, Ports: g.Ports,
		MAC: v.MAC.String(), VLAN: v.VLAN,
		PID: p.Peer.PID, UID: p.Peer.UID, GID: p.Peer.GID, Client: p.Peer.Name,
		SendRate: v.Send.Octets, SendFrames: v.Send.Frames, ReceiveRate: v.Receive.Octets,
		ReceiveFrames: v.Receive.Frames,
	}
}

// byReason are those that are not 0.
func byReason(d *[vswitch.Reasons]uint64) map[string]uint64 {
	drops := map[string]uint64{}
	for r, n := range d {
		if n > 0 {
			drops[vswitch.Reason(r).String()] = n
		}
	}
	return drops
}

func counted(names []string, n ...uint64) map[string]uint64 {
	m := map[string]uint64{}
	for i, name := range names {
		if n[i] > 0 {
			m[name] = n[i]
		}
	}
	return m
}
