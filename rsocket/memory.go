package rsocket

import (
	"errors"

	"github.com/rnicd/rnicd/rnic"
)

// memory is what a Conn has registered, for its QueuePair alone.
type memory struct {
	ring    *rnic.MemoryRegion // the peer's octets
	list    *rnic.MemoryRegion // where the peer says where it wants ours
	inbox   *rnic.MemoryRegion // its messages
	outbox  *rnic.MemoryRegion // our octets
	regions []*rnic.MemoryRegion
}

// inboxMore is how many receive buffers there are beside those for messages of data: grants and
// goodbyes are not counted by anybody.
const inboxMore = 64

func (m *memory) register(pd *rnic.ProtectionDomain, qp *rnic.QueuePair, opt *Options) error {
	var errs error
	one := func(n int, access rnic.Access) *rnic.MemoryRegion {
		r, err := pd.RegisterWith(make([]byte, n), rnic.RegisterOptions{Access: access, For: qp})
		if err != nil {
			errs = errors.Join(errs, err)
			return nil
		}
		m.regions = append(m.regions, r)
		return r
	}
	m.ring = one(opt.ReceiveBuffer, rnic.RemoteWrite)
	m.list = one(listLen*entryLen+opt.Maps*mapLen, rnic.RemoteWrite)
	m.inbox = one((opt.Credits+inboxMore)*messageLen, rnic.LocalWrite)
	m.outbox = one(opt.SendBuffer, 0)
	return errs
}

func (m *memory) release() {
	for _, r := range m.regions {
		r.Deregister()
	}
}
