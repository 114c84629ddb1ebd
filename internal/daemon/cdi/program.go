package cdi

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/vswitch"
)

// The longest prefixes that programs' addresses get by themselves.
const (
	prefixMost4 = 24
	prefixMost6 = 64
)

// deviceForm is what CDI takes for the name of a device, of what a switch takes for a program's.
var deviceForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$`)

// Drivers are those of a switch's configuration that is described only: none says that it is not
// built in, as DPDK's is not where rnicd is linked with nothing.
func Drivers() port.Drivers {
	drivers := slices.Clone(port.All())
	for i := range drivers {
		drivers[i].Check = nil
	}
	return drivers
}

// Programs has a device for each program of a switch: its name, socket, id, secret, addresses and
// settings. Programs with a secret are apart, since only root may read them; a Spec without devices
// is nil. The error joins one for each program that no container can be.
func (h Host) Programs(s *config.Switch) (open, secret *specs.Spec, err error) {
	var plain, kept []specs.Device
	var wrong []error
	for i := range s.Programs {
		edits, err := h.program(s, i)
		switch d := (specs.Device{Name: s.Programs[i].Name, ContainerEdits: edits}); {
		case err != nil:
			wrong = append(wrong, fmt.Errorf("program %s is left out: %w", d.Name, err))
		case s.Programs[i].Secret != "":
			kept = append(kept, d)
		default:
			plain = append(plain, d)
		}
	}
	if len(plain) > 0 {
		open = complete(&specs.Spec{Devices: plain})
	}
	if len(kept) > 0 {
		secret = complete(&specs.Spec{Devices: kept})
	}
	return open, secret, errors.Join(wrong...)
}

// program is what a container gets of a program.
func (h Host) program(s *config.Switch, i int) (edits specs.ContainerEdits, err error) {
	g, p := &s.Programs[i], &s.Vswitch.Programs[i]
	switch {
	case slices.Contains([]string{Sockets, RoCE, Tools}, g.Name):
		return edits, errors.New("its name is that of a device which is there without a switch; " +
			"give it another")
	case !deviceForm.MatchString(g.Name):
		return edits, errors.New("the name of a device begins and ends with a letter or a digit; " +
			"give it another")
	case strings.HasPrefix(p.Socket, "@"):
		return edits, fmt.Errorf("socket %s is in the abstract namespace, which a container with a "+
			"network of its own has not; give it a path", p.Socket)
	}
	mount, socket, err := socketMount(s, p.Socket)
	if err != nil {
		return edits, err
	}
	addresses := make([]string, len(g.Addresses))
	for j, text := range g.Addresses {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return edits, err
		}
		prefix, err := h.prefix(s, i, a)
		if err != nil {
			return edits, err
		}
		addresses[j] = prefix.String()
	}
	edits = h.loaded()
	edits.Mounts = append(edits.Mounts, mount)
	edits.AdditionalGIDs = h.GIDs
	add := func(key, value string) { edits.Env = append(edits.Env, "RNICD_"+key+"="+value) }
	add("PMD", "memif")
	add("SOCKET", socket)
	add("ID", strconv.FormatUint(uint64(g.ID), 10))
	add("ADDR", strings.Join(addresses, ","))
	add("DAD", "off") // the switch gives nobody else the address
	for key, value := range map[string]string{"SECRET": g.Secret, "MAC": g.MAC,
		"DIAL_PORTS": dialPorts(p.Ports)} {
		if value != "" {
			add(key, value)
		}
	}
	for key, n := range map[string][2]int{"MTU": {g.MTU, 1500}, "QUEUES": {g.Queues, 1},
		"VLAN": {int(g.VLAN), 0}} {
		if n[0] != n[1] {
			add(key, strconv.Itoa(n[0]))
		}
	}
	slices.Sort(edits.Env) // maps have no order
	return edits, nil
}

// socketMount shows a container the folder of a socket, so that a switch that starts again finds
// its programs; the socket alone where the switch's control socket is in the same folder.
func socketMount(s *config.Switch, socket string) (m *specs.Mount, inside string, err error) {
	if socket, err = filepath.Abs(socket); err != nil {
		return nil, "", err
	}
	inside = path.Join(SocketsInside, filepath.Base(socket))
	control, err := filepath.Abs(s.Control.Path)
	if err != nil {
		return nil, "", err
	}
	if s.Control.Path != "" && filepath.Dir(control) == filepath.Dir(socket) {
		return bind(socket, inside), inside, nil
	}
	return bind(filepath.Dir(socket), SocketsInside), inside, nil
}

// dialPorts is the longest range of ports, which a program that shares its address dials from.
func dialPorts(ports []vswitch.PortRange) string {
	if len(ports) == 0 {
		return ""
	}
	most := slices.MaxFunc(ports, func(a, b vswitch.PortRange) int {
		return int(a.Last-a.First) - int(b.Last-b.First)
	})
	return fmt.Sprintf("%d-%d", most.First, most.Last)
}

// prefix is an address with the length of its network's prefix, which a switch need not know: the
// host's word, or that of the kernel's side of the uplink, or what the programs that see each other
// have in common.
func (h Host) prefix(s *config.Switch, i int, a netip.Addr) (netip.Prefix, error) {
	if a.Is4() && h.PrefixLen > 0 {
		p := netip.PrefixFrom(a, h.PrefixLen)
		if err := port.CheckStation(p); err != nil {
			return p, fmt.Errorf("%v: %w", p, err)
		}
		return p, nil
	}
	if u := s.Vswitch.Programs[i].Uplink; u != vswitch.NoUplink {
		host := s.Uplinks[u].Open.HostAddr
		if p := netip.PrefixFrom(a, host.Bits()); host.IsValid() && host.Masked().Contains(a) &&
			port.CheckStation(p) == nil {
			return p, nil
		}
	}
	bits := prefixMost6
	if a.Is4() {
		bits = prefixMost4
	}
	for bits > 0 && !h.holds(s, i, netip.PrefixFrom(a, bits)) {
		bits--
	}
	return netip.PrefixFrom(a, bits), nil
}

// holds says whether a prefix has the addresses of its family of all programs that program i sees.
func (h Host) holds(s *config.Switch, i int, p netip.Prefix) bool {
	me := &s.Vswitch.Programs[i]
	for j := range s.Programs {
		if o := &s.Vswitch.Programs[j]; o.Uplink != me.Uplink || o.VLAN != me.VLAN {
			continue
		}
		for _, text := range s.Programs[j].Addresses {
			o, err := netip.ParseAddr(text)
			if err == nil && o.Is4() == p.Addr().Is4() && (!p.Contains(o) ||
				port.CheckStation(netip.PrefixFrom(o, p.Bits())) != nil) {
				return false
			}
		}
	}
	return true
}
