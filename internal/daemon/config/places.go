package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rnicd/rnicd/internal/port"
)

// What follows refuses addresses, paths and sockets that no machine has: a daemon that is given one
// does not start. What one machine has and another has not is package doctor's to find.

const (
	// socketPathMax is what sun_path holds, less the 0 at its end.
	socketPathMax = 107
	// filePathMax is PATH_MAX, less the 0 at its end.
	filePathMax = 4095
)

// socketPath refuses what cannot be the path of a socket.
func (v *validator) socketPath(key, path string) bool {
	if len(path) > socketPathMax {
		v.wrong(key, "%d octets long; a socket's path has %d at most", len(path), socketPathMax)
		return false
	}
	return v.filePath(key, path)
}

// memifSocket refuses what memif cannot have its control socket at. Empty: that is for others.
func (v *validator) memifSocket(key, path string) {
	if path == "@" {
		v.wrong(key, "%q: want a path, or @ and a name in the abstract namespace", path)
	} else if path != "" {
		v.socketPath(key, path)
	}
}

// filePath refuses what no file's name can be.
func (v *validator) filePath(key, path string) bool {
	switch {
	case strings.ContainsRune(path, 0):
		v.wrong(key, "%q: no path has a zero octet", path)
	case strings.HasSuffix(path, "/"):
		v.wrong(key, "%q: that names a folder; want a file's path", path)
	case len(path) > filePathMax:
		v.wrong(key, "%d octets long; a path has %d at most", len(path), filePathMax)
	default:
		return true
	}
	return false
}

// metrics refuses what cannot be listened on.
func (v *validator) metrics(m *Metrics) {
	if !v.given("metrics.listen") {
		return
	}
	host, service, err := net.SplitHostPort(m.Listen)
	if err == nil {
		_, err = strconv.ParseUint(service, 10, 16)
	}
	if err != nil {
		v.wrong("metrics.listen", "%q: want host and port, as 127.0.0.1:9174 or [::1]:9174", m.Listen)
		return
	}
	if a, err := netip.ParseAddr(host); err == nil {
		v.listenAddr("metrics.listen", m.Listen, a)
	} else if host != "" && !isHostname(host) {
		v.wrong("metrics.listen", "%q: %q is neither an address nor a host's name", m.Listen, host)
	}
}

// listenAddr refuses an address that the kernel's sockets cannot listen on, or nobody connects to.
func (v *validator) listenAddr(key, text string, a netip.Addr) bool {
	switch a = a.Unmap(); {
	case a.IsLinkLocalUnicast() && a.Is6() && a.Zone() == "": // RFC 4007 section 6
		v.wrong(key, "%q: a link-local address is one of a link; name that, as %v%%eth0", text, a)
	// RFC 1122 section 3.2.1.3
	case a.IsMulticast(), a.Is4() && !a.IsUnspecified() && (a.As4()[0] == 0 || a.As4()[0] >= 240):
		v.wrong(key, "%q: want the unicast address of a host, as 127.0.0.1", text)
	default:
		return true
	}
	return false
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
				v.wrong("metrics.listen", "%d on this host is that of the service %q in line %d; "+
					"choose another", tcp,
					c.Services[i].Name, v.line(fmt.Sprintf("service[%d].name", i)))
			}
		}
	}
	for i := range c.Ports {
		if slices.ContainsFunc(c.Ports[i].Open.Addrs, func(a netip.Prefix) bool {
			return a.Addr() == at
		}) {
			v.wrong("metrics.listen", "%v is our own stack's, of %s; metrics are answered over the "+
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
		v.line(fmt.Sprintf("port[%d].%s", i, key)))
}

// socketsTogether refuses one path for two sockets, or for a socket and another file that is made.
func (v *validator) socketsTogether() {
	c := v.c
	servers := map[string]int{} // sockets that ports serve, of which port
	for i := range c.Ports {
		if p := &c.Ports[i]; p.Socket != "" && p.Open.Serve {
			at := fmt.Sprintf("port[%d].socket", i)
			if was, ok := servers[whole(p.Socket)]; ok {
				v.wrong(at, "%s serves this socket; each has its own", v.portAt(was, "socket"))
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
			v.wrong(at, "%q is the control socket; choose another path", p.Socket)
		case ours && server > i:
			v.wrong(at, "%s serves this socket, and is opened later; name that port first",
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
		v.wrong(key, "%q is the control socket; choose another path", file)
	}
	if server, ok := servers[file]; ok {
		v.wrong(key, "%q is the socket of %s; choose another path", file, v.portAt(server, "socket"))
	}
	for j := range c.Services {
		if s := &c.Services[j]; s.Type == File && whole(s.Path) == file {
			v.wrong(key, "%q is the file that service %q in line %d serves; choose another path",
				file, s.Name, v.line(fmt.Sprintf("service[%d].path", j)))
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

// devicesTogether refuses ports that open the same device, by another name, and NICs and arguments
// that come too late for DPDK's environment, which starts once.
func (v *validator) devicesTogether(kind string, name func(int) string, opens []*port.Config) {
	claimed, first := map[string]int{}, -1
	who := func(i int) string {
		return fmt.Sprintf("%s %q in line %d", kind, name(i), v.line(fmt.Sprintf("%s[%d]", kind, i)))
	}
	for i, o := range opens {
		if o == nil { // of the kernel's sockets
			continue
		}
		path := fmt.Sprintf("%s[%d]", kind, i)
		if o.Driver.Claims != nil {
			for _, device := range o.Driver.Claims(o) {
				if was, ok := claimed[device]; ok && was != i {
					v.wrong(path, "%s has the device %s; each has its own", who(was), device)
				}
				claimed[device] = i
			}
		}
		if o.Driver.Name != "dpdk" {
			continue
		}
		if first < 0 {
			first = i
			continue
		}
		v.secondDPDK(path, o, who(first), opens[first])
	}
}

// secondDPDK judges a port that finds DPDK's environment started for another.
func (v *validator) secondDPDK(path string, o *port.Config, other string, first *port.Config) {
	if len(o.EAL) > 0 && !slices.Equal(o.EAL, first.EAL) {
		v.wrong(path+".eal", "DPDK's environment starts once, with the arguments of %s; give the same, "+
			"or leave them out", other)
	}
	scans := func(arg string) bool {
		names := []string{"-a", "--allow", "-b", "--block"}
		return slices.ContainsFunc(names, func(s string) bool { return strings.HasPrefix(arg, s) })
	}
	if o.PCI != "" && first.PCI == "" && !slices.ContainsFunc(first.EAL, scans) {
		v.wrong(path+".pci", "DPDK's environment starts for %s, which has no NIC, and looks for none; "+
			"name this one first", other)
	}
}
