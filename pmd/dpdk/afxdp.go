//go:build dpdk

package dpdk

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// What net_af_xdp of 22.11 does wrong when a port ends, and what is done about it (read in its
// sources, and seen):
//
//   - After a socket that could not be made it leaves the queue's pointer to freed memory,
//     through which rte_eth_dev_close writes: it crashes once the EAL has given that page back.
//     Nor can the queue be set up again, as its fill ring goes on where it was. Such a device is
//     left as it is, for good, and the next Open of its name makes another.
//   - rte_eth_dev_close takes the XDP program off the interface, whoever has put it there. So a
//     device without sockets is left too.
//   - A socket whose memory was registered with it is never closed, and keeps the interface's queue
//     taken. We close it.
const afXDP = "net_af_xdp"

// The kernel frees a queue of an interface some time after the socket was closed, in a work of its
// own, and nothing tells when. A port that comes soon after one of ours tries several times.
const (
	xdpFreedMax = time.Second // since the socket was closed
	// since then, and to the next; then twice as long each time: at most six devices are left
	xdpFirstTry = 20 * time.Millisecond
)

// xdpLeftMax bounds the devices of a process that are left: half of those that DPDK has room for.
const xdpLeftMax = 16

// Under environment's lock.
var (
	// devices that are plugged for good, by the name that Config has
	xdpLeft   = map[string]int{}
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
		if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil ||
			domain != unix.AF_XDP {
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
// given back is waited for, without environment's lock.
func (p *Port) makeXDP(make func() error) error {
	closed := xdpClosed[p.argument("iface")]
	if err := p.pauseXDP(time.Until(closed.Add(xdpFirstTry))); err != nil {
		return err
	}
	err := p.tryXDP(make)
	freed := closed.Add(xdpFreedMax)
	for pause := xdpFirstTry; err != nil && p.socketed == 0 && time.Now().Before(freed) &&
		p.mayLeaveXDP() == nil; pause *= 2 {
		if over := p.pauseXDP(pause); over != nil {
			return errors.Join(err, over)
		}
		if fresh := p.plugAnother(); fresh != nil {
			return errors.Join(err, fresh)
		}
		err = p.tryXDP(make)
	}
	return err
}

// pauseXDP sleeps while other ports are asked, opened and closed; this one may be closed, too.
func (p *Port) pauseXDP(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	environment.Unlock()
	time.Sleep(d)
	environment.Lock()
	if p.closed {
		return fmt.Errorf("dpdk: %s was closed while a queue was opened", p.name)
	}
	return nil
}

func (p *Port) tryXDP(make func() error) error {
	before := xdpSockets()
	err := make()
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

// mayLeaveXDP says whether there is room for one more device that cannot be closed.
func (p *Port) mayLeaveXDP() error {
	left := 0
	for _, n := range xdpLeft {
		left += n
	}
	if left < xdpLeftMax {
		return nil
	}
	return fmt.Errorf("dpdk: %s: %d devices of net_af_xdp are left in this process, whose queues "+
		"other programs had: "+
		"end those (xdp-loader status, bpftool net show them), then start this one again", p.name, left)
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
