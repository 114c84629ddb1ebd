package engine

import (
	"cmp"
	"context"
	"net/netip"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/ring"
)

// Events, as enum rdma_cm_event_type numbers them.
const (
	cmAddrResolved   = 0
	cmRouteResolved  = 2
	cmConnectRequest = 4
	cmConnectError   = 6
	cmUnreachable    = 7
	cmRejected       = 8
	cmEstablished    = 9
	cmDisconnected   = 10
)

// cmID is an rdma_cm_id.
//
//	listener:   bind, listen; each request is a new cmID
//	initiator:  resolve, route, connect
//	responder:  accept or reject
type cmID struct {
	mu        sync.Mutex
	channel   *channel
	cookie    uint64
	local     netip.AddrPort
	remote    netip.AddrPort
	v6Only    bool          // RDMA_OPTION_ID_AFONLY
	held      int           // a socket that keeps the port of bind until listen
	door      *doorway      // of a listener; of bind, where one was parked
	listening chan struct{} // of a listener: closed when it does no more
	request   *rnic.ConnRequest
	told      map[uint64]*cmID // of a listener: requests that the program has not taken
	room      chan struct{}    // one in it for each of these
	from      *cmID            // of a request: the listener
	ended     chan struct{}    // of a request: closed by end
	end       func()           // the request, or the connection that it became, is over
	qp        *qp
	stop      context.CancelFunc
	over      bool // destroyed: nothing more is told
}

// manage is a call of the connection manager.
func (e *Engine) manage(c *call) error {
	if c.op == ring.CMCreate {
		c.out[0] = e.objects.add(&cmID{held: -1, channel: e.channels.open(int(int64(c.arg[0]))), cookie: c.arg[1]})
		return nil
	}
	id, err := find[*cmID](&e.objects, c.arg[0])
	if err != nil {
		return err
	}
	switch c.op {
	case ring.CMMigrate:
		id.migrate(e.channels.open(int(int64(c.arg[1]))), int(int64(c.arg[2])))
	case ring.Adopt:
		if !id.adopted(c.arg[0]) {
			return syscall.EINVAL // the listener is gone
		}
		id.adopt(e.channels.open(int(int64(c.arg[1]))), c.arg[2])
	case ring.CMDestroy:
		if err := e.objects.drop(c.arg[0]); err != nil {
			return err // another call destroys it
		}
		e.destroyID(id)
	case ring.CMBind:
		return e.bind(id, c)
	case ring.CMResolve:
		return e.resolve(id, c)
	case ring.CMRoute:
		id.tell(&ring.CMEvent{Type: cmRouteResolved})
	case ring.CMListen:
		return e.listen(id, int(c.arg[1]))
	case ring.CMConnect:
		return e.connect(id, c)
	case ring.CMAccept:
		return e.accept(id, c)
	case ring.CMReject:
		return id.reject(c)
	case ring.CMDisconnect:
		return id.disconnect()
	default:
		return syscall.ENOSYS
	}
	return nil
}

// adopted says whether the program may have the request that it was told of.
func (id *cmID) adopted(handle uint64) bool {
	l := id.from
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.told[handle]
	if ok {
		delete(l.told, handle)
		<-l.room
	}
	return ok
}

// adopt has events about the id, of which there was none, go to ch.
func (id *cmID) adopt(ch *channel, cookie uint64) {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.channel, id.cookie = ch, cookie
}

// migrate has events about the id go to ch, with those that the program has not read
// (rdma_migrate_id(3)). fd is its end of the old channel, from which it reads nothing meanwhile.
func (id *cmID) migrate(to *channel, fd int) {
	id.mu.Lock()
	defer id.mu.Unlock()
	from := id.channel
	id.channel = to
	if from == nil || from == to || !from.hold() {
		return
	}
	defer from.release()
	if !to.hold() {
		return
	}
	defer to.release()
	for _, b := range from.remove(fd, id.cookie) {
		to.send(b)
	}
}

// tell sends an event about the id.
func (id *cmID) tell(ev *ring.CMEvent) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.over {
		return
	}
	ev.Cookie = id.cookie
	putAddr(ev.Local[:], id.local)
	putAddr(ev.Peer[:], id.remote)
	sendStruct(id.channel, ev)
}

// bind takes a local address, and a port. The port is kept by a socket of ours until listen.
func (e *Engine) bind(id *cmID, c *call) error {
	at, err := addrOf(c.data)
	if err != nil || !at.IsValid() {
		return syscall.EINVAL
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.held >= 0 || id.door != nil {
		return syscall.EINVAL
	}
	id.v6Only = c.arg[1] != 0 && at.Addr().Is6()
	if id.door = e.parked.take(parkedAt(at, id.v6Only)); id.door != nil {
		id.local = at
	} else if !e.overKernel() {
		err = e.bindOurs(id, at)
	} else {
		id.held, id.local, err = holdPort(at, id.v6Only)
	}
	if err != nil {
		return err
	}
	c.ret = c.buf[:putAddr(c.buf[:sockaddrLen6], id.local)]
	return nil
}

// bindOurs is bind on our own stack. A port is taken by listening only: where the program wants any,
// that begins now, and requests that come before the program listens wait.
func (e *Engine) bindOurs(id *cmID, at netip.AddrPort) error {
	if !at.Addr().IsUnspecified() && !e.isOurs(at.Addr()) {
		return syscall.EADDRNOTAVAIL
	}
	id.local = at
	if at.Port() != 0 {
		return nil
	}
	if err := e.openDoor(id, 0); err != nil {
		return err
	}
	id.local = netip.AddrPortFrom(at.Addr(), id.door.Addr().Port())
	return nil
}

// holdPort binds a socket, which does not listen, to an address. It says whether that is ours, and
// picks a port where there is none.
func holdPort(at netip.AddrPort, v6Only bool) (fd int, bound netip.AddrPort, err error) {
	var addr unix.Sockaddr
	family := syscall.AF_INET
	if at.Addr().Is4() {
		addr = &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	} else {
		zone, _ := strconv.ParseUint(at.Addr().Zone(), 10, 32)
		family, addr = syscall.AF_INET6, &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16(), ZoneId: uint32(zone)}
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, at, err
	}
	if v6Only {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1) // it is an IPv6 socket, not bound yet
	}
	if err = cmp.Or(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, addr)); err == nil {
		addr, err = unix.Getsockname(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, at, err
	}
	switch a := addr.(type) {
	case *unix.SockaddrInet4:
		return fd, netip.AddrPortFrom(at.Addr(), uint16(a.Port)), nil
	case *unix.SockaddrInet6:
		return fd, netip.AddrPortFrom(at.Addr(), uint16(a.Port)), nil
	}
	return fd, at, nil
}

// releasePort gives the port back.
func (id *cmID) releasePort() {
	if id.held >= 0 {
		_ = unix.Close(id.held)
		id.held = -1
	}
}

// resolve finds the local address towards a destination.
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
	local, err := e.source(src.Addr(), dst.Addr())
	if err != nil {
		return err
	}
	id.mu.Lock()
	id.local, id.remote = netip.AddrPortFrom(local, src.Port()), dst
	id.mu.Unlock()
	c.ret = c.buf[:putAddr(c.buf[:sockaddrLen6], id.local)]
	id.tell(&ring.CMEvent{Type: cmAddrResolved})
	return nil
}

// destroyID ends what the id alone holds. Its queue pair is destroyed by a call of its own.
func (e *Engine) destroyID(id *cmID) {
	id.mu.Lock()
	id.over = true
	id.releasePort()
	request, stop, listening, ch := id.request, id.stop, id.listening, id.channel
	id.request = nil
	id.mu.Unlock()
	if ch != nil {
		ch.forgetLate(id.cookie)
	}
	if stop != nil {
		stop()
	}
	if listening != nil {
		<-listening
	}
	if id.door != nil {
		id.door.giveBack(&e.objects, id)
		e.parked.park(parkedAt(id.local, id.v6Only), id.door)
	}
	if request != nil {
		ctx, cancel := context.WithTimeout(context.Background(), rejectWait)
		_ = request.Reject(ctx, nil) // it will get no other answer
		cancel()
		id.end()
	}
}
