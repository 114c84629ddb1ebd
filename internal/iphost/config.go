package iphost

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/rnicd/rnicd/internal/inet"
)

// Check says what is wrong with addresses, routes, VLAN and MTU.
func (cfg *Config) Check() error {
	if len(cfg.Addrs) > Max {
		return fmt.Errorf("%d addresses: at most %d", len(cfg.Addrs), Max)
	}
	for _, a := range cfg.Addrs {
		if err := cfg.checkAddr(a); err != nil {
			return err
		}
	}
	if len(cfg.Addrs)+len(cfg.Routes) > inet.RoutesMax {
		return fmt.Errorf("%d routes: at most %d", len(cfg.Routes), inet.RoutesMax-len(cfg.Addrs))
	}
	for _, r := range cfg.Routes {
		if err := cfg.checkRoute(r); err != nil {
			return err
		}
	}
	if cfg.VLAN > 4094 {
		return fmt.Errorf("VLAN %d: want 1 to 4094, or 0 for untagged frames", cfg.VLAN)
	}
	return nil
}

func (cfg *Config) checkRoute(r inet.Route) error {
	onLink := !r.Gateway.IsValid()
	for _, a := range cfg.Addrs {
		if a.Addr() == r.Gateway {
			return fmt.Errorf("gateway %v is our own address; name a router's", r.Gateway)
		}
		if a.Contains(r.Gateway) {
			if err := inet.CheckStation(netip.PrefixFrom(r.Gateway, a.Bits())); err != nil {
				return fmt.Errorf("gateway %v: %w", r.Gateway, err)
			}
			onLink = true
		}
	}
	if !onLink {
		return fmt.Errorf("gateway %v is not on %v", r.Gateway, cfg.Addrs[0].Masked())
	}
	if !r.Prefix.IsValid() || r.Gateway.IsValid() && r.Gateway.Is4() != r.Prefix.Addr().Is4() {
		return fmt.Errorf("route %v by %v: want a prefix and a gateway of one family",
			r.Prefix, r.Gateway)
	}
	return nil
}

// checkAddr says what is wrong with one address.
func (cfg *Config) checkAddr(a netip.Prefix) error {
	if err := inet.CheckStation(a); err != nil {
		return fmt.Errorf("address %v: %w", a, err)
	}
	if a.Addr().Is6() && cfg.MTU < inet.IPv6MTUMin {
		return fmt.Errorf("MTU %d: IPv6 wants at least %d", cfg.MTU, inet.IPv6MTUMin)
	}
	return nil
}

// WithLinkLocal is all, and for IPv6 a link-local address if there is none among them.
func WithLinkLocal(all []netip.Prefix, mac inet.MAC) []netip.Prefix {
	six, linkLocal := false, false
	for _, a := range all {
		six = six || a.Addr().Is6()
		linkLocal = linkLocal || a.Addr().IsLinkLocalUnicast() && a.Addr().Is6()
	}
	if six && !linkLocal {
		all = append(all, netip.PrefixFrom(inet.LinkLocal(mac).Netip(), 64))
	}
	return all
}

// subnetBroadcast is the all-ones host of a prefix that has one (RFC 3021: a /31 has none).
func subnetBroadcast(prefix netip.Prefix) inet.Addr {
	if prefix.Bits() > 30 {
		return inet.Addr{}
	}
	b := prefix.Addr().As4()
	host := ^uint32(0) >> prefix.Bits()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])|host)
	return inet.AddrFrom4(b)
}
