package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/dpdk"
)

// What a device has to do with others on its link: its MAC, how its addresses are checked, and
// what is said of conflicts.

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
		return errors.New("--no-dad and --dad: give only one")
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
	if mac, err = port.ParseMAC(o.mac); err != nil {
		return mac, fmt.Errorf("--mac %q: %w", o.mac, err)
	}
	return mac, nil
}

// dadPolicy says how the addresses are checked. At the other end of a TAP is the kernel of this
// host, and of a memif a process, which answer at once; a server there need not wait for 4 to 7 s.
// A NIC takes the RFCs' times.
func (o *nicOptions) dadPolicy() port.DAD {
	switch {
	case o.noDAD:
		return port.DADNone
	case o.dad == dadQuick:
		return port.DADQuick
	case o.dad == dadFull:
		return port.DADFull
	}
	return port.DADAuto
}

// awaitAddrs returns when our addresses may be used: no other host has said that one is its own. It
// has the Pollers told when the device is connected. For after Start.
func awaitAddrs(ctx context.Context, n *port.Port, w io.Writer) error {
	if err := n.WatchLink(); err != nil {
		fmt.Fprintf(w, "warning     %v; when the device is connected later, our addresses are not "+
			"announced\n", err)
	}
	for _, left := range n.Config().ChecksumsLeft() {
		fmt.Fprintf(w, "warning     %v; %s\n", left, left.Fix())
	}
	err := n.AwaitAddrs(ctx)
	var taken *port.AddrTakenError
	switch {
	case errors.As(err, &taken):
		return fmt.Errorf("--addr %w", err)
	case errors.Is(err, port.ErrAddrsUnknown):
		return fmt.Errorf("--addr: %w; --no-dad does without", err)
	}
	return err
}

// conditions tells what becomes of a device while a command runs, in lines of its own.
type conditions struct{ out *output }

func (c conditions) Conflict(addr netip.Addr, rival inet.MAC, lost bool) {
	c.out.do(func(w io.Writer) {
		if lost {
			fmt.Fprintf(w, "conflict    --addr %v; we do not use it any more\n",
				&port.AddrTakenError{Addr: addr, MAC: rival})
			return
		}
		fmt.Fprintf(w, "conflict    %v is used by another host on the link, too, the one with MAC %v: "+
			"take it from that host; we defend it\n", addr, rival)
	})
}

func (c conditions) Full(segments uint64) {
	c.out.do(func(w io.Writer) {
		fmt.Fprintf(w, "full        %d segments that open a connection were not answered: their "+
			"address has as many as --peer-max allows\n", segments)
	})
}

func (c conditions) ChecksumsLeft(packets uint64) {
	c.out.do(func(w io.Writer) {
		fmt.Fprintf(w, "checksums   %d %s\n", packets, port.NoChecksums)
	})
}

func (c conditions) Offences(n uint64) {
	c.out.do(func(w io.Writer) {
		fmt.Fprintf(w, "ended       %d connections of the memif peer: its memory went away, or "+
			"was slow\n", n)
	})
}

// Trouble: that a device leaves its bridge at a restart is no matter of a command's.
func (c conditions) Trouble(was, is pmd.Trouble) {
	c.out.do(func(w io.Writer) {
		switch {
		case is.Stops():
			fmt.Fprintf(w, "device      %s\n", is.Text)
		case was.Stops():
			fmt.Fprintln(w, "device      takes frames again")
		}
	})
}

func (c conditions) Capture(err error) {
	c.out.do(func(w io.Writer) { fmt.Fprintf(w, "capture     ended: %v\n", err) })
}

func (c conditions) Link(link dpdk.Link) {
	c.out.do(func(w io.Writer) { fmt.Fprintf(w, "link        %v\n", link) })
}

func (c conditions) Stuck(queue int, stuck bool, link dpdk.Link) {
	c.out.do(func(w io.Writer) {
		if stuck {
			fmt.Fprintf(w, "stuck       queue %d of the device has taken no frame for %v; the link is %v\n",
				queue, port.StuckAfter, link)
			return
		}
		fmt.Fprintf(w, "stuck       queue %d of the device takes frames again\n", queue)
	})
}
