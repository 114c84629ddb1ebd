package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/capture"
	"github.com/rnicd/rnicd/pmd/dpdk"
	"github.com/rnicd/rnicd/pmd/fault"
	"github.com/rnicd/rnicd/pmd/tap"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

// Sizes of a NIC's packet memory.
const (
	poolBufs    = 8192
	connsMax    = 256
	strideAlign = 64
	frameExtra  = 64 // Ethernet header, two VLAN tags, and the octet that tells a cut frame from a full one
)

// nicOptions are the flags that describe a NIC and its Poller.
type nicOptions struct {
	pmd      string
	dev      string
	pci      string
	eal      string
	addr     string
	hostAddr string
	mtu      int
	core     int
	spin     bool
	page     string
	node     int
	fault    string
	capture  string
}

func (o *nicOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.pmd, "pmd", "tap", "poll-mode driver: tap, dpdk, or kernel (no driver: MPA over the kernel's TCP)")
	f.StringVar(&o.dev, "dev", "rnic0", "tap: device name; dpdk: name of the TAP that net_tap makes, or a whole vdev such as net_af_packet0,iface=eth1")
	f.StringVar(&o.pci, "pci", "", "dpdk: PCI address of a NIC, as after -a")
	f.StringVar(&o.eal, "eal", "", "dpdk: further EAL arguments, separated by spaces")
	f.StringVar(&o.addr, "addr", "10.9.0.1/24", "address of our stack")
	f.StringVar(&o.hostAddr, "host-addr", "", "tap: address of the kernel's side, as 10.9.0.254/24; empty leaves it alone")
	f.IntVar(&o.mtu, "mtu", 1500, "largest IP packet, octets")
	f.IntVar(&o.core, "core", -1, "CPU to pin the poll-mode core to; -1: the scheduler's choice")
	f.BoolVar(&o.spin, "spin", false, "never give up the core, even when idle")
	f.StringVar(&o.page, "page", "auto", "page size of packet and region memory: auto, 2M, 1G or normal")
	f.IntVar(&o.node, "node", hugepages.AnyNode, "NUMA node of the memory; -1: any")
	f.StringVar(&o.fault, "fault", "", "a bad network, as drop=1%,reorder=1%,dup=0.5%,corrupt=0.1%,delay=1ms,seed=7")
	f.StringVar(&o.capture, "capture", "", "write every frame to this pcapng file")
}

// nic is an open port with its memory and the Poller on it.
type nic struct {
	arena   *hugepages.Arena
	port    pmd.Port
	capture *capture.Capture
	poller  *stack.Poller
	region  []byte
	turned  sync.WaitGroup
	runErr  error
	cancel  context.CancelFunc
}

// openNIC maps memory for packets and a region of regionBytes, opens the device and makes a Poller. port opens the
// device once there is memory.
func openNIC(o *nicOptions, regionBytes int64, log io.Writer, port func(*hugepages.Arena) (pmd.Port, error)) (*nic, error) {
	addr, err := netip.ParsePrefix(o.addr)
	if err != nil {
		return nil, fmt.Errorf("--addr %q: want an address with its prefix length, as 10.9.0.1/24", o.addr)
	}
	page, err := parsePage(o.page)
	if err != nil {
		return nil, err
	}
	stride := (mem.Headroom + o.mtu + frameExtra + strideAlign - 1) &^ (strideAlign - 1)
	packets := int64(poolBufs * stride)
	n := &nic{}
	n.arena, err = hugepages.New(hugepages.Config{Bytes: packets + regionBytes + 8<<20, Page: page, Node: o.node})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(log, "memory      %s on %s pages%s\n", octets(uint64(len(n.arena.Bytes()))), pageName(n.arena.PageSize()), fallbackNote(n.arena))
	if err := n.open(o, addr, stride, port); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	if n.region, err = n.arena.Carve(int(regionBytes), 4096); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *nic) open(o *nicOptions, addr netip.Prefix, stride int, port func(*hugepages.Arena) (pmd.Port, error)) (err error) {
	pool, err := mem.NewPool(n.arena, mem.PoolConfig{Bufs: poolBufs, Stride: stride})
	if err != nil {
		return err
	}
	if n.port, err = port(n.arena); err != nil {
		return err
	}
	if o.fault != "" {
		spec, err := fault.Parse(o.fault)
		if err != nil {
			return fmt.Errorf("--fault: %w", err)
		}
		begin := time.Now()
		if n.port, err = fault.NewPort(n.port, spec, func() int64 { return int64(time.Since(begin)) }); err != nil {
			return fmt.Errorf("--fault: %w", err)
		}
	}
	if o.capture != "" {
		if n.capture, err = capture.Create(o.capture, capture.Config{}); err != nil {
			return fmt.Errorf("--capture: %w", err)
		}
		if n.port, err = n.capture.Port(n.port); err != nil {
			return fmt.Errorf("--capture: %w", err)
		}
	}
	queue, err := n.port.Open(0, pool)
	if err != nil {
		return err
	}
	idle := stack.IdleAdaptive
	if o.spin {
		idle = stack.IdleSpin
	}
	n.poller, err = stack.New(stack.Config{
		Name: n.port.Name(), Queue: queue, Pool: pool, Caps: n.port.Caps(), MAC: inet.MAC(n.port.MAC()),
		Addr: addr, MTU: o.mtu, ConnsMax: connsMax, Core: o.core, Idle: idle,
	})
	return err
}

// openPort opens the device that the flags name.
func (o *nicOptions) openPort(arena *hugepages.Arena) (pmd.Port, error) {
	switch o.pmd {
	case "tap":
		cfg := tap.Config{Name: o.dev, MTU: o.mtu}
		if o.hostAddr != "" {
			p, err := netip.ParsePrefix(o.hostAddr)
			if err != nil {
				return nil, fmt.Errorf("--host-addr %q: want an address with its prefix length, as 10.9.0.254/24", o.hostAddr)
			}
			cfg.Addr = p
		}
		return tap.New(cfg)
	case "dpdk":
		cfg := dpdk.Config{Arena: arena, MTU: o.mtu, EALArgs: strings.Fields(o.eal), PCI: o.pci}
		switch {
		case o.pci != "":
		case strings.HasPrefix(o.dev, "net_"):
			cfg.Vdev = o.dev
		default:
			cfg.Vdev = "net_tap0,iface=" + o.dev
		}
		return dpdk.Open(cfg)
	}
	return nil, fmt.Errorf("--pmd %q: want tap, dpdk or kernel", o.pmd)
}

// start runs the Poller until Close.
func (n *nic) start() {
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.turned.Go(func() { n.runErr = n.poller.Run(ctx) })
}

// Close stops the Poller and gives everything back.
func (n *nic) Close() error {
	var err error
	if n.cancel != nil {
		n.cancel()
		n.turned.Wait()
		if !errors.Is(n.runErr, context.Canceled) {
			err = n.runErr
		}
	}
	if n.port != nil {
		err = errors.Join(err, n.port.Close())
	}
	if n.capture != nil {
		err = errors.Join(err, n.capture.Close())
	}
	return errors.Join(err, n.arena.Close())
}

// adapter makes an rnic.Adapter on the NIC's Poller.
func (n *nic) adapter() (*rnic.Adapter, error) {
	return rnic.Open(rnic.Config{Pollers: []*stack.Poller{n.poller}, Arena: n.arena})
}

func parsePage(s string) (hugepages.PageSize, error) {
	switch s {
	case "auto":
		return hugepages.Auto, nil
	case "2M":
		return hugepages.Page2MiB, nil
	case "1G":
		return hugepages.Page1GiB, nil
	case "normal":
		return hugepages.Normal, nil
	}
	return 0, fmt.Errorf("--page %q: want auto, 2M, 1G or normal", s)
}

func pageName(p hugepages.PageSize) string {
	if p == hugepages.Normal {
		return "normal"
	}
	return p.String()
}

func fallbackNote(a *hugepages.Arena) string {
	if f := a.Fallback(); f != "" {
		return " (" + f + ")"
	}
	return ""
}
