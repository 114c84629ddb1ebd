package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/rnicd/rnicd/internal/daemon/control"
	"github.com/rnicd/rnicd/internal/daemon/status"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
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
			if err := eachOf(ctx, poller, func(c *status.Connection) error {
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

// seen is what a Poller copies of a connection.
type seen struct {
	conn           stack.ConnInfo
	rdma           rnic.ConnInfo
	stream         stream.Info
	isRDMA, isByte bool
}

// eachOf tells of the connections of one Poller. It copies what a turn has seen, and tells of it
// between turns.
func eachOf(ctx context.Context, p *stack.Poller, tell func(*status.Connection) error) error {
	var batch []seen
	return p.EachConn(ctx, func(c *stack.Conn) {
		batch = append(batch, seen{})
		s := &batch[len(batch)-1]
		c.Info(&s.conn)
		if s.isRDMA = rnic.InfoOf(c, &s.rdma); !s.isRDMA {
			s.stream, s.isByte = stream.InfoOf(c)
		}
	}, func() error {
		for i := range batch {
			s := &batch[i]
			c := &status.Connection{Kind: status.Other, Conn: s.conn}
			switch {
			case s.isRDMA:
				c.Kind, c.RDMA = status.RDMA, &s.rdma
			case s.isByte:
				c.Kind = status.TCPStream
				c.Stream = &status.Stream{Acked: s.stream.Acked, Unacked: s.stream.Unacked,
					Unsent: s.stream.Unsent, Unread: s.stream.Unread}
			}
			if err := tell(c); err != nil {
				return err
			}
		}
		batch = batch[:0]
		return nil
	})
}

// answerConnections writes a JSON object a line. Only so many clients are answered at a time, so
// that looking costs a Poller no more than that.
func (d *Daemon) answerConnections(w http.ResponseWriter, r *http.Request) {
	filter, err := status.ParseFilter(r.URL.Query()["filter"])
	limit := -1
	if text := r.URL.Query().Get("limit"); text != "" && err == nil {
		if limit, err = strconv.Atoi(text); err == nil && limit < 1 {
			err = fmt.Errorf("limit %d: want 1 or more", limit)
		}
	}
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
	out := json.NewEncoder(w)
	err = d.EachConnection(r.Context(), filter, func(c *status.Connection) error {
		if limit == 0 {
			return errEnough
		}
		limit--
		return out.Encode(c)
	})
	if err != nil && err != errEnough {
		panic(http.ErrAbortHandler) // the answer is cut, and the client sees that
	}
}

var errEnough = fmt.Errorf("as many connections as were asked for")
