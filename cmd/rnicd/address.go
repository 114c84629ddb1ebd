package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/rnicd/rnicd/inet"
	"github.com/rnicd/rnicd/stack"
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
		return p, fmt.Errorf("%s %q: want an address with its prefix length, as 10.9.0.1/24 or fd09::1/64", flag, text)
	}
	if p.Addr().Is4() && p.Bits() < 31 && (p.Addr() == p.Masked().Addr() || p.Addr() == lastOf(p)) { // RFC 1122 section 3.2.1.3
		return p, fmt.Errorf("%s %s: the first and the last address of a network are no host's", flag, text)
	}
	if a := p.Addr(); a.Is4In6() || !inet.AddrFrom(a).IsStation() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return p, fmt.Errorf("%s %s: want the unicast address of a host, as 10.9.0.1/24 or fd09::1/64", flag, text)
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
	return netip.Addr{}, fmt.Errorf("--addr %q: with --pmd kernel want one address of this host, without a prefix length, as 127.0.0.1",
		strings.Join(o.addrs, ","))
}

// lastOf is the broadcast address of an IPv4 network.
func lastOf(p netip.Prefix) netip.Addr {
	a := p.Addr().As4()
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])|^uint32(0)>>p.Bits())
	return netip.AddrFrom4(a)
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
			return fmt.Errorf("--host-addr %s: that is our stack's own address, by --addr; give the kernel's side another of its network", o.hostAddr)
		}
		near = near || a.Contains(host.Addr())
	}
	if !near {
		return fmt.Errorf("--host-addr %s: not in the network of --addr %s, so our stack could not answer it; choose one of that network, or name a --gateway",
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
				if err == nil && host.Contains(our.Addr()) && other.Contains(our.Addr()) && other.Bits() >= host.Bits() {
					return fmt.Errorf("--host-addr %s: %s has an address of that network already (%v), and the kernel would look for %v there; "+
						"choose another network, or take that address away", o.hostAddr, d.Name, other, our.Addr())
				}
			}
		}
	}
	return nil
}

// routes are the default routes by the gateways.
func (o *nicOptions) routes() ([]inet.Route, error) {
	var all []inet.Route
	for _, text := range o.gateways {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("--gateway %q: want the address of a router on the link, as 10.9.0.254", text)
		}
		any := netip.IPv4Unspecified()
		if a.Is6() {
			any = netip.IPv6Unspecified()
		}
		all = append(all, inet.Route{Prefix: netip.PrefixFrom(any, 0), Gateway: a})
	}
	return all, nil
}

const counterPeriod = 5 * time.Millisecond

// await looks at each Poller's counters until they are as wanted; false: they were not in time, or
// it has stopped.
func (n *nic) await(ctx context.Context, timeout time.Duration, wanted func(*stack.Counters) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(counterPeriod)
	defer tick.Stop()
	for _, p := range n.pollers {
		for {
			k, err := p.Counters(ctx)
			if err != nil {
				return false
			}
			if wanted(&k) {
				break
			}
			<-tick.C
		}
	}
	return true
}
