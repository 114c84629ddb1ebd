package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/memif"
	"github.com/rnicd/rnicd/pmd/tap"
)

const (
	memifClient = "client"
	memifServer = "server"
	// memifWait is for the first answer of a server: without one a command would speak to nobody.
	memifWait = 5 * time.Second
)

// memifOptions are the flags of --pmd memif.
type memifOptions struct {
	socket string
	id     uint32
	role   string
	secret string
}

func (m *memifOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&m.socket, "socket", "", "memif: Unix socket of the server, a path, or @ and a name in the abstract namespace")
	f.Uint32Var(&m.id, "id", 0, "memif: number of the interface on that socket")
	f.StringVar(&m.role, "role", memifClient, "memif: client, which attaches to a server, again whenever that has gone, or server, for one client at a time")
	f.StringVar(&m.secret, "secret", "", "memif: what the server wants to hear from its clients, up to 24 octets")
}

func (m *memifOptions) check() error {
	switch {
	case m.socket == "":
		return errors.New("--pmd memif: --socket is missing: the server's, as /run/memif.sock or @memif")
	case m.role != memifClient && m.role != memifServer:
		return fmt.Errorf("--role %q: want %s or %s", m.role, memifClient, memifServer)
	}
	return nil
}

// lendsPackets: our packet memory is shared with another process.
func (o *nicOptions) lendsPackets() bool { return o.pmd == "memif" && o.memif.role == memifClient }

// memifPort is a server's, with the socket that is for it alone.
type memifPort struct {
	*memif.Port
	socket *memif.Listener
}

func (p memifPort) Close() error { return errors.Join(p.Port.Close(), p.socket.Close()) }

func (o *nicOptions) openMemif(arena *hugepages.Arena) (pmd.Port, error) {
	mac, err := o.givenMAC()
	if err != nil {
		return nil, err
	}
	if mac == ([6]byte{}) {
		if stable, ok := tap.StableMAC(fmt.Sprintf("memif %s %s %d", o.memif.role, o.memif.socket, o.memif.id), o.macSeed()); ok {
			mac = stable
		}
	}
	if o.memif.role == memifServer {
		return o.serveMemif(mac)
	}
	p, err := memif.Dial(memif.Config{
		Socket: o.memif.socket, ID: o.memif.id, Secret: o.memif.secret, MTU: o.mtu, Queues: o.queueCount(), MAC: mac, Arena: arena,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), memifWait)
	defer cancel()
	if err := p.AwaitLink(ctx, true); err != nil {
		return nil, errors.Join(fmt.Errorf("--socket %s: no server answers: %w", o.memif.socket, p.Err()), p.Close())
	}
	return p, nil
}

func (o *nicOptions) serveMemif(mac [6]byte) (pmd.Port, error) {
	l, err := memif.Listen(memif.ListenConfig{Socket: o.memif.socket})
	if err != nil {
		return nil, err
	}
	p, err := l.Bind(memif.BindConfig{ID: o.memif.id, Secret: o.memif.secret, MTU: o.mtu, Queues: o.queueCount(), MAC: mac})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return memifPort{p, l}, nil
}
