package engine

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/owned"
)

// portWatch follows the device's port as RoCE: whether the interface that it is at is up, and which
// addresses are in use, which are the GIDs. Over the kernel's sockets rtnetlink says when to look.
// Our own TCP has the addresses that it was given, and asks its device now and then.
type portWatch struct {
	engine *Engine

	mu      sync.Mutex
	started bool
	home    string // the interface; empty: not known
	worked  bool   // the port was up: only then it can be down, as programs refuse one that is
	addrs   []netip.Addr
}

// portEvery is how often the device of our own TCP is asked for its link.
const portEvery = 500 * time.Millisecond

// watchPort says which interface the device is at, and begins to watch, the first time.
func (e *Engine) watchPort(c *call) error {
	if !e.roce {
		return nil
	}
	w := &e.port
	w.mu.Lock()
	defer w.mu.Unlock()
	w.engine = e
	w.home = string(bytes.TrimRight(c.data, "\x00"))
	if w.started {
		w.look(true)
		return nil
	}
	w.started = true
	if e.ownTCP {
		if e.linkUp != nil {
			w.look(false)
			go w.ask()
		}
		return nil
	}
	told, err := rtnetlink()
	if err != nil {
		e.tellLog("changes of addresses and interfaces are not told to the program: %v", err)
		return nil
	}
	w.look(false) // after the socket is there: nothing is missed between the two
	go w.follow(told)
	return nil
}

// rtnetlink is a socket on which the kernel tells that something has changed.
func rtnetlink() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	owned.Keep(fd)
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK,
		Groups: unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR})
	if err != nil {
		_ = owned.Close(fd)
		return nil, os.NewSyscallError("bind", err)
	}
	return os.NewFile(uintptr(fd), "rtnetlink"), nil
}

// follow looks whenever the kernel has told something. What it has told does not matter, nor that
// there was no room for all of it.
func (w *portWatch) follow(told *os.File) {
	room := make([]byte, 1<<16)
	for {
		if _, err := told.Read(room); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
		w.mu.Lock()
		w.look(true)
		w.mu.Unlock()
	}
}

// ask looks at the device of our own TCP.
func (w *portWatch) ask() {
	for range time.Tick(portEvery) {
		w.mu.Lock()
		w.look(true)
		w.mu.Unlock()
	}
}

// look finds what has changed, and tells the program of it, except by the first look. w is locked.
func (w *portWatch) look(tell bool) {
	e := w.engine
	up, ever, addrs := true, true, e.addrs
	if !e.ownTCP {
		up, addrs = w.lookAtHost()
		ever = up
	} else if e.linkUp != nil {
		up, ever = e.linkUp()
	}
	down := uint32(0)
	if w.worked = w.worked || ever; w.worked && !up {
		down = 1
	}
	was := atomic.SwapUint32(&e.area.PortDown, down)
	moved := !slices.Equal(addrs, w.addrs)
	w.addrs = addrs
	if !tell {
		return
	}
	if moved {
		atomic.AddUint32(&e.area.Changes, 1)
	}
	switch {
	case down == was:
	case down == 0:
		e.tellAll(eventPortActive)
	default:
		e.tellAll(eventPortError)
	}
	if moved {
		e.tellAll(eventGIDChange)
	}
}

// lookAtHost says whether the interface is up, and which addresses may be GIDs, in order.
func (w *portWatch) lookAtHost() (up bool, addrs []netip.Addr) {
	all, err := net.Interfaces()
	if err != nil {
		return true, w.addrs
	}
	up = w.home == ""
	for i := range all {
		x := &all[i]
		if x.Flags&net.FlagUp == 0 {
			continue
		}
		up = up || x.Name == w.home && x.Flags&net.FlagRunning != 0
		theirs, _ := x.Addrs() // of one that is gone by now: none
		for _, a := range theirs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
				addrs = append(addrs, p.Addr().Unmap())
			}
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return up, addrs
}

// tellAll sends an event about the port to all that have opened the device.
func (e *Engine) tellAll(kind uint32) {
	var all []*opened
	e.objects.mu.Lock()
	for _, o := range e.objects.all {
		if x, ok := o.(*opened); ok {
			all = append(all, x)
		}
	}
	e.objects.mu.Unlock()
	for _, x := range all {
		x.tell(kind, &x.itself)
	}
}
