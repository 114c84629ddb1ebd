package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

const (
	memifClient = "client"
	memifServer = "server"
)

// memifOptions are the flags of --pmd memif.
type memifOptions struct {
	socket string
	id     uint32
	role   string
	secret string
}

func (m *memifOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&m.socket, "socket", "",
		"memif: Unix socket of the server, a path, or @ and a name in the abstract namespace")
	f.Uint32Var(&m.id, "id", 0, "memif: number of the interface on that socket")
	f.StringVar(&m.role, "role", memifClient,
		"memif: client, which attaches to a server, again whenever that has gone, or server, for one "+
			"client at a time")
	f.StringVar(&m.secret, "secret", "",
		"memif: what the server wants to hear from its clients, up to 24 octets")
}

func (m *memifOptions) check() error {
	var errs [2]error
	if m.socket == "" {
		errs[0] = errors.New("--pmd memif: --socket is missing: the server's, as /run/memif.sock or @memif")
	}
	if m.role != memifClient && m.role != memifServer {
		errs[1] = fmt.Errorf("--role %q: want %s or %s", m.role, memifClient, memifServer)
	}
	return errors.Join(errs[:]...)
}
