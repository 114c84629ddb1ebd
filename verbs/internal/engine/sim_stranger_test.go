package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/rnicd/rnicd/rnic"
)

// asked is what a Request of a stranger's must get: a refusal.
func (p *process) asked(n *numbered, h *hello, private []byte) (answer, bool) {
	pd := p.adapter.AllocPD()
	none := p.adapter.CreateCQSink(func(rnic.Completion) {})
	opt := rnic.QPOptions{PD: pd, SendCQ: none, RecvCQ: none, SendDepth: 1, RecvDepth: 1}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	q, err := p.adapter.Dial(ctx, h.to.port().String(), opt, rnic.ConnParam{
		PrivateData: private, PeerToPeer: true, Dialect: rnic.RFC6581, Acknowledged: true})
	if err == nil {
		q.Abort()
		<-q.Done()
		n.fail("a stranger was accepted, which said %+v", *h)
		return accepted, false
	}
	var no *rnic.RejectedError
	if !errors.As(err, &no) {
		return accepted, false // of a lossy network, or a program that has ended
	}
	got, err := parseHello(no.PrivateData)
	if err != nil {
		n.fail("a stranger got %x", no.PrivateData)
	}
	return got.answer, err == nil
}

// stranger asks, from the host of the couple's first end, for what is not its.
func (c *couple) stranger() {
	n := c.n
	e := c.ends[len(c.ends)-1]
	from := n.hosts[0]
	if e.host == from {
		from = n.hosts[1]
	}
	d := numberedDrawer{rand.New(rand.NewPCG(n.wl.Seed, uint64(c.index<<8|e.round)))}
	n.until(n.Now()+int64(d.span(3*time.Second)), func() bool { return false })
	if c.Rounds[e.round].ends() {
		return // whose end may be the stranger's, too
	}
	h := &hello{flags: helloAcknowledged, to: e.name, from: name{from.gid, e.number ^ 0x7a5}}
	want := []answer{notForYou, comeAgain}
	if n.wl.Secret != "" {
		h.proof = proof{nonce: draw(), challenge: draw()}
		want = []answer{proveAgain}
		from.engine.proven(ofRequest, h)
	}
	private := h.put()
	switch d.IntN(4) {
	case 0:
		private, want = private[:d.IntN(helloLen)], []answer{notByNumber}
	case 1:
		h.to.number ^= 0x800
		private, want = from.engine.proven(ofRequest, h).put(), []answer{unknown}
	case 2:
		h.from.gid[15] ^= 0x20
		private, want = from.engine.proven(ofRequest, h).put(), []answer{elsewhere}
	}
	got, ok := from.asked(n, h, private)
	for _, a := range want {
		if ok = ok && a != got; !ok {
			n.mark("a stranger refused", true)
			return
		}
	}
	if ok {
		n.fail("a stranger heard that %v, not that %v: %+v", got, want, *h)
	}
}

// replay asks again what the couple's connection was made by.
func (c *couple) replay() {
	n, e, o := c.n, c.ends[0], c.ends[len(c.ends)-1]
	if n.wl.Secret == "" || c.Kind != coupleApart {
		return // who has the peer's address is the peer
	}
	if !e.q.way.initiates() {
		e, o = o, e
	}
	e.q.way.mu.Lock()
	h := e.q.way.request()
	e.q.way.mu.Unlock()
	got, ok := e.host.asked(n, h, h.put())
	if ok && got != proveAgain {
		n.fail("a replay heard that %v", got)
	}
	n.mark("a replay refused", ok)
	for _, e := range []*end{e, o} {
		e.once()
	}
}
