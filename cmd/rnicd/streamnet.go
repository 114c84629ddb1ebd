package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// streamNet is where the connections of a stream command come from: our stack on a device, or the
// kernel's sockets.
type streamNet struct {
	nic       *port.Port   // nil: the kernel's
	from      netip.Addr   // of the kernel's; invalid: all
	lost      func() error // of the device
	counted   func()       // tells of what was counted
	options   stream.Options
	localPort uint16 // of what we dial; 0: chosen
}

// openStreamNet opens what --pmd names. The context it returns ends with that device; Close then
// says so.
func openStreamNet(ctx context.Context, o *nicOptions,
	r *reporter) (context.Context, *streamNet, error) {
	if o.pmd == "kernel" {
		from, err := o.kernelAddr()
		return ctx, &streamNet{from: from}, err
	}
	var log bytes.Buffer
	dev, err := openNIC(o, streamRegion, &log)
	if err != nil {
		return nil, nil, err
	}
	r.remark("%s", strings.TrimRight(log.String(), "\n"))
	if err := dev.Start(); err != nil {
		return nil, nil, errors.Join(err, dev.Close())
	}
	r.remark("device      %s", o.describe(dev.Name()))
	n := &streamNet{nic: dev,
		options: stream.Options{ReceiveWindowMax: streamWindowMax, SendBuffer: streamBuffer}}
	log.Reset()
	err = awaitAddrs(ctx, dev, &log)
	if log.Len() > 0 {
		r.remark("%s", strings.TrimRight(log.String(), "\n"))
	}
	if err != nil {
		return nil, nil, errors.Join(err, dev.Close())
	}
	while, lost := dev.Watch(ctx, conditions{r.remarks})
	n.lost, n.counted = lost, tellCounters(r.remarks, dev, nil, o.counters)
	return while, n, nil
}

// Sizes of a stream that is to be fast over any path.
const (
	streamWindowMax = 4 << 20
	streamBuffer    = 4 << 20
	streamRegion    = 4096 // nothing is registered
)

func (n *streamNet) pollers() []*stack.Poller { return n.nic.Pollers() }

// host is --addr for the kernel, empty for all of its addresses.
func (n *streamNet) host() string {
	if !n.from.IsValid() {
		return ""
	}
	return n.from.String()
}

func (n *streamNet) listen(ctx context.Context, port uint16) (net.Listener, error) {
	if n.nic != nil {
		return stream.Listen(n.pollers(), port, n.options)
	}
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", net.JoinHostPort(n.host(), strconv.Itoa(int(port))))
}

func (n *streamNet) dial(ctx context.Context, addr string) (net.Conn, error) {
	if n.nic != nil {
		d := stream.Dialer{Pollers: n.pollers(), Options: n.options, Timeout: dialTimeout}
		if n.localPort != 0 {
			d.LocalAddr = &net.TCPAddr{Port: int(n.localPort)}
		}
		return d.DialContext(ctx, "tcp", addr)
	}
	d := net.Dialer{Timeout: dialTimeout}
	if n.from.IsValid() || n.localPort != 0 {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(n.from, n.localPort))
	}
	return d.DialContext(ctx, "tcp", addr)
}

// kernelHint adds to the error of a command that dials, and was not told with which TCP, that there
// is another one: the clients of serve and perf have the kernel's without being told.
// Both errors are of a TAP that was not set up: there is no right to make it, or nothing
// after it.
func kernelHint(o *nicOptions, err error) error {
	nobody := errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) ||
		errors.Is(err, syscall.EHOSTUNREACH) ||
		errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.ETIMEDOUT)
	if o.pmd != "tap" || len(o.given("pmd")) > 0 || !nobody {
		return err
	}
	return fmt.Errorf("%w; without --pmd this command has our TCP, on a device of its own: --pmd "+
		"kernel dials with this host's", err)
}

// dialWaiting dials again while no server listens, for as long as --wait says.
func (n *streamNet) dialWaiting(ctx context.Context, addr string,
	wait time.Duration) (net.Conn, error) {
	until := time.Now().Add(wait)
	for {
		conn, err := n.dial(ctx, addr)
		switch {
		case !errors.Is(err, syscall.ECONNREFUSED):
			return conn, err
		case !time.Now().Before(until):
			return nil, fmt.Errorf("%w; %s", err, nobodyThere(wait))
		}
		select {
		case <-time.After(redialEvery):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Close gives the device back, once connections that were closed have told their peers, or
// flushTimeout later. Those in TIME-WAIT are not waited for: if the peer's FIN comes again, nobody
// answers it.
func (n *streamNet) Close() error {
	if n.nic == nil {
		return nil
	}
	lost := n.lost()
	n.nic.Await(context.Background(), flushTimeout, func(k *stack.Counters) bool {
		return k.Conns == k.TimeWait
	})
	n.counted()
	return errors.Join(lost, n.nic.Close())
}

// flushTimeout bounds the wait for what closed connections still have to say.
const flushTimeout = 2 * time.Second
