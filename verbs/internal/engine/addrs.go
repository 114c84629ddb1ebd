package engine

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"syscall"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// Addresses and ports of ids. An id has its port from bind or resolve on until it is destroyed
// (rdma_bind_addr(3), rdma_resolve_addr(3)), whether it will listen or connect.

// zoneOurs is the zone of link-local addresses over our own TCP where the program gave none: it is
// the number of the device's one port (RFC 4007 section 6 leaves the choice).
const zoneOurs = "1"

// zoned gives a link-local address of our own TCP, which needs no zone, one to tell the program:
// that of like.
func (e *Engine) zoned(a netip.AddrPort, like netip.Addr) netip.AddrPort {
	if e.ownTCP && a.Addr().IsLinkLocalUnicast() && a.Addr().Zone() == "" {
		return netip.AddrPortFrom(a.Addr().WithZone(cmp.Or(like.Zone(), zoneOurs)), a.Port())
	}
	return a
}

// tellAddresses tells the addresses that connections are bound to, as GIDs have them.
func (e *Engine) tellAddresses(c *call) error {
	c.out[0] = uint64(e.mtu)
	var mac [8]byte
	copy(mac[:], e.mac[:])
	c.out[1] = binary.NativeEndian.Uint64(mac[:])
	n := 0
	for _, a := range e.addrs {
		as16 := a.As16()
		n += copy(c.buf[n:], as16[:])
	}
	c.ret = c.buf[:n]
	return nil
}

// bind takes a local address and a port; without an address, it changes the options of the id's.
func (e *Engine) bind(id *cmID, c *call) error {
	at, err := addrOf(c.data)
	if err != nil {
		return err
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	opt := rnic.BindOptions{V6Only: c.arg[1] != 0, Shared: c.arg[2] != 0}
	if !at.IsValid() {
		return e.rebind(id, opt)
	}
	taken, loopback := e.ofLoopback(at)
	if err := e.take(id, taken, opt); err != nil {
		return err
	}
	id.loopback = loopback
	c.ret = c.buf[:putAddr(c.buf[:sockaddrLen6], id.local)]
	return nil
}

// ofLoopback gives a bind to a loopback address of our own TCP, which has none, an address of the
// same family. Linux binds an id there to any device, and libfabric does so to find one. Such an id
// does not listen: whoever binds to loopback wants no other host to connect.
func (e *Engine) ofLoopback(at netip.AddrPort) (_ netip.AddrPort, loopback bool) {
	if !e.ownTCP || !at.Addr().IsLoopback() {
		return at, false
	}
	for _, a := range e.addrs {
		if a.Is4() == at.Addr().Is4() {
			return netip.AddrPortFrom(a, at.Port()), true
		}
	}
	return at, false
}

// rebind changes the options of an id that is bound and does not listen. It is locked.
func (e *Engine) rebind(id *cmID, opt rnic.BindOptions) error {
	if !id.bindsPort() || id.listening != nil {
		return syscall.EINVAL
	}
	if opt.Shared && !id.bound.Shared {
		if err := id.share(); err != nil {
			return err
		}
		id.bound.Shared = true
	}
	if opt.V6Only == id.bound.V6Only {
		return nil
	}
	if id.remote.IsValid() {
		return syscall.EINVAL
	}
	was := id.bound
	id.unbind()
	err := e.take(id, id.local, opt)
	if err != nil {
		_ = e.take(id, id.local, was) // it was there a moment ago; else the id is not bound
	}
	return err
}

// bindsPort says whether it has a port. id is locked.
func (id *cmID) bindsPort() bool { return id.binding != nil || id.service != nil }

// share lets others have the port, too. id is locked.
func (id *cmID) share() error {
	switch {
	case id.service == nil:
		return id.binding.SetShared()
	case !id.service.usable():
		return nil
	}
	return id.service.carrier.share()
}

// unbind gives the address and port back. id is locked.
func (id *cmID) unbind() {
	switch {
	case id.service != nil:
		id.service.close()
	case id.door != nil: // one that was parked
		id.door.reject()
	default:
		id.binding.Close()
	}
	id.door, id.binding, id.service = nil, nil, nil
}

// take is bind for an id that is locked.
func (e *Engine) take(id *cmID, at netip.AddrPort, opt rnic.BindOptions) (err error) {
	if id.bindsPort() {
		return syscall.EINVAL
	}
	id.bound = opt
	opt.V6Only = opt.V6Only && at.Addr().Is6()
	if id.datagrams {
		return e.openService(id, at, opt)
	}
	if id.door = e.parked.take(parkedAt(at, opt.V6Only)); id.door != nil {
		id.binding, id.local, id.parked = id.door.binding, at, parkedAt(at, opt.V6Only)
		return nil
	}
	ctx, cancel := awake.Timeout(context.Background(), acceptWait, nil)
	defer cancel()
	if id.binding, err = e.adapter.Bind(ctx, at, opt); errors.Is(err, stack.ErrPortUsed) &&
		e.parked.yield(at.Port()) {
		id.binding, err = e.adapter.Bind(ctx, at, opt)
	}
	if err != nil {
		return err
	}
	id.local = e.zoned(id.binding.Addr(), at.Addr())
	id.parked = parkedAt(id.local, opt.V6Only)
	return nil
}

// resolve finds the local address towards a destination, and takes a port of it for an id that is
// not bound: the source's, if the program gives one. A bound id has its source.
func (e *Engine) resolve(id *cmID, c *call) error {
	n := min(c.arg[1], uint64(len(c.data)))
	src, err := addrOf(c.data[:n])
	if err != nil {
		return err
	}
	dst, err := addrOf(c.data[n:])
	if err != nil || !dst.IsValid() {
		return syscall.EINVAL
	}
	id.mu.Lock()
	err = e.locate(id, src, dst, c.arg[2] != 0)
	id.mu.Unlock()
	if err != nil {
		return err
	}
	id.tell(&ring.CMEvent{Type: cmAddrResolved})
	return nil
}

// locate is resolve for an id that is locked.
func (e *Engine) locate(id *cmID, src, dst netip.AddrPort, shared bool) error {
	if id.remote.IsValid() || id.listening != nil || id.over {
		return syscall.EINVAL
	}
	if id.bindsPort() {
		src = id.local
	}
	if src.IsValid() && src.Addr().Is4() != dst.Addr().Is4() {
		return syscall.EINVAL
	}
	local := src.Addr()
	if !local.IsValid() || local.IsUnspecified() {
		ctx, cancel := awake.Timeout(context.Background(), acceptWait, nil)
		defer cancel()
		var err error
		if local, err = e.adapter.SourceFor(ctx, dst.Addr()); err != nil {
			return err
		}
	}
	if id.door != nil { // one that was parked: it is not to listen
		src, shared = id.local, id.bound.Shared
		id.unbind()
	}
	if !id.bindsPort() {
		if !src.IsValid() {
			src = netip.AddrPortFrom(local, 0)
		}
		if err := e.take(id, src, rnic.BindOptions{Shared: shared}); err != nil {
			return err
		}
	}
	id.remote = dst
	id.local = e.zoned(netip.AddrPortFrom(local, id.local.Port()), dst.Addr())
	return nil
}
