package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/rnicd/rnicd/internal/port"
)

// parseAddrs reads our addresses.
func parseAddrs(texts []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range texts {
		p, err := parseAddr("--addr", text)
		if err != nil {
			return nil, err
		}
		for _, other := range all {
			if other.Addr() == p.Addr() {
				return nil, fmt.Errorf("--addr: %v is given twice", p.Addr())
			}
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		return nil, errors.New("--addr: our stack needs an address, as 10.9.0.1/24")
	}
	return all, nil
}

// parseAddr reads a host's address with its prefix length.
func parseAddr(flag, text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("%s %q: want an address with its prefix length, as 10.9.0.1/24 or "+
			"fd09::1/64", flag, text)
	}
	if err := port.CheckStation(p); err != nil {
		return p, fmt.Errorf("%s %s: %w", flag, text, err)
	}
	return p, nil
}

// kernelAddr is where --pmd kernel listens, or dials from; the zero address stands for all of this
// host's.
func (o *nicOptions) kernelAddr() (netip.Addr, error) {
	if len(o.given("addr")) == 0 {
		return netip.Addr{}, nil
	}
	if len(o.addrs) == 1 {
		if a, err := netip.ParseAddr(o.addrs[0]); err == nil {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("--addr %q: with --pmd kernel want one address of this host, "+
		"without a prefix length, as 127.0.0.1",
		strings.Join(o.addrs, ","))
}

// checkHostAddr refuses an address for the kernel's side that our stack has, or could not answer.
func (o *nicOptions) checkHostAddr() error {
	host, err := parseAddr("--host-addr", o.hostAddr)
	if err != nil {
		return err
	}
	ours, err := parseAddrs(o.addrs)
	if err != nil {
		return err
	}
	near := len(o.gateways) > 0
	for _, a := range ours {
		if a.Addr() == host.Addr() {
			return fmt.Errorf("--host-addr %s: that is our stack's own address, by --addr; give the "+
				"kernel's side another of its network", o.hostAddr)
		}
		near = near || a.Contains(host.Addr())
	}
	if !near {
		return fmt.Errorf("--host-addr %s: not in the network of --addr %s, so our stack could not "+
			"answer it; choose one of that network, or name a --gateway",
			o.hostAddr, strings.Join(o.addrs, ","))
	}
	return o.checkOtherRoutes(host, ours)
}

// checkOtherRoutes refuses a network that the kernel reaches through another device: it would send
// what is for us there.
func (o *nicOptions) checkOtherRoutes(host netip.Prefix, ours []netip.Prefix) error {
	devices, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("--host-addr %s: %w", o.hostAddr, err)
	}
	for _, d := range devices {
		addrs, err := d.Addrs()
		if err != nil || d.Name == o.dev || d.Flags&net.FlagUp == 0 { // it may have gone meanwhile
			continue
		}
		for _, a := range addrs {
			other, err := netip.ParsePrefix(a.String())
			for _, our := range ours {
				if err == nil && host.Contains(our.Addr()) && other.Contains(our.Addr()) &&
					other.Bits() >= host.Bits() {
					return fmt.Errorf("--host-addr %s: %s has an address of that network already (%v), and the "+
						"kernel would look for %v there; "+
						"choose another network, or take that address away", o.hostAddr, d.Name, other, our.Addr())
				}
			}
		}
	}
	return nil
}

// routers are the gateways.
func (o *nicOptions) routers() (all []netip.Addr, err error) {
	for _, text := range o.gateways {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("--gateway %q: want the address of a router on the link, as 10.9.0.254",
				text)
		}
		all = append(all, a)
	}
	return all, nil
}
