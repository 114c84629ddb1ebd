package port

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/dpdk"
	"github.com/rnicd/rnicd/pmd/memif"
	"github.com/rnicd/rnicd/pmd/tap"
	"github.com/rnicd/rnicd/stack"
)

const (
	// RTE_MBUF_DEFAULT_DATAROOM: what drivers, net_af_packet among them, want whatever the MTU
	dpdkRoomMin = 2048
	// memifWait is for the first answer of a server: without one a program has no peer.
	memifWait = 5 * time.Second
)

// Builtin are the drivers of this module.
func Builtin() Drivers {
	return Drivers{
		{Name: "tap", Interrupts: true, MTUMax: tap.MTUMax, Open: openTAP, Claims: claimsOfTAP,
			QuickDAD: func(*Config) bool { return true }},
		{Name: "dpdk", RoomMin: dpdkRoomMin, Check: checkDPDK, Option: dpdkOption, Open: openDPDK,
			Claims: claimsOfDPDK, QuickDAD: quickDPDK, Node: nodeOfPCI},
		{Name: "memif", Interrupts: true, MTUMax: memif.MTUMax, Check: checkMemif, Open: openMemif,
			Lends:    func(c *Config) bool { return !c.Serve },
			QuickDAD: func(*Config) bool { return true }},
		{Name: "kernel", Sockets: true},
	}
}

// openTAP: a nil *tap.Port must not become a pmd.Port that is not nil.
func openTAP(c *Config, _ *hugepages.Arena) (pmd.Port, error) {
	p, err := tap.New(tap.Config{
		Name: c.Device, MTU: c.MTUOr(), NoOffload: c.NoOffload, Queues: c.QueueCount(), Seed: c.Seed(),
		MAC: c.MAC, Addr: c.HostAddr,
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// wholeVdev: Device is the name of a virtual device with its arguments, and not of a TAP.
func wholeVdev(c *Config) bool { return strings.HasPrefix(c.Device, "net_") }

func quickDPDK(c *Config) bool {
	return c.PCI == "" && (!wholeVdev(c) || strings.HasPrefix(c.Device, "net_tap"))
}

func nodeOfPCI(c *Config) int {
	if c.PCI == "" {
		return hugepages.AnyNode
	}
	return dpdk.NUMANode(c.PCI)
}

func checkDPDK(*Config) error {
	if !dpdk.Built {
		return dpdk.Init(nil) // says what to do
	}
	return nil
}

func openDPDK(c *Config, arena *hugepages.Arena) (pmd.Port, error) {
	cfg := dpdk.Config{
		FlowControl: c.FlowControl, Promiscuous: c.Promiscuous, Interrupts: c.Idle == stack.IdleInterrupt,
		MAC:   c.MAC,
		Arena: arena, MTU: c.MTUOr(), Queues: c.QueueCount(), VLAN: c.VLAN, NoOffload: c.NoOffload,
		EALArgs: c.EAL, PCI: c.PCI,
	}
	for name, value := range c.Options {
		if err := setDPDK(&cfg, name, value); err != nil {
			return nil, fmt.Errorf("option %s: %w", name, err)
		}
	}
	args := ""
	if of := c.Options["devargs"]; of != "" {
		args = "," + of
	}
	switch {
	case c.PCI != "":
		cfg.PCI += args
	case wholeVdev(c):
		cfg.Vdev = c.Device + args
	default:
		cfg.Vdev = "net_tap0,iface=" + c.Device + TAPMAC(c) + args
		// What keeps net_tap from making its device is buried in the log of DPDK; our own driver
		// says it clearly.
		probe, err := tap.New(tap.Config{Name: c.Device, MTU: c.MTUOr()})
		if err != nil {
			return nil, err
		}
		if err := probe.Close(); err != nil {
			return nil, err
		}
	}
	return dpdk.Open(cfg)
}

// dpdkOption judges one of [port.options] of the driver dpdk.
func dpdkOption(name, value string) error { return setDPDK(new(dpdk.Config), name, value) }

// setDPDK puts an option where it belongs; devargs it judges only.
func setDPDK(c *dpdk.Config, name, value string) error {
	numbers := map[string]*int{"rx_descriptors": &c.RxDesc, "tx_descriptors": &c.TxDesc,
		"rx_buffers": &c.RxBufs}
	n, is := numbers[name]
	switch {
	case is:
		v, err := strconv.ParseUint(value, 10, 24)
		if err != nil || v == 0 {
			return fmt.Errorf("%q: want a number from 1 on", value)
		}
		*n = int(v)
	case name != "devargs":
		return errors.New("unknown to the driver dpdk: want devargs, rx_descriptors, tx_descriptors or " +
			"rx_buffers")
	default:
		for arg := range strings.SplitSeq(value, ",") {
			if key, v, given := strings.Cut(arg, "="); !given || key == "" || v == "" ||
				strings.ContainsAny(arg, " \t") {
				return fmt.Errorf("%q: want arguments of the device, as qpairs=2,framecnt=2048", value)
			}
		}
	}
	return nil
}

// TAPMAC is the MAC of DPDK's net_tap as an argument of it; none when the host has no identity.
func TAPMAC(c *Config) string {
	mac := c.MAC
	if mac == ([6]byte{}) {
		stable, ok := tap.StableMAC(c.Device, c.Seed())
		if !ok {
			return ""
		}
		mac = stable
	}
	return ",mac=" + inet.MAC(mac).String()
}

func checkMemif(c *Config) error {
	if c.Socket == "" {
		return errors.New("memif needs the socket of its server, as /run/memif.sock or @memif")
	}
	return nil
}

// memifPort is a server's, with the socket that is for it alone.
type memifPort struct {
	*memif.Port
	socket *memif.Listener
}

func (p memifPort) Close() error { return errors.Join(p.Port.Close(), p.socket.Close()) }

func openMemif(c *Config, arena *hugepages.Arena) (pmd.Port, error) {
	mac := c.MAC
	if c.Serve {
		if mac == ([6]byte{}) {
			if stable, ok := tap.StableMAC(fmt.Sprintf("memif server %s %d", c.Socket, c.ID), c.Seed()); ok {
				mac = stable
			}
		}
		return serveMemif(c, mac)
	}
	if mac == ([6]byte{}) && len(c.Addrs) > 0 {
		mac = MemifMAC(c.Addrs[0].Addr())
	}
	p, err := memif.Dial(memif.Config{
		Socket: c.Socket, ID: c.ID, Secret: c.Secret, MTU: c.MTUOr(), Queues: c.QueueCount(), MAC: mac,
		Arena: arena,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := awake.Timeout(context.Background(), memifWait, nil)
	defer cancel()
	if err := p.AwaitLink(ctx, true); err != nil {
		return nil, errors.Join(&NoServerError{c.Socket, p.Err()}, p.Close())
	}
	return p, nil
}

// NoServerError: no process serves memif on a socket.
type NoServerError struct {
	Socket string
	Err    error
}

func (e *NoServerError) Error() string {
	return fmt.Sprintf("%s: no server answers: %v", e.Socket, e.Err)
}
func (e *NoServerError) Unwrap() error { return e.Err }

func serveMemif(c *Config, mac [6]byte) (pmd.Port, error) {
	l, err := memif.Listen(memif.ListenConfig{Socket: c.Socket})
	if err != nil {
		return nil, err
	}
	p, err := l.Bind(memif.BindConfig{ID: c.ID, Secret: c.Secret, MTU: c.MTUOr(),
		Queues: c.QueueCount(), MAC: mac})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return memifPort{p, l}, nil
}
