package rsocket

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"

	"github.com/rnicd/rnicd/rnic"
)

// newConn makes the end of a connection that is to come, with its receive buffers posted.
func newConn(dev *rnic.Adapter, opt Options) (*Conn, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	c := &Conn{opt: opt, order: binary.LittleEndian, finished: make(chan struct{})}
	if hostBigEndian() {
		c.order = binary.BigEndian
	}
	c.changed = sync.NewCond(&c.mu)
	c.in.init(&opt)
	c.out.init(&opt)
	c.maps.theirs, c.pd = make([]iomap, opt.Maps), dev.AllocPD()
	pd, buffers := c.pd, opt.Credits+inboxMore
	var err error
	if c.cq, err = dev.CreateCQ(rnic.CQMinSize(slotsMax, buffers)); err != nil {
		return nil, err
	}
	if c.qp, err = dev.CreateQP(rnic.QPOptions{PD: pd, SendCQ: c.cq, RecvCQ: c.cq, SendDepth: slotsMax,
		RecvDepth: buffers}); err != nil {
		return nil, err
	}
	if err = c.m.register(pd, c.qp, &opt); err == nil {
		for i := 0; i < buffers && err == nil; i++ {
			err = c.postRecv(i)
		}
	}
	if err != nil {
		c.drop()
		return nil, err
	}
	return c, nil
}

// drop gives up a Conn that was not returned yet.
func (c *Conn) drop() {
	c.qp.Abort()
	<-c.qp.Done()
	c.m.release()
}

func hostBigEndian() bool { return binary.NativeEndian.Uint16([]byte{0, 1}) == 1 }

// connParam is how the connection is made. Its private data is what the peer has to know of this
// end.
func (c *Conn) connParam() rnic.ConnParam {
	d := connData{
		bigEndian: c.order == binary.BigEndian, credits: uint16(c.opt.Credits), maps: byte(c.opt.Maps),
		list: entry{c.m.list.Base(), c.m.list.STag(), listLen},
		ring: entry{c.m.ring.Base(), c.m.ring.STag(), uint32(c.in.half)},
	}
	conn := c.opt.connParam()
	conn.PrivateData = d.marshal()
	return conn
}

// learn takes what the peer says of its end. Before begin.
func (c *Conn) learn(d *connData) {
	c.out.begin(d)
	c.in.peer, c.in.entries, c.in.at = d.list, d.list.length, 1
	c.maps.begin(d)
}

// begin puts a Conn whose QueuePair is in service into operation.
func (c *Conn) begin() {
	c.local, c.remote = net.TCPAddrFromAddrPort(c.qp.LocalAddr()),
		net.TCPAddrFromAddrPort(c.qp.RemoteAddr())
	c.mu.Lock()
	c.grantOnce() // the second half of the ring; and with it an Initiator says the first word
	c.mu.Unlock()
	go c.run()
}

// Dial connects to a Listener, or to an rsockets program that listens, at host:port, through dev.
// It returns when the connection stands. Errors are those of QueuePair.Connect, Options that cannot
// be, and a peer that is none of rsockets.
func Dial(ctx context.Context, dev *rnic.Adapter, addr string, opt Options) (*Conn, error) {
	c, err := newConn(dev, opt)
	if err != nil {
		return nil, err
	}
	if err := c.qp.Connect(ctx, addr, c.connParam()); err != nil {
		c.drop()
		return nil, err
	}
	d, err := parseConnData(c.qp.PeerPrivateData())
	if err == nil && d.bigEndian != (c.order == binary.BigEndian) {
		err = fmt.Errorf("its host has the other byte order, and rsockets over iWARP cannot do with both")
	}
	if err != nil {
		c.drop()
		return nil, fmt.Errorf("rsocket: %s: %w", addr, err)
	}
	c.learn(&d)
	c.begin()
	return c, nil
}
