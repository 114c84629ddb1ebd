package memif

import (
	"cmp"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/awake"
)

// serverSide is a server's part of the handshake: one message in, one out. What a client says is
// bounded here, before any memory is mapped for it.
//
//	INIT ──► named ──CONNECT──► all agreed
//	           ▲ │
//	           └─┘ ADD_REGION, ADD_RING
type serverSide struct {
	limits limits
	peer   Peer
	// admit decides on INIT, and says which interface of ours it is.
	admit func(Peer) (name string, err error)

	name     string // of our interface; empty before INIT
	regions  []region
	octets   uint64
	c2s, s2c []givenRing
	complete bool
	unwanted []int // descriptors that came and are no use
}

// limits are what a listener, or one of its interfaces, takes.
type limits struct {
	queues      int // pairs of rings, at most
	exactly     bool
	log2        int
	regionBytes uint64
	unsealed    bool
}

// givenRing is a ring that a client has added; fd wakes its consumer.
type givenRing struct {
	addRing
	fd int
}

func (h *serverSide) hello(name string) *message {
	hi := hello{
		name: name, minVersion: version, maxVersion: version, maxRegion: regionsMax - 1,
		maxS2C: h.limits.queues - 1, maxC2S: h.limits.queues - 1, maxLog2: uint8(h.limits.log2),
	}
	return hi.message()
}

// input takes a message and the descriptor that came with it, or -1; the descriptor is its own.
// The answer is to be sent; with an error the connection ends.
func (h *serverSide) input(m *message, fd int) (answer *message, err error) {
	keep := false
	defer func() {
		if fd >= 0 && !keep {
			h.unwanted = append(h.unwanted, fd)
		}
	}()
	t := m.typ()
	if t == msgDisconnect {
		return nil, &peerError{m.reason()}
	}
	if named := h.name != ""; named == (t == msgInit) || h.complete {
		return nil, ours("Unexpected message")
	}
	if wants := t == msgAddRegion || t == msgAddRing; wants != (fd >= 0) {
		return nil, ours("%v with or without a file descriptor", t)
	}
	switch t {
	case msgInit:
		err = h.initiate(m.initiate())
	case msgAddRegion:
		keep, err = h.addRegion(m.addRegion(), fd)
	case msgAddRing:
		keep, err = h.addRing(m.addRing(), fd)
	case msgConnect:
		if err = h.connect(m.interfaceName()); err == nil {
			return interfaceMessage(msgConnected, h.name), nil
		}
	default:
		err = ours("Unknown message type")
	}
	if err != nil {
		return nil, err
	}
	return newMessage(msgACK), nil
}

func (h *serverSide) initiate(i initiate) error {
	switch {
	case i.version != version:
		return ours("Incompatible version")
	case i.mode != modeEthernet:
		return ours("Ethernet mode only")
	}
	h.peer.ID, h.peer.Name = i.id, i.name
	h.peer.Secret = strings.TrimRight(string(i.secret[:]), "\x00")
	name, err := h.admit(h.peer)
	if err != nil {
		return err
	}
	h.name = cmp.Or(name, "memif")
	return nil
}

// checkSecret: a server that wants none takes any.
func checkSecret(want, given string) error {
	w, g := secretOf(want), secretOf(given)
	switch {
	case want == "" || subtle.ConstantTimeCompare(w[:], g[:]) == 1:
		return nil
	case given == "":
		return ours("Secret required")
	}
	return ours("Incorrect secret")
}

// addRegion closes fd, unless there is an error.
func (h *serverSide) addRegion(a addRegion, fd int) (closed bool, err error) {
	switch {
	case a.index != len(h.regions) || a.index >= regionsMax:
		return false, ours("Invalid region index")
	case a.size > h.limits.regionBytes || h.octets > h.limits.regionBytes-a.size:
		return false, ours("Regions of more than %d octets", h.limits.regionBytes)
	}
	r, err := mapRegion(fd, a.size, !h.limits.unsealed)
	if err != nil {
		return false, err
	}
	unix.Close(fd) // it is of tmpfs or hugetlbfs, and does not block
	h.octets += a.size
	h.regions = append(h.regions, r)
	return true, nil
}

// addRing keeps fd, unless there is an error.
func (h *serverSide) addRing(a addRing, fd int) (keep bool, err error) {
	rings := &h.s2c
	if a.c2s {
		rings = &h.c2s
	}
	switch {
	case a.index != len(*rings) || a.index >= h.limits.queues:
		return false, ours("Invalid ring index")
	case int(a.log2) > h.limits.log2:
		return false, ours("Ring of 2^%d descriptors, 2^%d at most", a.log2, h.limits.log2)
	}
	if !isEventfd(fd) {
		return false, ours("Ring without an eventfd")
	}
	*rings = append(*rings, givenRing{a, fd})
	return true, nil
}

// connect checks what regions and rings make together.
func (h *serverSide) connect(remote string) error {
	switch n := len(h.c2s); {
	case n == 0 || n != len(h.s2c):
		return ours("%d rings one way and %d the other", n, len(h.s2c))
	case h.limits.exactly && n != h.limits.queues:
		return ours("%d queues, %d are wanted", n, h.limits.queues)
	}
	for _, rings := range [][]givenRing{h.c2s, h.s2c} {
		for _, g := range rings {
			if g.region >= len(h.regions) {
				return ours("Ring in no region")
			}
			memory := h.regions[g.region].octets
			if err := checkRing(memory, g.offset, g.log2); err != nil {
				return ours("%v", err)
			}
			if cookieAt(memory, g.offset) != ringCookie {
				return ours("Wrong cookie")
			}
		}
	}
	h.peer.Interface, h.complete = remote, true
	return nil
}

// session is what was agreed on. Regions and descriptors are the session's from now on.
func (h *serverSide) session() (s *session, regions []region) {
	octets, guarded := make([][]byte, len(h.regions)), true
	for i, r := range h.regions {
		octets[i], guarded = r.octets, guarded && r.guarded
	}
	rings, fds, wakers := make([]pair, len(h.c2s)), make([]int, len(h.c2s)), make([]int, len(h.c2s))
	for i := range rings { // their memory may have gone: a fault leaves all to close
		in, out := h.c2s[i], h.s2c[i]
		rings[i].rx = ringAt(octets[in.region], in.offset, in.log2)
		rings[i].tx = ringAt(octets[out.region], out.offset, out.log2)
		rings[i].rx.setTail(0)
		rings[i].tx.setTail(0)
	}
	for i := range rings {
		fds[i], h.s2c[i].fd = h.s2c[i].fd, -1
		wakers[i], h.c2s[i].fd = h.c2s[i].fd, -1
	}
	s = newSession(octets, rings, nil)
	s.guarded = guarded
	s.bells, s.wakers = newBells(fds), wakers
	regions, h.regions = h.regions, nil
	return s, regions
}

func (h *serverSide) close() {
	unmapAll(h.regions)
	for _, g := range append(h.s2c, h.c2s...) {
		if g.fd >= 0 {
			unix.Close(g.fd)
		}
	}
	h.regions, h.s2c, h.c2s = nil, nil, nil
}

// serve is one connection of a listener, from the first octet to the last. It keeps its places,
// among clients and as the one of its interface, until all that came over it is closed, for which
// Close does not wait.
func (l *Listener) serve(conn *net.UnixConn) {
	c := &control{conn: conn}
	h := &serverSide{limits: l.limits()}
	h.peer.credentials(conn)
	added := l.add(c, h.peer.UID)
	if added != nil {
		l.refused(h.peer, added)
		c.tell(added)
	} else {
		l.converse(c, h)
	}
	c.unwanted = append(c.unwanted, h.unwanted...)
	l.unclose(h.peer.UID, len(c.unwanted))
	l.running.Done()
	c.close()
	l.unclose(h.peer.UID, -len(c.unwanted))
	if h.name != "" {
		l.free(h.peer.ID)
	}
	if added == nil {
		l.remove(c, h.peer.UID)
	}
}

// converse is a connection that has its place.
func (l *Listener) converse(c *control, h *serverSide) {
	var p *Port
	h.admit = func(peer Peer) (string, error) {
		port, err := l.admit(peer, h)
		if err != nil {
			return "", err
		}
		if err := l.recognize(c, peer.UID); err != nil {
			l.free(peer.ID)
			return "", err
		}
		p = port
		return l.nameOf(p, peer), nil
	}
	defer h.close()
	c.deadline(handshakeMax)
	err := c.send(h.hello(l.cfg.Name), -1)
	for m := new(message); err == nil && !h.complete; {
		var fd int
		var answer *message
		if fd, err = c.recv(m); err != nil {
			break
		}
		if answer, err = guarded(h, m, fd); err == nil && !h.complete {
			err = c.send(answer, -1)
		}
	}
	if err == nil {
		err = l.established(c, h, p)
	} else if ours := (*errOurs)(nil); errors.As(err, &ours) {
		l.refused(h.peer, err)
	}
	c.tell(err)
}

func (l *Listener) refused(peer Peer, err error) {
	if l.cfg.Refused != nil {
		l.cfg.Refused(peer, err)
	}
}

func (l *Listener) stillAdmitted(peer Peer) error {
	if l.cfg.Admit == nil {
		return nil
	}
	if err := l.cfg.Admit(peer); err != nil {
		err = ours("%v", err)
		l.refused(peer, err)
		return err
	}
	return nil
}

// guarded is h.input, which reads the cookies in memory of the client.
func guarded(h *serverSide, m *message, fd int) (answer *message, err error) {
	err = withFaults(func() error {
		answer, err = h.input(m, fd)
		return err
	})
	return answer, err
}

// established is a connection that both ends agree on, until it ends.
func (l *Listener) established(c *control, h *serverSide, p *Port) error {
	accepted := p == nil
	if accepted {
		var err error
		if p, err = newPort(l.nameOf(nil, h.peer), [6]byte{}, l.cfg.MTU, len(h.c2s)); err != nil {
			return ours("%v", err)
		}
	}
	p.setKick(c.interrupt)
	defer p.setKick(nil)
	var s *session
	var regions []region
	if err := withFaults(func() error { s, regions = h.session(); return nil }); err != nil {
		return err
	}
	p.rung = s.bells
	down := func(err error) {
		p.linkDown(s, err, func() {
			l.judge(s, h.peer) // of what queues found after the end
			unmapAll(regions)
		})
		if accepted {
			p.gone()
		}
	}
	if !p.linkUp(s, h.peer) {
		s.bells.stop()
		p.release(s)
		unmapAll(regions)
		return ours("Interface closed")
	}
	if accepted && !l.offer(p) {
		err := ours("No connections are accepted at the moment")
		l.refused(h.peer, err)
		down(err)
		return err
	}
	var err error
	if !accepted {
		err = l.stillAdmitted(h.peer)
	}
	if err == nil {
		err = c.send(interfaceMessage(msgConnected, h.name), -1)
	}
	if err == nil {
		err = c.attend(s)
	}
	down(err)
	l.judge(s, h.peer)
	var mine *errOurs
	var bye *peerError
	if errors.As(err, &mine) || errors.As(err, &bye) {
		// A client uses its memory again when our socket is closed, so our queues leave first, if they
		// are at work.
		late, stop := awake.After(goodbyeMax)
		defer stop()
		select {
		case <-s.unused:
		case <-late:
		}
	}
	return err
}

func (l *Listener) nameOf(p *Port, peer Peer) string {
	if p != nil {
		return p.name
	}
	return fmt.Sprintf("memif%d", peer.ID)
}
