package tap

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Trouble says why the device takes no frames although it is there, and what an operator should know
// of it: it is down, in another network namespace, or in a bridge that it leaves when this process
// ends. Empty: nothing. From any goroutine, not during or after Close; two system calls.
func (p *Port) Trouble() string {
	ifr, err := unix.NewIfreq(p.name)
	if err != nil || unix.IoctlIfreq(p.fds[0], unix.TUNGETIFF, ifr) != nil {
		return "" // Lost says that it is gone
	}
	name, persistent := ifr.Name(), ifr.Uint16()&unix.IFF_PERSIST != 0
	if ifr, err = unix.NewIfreq(name); err != nil {
		return ""
	}
	switch err := unix.IoctlIfreq(p.control, unix.SIOCGIFFLAGS, ifr); {
	case errors.Is(err, unix.ENODEV):
		return fmt.Sprintf("%s is in another network namespace: nothing reaches it here; move it back", name)
	case err != nil:
		return ""
	case ifr.Uint16()&unix.IFF_UP == 0:
		return fmt.Sprintf("%s is down: it takes no frames; ip link set %s up", name, name)
	case p.link != nil && p.link.master.Load() != 0 && !persistent:
		return fmt.Sprintf("%s is in a bridge, and will not be in it after a restart, for it is not persistent; before the start: ip tuntap add dev %s mode tap, ip link set %s master BRIDGE",
			name, name, name)
	}
	return ""
}
