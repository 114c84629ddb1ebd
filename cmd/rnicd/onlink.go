package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/rnicd/rnicd/inet"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/tap"
	"github.com/rnicd/rnicd/stack"
)

// What a device has to do with others on its link: its MAC, how its addresses are checked, and
// what is said of conflicts.

const (
	addrTimeout    = 30 * time.Second // a check takes up to 7, and begins anew when the link comes up
	conflictPeriod = time.Minute      // between lines about one address
	busyPause      = time.Millisecond
)

// How --dad says to look whether another host has our addresses.
const (
	dadAuto  = "auto"
	dadQuick = "quick"
	dadFull  = "full"
)

// checkOnLink refuses what --mac and --dad cannot be.
func (o *nicOptions) checkOnLink() error {
	switch o.dad {
	case "", dadAuto, dadQuick, dadFull: // empty: a command without the flag
	default:
		return fmt.Errorf("--dad %q: want %s, %s or %s", o.dad, dadAuto, dadQuick, dadFull)
	}
	if o.noDAD && len(o.given("dad")) > 0 {
		return errors.New("--no-dad and --dad: leave one away")
	}
	if _, err := o.givenMAC(); err != nil {
		return err
	}
	return nil
}

// givenMAC is --mac, or no address.
func (o *nicOptions) givenMAC() (mac [6]byte, err error) {
	if o.mac == "" {
		return mac, nil
	}
	b, err := net.ParseMAC(o.mac)
	if err != nil || len(b) != len(mac) || b[0]&1 != 0 || [6]byte(b) == mac {
		return mac, fmt.Errorf("--mac %q: want the address of one station, as 02:00:0a:09:00:01", o.mac)
	}
	return [6]byte(b), nil
}

// macSeed tells devices of one name in several network namespaces of a host apart.
func (o *nicOptions) macSeed() string { return strings.Join(o.addrs, ",") }

// tapMAC is the MAC of DPDK's net_tap as an argument of it; none when the host has no identity.
func (o *nicOptions) tapMAC() string {
	if o.mac != "" {
		return ",mac=" + o.mac
	}
	mac, ok := tap.StableMAC(o.dev, o.macSeed())
	if !ok {
		return ""
	}
	return ",mac=" + inet.MAC(mac).String()
}

// quickDAD says how the addresses are checked. At the other end of a TAP is the kernel of this
// host, which answers at once; a server there need not wait for 4 to 7 s. A NIC takes
// the RFCs' times.
func (o *nicOptions) quickDAD() bool {
	if o.dad == dadQuick || o.dad == dadFull {
		return o.dad == dadQuick
	}
	return o.pmd == "tap" || o.pmd == "dpdk" && o.pci == "" && (!strings.HasPrefix(o.dev, "net_") || strings.HasPrefix(o.dev, "net_tap"))
}

// awaitAddrs returns when our addresses may be used: no other host has said that one is its own. It
// has the Pollers told when the device is connected. For after start.
func (n *nic) awaitAddrs(ctx context.Context, w io.Writer) error {
	if err := n.watchLink(); err != nil {
		fmt.Fprintf(w, "warning     %v; when the device is connected later, our addresses are not announced\n", err)
	}
	limited, cancel := context.WithTimeout(ctx, addrTimeout)
	defer cancel()
	for _, p := range n.pollers {
		err := p.AwaitAddrs(limited)
		var taken *stack.AddrError
		switch {
		case err == nil:
		case errors.As(err, &taken):
			return takenError(taken.Addr, taken.MAC)
		case ctx.Err() != nil:
			return ctx.Err()
		case limited.Err() != nil:
			return fmt.Errorf("--addr: whether another host has our addresses could not be found out within %v; --no-dad does without", addrTimeout)
		default:
			return err
		}
	}
	return nil
}

func takenError(addr netip.Addr, mac inet.MAC) error {
	return fmt.Errorf("--addr %v: another host on the link has this address, the one with MAC %v; choose another, or take it from that host",
		addr, mac)
}

// errAddrTaken is why a command ends that has no address left.
var errAddrTaken = errors.New("no address is left to serve on")

// watchLink tells the Pollers whenever the device is connected.
func (n *nic) watchLink() error {
	device, ok := n.device.(pmd.LinkWatcher)
	if !ok {
		return nil
	}
	return device.WatchLink(func() {
		for _, p := range n.pollers {
			for errors.Is(p.LinkUp(), stack.ErrBusy) {
				time.Sleep(busyPause)
			}
		}
	})
}

// conflicts tells of other hosts that claim addresses of ours.
type conflicts struct {
	told map[netip.Addr]told
}

// told is what was said of an address.
type told struct {
	conflicts uint64
	at        time.Time
	lost      bool
}

// look asks what has become of our addresses and tells of what is new. Its error says that none is
// left.
func (c *conflicts) look(ctx context.Context, p *stack.Poller, out *output) error {
	ctx, cancel := context.WithTimeout(ctx, countersTimeout)
	defer cancel()
	all, err := p.Addrs(ctx)
	if err != nil {
		return nil // it ends, or is asked again
	}
	return c.tell(all, time.Now(), out)
}

func (c *conflicts) tell(all []stack.AddrStatus, now time.Time, out *output) error {
	left := 0
	for _, s := range all {
		was := c.told[s.Addr]
		switch {
		case s.State == stack.AddrDuplicate && !was.lost:
			was = told{s.Conflicts, now, true}
			out.do(func(w io.Writer) {
				fmt.Fprintf(w, "conflict    %v; we do not use it any more\n", takenError(s.Addr, s.Rival))
			})
		case s.State == stack.AddrUsable && s.Conflicts > was.conflicts && now.Sub(was.at) >= conflictPeriod:
			was = told{s.Conflicts, now, false}
			out.do(func(w io.Writer) {
				fmt.Fprintf(w, "conflict    %v is used by another host on the link, too, the one with MAC %v: take it from that host; we defend it\n",
					s.Addr, s.Rival)
			})
		}
		c.told[s.Addr] = was
		if s.State != stack.AddrDuplicate && !s.Addr.IsLinkLocalUnicast() {
			left++
		}
	}
	if left == 0 {
		return errAddrTaken
	}
	return nil
}
