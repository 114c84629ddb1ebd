package stack

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/skip"
	"github.com/rnicd/rnicd/pmd/tap"
	"github.com/stretchr/testify/require"
)

// bridged is a bridge in a namespace, and a Linux kernel on the other side of it, in a namespace of
// its own.
type bridged struct {
	t      *testing.T
	bridge *netlab.Namespace
	client *netlab.Namespace
}

func newBridged(t *testing.T) *bridged {
	t.Helper()
	b := &bridged{t: t, bridge: netlab.New(t)}
	b.bridge.Run(t, "ip", "link", "add", "br0", "type", "bridge")
	b.bridge.Run(t, "ip", "link", "set", "br0", "up")
	b.client = b.host("client", kernelAddr, kernelAddr6)
	return b
}

// host is a namespace whose device wire0 is on the bridge.
func (b *bridged) host(name string, addrs ...netip.Prefix) *netlab.Namespace {
	b.t.Helper()
	ns := netlab.New(b.t)
	netlab.Veth(b.t, b.bridge, netlab.Device{Name: name}, ns,
		netlab.Device{Name: "wire0", Addrs: addrs})
	b.bridge.Run(b.t, "ip", "link", "set", name, "master", "br0")
	return ns
}

// start runs a stack on a TAP of the bridge, which it joins before the stack begins, or, as one
// made by a daemon does, after.
func (b *bridged) start(dev string, mac inet.MAC, joins string,
	tune func(cfg *Config)) (p *Poller, stop func()) {
	b.t.Helper()
	var port *tap.Port
	var err error
	b.bridge.Do(func() { port, err = tap.New(tap.Config{Name: dev, MAC: mac}) })
	if err != nil {
		skip.Missing(b.t, "no TAP device here: %v", err)
	}
	join := func() { b.bridge.Run(b.t, "ip", "link", "set", dev, "master", "br0") }
	if joins == "before" {
		join()
	}
	pool := newPool(b.t, labBufs)
	queue := must(port.Open(0, pool))(b.t)
	cfg := Config{
		Name: dev, Queue: queue, Pool: pool, Caps: port.Caps(), MAC: port.MAC(), Addr: ourAddr,
		Addrs:    []netip.Prefix{ourAddr6},
		QuickDAD: true, Core: -1, ConnsMax: 16,
	}
	if tune != nil {
		tune(&cfg)
	}
	p = must(New(cfg))(b.t)
	require.NoError(b.t, introducer{p}.Listen(7, 4, func(*Conn) Upper { return newPeer(b.t, 1) }))
	var run sync.WaitGroup
	run.Go(func() { require.NoError(b.t, p.Run(context.Background())) })
	var once sync.Once
	stop = func() {
		once.Do(func() {
			p.Stop()
			run.Wait()
			_ = port.Close()
			require.Equal(b.t, pool.Size(), pool.Available(), "Bufs lost")
		})
	}
	b.t.Cleanup(stop)
	if joins == "after" {
		b.bridge.Do(func() { err = port.WatchLink(func() { _ = p.LinkUp() }) })
		require.NoError(b.t, err)
		require.NoError(b.t, b.await(p))
		join()
	}
	return p, stop
}

func (b *bridged) await(p *Poller) error {
	ctx, cancel := context.WithTimeout(context.Background(), netlab.Patience)
	defer cancel()
	return p.AwaitAddrs(ctx)
}

// dials opens a connection from the client, once.
func (b *bridged) dials(to netip.Prefix) {
	b.t.Helper()
	var c net.Conn
	var err error
	b.client.Do(func() {
		c, err = net.DialTimeout("tcp", netip.AddrPortFrom(to.Addr(), 7).String(), netlab.Patience)
	})
	require.NoError(b.t, err)
	require.NoError(b.t, c.Close())
}

// knows is the MAC that the client's kernel has for an address.
func (b *bridged) knows(a netip.Prefix) string {
	b.t.Helper()
	words := strings.Fields(b.client.Run(b.t, "ip", "neigh", "show", "to", a.Addr().String(),
		"dev", "wire0"))
	for i, w := range words {
		if w == "lladdr" {
			return words[i+1]
		}
	}
	return ""
}

// poll is how often a test looks at what the kernel says: a process each time.
const poll = 10 * time.Millisecond

// until looks at something until it is so.
func (b *bridged) until(what string, cond func() bool) {
	b.t.Helper()
	for end := time.Now().Add(netlab.Patience); !cond(); <-time.After(poll) {
		require.True(b.t, time.Now().Before(end), "waited in vain for: %s", what)
	}
}

func counted(t *testing.T, p *Poller) Counters {
	return must(p.Counters(context.Background()))(t)
}

// A stack that begins again with another MAC is found by a kernel that knows the old one: it is
// told, when the new TAP joins the bridge.
func TestKernelFindsAnotherMAC(t *testing.T) {
	b := newBridged(t)
	before, after := inet.MAC{2, 0, 0, 0, 7, 1}, inet.MAC{2, 0, 0, 0, 7, 2}
	p, stop := b.start("stack0", before, "before", nil)
	require.NoError(t, b.await(p))
	for _, a := range []netip.Prefix{ourAddr, ourAddr6} {
		b.dials(a)
		require.Equal(t, before.String(), b.knows(a))
	}
	stop()
	for _, a := range []netip.Prefix{ourAddr, ourAddr6} {
		require.Equal(t, before.String(), b.knows(a), "an entry that lasts")
	}
	p, _ = b.start("stack1", after, "after", nil)
	for _, a := range []netip.Prefix{ourAddr, ourAddr6} {
		b.until("announced", func() bool { return b.knows(a) == after.String() })
		b.dials(a)
	}
	require.NotZero(t, counted(t, p).LinkUps)
}

// A kernel that has an address of ours answers our probe; of what it has not, nothing is said.
// req: 5227-2.1.1-3
func TestKernelHasOurAddress(t *testing.T) {
	b := newBridged(t)
	var mac net.HardwareAddr
	b.client.Do(func() {
		ifi := must(net.InterfaceByName("wire0"))(t)
		mac = ifi.HardwareAddr
	})
	p, _ := b.start("stack0", inet.MAC{2, 0, 0, 0, 7, 1}, "before", func(cfg *Config) {
		cfg.Addr, cfg.Addrs = kernelAddr, []netip.Prefix{ourAddr, kernelAddr6, ourAddr6}
	})
	err := b.await(p)
	for _, a := range []netip.Prefix{kernelAddr, kernelAddr6} {
		require.ErrorContains(t, err, (&AddrError{a.Addr(), inet.MAC(mac)}).Error())
	}
	var first *AddrError
	require.True(t, errors.As(err, &first))
	require.Equal(t, kernelAddr.Addr(), first.Addr)
	require.Equal(t, uint64(2), counted(t, p).AddrDuplicate)
	for _, a := range []netip.Prefix{ourAddr, ourAddr6} {
		b.dials(a)
	}
}

// A second stack with our address finds out; a kernel with it that speaks to a client is answered,
// and the client believes us.
// req: 5227-2.4-1, 5227-2.5-1
func TestAddressIsDefendedAgainstAKernel(t *testing.T) {
	b := newBridged(t)
	ours := inet.MAC{2, 0, 0, 0, 7, 1}
	p, _ := b.start("stack0", ours, "before", nil)
	require.NoError(t, b.await(p))
	b.dials(ourAddr)

	second, stop := b.start("stack1", inet.MAC{2, 0, 0, 0, 7, 2}, "before", nil)
	err := b.await(second)
	require.ErrorContains(t, err, (&AddrError{ourAddr.Addr(), ours}).Error())
	require.ErrorContains(t, err, (&AddrError{ourAddr6.Addr(), ours}).Error())
	stop()
	require.Zero(t, counted(t, p).AddrConflicts)

	intruder := b.host("intruder", ourAddr)
	intruder.Start(t, exec.Command("ping", "-n", "-c", "1", "-W", "1", kernelAddr.Addr().String())).
		Wait(t)
	b.until("defended", func() bool { return counted(t, p).AddrDefended > 0 })
	b.until("believed", func() bool { return b.knows(ourAddr) == ours.String() })
	all := must(p.Addrs(context.Background()))(t)
	require.Equal(t, AddrUsable, all[0].State)
	require.NotZero(t, all[0].Conflicts)
	require.NotEqual(t, ours, all[0].Rival)
}
