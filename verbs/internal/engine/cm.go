package engine

import (
	"context"
	"net/netip"
	"sync"
	"syscall"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/ring"
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
	cmMulticastJoin  = 12
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
	binding   *rnic.Binding // that has the port of local, from bind or resolve on
	bound     rnic.BindOptions
	loopback  bool          // bound to an address of ours instead: ofLoopback
	parked    string        // where door is kept when the id is gone
	door      *doorway      // of a listener; of bind, where one was parked
	listening chan struct{} // of a listener: closed when it does no more
	request   *rnic.ConnRequest
	service   *servicePort     // instead of binding, of RDMA_PS_UDP
	question  *question        // instead of request
	told      map[uint64]*cmID // of a listener: requests that the program has not taken
	room      chan struct{}    // one in it for each of these
	accepting untold           // of a listener: what came of requests that the program has taken
	from      *cmID            // of a request: the listener
	ended     chan struct{}    // of a request: closed by end
	end       func()           // the request, or the connection that it became, is over
	qp        *qp
	stop      context.CancelFunc
	over      bool // destroyed: nothing more is told
	datagrams bool // of RDMA_PS_UDP: service.go
	asks      bool // of these: it has connected, as far as the program is concerned
}

// manage is a call of the connection manager.
func (e *Engine) manage(c *call) error {
	if c.op == ring.CMCreate {
		c.out[0] = e.objects.add(&cmID{channel: e.channels.open(int(int64(c.arg[0]))), cookie: c.arg[1],
			datagrams: c.arg[2] != 0})
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
		if id.datagrams {
			return e.find(id, c)
		}
		return e.connect(id, c)
	case ring.CMAccept:
		if id.datagrams {
			return id.tellNumber(service{number: uint32(c.arg[1]), qkey: uint32(c.arg[2]),
				private: c.data})
		}
		return e.accept(id, c)
	case ring.CMReject:
		if id.datagrams {
			return id.tellNumber(service{status: serviceRejected, private: c.data})
		}
		return id.reject(c)
	case ring.CMJoin:
		return e.joined(id, c)
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
func (id *cmID) tell(ev *ring.CMEvent) { id.tellTo(ev, netip.AddrPort{}) }

// tellTo is tell, about another address than the id's remote one if it is valid.
func (id *cmID) tellTo(ev *ring.CMEvent, at netip.AddrPort) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.over {
		return
	}
	if !at.IsValid() {
		at = id.remote
	}
	ev.Cookie = id.cookie
	putAddr(ev.Local[:], id.local)
	putAddr(ev.Peer[:], at)
	sendStruct(id.channel, ev)
}

// destroyID ends what the id alone holds. Its queue pair is destroyed by a call of its own.
func (e *Engine) destroyID(id *cmID) {
	id.mu.Lock()
	id.over = true
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
	if id.service != nil {
		id.rejectTold(&e.objects)
		id.service.close()
	} else if id.door != nil {
		id.door.giveBack(&e.objects, id)
		e.parked.park(id.parked, id.door)
	} else if id.binding != nil {
		id.binding.Close()
	}
	if request != nil {
		ctx, cancel := awake.Timeout(context.Background(), rejectWait, nil)
		_ = request.Reject(ctx, nil) // it will get no other answer
		cancel()
		id.end()
	}
	_ = id.tellNumber(service{status: serviceRejected}) // or there is no question
}
