package memif

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/pmd"
	"golang.org/x/sys/unix"
)

// Config says which interface of which server a client attaches to.
type Config struct {
	Socket string // a path, or @ and a name in the abstract namespace
	ID     uint32 // of the interface, on that socket
	Secret string // up to 24 octets; empty: none
	Name   string // that the server is told, up to 31 octets; memif and the ID by default

	MTU    int     // 1500 by default
	Queues int     // pairs of rings, 1 by default; the server takes as many
	MAC    [6]byte // by default one made at random

	RingLog2 int // of the number of descriptors of a ring; 9 by default, 14 at most
	// with copies: of a buffer in shared memory; by default as many as a frame may have
	BufferBytes int

	// Arena, with a memfd and at most 4 GiB, is shared with the server: pools lie in it, and frames
	// are sent out of their Bufs and received into them without a copy. The server can then read and
	// write all of the arena, at any time. By default frames are copied into memory made for that,
	// and the server sees nothing else.
	Arena *hugepages.Arena
}

const (
	bufferAlign = 64
	retryMin    = 10 * time.Millisecond
	retryMax    = time.Second
	arenaMax    = 1 << 32 // offsets have 32 bits
)

func (c Config) withDefaults() (Config, error) {
	if c.MTU == 0 {
		c.MTU = mtuDefault
	}
	if c.Queues == 0 {
		c.Queues = 1
	}
	if c.RingLog2 == 0 {
		c.RingLog2 = ringLog2
	}
	frameMax := c.MTU + pmd.FrameOverhead
	if c.BufferBytes == 0 {
		c.BufferBytes = (frameMax + bufferAlign - 1) &^ (bufferAlign - 1)
	}
	if c.Name == "" {
		c.Name = fmt.Sprintf("memif%d", c.ID)
	}
	switch {
	case len(c.Secret) > secretLen:
		return c, fmt.Errorf("memif: a secret of %d octets; want up to %d", len(c.Secret), secretLen)
	case c.RingLog2 < 1 || c.RingLog2 > ringLog2Max:
		return c, fmt.Errorf("memif: %s: rings of 2^%d descriptors; want 2^1 to 2^%d", c.Name, c.RingLog2,
			ringLog2Max)
	case c.BufferBytes < bufferAlign || c.BufferBytes%bufferAlign != 0:
		return c, fmt.Errorf("memif: %s: buffers of %d octets; want a multiple of %d", c.Name,
			c.BufferBytes, bufferAlign)
	case c.BufferBytes<<c.RingLog2 < frameMax || c.BufferBytes*piecesMax < frameMax:
		return c, fmt.Errorf("memif: %s: 2^%d buffers of %d octets do not hold a frame of %d", c.Name,
			c.RingLog2, c.BufferBytes, frameMax)
	case 2*c.Queues*c.BufferBytes<<c.RingLog2 > arenaMax/2:
		return c, fmt.Errorf("memif: %s: %d queues of 2^%d buffers of %d octets take more than %d "+
			"octets: choose smaller rings",
			c.Name, c.Queues, c.RingLog2, c.BufferBytes, arenaMax/2)
	case c.Arena != nil && (c.Arena.FD() < 0 || len(c.Arena.Bytes()) > arenaMax):
		return c, fmt.Errorf("memif: %s: an arena of %d octets with descriptor %d; want up to %d "+
			"octets and a memfd (hugepages.Config.Memfd)",
			c.Name, len(c.Arena.Bytes()), c.Arena.FD(), int64(arenaMax))
	}
	return c, nil
}

// Dial makes a port that attaches to a server as soon as there is one, and again whenever the
// server has gone. AwaitLink waits for the first time. Errors are of Config.
func Dial(cfg Config) (*Port, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	addr, err := address(cfg.Socket)
	if err != nil {
		return nil, err
	}
	p, err := newPort(cfg.Name, cfg.MAC, cfg.MTU, cfg.Queues)
	if err != nil {
		return nil, err
	}
	p.arena = cfg.Arena
	p.running.Go(func() { p.keep(&cfg, addr) })
	return p, nil
}

// keep attaches, again and again, until Close.
func (p *Port) keep(cfg *Config, addr *net.UnixAddr) {
	wait := retryMin
	for {
		up, err := p.attach(cfg, addr)
		p.note(err)
		if up {
			wait = retryMin
		}
		timer := time.NewTimer(wait)
		select {
		case <-p.closing:
			timer.Stop()
			return
		case <-timer.C:
		}
		wait = min(2*wait, retryMax)
	}
}

// attach is one connection, from the first octet to the last; up says that it came to frames. The
// error is why it ended.
func (p *Port) attach(cfg *Config, addr *net.UnixAddr) (up bool, err error) {
	conn, err := net.DialUnix(addr.Net, nil, addr)
	if err != nil {
		return false, fmt.Errorf("connecting: %w", err)
	}
	c := &control{conn: conn}
	defer p.endOf(c)
	if !p.setKick(c.interrupt) {
		return false, ErrClosed
	}
	defer p.setKick(nil)
	h := &clientSide{control: c, cfg: cfg}
	defer h.close()
	c.deadline(handshakeMax)
	if err := h.handshake(); err != nil {
		c.tell(err)
		return false, err
	}
	peer := Peer{ID: cfg.ID, Name: h.server.name, Interface: h.remote}
	peer.credentials(conn)
	s := h.session()
	if !p.linkUp(s, peer) {
		s.bells.stop()
		p.release(s)
		return false, ErrClosed
	}
	err = c.attend(s)
	c.tell(err)
	if cfg.Arena != nil {
		c.awaitEnd() // before that, the server may still write into our Bufs
	}
	rings := h.takeRings()
	p.linkDown(s, err, func() { _ = rings.Close() })
	return true, err
}

// endOf ends a connection. The next one waits until all that came over it is closed.
func (p *Port) endOf(c *control) {
	closed := make(chan struct{})
	go func() {
		c.close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-p.closing:
	}
}

// credentials asks the kernel who the other end of a connection is.
func (p *Peer) credentials(conn *net.UnixConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			p.PID, p.UID, p.GID = cred.Pid, cred.Uid, cred.Gid
		}
	})
}

// clientSide is a client's part of the handshake, and the memory it makes for a connection.
type clientSide struct {
	*control
	cfg    *Config
	server hello
	remote string // the server's interface
	log2   uint8

	rings  *hugepages.Arena // region 0
	events []int            // eventfds, of the rings of each queue: transmit, receive
}

func (h *clientSide) close() {
	if h.rings != nil {
		_ = h.rings.Close()
	}
	for _, fd := range h.events {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// takeRings leaves region 0 to the caller.
func (h *clientSide) takeRings() *hugepages.Arena {
	a := h.rings
	h.rings = nil
	return a
}

func (h *clientSide) handshake() error {
	m, err := h.expect(msgHello)
	if err != nil {
		return err
	}
	h.server = m.hello()
	if err := h.suits(); err != nil {
		return err
	}
	if err := h.allocate(); err != nil {
		return err
	}
	hi := initiate{version: version, id: h.cfg.ID, mode: modeEthernet, secret: secretOf(h.cfg.Secret),
		name: "rnicd"}
	if err := h.ask(hi.message(), -1, msgACK); err != nil {
		return err
	}
	if err := h.offer(); err != nil {
		return err
	}
	return h.ask(interfaceMessage(msgConnect, h.cfg.Name), -1, msgConnected)
}

// suits says whether a server can do what we want.
func (h *clientSide) suits() error {
	s := &h.server
	if s.minVersion > version || s.maxVersion < version {
		return ours("Incompatible version")
	}
	if h.cfg.Arena != nil && s.maxRegion < arenaRegion {
		return ours("Two regions are needed, the server takes %d", s.maxRegion+1)
	}
	if n := min(s.maxS2C, s.maxC2S) + 1; n < h.cfg.Queues {
		return ours("%d queues are wanted, the server takes %d", h.cfg.Queues, n)
	}
	h.log2 = min(uint8(h.cfg.RingLog2), s.maxLog2)
	if frameMax := h.cfg.MTU + pmd.FrameOverhead; h.cfg.BufferBytes<<h.log2 < frameMax {
		return ours("The server's rings of 2^%d are too small", h.log2)
	}
	return nil
}

// allocate makes region 0, with the rings and, for copies, the buffers, and the eventfds.
func (h *clientSide) allocate() error {
	size := 2 * h.cfg.Queues * ringBytes(h.log2)
	page := hugepages.Normal
	if h.cfg.Arena == nil {
		size = h.buffersFrom() + 2*h.cfg.Queues*h.cfg.BufferBytes<<h.log2
		page = hugepages.Auto
	}
	var err error
	h.rings, err = hugepages.New(
		hugepages.Config{Bytes: int64(size), Page: page, Node: hugepages.AnyNode, Memfd: true})
	if err != nil {
		return fmt.Errorf("memory for rings: %w", err)
	}
	for i := range 2 * h.cfg.Queues {
		clearRing(h.rings.Bytes(), h.ringOffset(i), h.log2)
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return fmt.Errorf("eventfd: %w", err)
		}
		h.events = append(h.events, fd)
	}
	return nil
}

// ringOffset is where ring i stands in region 0: 2*q is queue q's to transmit, 2*q+1 its to
// receive.
func (h *clientSide) ringOffset(i int) uint32 { return uint32(i * ringBytes(h.log2)) }

func (h *clientSide) buffersFrom() int {
	return (2*h.cfg.Queues*ringBytes(h.log2) + bufferAlign - 1) &^ (bufferAlign - 1)
}

// offer sends regions and rings.
func (h *clientSide) offer() error {
	for i, a := range []*hugepages.Arena{h.rings, h.cfg.Arena} {
		if a == nil {
			continue
		}
		r := addRegion{index: i, size: uint64(len(a.Bytes()))}
		if err := h.ask(r.message(), a.FD(), msgACK); err != nil {
			return err
		}
	}
	for _, c2s := range []bool{true, false} {
		for q := range h.cfg.Queues {
			i := 2 * q
			if !c2s {
				i++
			}
			r := addRing{c2s: c2s, index: q, region: 0, offset: h.ringOffset(i), log2: h.log2}
			if err := h.ask(r.message(), h.events[i], msgACK); err != nil {
				return err
			}
		}
	}
	return nil
}

// ask sends a message and waits for its answer.
func (h *clientSide) ask(m *message, fd int, answer msgType) error {
	if err := h.send(m, fd); err != nil {
		// What the server said before it closed is the better reason.
		var bye *peerError
		if _, last := h.expect(answer); errors.As(last, &bye) {
			return last
		}
		return err
	}
	got, err := h.expect(answer)
	if err == nil && answer == msgConnected {
		h.remote = got.interfaceName()
	}
	return err
}

// expect waits for a message of one type.
func (h *clientSide) expect(t msgType) (*message, error) {
	m := new(message)
	fd, err := h.recv(m)
	if err != nil {
		return nil, err
	}
	if fd >= 0 {
		h.unwanted = append(h.unwanted, fd)
		return nil, ours("A file descriptor that was not asked for")
	}
	switch m.typ() {
	case t:
		return m, nil
	case msgDisconnect:
		return nil, &peerError{m.reason()}
	}
	return nil, ours("%v where %v is due", m.typ(), t)
}

// session is the shared memory as the queues see it, once the server has it. The eventfds go with
// it.
func (h *clientSide) session() *session {
	memory := h.rings.Bytes()
	own := &ownMemory{arena: h.cfg.Arena, bufFrom: h.buffersFrom(), bufBytes: h.cfg.BufferBytes}
	regions := [][]byte{memory}
	if own.arena != nil {
		regions = append(regions, own.arena.Bytes())
	}
	rings := make([]pair, h.cfg.Queues)
	fds, wakers := make([]int, h.cfg.Queues), make([]int, h.cfg.Queues)
	for q := range rings {
		rings[q].tx = ringAt(memory, h.ringOffset(2*q), h.log2)
		rings[q].rx = ringAt(memory, h.ringOffset(2*q+1), h.log2)
		fds[q], h.events[2*q] = h.events[2*q], -1
		wakers[q], h.events[2*q+1] = h.events[2*q+1], -1
	}
	s := newSession(regions, rings, own)
	s.bells, s.wakers = newBells(fds), wakers
	return s
}
