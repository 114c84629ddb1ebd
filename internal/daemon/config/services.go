package config

import (
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/port/portfile"
	"github.com/rnicd/rnicd/internal/tools/bytestream"
	"github.com/rnicd/rnicd/internal/tools/perf/pair"
)

// service judges one service by itself.
func (v *validator) service(i int) {
	s := &v.c.Services[i]
	path := fmt.Sprintf("service[%d]", i)
	v.Name("service", i, func(i int) string { return v.c.Services[i].Name })
	var names []string
	for _, t := range Types {
		names = append(names, t.Name)
		if t.Name == s.Type && !v.Given(path+".listen") {
			s.Listen = t.Listen
		}
	}
	if !slices.Contains(names, s.Type) {
		v.OneOf(path+".type", s.Type, names...)
		return
	}
	v.Useless(path, "a service of type "+s.Type, *s, func(of []string) bool {
		return slices.Contains(of, s.Type)
	})
	v.servedOn(path, s)
	v.allowed(path, s)
	v.Number(path+".listen", int64(s.Listen), 1, math.MaxUint16)
	v.Number(path+".connections", int64(s.Connections), 1, portfile.ConnectionsMax)
	if s.Connections > 0 {
		v.Number(path+".peer_connections", int64(s.PeerConnections), 0, int64(s.Connections))
	}
	v.Span(path+".idle_timeout", time.Duration(s.IdleTimeout), time.Millisecond, 24*time.Hour)
	m := &v.c.MPA
	s.NoMarkers, s.NoCRC, s.DropBadCRC = !m.Markers, !m.CRC, m.DropBadCRC
	if s.Markers != nil {
		s.NoMarkers = !*s.Markers
	}
	if s.CRC != nil {
		s.NoCRC = !*s.CRC
	}
	switch s.Type {
	case Region:
		v.region(path, s)
	case File:
		v.file(path, s)
	case Perf:
		v.Number(path+".size_max", int64(s.SizeMax), 1, pair.SizeLimit)
	case Stream:
		if s.Mode == "" {
			v.Wrong(path+".mode", "missing: sink, source or echo; iperf3 runs itself")
		} else {
			v.OneOf(path+".mode", s.Mode, "sink", "source", "echo")
		}
		v.Number(path+".length", int64(s.Length), 1, bytestream.LengthMax)
		if s.Mode == "source" && s.Bytes == 0 && s.Time == 0 {
			v.Wrong(path+".time", "0: a source needs an end, time or bytes")
		}
	}
}

// servedOn finds the ports.
func (v *validator) servedOn(path string, s *Service) {
	if v.Given(path+".ports") && len(s.Ports) == 0 {
		v.Wrong(path+".ports", "empty, so that it would be served nowhere; leave it out for all ports")
	}
	for i := range v.c.Ports {
		if len(s.Ports) == 0 {
			s.On = append(s.On, i)
		}
	}
	for j, name := range s.Ports {
		i := slices.IndexFunc(v.c.Ports, func(p portfile.Port) bool { return p.Name == name })
		switch {
		case i < 0:
			var names []string
			for _, p := range v.c.Ports {
				if p.Name != "" {
					names = append(names, p.Name)
				}
			}
			v.Wrong(fmt.Sprintf("%s.ports[%d]", path, j), "%q: no port has this name; there are %s", name,
				strings.Join(names, ", "))
		case slices.Contains(s.On, i):
			v.Wrong(fmt.Sprintf("%s.ports[%d]", path, j), "%q: twice", name)
		default:
			s.On = append(s.On, i)
		}
	}
}

// allowed reads the networks.
func (v *validator) allowed(path string, s *Service) {
	if v.Given(path+".allow") && len(s.Allow) == 0 {
		v.Wrong(path+".allow", "empty, so that no client would be served; leave it out to serve all")
	}
	for i, text := range s.Allow {
		at := fmt.Sprintf("%s.allow[%d]", path, i)
		n, err := netip.ParsePrefix(text)
		if a, no := netip.ParseAddr(text); no == nil && a.Zone() == "" {
			n, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		switch {
		case err != nil:
			v.Wrong(at, "%q: want a network, as 10.9.0.0/24 or fd09::/64, or an address, without a zone",
				text)
		case n.Addr().Is4In6():
			v.Wrong(at, "%q: no peer has such an address; write the IPv4 one, as %v", text, n.Addr().Unmap())
		case n != n.Masked():
			v.Wrong(at, "%q: the address goes beyond the network; want %v", text, n.Masked())
		default:
			s.Networks = append(s.Networks, n)
		}
	}
}

func (v *validator) region(path string, s *Service) {
	if s.Size < 1 {
		v.Wrong(path+".size", "missing: how much memory, as \"256MiB\"")
	}
	if s.Quota > s.Size {
		v.Wrong(path+".quota", "%v is more than the region's size, %v", s.Quota, s.Size)
	}
	v.memory(path, s)
}

func (v *validator) memory(path string, s *Service) {
	if _, err := port.ParsePage(s.Page); err != nil {
		v.Wrong(path+".page", "%q: %v", s.Page, err)
	}
	v.Number(path+".numa_node", int64(s.Node), -1, 1023)
}

func (v *validator) file(path string, s *Service) {
	v.memory(path, s)
	if s.Path == "" {
		v.Wrong(path+".path", "missing: the file that is served")
		return
	}
	st, err := os.Stat(s.Path)
	switch {
	case err != nil:
		v.Wrong(path+".path", "%v", err)
	case !st.Mode().IsRegular():
		v.Wrong(path+".path", "%s: want a regular file", s.Path)
	}
}

// services judges them together: what listens where.
func (v *validator) services() {
	for i := range v.c.Services {
		v.itself(i)
		for j := range i {
			a, b := &v.c.Services[j], &v.c.Services[i]
			for _, on := range b.On {
				if a.Listen == b.Listen && slices.ContainsFunc(a.On, func(other int) bool {
					return v.samePlace(on, other)
				}) {
					v.Wrong(fmt.Sprintf("service[%d].listen", i),
						"%d on port %q is that of the service %q in line %d; choose another",
						b.Listen, v.c.Ports[on].Name, a.Name, v.Line(fmt.Sprintf("service[%d].name", j)))
					break
				}
			}
		}
	}
}

// itself refuses a service on two ports of this host's sockets of which one is in the other's way.
func (v *validator) itself(i int) {
	on := v.c.Services[i].On
	for j, a := range on {
		for _, b := range on[:j] {
			if v.samePlace(a, b) {
				v.Wrong(fmt.Sprintf("service[%d].ports", i),
					"%d on port %q is that on port %q; choose one of them",
					v.c.Services[i].Listen, v.c.Ports[a].Name, v.c.Ports[b].Name)
				return
			}
		}
	}
}

// samePlace: what listens on one port of this host's sockets listens on the other.
func (v *validator) samePlace(a, b int) bool {
	p, q := &v.c.Ports[a], &v.c.Ports[b]
	if a == b || !p.Open.Driver.Sockets || !q.Open.Driver.Sockets {
		return a == b
	}
	return overlap(p.Open.HostAt, q.Open.HostAt)
}
