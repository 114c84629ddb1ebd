package engine

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/rnicd/rnicd/rnic"
)

// servicePort is the port of an id of RDMA_PS_UDP: it asks, or answers.
//
//	ask --> a cookie, as long --> the same ask with it --> a question for the program --> an answer
//
// A sender that is not where its datagrams say gets no cookie, and takes no room. What is lost is
// sent again by who asks; an answer is kept for that.
type servicePort struct {
	engine  *Engine
	carrier serviceCarrier // nil: the port is that of a socket of the program
	at      netip.AddrPort
	secret  [sha256.Size]byte // of cookies
	asked   chan *question

	mu        sync.Mutex
	listening bool
	closed    bool                      // the id is gone; the carrier goes with the last question
	open      int                       // questions without an answer
	told      map[questionKey]*question // that came lately
	order     []*question               // the same, oldest first
	wait      *serviceWait              // of who asks
}

// serviceCarrier takes datagrams to the network, and gives what comes to servicePort.receive. Its
// methods are for any goroutine but the one that drives datagrams, except send.
type serviceCarrier interface {
	// connect has nothing but remote heard from now on, and told if there is nobody.
	connect(remote netip.AddrPort) error
	// send is for the goroutine that drives datagrams.
	send(local, remote netip.AddrPort, b []byte)
	share() error
	close()
}

// question is one that has come, and what was answered.
type question struct {
	port        *servicePort
	key         questionKey
	local, from netip.AddrPort
	private     []byte
	at          time.Time
	reply       []byte // nil: not yet
}

type questionKey struct {
	from        netip.AddrPort
	transaction uint64
}

// serviceWait is an ask that is under way.
type serviceWait struct {
	key     questionKey
	answers chan service // room for one
	refused chan struct{}
}

const (
	questionsMax = 1024             // that a port remembers
	questionsFor = connectWait      // at least while there is room: as long as anybody asks
	cookieFor    = 30 * time.Second // at least
	cookiesMax   = 8                // that an ask brings

	askFirst = 100 * time.Millisecond // until it is sent again; doubled
	askMost  = 2 * time.Second
)

// errNoService: the port has no listener for datagrams.
var errNoService = errors.New("there is no listener for datagrams")

// newServicePort takes a local address and port, as rnic.Adapter.Bind does.
func (e *Engine) newServicePort(at netip.AddrPort, opt rnic.BindOptions) (*servicePort, error) {
	if !e.roce || !e.polled && e.poller == nil {
		return nil, syscall.EOPNOTSUPP
	}
	p := &servicePort{engine: e, asked: make(chan *question, backlogMax),
		told: map[questionKey]*question{}}
	_, _ = rand.Read(p.secret[:])
	var err error
	if e.ownTCP {
		err = e.services.open(p, at, opt)
	} else {
		err = openServiceSocket(p, at, opt)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// usable says whether it can ask and answer. Not after close.
func (p *servicePort) usable() bool { return p.carrier != nil }

// close is for the end of the id.
func (p *servicePort) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.release()
}

// release closes the carrier if nobody needs it.
func (p *servicePort) release() {
	p.mu.Lock()
	c := p.carrier
	if !p.closed || p.open > 0 || c == nil {
		p.mu.Unlock()
		return
	}
	p.carrier = nil
	p.mu.Unlock()
	c.close()
}

func (p *servicePort) listen() {
	p.mu.Lock()
	p.listening = true
	p.mu.Unlock()
}

// unlisten rejects what the program was not told of.
func (p *servicePort) unlisten() {
	p.mu.Lock()
	p.listening = false
	p.mu.Unlock()
	for {
		select {
		case q := <-p.asked:
			q.answer(service{status: serviceRejected})
		default:
			return
		}
	}
}

// send is carrier.send for any goroutine but the one that drives datagrams.
func (p *servicePort) send(local, remote netip.AddrPort, b []byte) {
	p.engine.whenUDQuiet(func() { p.sendNow(local, remote, b) })
}

func (p *servicePort) sendNow(local, remote netip.AddrPort, b []byte) {
	p.mu.Lock()
	c := p.carrier
	p.mu.Unlock()
	if c != nil {
		c.send(local, remote, b)
	}
}

// ask asks until there is an answer, or ctx ends.
func (p *servicePort) ask(ctx context.Context, local, remote netip.AddrPort,
	s service) (answer service, err error) {
	var transaction [8]byte
	_, _ = rand.Read(transaction[:])
	s.transaction = binary.BigEndian.Uint64(transaction[:])
	w := &serviceWait{key: questionKey{remote, s.transaction}, answers: make(chan service, 1),
		refused: make(chan struct{}, 1)}
	p.mu.Lock()
	p.wait = w
	c := p.carrier
	p.mu.Unlock()
	if c == nil {
		return answer, errNoService // the id was destroyed meanwhile
	}
	if err = c.connect(remote); err != nil {
		return answer, err
	}
	again := time.NewTimer(0)
	defer again.Stop()
	for cookies, every := 0, askFirst; ; {
		select {
		case <-ctx.Done():
			return answer, ctx.Err()
		case <-w.refused:
			return answer, errNoService
		case <-again.C:
			p.send(local, remote, s.put())
			again.Reset(every)
			every = min(2*every, askMost)
		case answer = <-w.answers:
			switch {
			case answer.kind == serviceAnswer && answer.status == serviceUnsupported:
				return service{}, errNoService
			case answer.kind == serviceAnswer:
				return answer, nil
			case cookies < cookiesMax:
				cookies++
				s.cookie = answer.cookie
				p.send(local, remote, s.put())
			}
		}
	}
}

// refuse tells who asks that there is nobody at remote.
func (p *servicePort) refuse(remote netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wait != nil && p.wait.key.from == remote {
		select {
		case p.wait.refused <- struct{}{}:
		default:
		}
	}
}

// receive takes a datagram. The goroutine that drives datagrams.
func (p *servicePort) receive(local, from netip.AddrPort, b []byte) {
	s, ok := parseService(b)
	if !ok || from.Port() == 0 {
		return
	}
	if s.kind != serviceAsk {
		p.answered(from, &s)
		return
	}
	if allow := p.engine.takes(); allow != nil && !allow(from) {
		return
	}
	if reply := p.examine(local, from, &s, time.Now()); reply != nil {
		p.sendNow(local, from, reply)
	}
}

// answered hands an answer to who asks. One that comes while another waits is lost, as others may
// be.
func (p *servicePort) answered(from netip.AddrPort, s *service) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.wait; w != nil && w.key == (questionKey{from, s.transaction}) {
		s.private = append([]byte(nil), s.private...)
		select {
		case w.answers <- *s:
		default:
		}
	}
}

// examine is what an ask is answered at once: no more octets than it has, unless it has brought its
// cookie.
func (p *servicePort) examine(local, from netip.AddrPort, s *service, now time.Time) []byte {
	no := service{kind: serviceAnswer, status: serviceUnsupported, transaction: s.transaction}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := questionKey{from, s.transaction}
	period := now.Unix() / int64(cookieFor/time.Second)
	proven := s.cookie == p.cookie(key, period) || s.cookie == p.cookie(key, period-1)
	switch q := p.told[key]; {
	case proven && q != nil:
		return q.reply
	case !p.listening:
		return no.put()
	case !proven:
		again := service{kind: serviceProve, transaction: s.transaction, cookie: p.cookie(key, period)}
		return again.put()
	case !p.forget(now):
		return nil // it asks again
	}
	q := &question{port: p, key: key, local: local, from: from, at: now,
		private: append([]byte(nil), s.private...)}
	select {
	case p.asked <- q:
		p.told[key] = q
		p.order = append(p.order, q)
		p.open++
	default: // as many wait as may
	}
	return nil
}

// cookie is what one who asks has got if it is where it says. p is locked.
func (p *servicePort) cookie(key questionKey, period int64) (c [16]byte) {
	var b [16 + 2 + 8 + 8]byte
	a := key.from.Addr().As16()
	copy(b[:], a[:])
	binary.BigEndian.PutUint16(b[16:], key.from.Port())
	binary.BigEndian.PutUint64(b[18:], key.transaction)
	binary.BigEndian.PutUint64(b[26:], uint64(period))
	m := hmac.New(sha256.New, p.secret[:])
	m.Write(b[:])
	copy(c[:], m.Sum(nil))
	return c
}

// forget has room for one more question; false: the oldest has no answer, and it is not old. p is
// locked.
func (p *servicePort) forget(now time.Time) bool {
	for len(p.order) > 0 {
		q := p.order[0]
		old := now.Sub(q.at) > questionsFor
		if !old && len(p.order) < questionsMax {
			return true
		}
		if !old && q.reply == nil {
			return false
		}
		delete(p.told, q.key)
		p.order = p.order[1:]
	}
	return true
}

// answer answers a question, once.
func (q *question) answer(s service) {
	p := q.port
	s.kind, s.transaction = serviceAnswer, q.key.transaction
	b := s.put()
	p.mu.Lock()
	q.reply = b
	p.mu.Unlock()
	p.send(q.local, q.from, b)
	p.mu.Lock()
	p.open--
	p.mu.Unlock()
	p.release()
}
