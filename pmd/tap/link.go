package tap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// What of a device says whether its kernel's side is connected.
type link struct {
	up      bool   // set up, and with a carrier
	master  uint32 // the bridge, bond or the like that it is in; 0: none
	bridged bool   // master is a bridge
	state   uint8  // of a bridge's port
}

// connected says whether frames that we send get anywhere.
func (l link) connected() bool {
	return l.up && (!l.bridged || l.state == brStateForwarding)
}

// linux/if_link.h, linux/if_bridge.h.
const (
	iflaMaster        = 10
	iflaProtinfo      = 12
	iflaLinkinfo      = 18
	infoSlaveKind     = 4
	infoSlaveData     = 5
	brportState       = 1
	brStateForwarding = 3
	nestedMask        = 0x3fff // without NLA_F_NESTED and NLA_F_NET_BYTEORDER
)

// WatchLink implements pmd.LinkWatcher. It asks the kernel (rtnetlink) in the network namespace of
// the calling thread, which is to be the device's, and ends with Close. Connected is a device that
// is up and not, or a forwarding, port of a bridge.
func (p *Port) WatchLink(up func()) error {
	fd, w, err := newWatcher(p.name)
	if err != nil {
		return fmt.Errorf("tap: %s: watch the link: %w", p.name, err)
	}
	w.master.Store(w.now.master)
	p.link, p.watched = w, os.NewFile(uintptr(fd), "rtnetlink")
	again := func() (now link, err error) {
		raw, err := p.watched.SyscallConn()
		if err == nil {
			err = errors.Join(err, raw.Control(func(fd uintptr) {
				now, err = askAgain(int(fd), int(w.index))
			}))
		}
		return now, err
	}
	p.watch.Go(func() { w.run(p.watched, again, up) })
	return nil
}

// watcher follows what the kernel tells of one device.
type watcher struct {
	index  int32
	now    link
	master atomic.Uint32 // of now, for others
}

// newWatcher opens a socket on which the kernel tells of devices, and learns the present state of
// one.
func newWatcher(name string) (fd int, w *watcher, err error) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return -1, nil, err
	}
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.NETLINK_ROUTE)
	if err != nil {
		return -1, nil, err
	}
	w = &watcher{index: int32(ifi.Index)}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK})
	if err == nil {
		w.now, err = ask(fd, ifi.Index)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, nil, err
	}
	return fd, w, nil
}

// run calls up whenever hear says so, until r is closed. Where messages were lost it asks again for
// the present state: what comes later is compared with it.
func (w *watcher) run(r io.Reader, again func() (link, error), up func()) {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		switch {
		case errors.Is(err, unix.ENOBUFS):
			if w.now, err = again(); err != nil { // the device is gone, perhaps for a moment
				w.now = link{}
			}
			w.master.Store(w.now.master)
			if w.now.connected() { // it may have been away
				up()
			}
		case err != nil:
			return
		case w.hear(buf[:n]):
			up()
		}
	}
}

// hear takes messages, and says whether the device is connected that was not, or elsewhere.
func (w *watcher) hear(b []byte) (up bool) {
	messages, err := syscall.ParseNetlinkMessage(b)
	if err != nil {
		return false
	}
	for i := range messages {
		next, ok := w.now.after(&messages[i], w.index)
		if !ok {
			continue
		}
		up = up || next.connected() && (!w.now.connected() || next.master != w.now.master)
		w.now = next
		w.master.Store(next.master)
	}
	return up
}

// asksMax bounds how often askAgain asks: so often in a row others' changes have filled the socket
// between reading it and asking.
const asksMax = 16

// askAgain asks for the present state on a socket that had no room for messages. Those that are
// still in it are older than the answer, which would find no room, either: they go.
func askAgain(fd, index int) (now link, err error) {
	buf := make([]byte, 64<<10)
	for range asksMax {
		for {
			_, _, err = unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
			if err != nil && err != unix.ENOBUFS && err != unix.EINTR {
				break
			}
		}
		if err != unix.EAGAIN {
			return link{}, err
		}
		if now, err = ask(fd, index); err != unix.EAGAIN && err != unix.ENOBUFS {
			break
		}
	}
	return now, err
}

// ask asks for the present state, before which nothing is read from fd.
func ask(fd, index int) (link, error) {
	request := make([]byte, unix.SizeofNlMsghdr+unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(request[0:], uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], unix.RTM_GETLINK)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(request[8:], 1)
	binary.NativeEndian.PutUint32(request[unix.SizeofNlMsghdr+4:], uint32(index))
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return link{}, err
	}
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0) // the kernel has answered when the request is sent
		if err != nil {
			return link{}, err
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return link{}, err
		}
		for i := range messages {
			m := &messages[i]
			if m.Header.Seq != 1 {
				continue // of somebody's change
			}
			if now, ok := (link{}).after(m, int32(index)); ok {
				return now, nil
			}
			return link{}, errors.New("the kernel does not tell of it")
		}
	}
}

// after is what m makes of l; ok is false when m is not about the device.
func (l link) after(m *syscall.NetlinkMessage, index int32) (next link, ok bool) {
	if m.Header.Type != unix.RTM_NEWLINK || len(m.Data) < unix.SizeofIfInfomsg {
		return l, false
	}
	if int32(binary.NativeEndian.Uint32(m.Data[4:])) != index {
		return l, false
	}
	attrs, err := syscall.ParseNetlinkRouteAttr(m)
	if err != nil {
		return l, false
	}
	if m.Data[0] == unix.AF_BRIDGE { // a port tells of itself
		for _, a := range attrs {
			if a.Attr.Type&nestedMask == iflaProtinfo {
				l.portState(a.Value)
			}
		}
		return l, true
	}
	flags := binary.NativeEndian.Uint32(m.Data[8:])
	next = link{up: flags&unix.IFF_UP != 0 && flags&unix.IFF_LOWER_UP != 0}
	for _, a := range attrs {
		switch a.Attr.Type & nestedMask {
		case iflaMaster:
			if len(a.Value) >= 4 {
				next.master = binary.NativeEndian.Uint32(a.Value)
			}
		case iflaLinkinfo:
			eachAttr(a.Value, func(kind uint16, value []byte) {
				switch kind {
				case infoSlaveKind:
					next.bridged = string(value) == "bridge\x00"
				case infoSlaveData:
					next.portState(value)
				}
			})
		}
	}
	return next, true
}

// portState reads the state out of a bridge port's attributes.
func (l *link) portState(attrs []byte) {
	eachAttr(attrs, func(kind uint16, value []byte) {
		if kind == brportState && len(value) >= 1 {
			l.state = value[0]
		}
	})
}

// eachAttr yields the attributes of a nest.
func eachAttr(b []byte, yield func(kind uint16, value []byte)) {
	for len(b) >= unix.SizeofRtAttr {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.SizeofRtAttr || n > len(b) {
			return
		}
		yield(binary.NativeEndian.Uint16(b[2:])&nestedMask, b[unix.SizeofRtAttr:n])
		b = b[min(len(b), (n+3)&^3):]
	}
}
