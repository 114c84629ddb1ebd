package daemon

import (
	"context"
	"net/http"
	"net/netip"

	"github.com/rnicd/rnicd/internal/daemon/control"
	"github.com/rnicd/rnicd/internal/report"
	"github.com/rnicd/rnicd/internal/status"
)

// served is what tells a connection of a Service from others.
type served struct {
	port   string
	remote netip.AddrPort
	listen uint16
}

// EachConnection calls tell for each connection that matches the Filter, without holding up a
// Poller, which reports a few in each of its turns. The argument of tell is valid until tell
// returns. The error is that of tell or ctx.
func (d *Daemon) EachConnection(ctx context.Context, f status.Filter,
	tell func(*status.Connection) error) error {
	d.asking.RLock()
	defer d.asking.RUnlock()
	if d.closed {
		return ErrEnding
	}
	services := map[served]Connection{}
	for _, s := range d.Services() {
		listen := s.Config().Listen
		for _, c := range s.Connections() {
			services[served{c.Port, plain(c.Remote), listen}] = c
		}
	}
	for _, p := range d.Ports() {
		for i, poller := range p.Pollers() {
			if err := report.EachOf(ctx, poller, func(c *status.Connection) error {
				c.Port, c.Queue = p.Name, i
				if s, ok := services[served{p.Name, plain(c.Conn.Remote), c.Conn.Local.Port()}]; ok {
					c.Service, c.Since = s.Service, &s.Since
				}
				if !f.Takes(c) {
					return nil
				}
				return tell(c)
			}); err != nil {
				return err
			}
		}
		if len(p.Pollers()) > 0 {
			continue
		}
		for at, s := range services {
			if at.port != p.Name {
				continue
			}
			c := &status.Connection{Port: p.Name, Kind: status.Kernel, Service: s.Service, Since: &s.Since}
			c.Conn.Remote, c.Conn.State = at.remote, "ESTABLISHED"
			c.Conn.Local = p.listensAt(at.remote, at.listen)
			if f.Takes(c) {
				if err := tell(c); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// plain is an IPv4 address as such; an IPv6 one keeps its zone.
func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// listensAt is where a service listens over the kernel's sockets for a peer at remote.
func (p *Port) listensAt(remote netip.AddrPort, listen uint16) netip.AddrPort {
	at := p.Config().HostAt
	switch {
	case at.IsValid():
	case remote.Addr().Is4():
		at = netip.IPv4Unspecified()
	default:
		at = netip.IPv6Unspecified()
	}
	return netip.AddrPortFrom(at, listen)
}

// answerConnections writes a JSON object a line. Only so many clients are answered at a time, so
// that looking costs a Poller no more than that.
func (d *Daemon) answerConnections(w http.ResponseWriter, r *http.Request) {
	look, err := report.ParseLook(r.URL.Query())
	if err != nil {
		control.Fail(w, http.StatusBadRequest, err)
		return
	}
	select {
	case d.looking <- struct{}{}:
		defer func() { <-d.looking }()
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "application/jsonl")
	if look.Write(r.Context(), w, d.EachConnection) != nil {
		panic(http.ErrAbortHandler) // the answer is cut, and the client sees that
	}
}
