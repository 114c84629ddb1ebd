package stream

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/stack"
)

// req: 9293-MUST-46
func TestDialErrors(t *testing.T) {
	t.Parallel()
	l := newLab(t, labConfig{faults: &fault.Spec{}})
	d := &Dialer{Pollers: l.hosts[0].mine}
	for address, want := range map[string]error{
		"10.0.0.2:9":   syscall.ECONNREFUSED, // nobody listens
		"10.0.0.77:9":  syscall.EHOSTUNREACH, // nobody answers ARP
		"172.16.0.1:9": syscall.ENETUNREACH,  // no gateway
	} {
		wantOp(t, errOf(d.DialContext(l.ctx, "tcp", address)), "dial", want)
	}
	for _, bad := range [][2]string{{"udp", "10.0.0.2:9"}, {"tcp", "10.0.0.2"}, {"tcp6", "10.0.0.2:9"},
		{"tcp4", "10.0.0.2:x"}} {
		_, err := d.Dial(bad[0], bad[1])
		var oe *net.OpError
		require.ErrorAs(t, err, &oe, "%v", bad)
	}
	for _, impossible := range []string{"224.0.0.1:9", "10.0.0.255:9", "0.0.0.0:9", "10.0.0.1:9"} {
		_, err := d.DialContext(l.ctx, "tcp", impossible)
		var oe *net.OpError
		require.ErrorAs(t, err, &oe, impossible)
		require.True(t, errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH),
			"%s: %v", impossible, err)
	}
	require.ErrorIs(t, errOf(Dial(l.ctx, nil, netip.AddrPort{}, Options{})), errNoPoller)
	_, err := Dial(l.ctx, l.hosts[0].mine, netip.MustParseAddrPort("10.0.0.2:9"),
		Options{SendBuffer: -1})
	require.ErrorContains(t, err,
		"stream: Options.SendBuffer -1, 1 to 1073741824 possible, or 0 for the default")
	_, err = Listen(l.hosts[0].mine, 0, Options{Backlog: 1 << 30}) // 8 GiB
	require.ErrorContains(t, err,
		"stream: Options.Backlog 1073741824, 1 to 65536 possible, or 0 for the default")
}

// silence has host 1 hear nothing from now on.
func (l *lab) silence() {
	l.do(l.hosts[1], func() {
		require.NoError(l.t, l.hosts[1].faulty.Set(fault.Faults{Drop: 1}, fault.Faults{}))
	})
}

func TestDialEndsWithItsContext(t *testing.T) {
	l := newLab(t, labConfig{faults: &fault.Spec{}})
	ln := l.listen(Options{})
	first := l.dial(ln, Options{}) // ARP is done
	require.NoError(t, abort(first))
	l.until("it is gone", func() bool { return l.conns(l.hosts[0]) == 0 })
	l.silence()
	to := ln.Addr().(*net.TCPAddr).AddrPort()

	ctx, cancel := context.WithTimeout(l.ctx, 20*time.Millisecond)
	defer cancel()
	_, err := Dial(ctx, l.hosts[0].mine, to, Options{})
	wantOp(t, err, "dial", context.DeadlineExceeded)
	var ne net.Error
	require.True(t, errors.As(err, &ne) && ne.Timeout())

	ctx, cancel = context.WithCancel(l.ctx)
	dialing := in(func() error { _, err := Dial(ctx, l.hosts[0].mine, to, Options{}); return err })
	l.until("a SYN is out", func() bool { return l.conns(l.hosts[0]) > 0 })
	cancel()
	wantOp(t, l.result(dialing), "dial", context.Canceled)
	wantOp(t, errOf(Dial(ctx, l.hosts[0].mine, to, Options{})), "dial", context.Canceled)
	wantOp(t, errOf((&Dialer{Pollers: l.hosts[0].mine, Timeout: 10 * time.Millisecond}).Dial("tcp",
		to.String())), "dial", context.DeadlineExceeded)
	l.until("no connection is left", func() bool { return l.conns(l.hosts[0]) == 0 })
}

func (l *lab) conns(h *host) (n int) {
	l.do(h, func() {
		var c stack.Counters
		h.Snapshot(&c)
		n = c.Conns
	})
	return n
}

func TestDialerTriesAllAddresses(t *testing.T) {
	l := newLab(t, labConfig{})
	ln := l.listen(Options{})
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	var asked string
	d := &Dialer{Pollers: l.hosts[0].mine,
		Lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
			asked = host
			return []netip.Addr{netip.MustParseAddr("172.16.0.1"), netip.MustParseAddr("::ffff:10.0.0.2")},
				nil
		}}
	c := must(d.DialContext(l.ctx, "tcp", net.JoinHostPort("somewhere", port)))(t)
	require.Equal(t, "somewhere", asked)
	require.Equal(t, ln.Addr().String(), c.RemoteAddr().String())
	require.Equal(t, "10.0.0.1", c.LocalAddr().(*net.TCPAddr).IP.String())
	require.NoError(t, c.Close())
}

func TestBacklogIsBounded(t *testing.T) {
	l := newLab(t, labConfig{})
	ln := l.listen(Options{Backlog: 2})
	var conns []*Conn
	for range 5 {
		conns = append(conns, l.dial(ln, Options{}))
	}
	for _, c := range conns[2:] {
		wantOp(t, readOne(c), "read", syscall.ECONNRESET)
	}
	require.Equal(t, uint64(3), CountersOf(l.hosts[1].Poller).AcceptOverflow)
	a := must(ln.Accept())(t)
	require.Equal(t, conns[0].LocalAddr().String(), a.RemoteAddr().String())

	require.NoError(t, ln.Close()) // resets the one that was not accepted, leaves the other
	wantOp(t, readOne(conns[1]), "read", syscall.ECONNRESET)
	must(a.Write([]byte("x")))(t)
	require.NoError(t, readOne(conns[0]))
	require.NoError(t, a.Close())
	require.NoError(t, conns[0].Close())
}

func TestListenerClose(t *testing.T) {
	l := newLab(t, labConfig{})
	ln := l.listen(Options{})
	accepting := in(func() error { _, err := ln.Accept(); return err })
	require.NoError(t, ln.Close())
	wantOp(t, l.result(accepting), "accept", net.ErrClosed)
	wantOp(t, errOf(ln.Accept()), "accept", net.ErrClosed)
	wantOp(t, ln.Close(), "close", net.ErrClosed)
	wantOp(t, ln.SetDeadline(time.Time{}), "set", net.ErrClosed)
	_, err := Dial(l.ctx, l.hosts[0].mine, ln.Addr().(*net.TCPAddr).AddrPort(), Options{})
	wantOp(t, err, "dial", syscall.ECONNREFUSED)
}

// req: 9293-MUST-41
func TestPortInUse(t *testing.T) {
	l := newLab(t, labConfig{})
	ln := l.listen(Options{})
	port := uint16(ln.Addr().(*net.TCPAddr).Port)
	both := []*stack.Poller{l.hosts[0].Poller, l.hosts[1].Poller}
	_, err := Listen(both, port, Options{})
	wantOp(t, err, "listen", syscall.EADDRINUSE)
	again, err := Listen(l.hosts[0].mine, port, Options{}) // the failed one left nothing behind
	require.NoError(t, err)
	require.NoError(t, again.Close())
	c := l.dial(ln, Options{}) // and the first goes on
	must(ln.Accept())(t)
	require.NoError(t, c.Close())
}

func TestAcceptDeadline(t *testing.T) {
	l := newLab(t, labConfig{})
	ln := l.listen(Options{})
	accepting := in(func() error { _, err := ln.Accept(); return err })
	require.NoError(t, ln.SetDeadline(time.Now().Add(time.Millisecond)))
	wantOp(t, l.result(accepting), "accept", os.ErrDeadlineExceeded)
}

func TestListenerOnSeveralPollers(t *testing.T) {
	l := newLab(t, labConfig{})
	both := []*stack.Poller{l.hosts[0].Poller, l.hosts[1].Poller}
	ln := must(Listen(both, 80, Options{}))(t)
	var wg sync.WaitGroup
	for i, h := range l.hosts {
		wg.Go(func() {
			to := netip.AddrPortFrom(l.hosts[1-i].addr, 80)
			for range 10 {
				c := must(Dial(l.ctx, h.mine, to, Options{}))(t)
				must(c.Write([]byte{byte(i)}))(t)
				require.NoError(t, c.Close())
			}
		})
	}
	from := [2]int{}
	for range 20 {
		c := must(ln.Accept())(t)
		b := make([]byte, 1)
		must(c.Read(b))(t)
		from[b[0]]++
		require.NoError(t, c.Close())
	}
	wg.Wait()
	require.Equal(t, [2]int{10, 10}, from)
	require.NoError(t, ln.Close())
}

// The context ends in the moment in which the connection is established, and the control ring is
// full: the connection is ended all the same.
func TestDialCancelledAtTheLastMoment(t *testing.T) {
	l := newLab(t, labConfig{})
	ln := l.listen(Options{})
	c := l.dial(ln, Options{})
	h := l.hosts[0]
	held, release := make(chan struct{}), make(chan struct{})
	require.NoError(t, h.Submit(func() { close(held); <-release }))
	l.wait(held)
	for h.Submit(func() {}) == nil {
	}
	c.cancelDial(h.Poller) // as Dial does that finds its context ended first
	close(release)
	l.until("no connection is left", func() bool { return l.conns(h) == 0 })
}

// Dialer.LocalAddr, as with net.Dialer: an address, a port, both; and the errors of those that
// cannot be had.
//
// req: 9293-MUST-43
func TestLocalAddr(t *testing.T) {
	l := newLab(t, labConfig{})
	ln := l.listen(Options{})
	to := ln.Addr().String()
	dial := func(pollers []*stack.Poller, local net.Addr) (net.Conn, error) {
		c, err := (&Dialer{Pollers: pollers, LocalAddr: local}).DialContext(l.ctx, "tcp", to)
		if err == nil {
			t.Cleanup(func() { _ = c.(*Conn).SetLinger(0); _ = c.Close() })
		}
		return c, err
	}
	ip := net.IPv4(10, 0, 0, 1)
	c := must(dial(l.hosts[0].mine, &net.TCPAddr{IP: ip, Port: 4000}))(t)
	require.Equal(t, "10.0.0.1:4000", c.LocalAddr().String())
	s := must(ln.Accept())(t)
	require.Equal(t, "10.0.0.1:4000", s.RemoteAddr().String())
	t.Cleanup(func() { _ = s.Close() })

	_, err := dial(l.hosts[0].mine, &net.TCPAddr{Port: 4000})
	wantOp(t, err, "dial", syscall.EADDRINUSE)
	require.EqualError(t, err, "dial tcp :4000->"+to+": bind: address already in use")
	_, err = dial(l.hosts[0].mine, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9)})
	wantOp(t, err, "dial", syscall.EADDRNOTAVAIL)
	_, err = dial(l.hosts[0].mine, &net.TCPAddr{IP: net.IPv6loopback})
	require.ErrorContains(t, err, "no suitable address")
	_, err = dial(l.hosts[0].mine, &net.UDPAddr{})
	require.ErrorContains(t, err, "mismatched local address type")
	var nobody *net.TCPAddr
	for _, any := range []net.Addr{nobody, &net.TCPAddr{}, &net.TCPAddr{IP: net.IPv4zero},
		&net.TCPAddr{IP: ip}} {
		c = must(dial(l.hosts[0].mine, any))(t)
		require.Equal(t, "10.0.0.1", c.LocalAddr().(*net.TCPAddr).IP.String())
	}

	// Of several Pollers the one that has the address dials.
	both := []*stack.Poller{l.hosts[1].Poller, l.hosts[0].Poller}
	for range 2 * len(both) {
		c = must(dial(both, &net.TCPAddr{IP: ip}))(t)
		require.Same(t, l.hosts[0].Poller, c.(*Conn).Poller())
	}
	_, err = dial(both, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9)})
	wantOp(t, err, "dial", syscall.EADDRNOTAVAIL)
}

// In a Group the Poller dials that the port leads to; of a part of the Group only some ports can be
// had.
func TestLocalPortInAGroup(t *testing.T) {
	const ports = 16
	g := must(stack.NewGroup(2))(t)
	var labs [2]*virtual // the members, which have one address, each on a cable of its own
	for k := range labs {
		labs[k] = newVirtual(t, 0, func(i int, cfg *stack.Config) {
			if i == 0 {
				cfg.Group, cfg.Member = g, k
			}
		})
		labs[k].during(func() { must(Listen(labs[k].hosts[1].mine, 80, Options{}))(t) })
	}
	members := []*stack.Poller{labs[0].hosts[0].Poller, labs[1].hosts[0].Poller}
	dial := func(pollers []*stack.Poller, port int) (c *Conn, err error) {
		d := &Dialer{Pollers: pollers, LocalAddr: &net.TCPAddr{Port: port}}
		dialed := in(func() error {
			nc, err := d.Dial("tcp", "10.0.0.2:80")
			c, _ = nc.(*Conn)
			return err
		})
		for len(dialed) == 0 {
			if labs[0].turn()+labs[1].turn() == 0 {
				runtime.Gosched()
			}
		}
		return c, <-dialed
	}
	var owned [2]int
	for port := range ports {
		c := must(dial(members, 4000+port))(t)
		require.Equal(t, 4000+port, c.LocalAddr().(*net.TCPAddr).Port)
		if c.Poller() == members[0] {
			owned[0]++
		} else {
			owned[1]++
		}
		require.NoError(t, abort(c))
		for _, v := range labs {
			v.pass(time.Millisecond)
		}
	}
	require.NotContains(t, owned, 0)
	refused := 0
	for port := range ports {
		if c, err := dial(members[:1], 4000+port); err != nil {
			refused++
			wantOp(t, err, "dial", syscall.EADDRNOTAVAIL)
		} else {
			require.NoError(t, abort(c))
		}
	}
	require.Equal(t, owned[1], refused)
}
