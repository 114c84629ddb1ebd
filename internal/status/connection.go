package status

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

// Kinds of a Connection.
const (
	Listener  = "listener"  // where a program waits for connections
	Datagrams = "datagrams" // a program's queue pair for them
	RDMA      = "rdma"
	TCPStream = "stream"
	Kernel    = "kernel" // over the kernel's sockets, which ss shows
	Other     = "other"  // nothing is above it: TIME-WAIT
)

// Connection is a line of the answer to GET /v1/connections.
type Connection struct {
	Port    string     `json:"port"`
	Queue   int        `json:"queue"`
	Kind    string     `json:"kind"`
	Service string     `json:"service,omitempty"` // that serves it
	Since   *time.Time `json:"since,omitempty"`   // it has served it
	// of a program of rnicd run: its process, command line and queue pair
	PID     int            `json:"pid,omitempty"`
	Command string         `json:"command,omitempty"`
	QP      uint32         `json:"qp,omitempty"`
	Conn    stack.ConnInfo `json:"conn"`
	Stream  *Stream        `json:"stream,omitempty"`
	RDMA    *rnic.ConnInfo `json:"rdma,omitempty"`
}

// Connected says whether c has another end.
func (c *Connection) Connected() bool { return c.Kind != Listener && c.Kind != Datagrams }

// Stream has the counts of a byte stream above TCP, in octets.
type Stream struct {
	Acked   uint64 `json:"acked"`   // that the peer has acknowledged
	Unacked uint64 `json:"unacked"` // written, and not acknowledged
	Unsent  uint64 `json:"unsent"`  // of these, in no segment yet
	Unread  uint64 `json:"unread"`  // in order, not yet read
}

// Filter chooses Connections. The zero Filter takes all.
type Filter struct{ terms []func(*Connection) bool }

// filterMax bounds the terms of a Filter.
const filterMax = 64

// ParseFilter reads terms, all of which a connection has to meet: key=value with port, queue, kind,
// service, state, pid, qp, local or remote, the last two with an address, an address and port, or a
// network; or an address or network alone, of either end.
func ParseFilter(words []string) (f Filter, err error) {
	if len(words) > filterMax {
		return f, fmt.Errorf("a filter has %d words at most", filterMax)
	}
	for _, word := range words {
		key, value, keyed := strings.Cut(word, "=")
		if !keyed {
			local, err := endOf(word)
			if err != nil {
				return f, fmt.Errorf("%q: want an address, a network, or key=value with port, queue, kind, "+
					"service, state, pid, qp, local, remote", word)
			}
			f.terms = append(f.terms, func(c *Connection) bool {
				return local(c.Conn.Local) || local(c.Conn.Remote)
			})
			continue
		}
		var of func(c *Connection) string
		switch key {
		case "port":
			of = func(c *Connection) string { return c.Port }
		case "queue":
			of = func(c *Connection) string { return fmt.Sprint(c.Queue) }
		case "kind":
			of = func(c *Connection) string { return c.Kind }
		case "service":
			of = func(c *Connection) string { return c.Service }
		case "state":
			of = func(c *Connection) string { return c.Conn.State }
		case "pid":
			of = func(c *Connection) string { return strconv.Itoa(c.PID) }
		case "qp":
			n, err := strconv.ParseUint(value, 0, 32)
			if err != nil {
				return f, fmt.Errorf("%q: want the number of a queue pair, as 0x1234", word)
			}
			f.terms = append(f.terms, func(c *Connection) bool { return uint64(c.QP) == n && n != 0 })
			continue
		case "local", "remote":
			end, err := endOf(value)
			if err != nil {
				return f, fmt.Errorf("%q: %w", word, err)
			}
			f.terms = append(f.terms, func(c *Connection) bool {
				if key == "local" {
					return end(c.Conn.Local)
				}
				return end(c.Conn.Remote)
			})
			continue
		default:
			return f, fmt.Errorf("%q: want port, queue, kind, service, state, pid, qp, local or remote "+
				"before the =", word)
		}
		f.terms = append(f.terms, func(c *Connection) bool { return strings.EqualFold(of(c), value) })
	}
	return f, nil
}

// endOf reads an address, an address and port, or a network.
func endOf(text string) (func(netip.AddrPort) bool, error) {
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return func(e netip.AddrPort) bool {
			return e.Port() == ap.Port() && SameAddr(e.Addr(), ap.Addr())
		}, nil
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return func(e netip.AddrPort) bool { return SameAddr(e.Addr(), a) }, nil
	}
	n, err := netip.ParsePrefix(text)
	if err != nil {
		return nil, fmt.Errorf("want an address, an address and port, or a network")
	}
	return func(e netip.AddrPort) bool { return n.Contains(e.Addr().WithZone("")) }, nil
}

// SameAddr says whether a is the one that was asked for: of any zone where asked has none.
func SameAddr(a, asked netip.Addr) bool {
	if asked.Zone() == "" {
		a = a.WithZone("")
	}
	return a.Unmap() == asked.Unmap()
}

// Takes says whether c is chosen.
func (f *Filter) Takes(c *Connection) bool {
	for _, t := range f.terms {
		if !t(c) {
			return false
		}
	}
	return true
}
