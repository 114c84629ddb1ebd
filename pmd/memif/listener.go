package memif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/unixsock"
)

// ListenConfig says who may attach on a socket, and with how much.
type ListenConfig struct {
	Socket string // a path, or @ and a name in the abstract namespace
	// of a path: who may connect; 0600 by default. A name in the abstract namespace is open to all
	// of the host
	Mode os.FileMode
	Name string // that clients are told, up to 31 octets

	// Admit decides on each client, when it has said which interface it wants and with which
	// secret; an error, of which the client is told up to 95 octets, refuses it. It is asked again
	// once the client has attached to an interface of Bind's: whoever makes it stricter and then
	// ends the connections (Port.Disconnect) misses none. By default the secrets decide. Several
	// goroutines at once; it may block, and then the client waits.
	Admit func(Peer) error
	// Refused, if set, is told of each client that was told why it cannot attach: by Admit, for its
	// secret, its interface, its memory or its rings, or for ClientsMax. Peer has what was known of
	// it by then. Several goroutines at once.
	Refused func(Peer, error)

	// Of connections that Accept takes, those to interfaces that no Bind has:
	Backlog int    // that wait for Accept; 0: there are none, and such clients are refused
	Secret  string // that they must know, up to 24 octets
	MTU     int    // 1500 by default
	Queues  int    // at most; 1 by default

	ClientsMax     int   // admitted ones at a time, 64 by default
	RingLog2Max    int   // 14 by default
	RegionBytesMax int64 // of memory that one client may have us map, 1 GiB by default

	// Unsealed takes regions that may shrink, of any file on tmpfs or hugetlbfs: those of DPDK's
	// zero-copy clients. If one does shrink, its connection ends.
	Unsealed bool
}

const (
	clientsDefault     = 64
	regionBytesDefault = 1 << 30
	modeDefault        = 0o600
	// for a connection to be noticed as gone, whose interface another wants
	idWait      = time.Second
	acceptPause = 10 * time.Millisecond
)

func (c ListenConfig) withDefaults() (ListenConfig, error) {
	c.Name = cmp.Or(c.Name, "rnicd")
	c.Mode = cmp.Or(c.Mode, modeDefault)
	c.MTU = cmp.Or(c.MTU, mtuDefault)
	c.Queues = cmp.Or(c.Queues, 1)
	c.ClientsMax = cmp.Or(c.ClientsMax, clientsDefault)
	c.RingLog2Max = cmp.Or(c.RingLog2Max, ringLog2Max)
	c.RegionBytesMax = cmp.Or(c.RegionBytesMax, regionBytesDefault)
	switch {
	case c.Queues < 1 || c.Queues > queuesMax:
		return c, fmt.Errorf("memif: %d queues; want 1 to %d", c.Queues, queuesMax)
	case c.MTU < MTUMin || c.MTU > MTUMax:
		return c, fmt.Errorf("memif: MTU %d; want %d to %d", c.MTU, MTUMin, MTUMax)
	case c.ClientsMax < 1 || c.Backlog < 0:
		return c, fmt.Errorf("memif: %d clients, %d of them waiting; want at least 1, and 0",
			c.ClientsMax, c.Backlog)
	case c.RingLog2Max < 1 || c.RingLog2Max > ringLog2Max:
		return c, fmt.Errorf("memif: rings of 2^%d descriptors; want 2^1 to 2^%d", c.RingLog2Max,
			ringLog2Max)
	case c.RegionBytesMax < 1:
		return c, fmt.Errorf("memif: regions of %d octets; want at least 1", c.RegionBytesMax)
	case len(c.Secret) > secretLen:
		return c, fmt.Errorf("memif: a secret of %d octets; want up to %d", len(c.Secret), secretLen)
	}
	return c, nil
}

// Listener is a socket on which clients attach to interfaces, each to one of its own: those that
// Bind has, which outlive their clients, and any others, which Accept hands out one connection at
// a time.
//
// Clients are not trusted. What they say and what stands in their memory is bounded and checked,
// in a copy; a client that breaks the rules, ends, or is killed, loses its connection, without
// effect on others.
type Listener struct {
	cfg    ListenConfig
	socket *net.UnixListener

	lock    sync.Mutex
	closed  bool
	bound   map[uint32]*binding
	using   map[uint32]chan struct{} // interfaces with a client; closed when it has gone
	clients map[*control]struct{}
	known   int            // of clients: that have been admitted
	strange map[uint32]int // and that have not, yet, by user
	barred  map[offender]*bar
	open    map[uint32]int // descriptors that came and are not closed yet, by user

	accepted chan *Port
	done     chan struct{}
	running  sync.WaitGroup
}

// binding is an interface of Bind's.
type binding struct {
	port   *Port
	secret string
}

// Listen opens the socket, and makes its directory where that is missing. The path of a server that
// has ended is taken over.
func Listen(cfg ListenConfig) (*Listener, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	addr, err := address(cfg.Socket)
	if err != nil {
		return nil, err
	}
	if err := unixsock.MakeDir(cfg.Socket); err != nil {
		return nil, fmt.Errorf("memif: %w", err)
	}
	socket, err := unixsock.Listen(addr, cfg.Mode)
	if errors.Is(err, unix.EADDRINUSE) && cfg.Socket[0] != '@' && abandoned(addr) {
		_ = os.Remove(cfg.Socket)
		socket, err = unixsock.Listen(addr, cfg.Mode)
	}
	if errors.Is(err, unix.EADDRINUSE) && cfg.Socket[0] != '@' && !isSocket(cfg.Socket) {
		return nil, notSocket(cfg.Socket)
	}
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, inUse(cfg.Socket)
	}
	if err != nil {
		return nil, fmt.Errorf("memif: %w", err)
	}
	l := &Listener{
		cfg: cfg, socket: socket, bound: map[uint32]*binding{}, using: map[uint32]chan struct{}{},
		clients: map[*control]struct{}{}, strange: map[uint32]int{}, open: map[uint32]int{},
		barred: map[offender]*bar{}, accepted: make(chan *Port, cfg.Backlog), done: make(chan struct{}),
	}
	faults() // a descriptor for good, so not when the first client comes
	l.running.Go(l.run)
	return l, nil
}

// CheckSocket says why Listen would refuse a socket now, and makes nothing. Whether one can be made
// there is not looked at.
func CheckSocket(socket string) error {
	addr, err := address(socket)
	if err != nil {
		return err
	}
	if socket[0] != '@' {
		if _, err := os.Lstat(socket); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if !isSocket(socket) {
			return notSocket(socket)
		}
	}
	conn, err := net.DialUnix(addr.Net, nil, addr)
	if err == nil {
		_ = conn.Close()
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return inUse(socket)
	}
	return nil
}

func notSocket(path string) error {
	return fmt.Errorf("memif: %s is there, and is no socket: choose another path", path)
}

func inUse(socket string) error {
	return fmt.Errorf("memif: %s is another server's: choose another, or end that one", socket)
}

// abandoned: no process listens at a path any more.
func abandoned(addr *net.UnixAddr) bool {
	if !isSocket(addr.Name) {
		return false
	}
	conn, err := net.DialUnix(addr.Net, nil, addr)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, unix.ECONNREFUSED)
}

func isSocket(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().Type() == os.ModeSocket
}

// run accepts connections until Close.
func (l *Listener) run() {
	for {
		conn, err := l.socket.AcceptUnix()
		if err == nil {
			l.running.Add(1)
			go l.serve(conn)
			continue
		}
		select {
		case <-l.done:
			return
		case <-time.After(acceptPause): // as when there are no descriptors left
		}
	}
}

// BindConfig is one interface of a Listener.
type BindConfig struct {
	ID     uint32
	Secret string  // that clients must know, up to 24 octets; empty: they need not
	Name   string  // up to 31 octets; memif and the ID by default
	MTU    int     // 1500 by default
	Queues int     // pairs of rings that a client brings, 1 by default
	MAC    [6]byte // by default one made at random
}

// Bind makes a port of an interface, for one client after the other. Its Close gives the
// interface up. A client that Accept has handed out keeps it for as long as it is there.
func (l *Listener) Bind(cfg BindConfig) (*Port, error) {
	cfg.Name = cmp.Or(cfg.Name, fmt.Sprintf("memif%d", cfg.ID))
	if len(cfg.Secret) > secretLen {
		return nil, fmt.Errorf("memif: a secret of %d octets; want up to %d", len(cfg.Secret), secretLen)
	}
	p, err := newPort(cfg.Name, cfg.MAC, cmp.Or(cfg.MTU, mtuDefault), cmp.Or(cfg.Queues, 1))
	if err != nil {
		return nil, err
	}
	p.giveUp = func() {
		l.lock.Lock()
		defer l.lock.Unlock()
		delete(l.bound, cfg.ID)
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	switch {
	case l.closed:
		return nil, ErrClosed
	case l.bound[cfg.ID] != nil:
		return nil, fmt.Errorf("memif: interface %d of %s is in use: choose another ID", cfg.ID,
			l.cfg.Socket)
	}
	l.bound[cfg.ID] = &binding{p, cfg.Secret}
	return p, nil
}

// Accept waits for a client of an interface that no Bind has, and returns its port; its link goes
// down for good when the client goes (Port.Gone), and the port is closed then as any other. Any
// goroutine.
func (l *Listener) Accept(ctx context.Context) (*Port, error) {
	select {
	case p := <-l.accepted:
		return p, nil
	case <-l.done:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close ends the socket and all connections; ports stay, without a link, until they are closed.
func (l *Listener) Close() error {
	l.lock.Lock()
	if l.closed {
		l.lock.Unlock()
		return nil
	}
	l.closed = true
	close(l.done)
	for c := range l.clients {
		c.interrupt("Server closed")
	}
	l.lock.Unlock()
	err := l.socket.Close()
	l.running.Wait()
	for {
		select {
		case p := <-l.accepted:
			_ = p.Close()
		default:
			return err
		}
	}
}

// openMax bounds the descriptors of a user that came without need and cannot be closed yet,
// beside those of the connections that there are.
const openMax = 1024

// strangersMin is how many connections any user may have that have not said yet what they want.
const strangersMin = 16

// add takes a connection. Until it has said what it wants it is not one of ClientsMax, and no user
// has more than a quarter of those: they would keep others out for as long as each may take.
func (l *Listener) add(c *control, uid uint32) error {
	l.lock.Lock()
	defer l.lock.Unlock()
	share := max(l.cfg.ClientsMax/4, strangersMin)
	switch {
	case l.closed:
		return ours("Server closed")
	case l.open[uid] >= openMax:
		return ours("File descriptors that you sent cannot be closed")
	case l.strange[uid] >= share || len(l.clients)-l.known >= 4*share:
		return ours("Too many clients")
	}
	l.clients[c] = struct{}{}
	l.strange[uid]++
	c.strange = true
	return nil
}

// recognize is for a connection that has been admitted: now it is one of ClientsMax.
func (l *Listener) recognize(c *control, uid uint32) error {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.known >= l.cfg.ClientsMax {
		return ours("Too many clients")
	}
	l.familiar(c, uid)
	l.known++
	return nil
}

func (l *Listener) familiar(c *control, uid uint32) {
	if !c.strange {
		return
	}
	c.strange = false
	if l.strange[uid]--; l.strange[uid] == 0 {
		delete(l.strange, uid)
	}
}

// unclose counts n descriptors of a user as not closed.
func (l *Listener) unclose(uid uint32, n int) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.open[uid] += n; l.open[uid] == 0 {
		delete(l.open, uid)
	}
}

func (l *Listener) remove(c *control, uid uint32) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if !c.strange {
		l.known--
	}
	l.familiar(c, uid)
	delete(l.clients, c)
}

// limits are those that HELLO tells of, of any interface: which one it is comes later.
func (l *Listener) limits() limits {
	l.lock.Lock()
	defer l.lock.Unlock()
	queues := 1
	if l.cfg.Backlog > 0 {
		queues = l.cfg.Queues
	}
	for _, b := range l.bound {
		queues = max(queues, len(b.port.queues))
	}
	return limits{queues: queues, log2: l.cfg.RingLog2Max, regionBytes: uint64(l.cfg.RegionBytesMax),
		unsealed: l.cfg.Unsealed}
}

// admit decides on a client and reserves its interface. The port is nil for one that Accept will
// take.
func (l *Listener) admit(peer Peer, h *serverSide) (*Port, error) {
	if l.cfg.Admit != nil { // first: others are not to hold an interface, or try secrets
		if err := l.cfg.Admit(peer); err != nil {
			return nil, ours("%v", err)
		}
	}
	b, err := l.reserve(peer)
	if err != nil {
		return nil, err
	}
	if b == nil {
		h.limits.queues = l.cfg.Queues
		return nil, nil
	}
	if r := b.port.rung; r != nil { // one stuck goroutine an interface, not one a connection
		r.drain()
		late, stop := awake.After(idWait)
		defer stop()
		select {
		case <-r.ended:
		case <-late:
			l.free(peer.ID)
			return nil, ours("An eventfd of the last connection is full: read it")
		}
	}
	h.limits.queues, h.limits.exactly = len(b.port.queues), true
	return b.port, nil
}

// reserve takes the interface for this client. One whose last client has just gone is waited for.
func (l *Listener) reserve(peer Peer) (*binding, error) {
	late, stop := awake.After(idWait)
	defer stop()
	for {
		l.lock.Lock()
		b, gone := l.bound[peer.ID], l.using[peer.ID]
		secret := l.cfg.Secret
		if b != nil {
			secret = b.secret
		}
		err := checkSecret(secret, peer.Secret)
		if b == nil && l.cfg.Backlog == 0 {
			err = ours("ID not found: there is no interface %d", peer.ID)
		}
		if err == nil {
			err = l.pausing(peer)
		}
		if err == nil && gone == nil {
			l.using[peer.ID] = make(chan struct{})
		}
		l.lock.Unlock()
		if err != nil || gone == nil {
			return b, err
		}
		select {
		case <-gone:
		case <-late:
			return nil, ours("Already connected: end the other client of interface %d", peer.ID)
		case <-l.done:
			return nil, ours("Server closed")
		}
	}
}

func (l *Listener) free(id uint32) {
	l.lock.Lock()
	defer l.lock.Unlock()
	close(l.using[id])
	delete(l.using, id)
}

// offer hands a port to Accept; false: the backlog is full.
func (l *Listener) offer(p *Port) bool {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.closed {
		return false
	}
	select {
	case l.accepted <- p:
		return true
	default:
		return false
	}
}

// withFaults runs f, which touches memory of a client. Where that has gone it returns an error.
func withFaults(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if reason := recover(); reason != nil {
			if _, ok := reason.(interface{ Addr() uintptr }); !ok {
				panic(reason)
			}
			err = ours("Memory of a region has gone")
		}
	}()
	return f()
}
