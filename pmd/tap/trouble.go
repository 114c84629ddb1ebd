package tap

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/pmd"
)

// Trouble implements pmd.Troubled: the device is down, in another network namespace, or in a
// bridge that it leaves when this process ends. Two system calls.
func (p *Port) Trouble() (none pmd.Trouble) {
	ifr, err := unix.NewIfreq(p.name)
	if err != nil || unix.IoctlIfreq(p.fds[0], unix.TUNGETIFF, ifr) != nil {
		return none // Lost says that it is gone
	}
	name, persistent := ifr.Name(), ifr.Uint16()&unix.IFF_PERSIST != 0
	if ifr, err = unix.NewIfreq(name); err != nil {
		return none
	}
	switch err := unix.IoctlIfreq(p.control, unix.SIOCGIFFLAGS, ifr); {
	case errors.Is(err, unix.ENODEV):
		return pmd.Trouble{
			Kind: pmd.TroubleMoved,
			Text: fmt.Sprintf("%s is in another network namespace: nothing reaches it here; move it back",
				name),
		}
	case err != nil:
		return none
	case ifr.Uint16()&unix.IFF_UP == 0:
		return pmd.Trouble{
			Kind: pmd.TroubleDown,
			Text: fmt.Sprintf("%s is down: it takes no frames; ip link set %s up", name, name),
		}
	case p.link != nil && p.link.master.Load() != 0 && !persistent:
		return pmd.Trouble{Kind: pmd.TroubleBridge,
			Text: fmt.Sprintf("%s is in a bridge, and will not be in it "+
				"after a restart, for it is not persistent; before the start: ip tuntap add dev %s mode tap, "+
				"ip link set %s master BRIDGE", name, name, name)}
	}
	return none
}
