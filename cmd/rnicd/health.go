package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/dpdk"
	"github.com/rnicd/rnicd/stack"
)

const idleAdaptive = "adaptive"

// idleNames are the policies of --idle, at the numbers that stack gives them.
var idleNames = []string{idleAdaptive, "spin", "pause", "sleep", "interrupt"}

// idlePolicy is what --idle says, or --spin.
func (o *nicOptions) idlePolicy() (stack.Idle, error) {
	at := slices.Index(idleNames, o.idle)
	switch {
	case o.idle == "": // a command without the flag
		at = int(stack.IdleAdaptive)
	case at < 0:
		return 0, fmt.Errorf("--idle %q: want %s", o.idle, strings.Join(idleNames, ", "))
	}
	if o.spin {
		if len(o.given("idle")) > 0 && o.idle != "spin" {
			return 0, fmt.Errorf("--spin and --idle %s: leave one away", o.idle)
		}
		return stack.IdleSpin, nil
	}
	return stack.Idle(at), nil
}

// nodeOfDevice is --node, or without it the node that the NIC is attached to.
func (o *nicOptions) nodeOfDevice() int {
	if o.node == hugepages.AnyNode && o.pmd == "dpdk" && o.pci != "" {
		return dpdk.NUMANode(o.pci)
	}
	return o.node
}

// stuckAfter is how long a queue takes nothing before that is told.
const stuckAfter = 5 * time.Second

// monitored is a device that says how it is.
type monitored interface {
	Link() dpdk.Link
	Stuck(now time.Time, atLeast time.Duration) (queues []int)
}

// health tells of a device's link, and of queues that take nothing, when that has changed.
type health struct {
	device monitored // nil: it says nothing
	link   dpdk.Link
	stuck  []int
}

func newHealth(port pmd.Port) *health {
	h := &health{}
	if m, ok := port.(monitored); ok {
		h.device, h.link = m, m.Link()
	}
	return h
}

// look is called about once a second.
func (h *health) look(now time.Time, out *output) {
	if h.device == nil {
		return
	}
	if link := h.device.Link(); link != h.link {
		h.link = link
		out.do(func(w io.Writer) { fmt.Fprintf(w, "link        %v\n", link) })
	}
	stuck := h.device.Stuck(now, stuckAfter)
	for _, i := range stuck {
		if !slices.Contains(h.stuck, i) {
			out.do(func(w io.Writer) {
				fmt.Fprintf(w, "stuck       queue %d of the device has taken no frame for %v; the link is %v\n", i, stuckAfter, h.link)
			})
		}
	}
	for _, i := range h.stuck {
		if !slices.Contains(stuck, i) {
			out.do(func(w io.Writer) { fmt.Fprintf(w, "stuck       queue %d of the device takes frames again\n", i) })
		}
	}
	h.stuck = stuck
}

// allPollers are a NIC's, none over the kernel's sockets.
func (n *nic) allPollers() []*stack.Poller {
	if n == nil {
		return nil
	}
	return n.pollers
}

// xstats are the statistics of the device's driver, if it has some. One that cannot say them now has
// none.
func (n *nic) xstats() []dpdk.XStat {
	if n == nil {
		return nil
	}
	if d, ok := n.device.(interface{ XStats() ([]dpdk.XStat, error) }); ok {
		x, _ := d.XStats()
		return x
	}
	return nil
}
