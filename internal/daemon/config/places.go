package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// What follows refuses addresses, paths and sockets that no machine has: a daemon that is given one
// does not start. What one machine has and another has not is package doctor's to find.

// metrics refuses what cannot be listened on.
func (v *validator) metrics(m *Metrics) {
	if !v.Given("metrics.listen") {
		return
	}
	host, service, err := net.SplitHostPort(m.Listen)
	if err == nil {
		_, err = strconv.ParseUint(service, 10, 16)
	}
	if err != nil {
		v.Wrong("metrics.listen", "%q: want host and port, as 127.0.0.1:9174 or [::1]:9174", m.Listen)
		return
	}
	if a, err := netip.ParseAddr(host); err == nil {
		v.ListenAddr("metrics.listen", m.Listen, a)
	} else if host != "" && !isHostname(host) {
		v.Wrong("metrics.listen", "%q: %q is neither an address nor a host's name", m.Listen, host)
	}
}

var (
	hostname = regexp.MustCompile(`^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*` +
		`[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.?$`)
	endsInNumber = regexp.MustCompile(`(^|\.)([0-9]+|0[xX][0-9A-Fa-f]*)\.?$`)
)

// isHostname says whether a name server may know it: what ends in a number is an address, or
// nothing (RFC 1123 section 2.1).
func isHostname(s string) bool {
	return len(s) <= 254 && hostname.MatchString(s) && !endsInNumber.MatchString(s)
}

// listenTogether refuses a TCP port of this host's sockets that the metrics have, too, and
// metrics at an address that is not the kernel's.
func (v *validator) listenTogether() {
	c := v.c
	host, service, err := net.SplitHostPort(c.Metrics.Listen)
	if err != nil {
		return
	}
	tcp, _ := strconv.Atoi(service)
	at, err := netip.ParseAddr(host)
	at = at.Unmap()
	for i := range c.Services {
		for _, on := range c.Services[i].On {
			p := &c.Ports[on].Open
			all := err != nil || overlap(p.HostAt, at)
			if p.Driver.Sockets && int(c.Services[i].Listen) == tcp && all {
				v.Wrong("metrics.listen", "%d on this host is that of the service %q in line %d; "+
					"choose another", tcp,
					c.Services[i].Name, v.Line(fmt.Sprintf("service[%d].name", i)))
			}
		}
	}
	for i := range c.Ports {
		if slices.ContainsFunc(c.Ports[i].Open.Addrs, func(a netip.Prefix) bool {
			return a.Addr() == at
		}) {
			v.Wrong("metrics.listen", "%v is our own stack's, of %s; metrics are answered over the "+
				"kernel's: "+
				"choose an address of this host's, as host_address", at, v.portAt(i, "addresses"))
		}
	}
}

// overlap says whether two of this host's sockets at these addresses and one TCP port are in each
// other's way. The zero Addr is all.
func overlap(a, b netip.Addr) bool {
	all := func(x netip.Addr) bool { // Go takes [::] for both families
		return !x.IsValid() || x.Is6() && x.IsUnspecified()
	}
	switch {
	case all(a) || all(b):
		return true
	case a.Is4() && b.Is4() && (a.IsUnspecified() || b.IsUnspecified()):
		return true
	}
	return a == b
}

// portAt is how an error calls a port, by the line of a key.
func (v *validator) portAt(i int, key string) string {
	return fmt.Sprintf("port %q in line %d", v.c.Ports[i].Name,
		v.Line(fmt.Sprintf("port[%d].%s", i, key)))
}

// socketsTogether refuses one path for two sockets, or for a socket and another file that is made.
func (v *validator) socketsTogether() {
	c := v.c
	servers := map[string]int{} // sockets that ports serve, of which port
	for i := range c.Ports {
		if p := &c.Ports[i]; p.Socket != "" && p.Open.Serve {
			at := fmt.Sprintf("port[%d].socket", i)
			if was, ok := servers[whole(p.Socket)]; ok {
				v.Wrong(at, "%s serves this socket; each has its own", v.portAt(was, "socket"))
				continue
			}
			servers[whole(p.Socket)] = i
		}
	}
	for i := range c.Ports {
		p := &c.Ports[i]
		at := fmt.Sprintf("port[%d].socket", i)
		server, ours := servers[whole(p.Socket)]
		switch {
		case p.Socket == "":
		case whole(p.Socket) == whole(c.Control.Path):
			v.Wrong(at, "%q is the control socket; choose another path", p.Socket)
		case ours && server > i:
			v.Wrong(at, "%s serves this socket, and is opened later; name that port first",
				v.portAt(server, "socket"))
		}
		v.captureTogether(i, servers)
	}
}

// captureTogether refuses a capture that would be written over another file of the daemon's.
func (v *validator) captureTogether(i int, servers map[string]int) {
	c := v.c
	if c.Ports[i].Capture == "" {
		return
	}
	key, file := fmt.Sprintf("port[%d].capture", i), whole(c.Ports[i].Capture)
	if file == whole(c.Control.Path) {
		v.Wrong(key, "%q is the control socket; choose another path", file)
	}
	if server, ok := servers[file]; ok {
		v.Wrong(key, "%q is the socket of %s; choose another path", file, v.portAt(server, "socket"))
	}
	for j := range c.Services {
		if s := &c.Services[j]; s.Type == File && whole(s.Path) == file {
			v.Wrong(key, "%q is the file that service %q in line %d serves; choose another path",
				file, s.Name, v.Line(fmt.Sprintf("service[%d].path", j)))
		}
	}
}

// whole is a path as it may be compared; a name in the abstract namespace is one already.
func whole(path string) string {
	if path == "" || path[0] == '@' {
		return path
	}
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
