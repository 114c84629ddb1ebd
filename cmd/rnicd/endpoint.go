package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

// stopTimeout bounds the orderly end of a daemon.
const stopTimeout = 5 * time.Second

// clientFlags are those of a NIC for a command that dials: without --pmd it is the kernel's TCP.
func (o *nicOptions) clientFlags(f *pflag.FlagSet) {
	o.flags(f)
	o.pmd, o.dev, o.addrs = "kernel", "rnic1", []string{"10.9.0.2/24"}
	for _, name := range []string{"pmd", "dev", "addr"} {
		flag := f.Lookup(name)
		flag.DefValue = flag.Value.String()
	}
	f.Lookup("addr").Usage = "addresses of our stack, IPv4 and IPv6"
}

// checkClient is checkDevice for a command that dials. The kernel chooses where its sockets dial
// from.
func (o *nicOptions) checkClient() error {
	useless := o.given("addr", "page", "node", "counters")
	if o.pmd != "kernel" || len(useless) == 0 {
		return o.checkDevice()
	}
	return errors.Join(fmt.Errorf("--pmd kernel has no use for %s in a client: leave it out",
		strings.Join(useless, ", ")), o.checkFlags())
}

// endpoint is what a command listens or dials on.
type endpoint struct {
	dev     *rnic.Adapter
	region  []byte
	pollers []*stack.Poller // none: the kernel's sockets
	nic     *port.Port      // nil: the kernel's sockets
	host    string          // to listen on; empty: all of our addresses
	stop    func() error    // gives everything back, and says whether the device had gone
}

// openEndpoint opens the device that was asked for, with a region of memory, and tells of it on w;
// what happens later on out. The context it returns ends with that device.
func openEndpoint(ctx context.Context, o *nicOptions, region size, w io.Writer,
	out *output) (context.Context, *endpoint, error) {
	if o.pmd == "kernel" {
		s, err := openKernel(o, region, w)
		return ctx, s, err
	}
	n, err := openNIC(o, int64(region), w)
	if err != nil {
		return nil, nil, err
	}
	dev, err := n.Adapter()
	if err != nil {
		return nil, nil, errors.Join(err, n.Close())
	}
	if err := n.Start(); err != nil {
		return nil, nil, errors.Join(err, n.Close())
	}
	fmt.Fprintf(w, "device      %s\n", o.describe(n.Name()))
	if err := awaitAddrs(ctx, n, w); err != nil {
		return nil, nil, errors.Join(err, closeAdapter(dev), n.Close())
	}
	while, lost := n.Watch(ctx, conditions{out})
	return while, &endpoint{dev: dev, region: n.Region(), pollers: n.Pollers(), nic: n,
		stop: func() error {
			return errors.Join(lost(), closeAdapter(dev), n.Close())
		}}, nil
}

// settle is for a client before stop: what it has closed acknowledges the peer's FIN first, or
// flushTimeout passes.
func (s *endpoint) settle() {
	if s.nic != nil {
		s.nic.Await(context.Background(), flushTimeout, func(k *stack.Counters) bool {
			return k.Conns == k.TimeWait
		})
	}
}

// openKernel is an endpoint over the kernel's sockets. A region of nothing is no memory.
func openKernel(o *nicOptions, region size, w io.Writer) (*endpoint, error) {
	from, err := o.kernelAddr()
	if err != nil {
		return nil, err
	}
	cfg := port.Config{Driver: port.Driver{Name: "kernel", Sockets: true}, PeerMax: int(o.peerMax),
		Region: int64(region), Node: o.node}
	s := &endpoint{}
	if from.IsValid() {
		s.host = from.String()
	}
	if region > 0 {
		if cfg.Page, err = parsePage(o.page); err != nil {
			return nil, err
		}
	}
	n, err := port.Open(cfg)
	if err != nil {
		return nil, err
	}
	if a := n.Arena(); a != nil {
		fmt.Fprintf(w, "memory      %s on %s pages%s\n", octets(uint64(len(a.Bytes()))),
			pageName(a.PageSize()), fallbackNote(a))
	}
	if s.dev, err = n.Adapter(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	s.region = n.Region()
	s.stop = func() error { return errors.Join(closeAdapter(s.dev), n.Close()) }
	return s, nil
}

// listenAddr is all of our addresses, or of the kernel's the one that was asked for.
func (s *endpoint) listenAddr(port uint16) string {
	return net.JoinHostPort(s.host, strconv.Itoa(int(port)))
}

func closeAdapter(dev *rnic.Adapter) error {
	ctx, cancel := awake.Timeout(context.Background(), stopTimeout, nil)
	defer cancel()
	return dev.Close(ctx)
}
