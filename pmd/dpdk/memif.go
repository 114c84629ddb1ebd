//go:build dpdk

package dpdk

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
)

// removeStaleSocket removes the socket's file of a net_memif server that was killed: its driver
// does not, and fails. One that somebody listens on stays.
func (p *Port) removeStaleSocket() error {
	if !strings.HasPrefix(p.name, "net_memif") || p.argument("role") != "server" ||
		p.argument("socket-abstract") != "no" {
		return nil
	}
	path := p.argument("socket")
	if st, err := os.Lstat(path); err != nil || st.Mode().Type() != fs.ModeSocket {
		return nil
	}
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	switch {
	case err == nil:
		return c.Close()
	case !errors.Is(err, syscall.ECONNREFUSED):
		return nil
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("dpdk: %s: the socket of a server that has ended: %w", p.name, err)
	}
	return nil
}

// argument is one of the device's, empty if it is not there.
func (p *Port) argument(name string) string {
	for arg := range strings.SplitSeq(p.cfg.deviceArgs(), ",") {
		if value, found := strings.CutPrefix(arg, name+"="); found {
			return value
		}
	}
	return ""
}
