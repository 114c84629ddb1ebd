//go:build dpdk

package dpdk

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// What net_af_xdp of 22.11 does wrong when a port ends, and what is done about it (read in its
// sources, and seen):
//
//   - After a socket that could not be made it leaves the queue's pointer to freed memory, through
//     which rte_eth_dev_close writes: it crashes once the EAL has given that page back. Nor can the
//     queue be set up again, as its fill ring goes on where it was. Such a device is left as it is, for
//     good, and the next Open of its name makes another.
//   - rte_eth_dev_close takes the XDP program off the interface, whoever has put it there. So a
//     device without sockets is left too.
//   - A socket whose memory was registered with it is never closed, and keeps the interface's queue
//     taken. We close it.
const afXDP = "net_af_xdp"

// The kernel frees a queue of an interface some time after the socket was closed, in a work of its
// own, and nothing tells when. A port that comes soon after one of ours tries several times.
const (
	xdpFreedMax = time.Second           // since the socket was closed
	xdpFirstTry = 20 * time.Millisecond // since then, and to the next; then twice as long each time: at most six devices are left
)

// Under environment's lock.
var (
	xdpLeft   = map[string]int{}       // devices that are plugged for good, by the name that Config has
	xdpClosed = map[string]time.Time{} // when sockets were closed last, by interface
)

// deviceName is the EAL's name of the device.
func (p *Port) deviceName() string {
	if n := xdpLeft[p.name]; n > 0 {
		return p.name + "_" + strconv.Itoa(n)
	}
	return p.name
}

// xdpSockets are the AF_XDP sockets of this process: inodes by descriptor. Only the driver makes
// some, and only under environment's lock.
func xdpSockets() map[int]uint64 {
	sockets := map[int]uint64{}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return sockets
	}
	for _, entry := range fds {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil || domain != unix.AF_XDP {
			continue
		}
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil {
			sockets[fd] = st.Ino
		}
	}
	return sockets
}

// makeXDP makes a queue, and remembers the socket under it. A queue that a port of ours has just
// given back is waited for.
func (p *Port) makeXDP(make func() error) error {
	before := xdpSockets()
	closed := xdpClosed[p.argument("iface")]
	time.Sleep(time.Until(closed.Add(xdpFirstTry)))
	err := make()
	freed := closed.Add(xdpFreedMax)
	for pause := xdpFirstTry; err != nil && p.socketed == 0 && time.Now().Before(freed); pause *= 2 {
		time.Sleep(pause)
		if fresh := p.plugAnother(); fresh != nil {
			return errors.Join(err, fresh)
		}
		err = make()
	}
	for fd, inode := range xdpSockets() {
		if before[fd] != inode {
			p.sockets[fd] = inode
		}
	}
	if err == nil {
		p.socketed++
	}
	return err
}

// plugAnother leaves the device and makes one like it.
func (p *Port) plugAnother() error {
	xdpLeft[p.name]++
	if err := p.find(); err != nil {
		return err
	}
	if rc := C.rnic_port_configure(p.id, &p.conf); rc < 0 {
		return failed(p.name, "rte_eth_dev_configure", rc)
	}
	return nil
}

// leavesXDP says that the device must not be closed.
func (p *Port) leavesXDP() bool { return p.driver() == afXDP && p.socketed < len(p.queues) }

// closeXDP closes the sockets that the driver has left open.
func (p *Port) closeXDP() {
	if len(p.sockets) == 0 {
		return
	}
	open := xdpSockets()
	for fd, inode := range p.sockets {
		if open[fd] == inode {
			_ = unix.Close(fd)
		}
	}
	clear(p.sockets)
	xdpClosed[p.argument("iface")] = time.Now()
}
