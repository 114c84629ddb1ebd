package engine

import (
	"net"
	"net/netip"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/owned"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// Multicast (docs/adr/0048-datagrams.md): a datagram to a group goes to a port that all processes
// share, and to the number that InfiniBand has for it. Each process has a socket for each group
// that a queue pair of its own is attached to; our own stack joins it instead.
const (
	groupPort   = slotPort - 1
	groupNumber = 0xffffff
	groupsMax   = ring.GroupsMax // of a process
)

// udGroup is a group with the queue pairs that are attached to it.
type udGroup struct {
	members []*ud
	socket  *udSocket // nil over our own stack
}

// group makes or finds one, which is joined at the interface of an address. slotting is locked.
func (e *Engine) group(g gid, via netip.Addr) (*udGroup, error) {
	p := e.udPort
	switch {
	case !netip.AddrFrom16(g).Unmap().IsMulticast():
		return nil, syscall.EINVAL
	case p == nil:
		return nil, syscall.EINVAL // there is no queue pair for datagrams
	case p.groups[g] != nil:
		return p.groups[g], nil
	case len(p.groups) >= groupsMax:
		return nil, syscall.ENOMEM
	}
	group := &udGroup{}
	var err error
	if e.ownTCP {
		err = p.joinStack(g)
	} else {
		group.socket, err = p.join(g, via)
	}
	if err != nil {
		e.tellLog("group %v at %v: %v", netip.AddrFrom16(g).Unmap(), via, err)
		return nil, err
	}
	e.whenUDQuiet(func() { p.groups[g] = group })
	e.tellLog("group %v is joined at %v", netip.AddrFrom16(g).Unmap(), via)
	return group, nil
}

// attach has u receive what is for a group.
func (e *Engine) attach(u *ud, g gid, via netip.Addr) error {
	e.slotting.Lock()
	defer e.slotting.Unlock()
	group, err := e.group(g, via)
	if err != nil {
		return err
	}
	e.whenUDQuiet(func() {
		if !slices.Contains(group.members, u) {
			group.members = append(group.members, u)
		}
	})
	return nil
}

// detach undoes it; EINVAL: there is nothing to be undone.
func (e *Engine) detach(u *ud, g gid) error {
	e.slotting.Lock()
	defer e.slotting.Unlock()
	if e.udPort == nil {
		return syscall.EINVAL
	}
	group := e.udPort.groups[g]
	if group == nil || !slices.Contains(group.members, u) {
		return syscall.EINVAL
	}
	e.leaveGroup(u, g, group)
	return nil
}

// detachAll is for a queue pair that is destroyed.
func (e *Engine) detachAll(u *ud) {
	e.slotting.Lock()
	defer e.slotting.Unlock()
	for g, group := range u.port.groups {
		if slices.Contains(group.members, u) {
			e.leaveGroup(u, g, group)
		}
	}
}

func (e *Engine) leaveGroup(u *ud, g gid, group *udGroup) {
	e.whenUDQuiet(func() {
		group.members = slices.DeleteFunc(group.members, func(o *ud) bool { return o == u })
		if len(group.members) == 0 {
			delete(e.udPort.groups, g)
			if group.socket == nil {
				e.poller.LeaveGroup(stack.Addr(g))
			}
		}
	})
	if len(group.members) == 0 && group.socket != nil {
		group.socket.close()
	}
}

// joinStack has our own stack receive what is for a group, of which it has one port for all.
func (p *udPort) joinStack(g gid) (err error) {
	p.engine.whenUDQuiet(func() {
		s := p.carrier.(*udStack)
		if !s.grouped {
			err = s.poller.ListenUDP(groupPort, s)
			s.grouped = err == nil
		}
		if err == nil {
			err = s.poller.JoinGroup(stack.Addr(g))
		}
	})
	return err
}

// leaveGroups is for the end of a program: switches are told that no more is wanted. It returns
// when they have been.
func (e *Engine) leaveGroups() {
	e.slotting.Lock()
	defer e.slotting.Unlock()
	if e.udPort == nil || len(e.udPort.groups) == 0 {
		return
	}
	e.whenUDQuiet(func() {
		for g := range e.udPort.groups {
			e.poller.LeaveGroup(stack.Addr(g))
		}
	})
	e.whenUDQuiet(func() {}) // the Turn of the first has sent it
}

// join makes the socket of a group. It is bound to the group's address, so that it receives
// nothing else.
func (p *udPort) join(g gid, via netip.Addr) (*udSocket, error) {
	to := netip.AddrFrom16(g).Unmap()
	family, name := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: groupPort, Addr: to.As16()})
	index, err := interfaceOf(via)
	if err != nil {
		return nil, err
	}
	if to.Is4() {
		family, name = unix.AF_INET, &unix.SockaddrInet4{Port: groupPort, Addr: to.As4()}
	} else {
		name.(*unix.SockaddrInet6).ZoneId = uint32(index)
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err == nil {
		err = unix.Bind(fd, name)
	}
	if err == nil && to.Is4() {
		err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP,
			&unix.IPMreqn{Multiaddr: to.As4(), Ifindex: int32(index)})
		if err == nil { // and not what others of this host have joined elsewhere
			err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0)
		}
	} else if err == nil {
		err = unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP,
			&unix.IPv6Mreq{Multiaddr: to.As16(), Interface: uint32(index)})
		if s, ok := p.carrier.(*udSocket); ok && err == nil && s.six { // what is sent goes there
			_ = unix.SetsockoptInt(s.fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, index)
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	owned.Keep(fd)
	return p.openSocket(fd)
}

// interfaceOf is the index of the interface that has an address.
func interfaceOf(a netip.Addr) (int, error) {
	all, err := net.Interfaces()
	if err != nil {
		return 0, err
	}
	for i := range all {
		addrs, err := all[i].Addrs()
		if err != nil {
			continue
		}
		for _, x := range addrs {
			if n, ok := x.(*net.IPNet); ok {
				if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap() == a.WithZone("") {
					return all[i].Index, nil
				}
			}
		}
	}
	return 0, syscall.EADDRNOTAVAIL
}

// receiveGroup delivers a datagram to all that are attached to its destination.
func (p *udPort) receiveGroup(h *udHeader, d *udIn) {
	group := p.groups[d.destination]
	if group == nil {
		p.drop(ring.DropNumber)
		return
	}
	d.stays = false // others have it already
	for _, u := range group.members {
		p.receiveAt(u, h, d)
	}
}

// attachUD attaches a queue pair to a group, or detaches it.
func (e *Engine) attachUD(c *call) error {
	u, err := find[*ud](&e.objects, c.arg[0])
	if err != nil || len(c.data) < 32 {
		return cmpErrno(err)
	}
	if c.arg[1] == 0 {
		return e.detach(u, gid(c.data[:16]))
	}
	return e.attach(u, gid(c.data[:16]), netip.AddrFrom16([16]byte(c.data[16:32])).Unmap())
}

func cmpErrno(err error) error {
	if err == nil {
		return syscall.EINVAL
	}
	return err
}

// joined tells an id that it is in a group, to which its queue pair was attached if it has one:
// what is said needs no other end.
func (e *Engine) joined(id *cmID, c *call) error {
	at, err := addrOf(c.data)
	if err != nil || !at.Addr().IsMulticast() {
		return syscall.EINVAL
	}
	id.mu.Lock()
	local := id.local.Addr()
	id.mu.Unlock()
	if !id.datagrams || !local.IsValid() || local.IsUnspecified() || local.Is4() != at.Addr().Is4() {
		return syscall.EINVAL
	}
	if c.arg[1] != 0 {
		u, err := find[*ud](&e.objects, c.arg[1])
		if err == nil {
			err = e.attach(u, at.Addr().As16(), local.WithZone(""))
		}
		if err != nil {
			return err
		}
	}
	ev := &ring.CMEvent{Type: cmMulticastJoin, Request: c.arg[2], Number: groupNumber,
		QKey: uint32(c.arg[3])}
	id.tellTo(ev, at)
	return nil
}
