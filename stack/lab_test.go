package stack

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

const (
	ms     = int64(1_000_000)
	second = 1000 * ms
)

// lab is a link in virtual time with Pollers on it: the test language of this package.
//
//	l := newLab(t, nil)                       // hosts a (10.0.0.1) and b (10.0.0.2)
//	l.listen(l.b, 7, 16)                      // b accepts; l.accepted collects the Uppers
//	u := l.dial(l.a, l.b, 7)                  // a dials
//	l.until("open", func() bool { ... })      // turn, and let time pass, until it is so
type lab struct {
	t        testing.TB
	now      int64
	hosts    []*host
	a, b     *host
	accepted []*peer
	vectors  func(int) int // peer.vectors of connections that are opened from now on
	bufs     int           // of each host's Pool; 0: labBufs
	live     **lab         // nil once it has been stopped
}

// host is a Poller with its pool and a queue that can lose frames or refuse them.
type host struct {
	introducer
	t    testing.TB
	pool *mem.Pool
	nic  *nic
	addr netip.Addr
	mac  inet.MAC
}

// nic is a queue with faults.
type nic struct {
	pmd.Queue
	pool  *mem.Pool
	lose  func(frame []byte) bool // of what is sent: true loses it
	txMax int                     // frames taken per call; -1: any number
	// room of the device, which each frame takes one of; nil: any number
	ring *int
	// keep the device's hold on what was sent, like a NIC that has not reaped its ring
	hold   bool
	held   []mem.Buf
	sent   int
	onSend func(frame []byte) // except MLDv2 Reports, which are for onReport

	onReport func(frame []byte)
}

var reportMAC = inet.AllMLDRouters.GroupMAC()

func (n *nic) Tx(bufs []mem.Buf) int {
	if n.ring != nil {
		bufs = bufs[:min(len(bufs), *n.ring)]
		*n.ring -= len(bufs)
	}
	// as benchmarks want it
	if n.lose == nil && n.onSend == nil && n.onReport == nil && n.txMax < 0 && !n.hold {
		n.sent += len(bufs)
		return n.Queue.Tx(bufs)
	}
	if n.txMax >= 0 && len(bufs) > n.txMax {
		bufs = bufs[:n.txMax]
	}
	for i, b := range bufs {
		frame := n.pool.Data(b)
		switch isReport := inet.MAC(frame) == reportMAC; {
		case isReport && n.onReport != nil:
			n.onReport(frame)
		case !isReport && n.onSend != nil:
			n.onSend(frame)
		}
		n.sent++
		if n.lose != nil && n.lose(frame) {
			continue
		}
		if n.Queue.Tx(bufs[i:i+1]) == 0 {
			return i
		}
		if n.hold {
			n.pool.HoldDevice(b)
			n.held = append(n.held, b)
		}
	}
	return len(bufs)
}

func (n *nic) reap() {
	for _, b := range n.held {
		n.pool.DeviceDone(b)
	}
	n.held = nil
}

const labBufs = 2048

var labOffload = false // the link of the next lab completes checksums

var newHeap = hugepages.Heap

// newLab makes two hosts; tune changes their Configs, host 0 is a, 1 is b. They stop with the test.
func newLab(t testing.TB, tune func(i int, cfg *Config)) *lab { return newLabOf(t, labBufs, tune) }

func newLabOf(t testing.TB, bufs int, tune func(i int, cfg *Config)) *lab {
	l := &lab{t: t, now: 1000 * second, bufs: bufs}
	link := must(wire.New(wire.Config{ChecksumOffload: labOffload}))(t)
	for i := range 2 {
		l.hosts = append(l.hosts, l.host(link.Port(i), i, tune))
	}
	l.a, l.b = l.hosts[0], l.hosts[1]
	return l.ends()
}

// ends has l stopped, unless it has been, when its test has passed.
func (l *lab) ends() *lab {
	l.live = new(*lab)
	*l.live = l
	if live, t := l.live, l.t; t.Name()[0] == 'T' {
		t.Cleanup(func() {
			if *live != nil && !t.Failed() {
				(*live).stop()
			}
		})
	}
	return l
}

func newPool(t testing.TB, bufs int) *mem.Pool {
	t.Helper()
	cfg := mem.PoolConfig{Bufs: bufs, Stride: 2048}
	return must(mem.NewPool(hugepages.Heap(cfg.Bytes()), cfg))(t)
}

func (l *lab) host(port pmd.Port, i int, tune func(i int, cfg *Config)) *host {
	pool := newPool(l.t, cmp.Or(l.bufs, labBufs))
	q := must(port.Open(0, pool))(l.t)
	n := &nic{Queue: q, pool: pool, txMax: -1}
	addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})
	cfg := Config{
		Name: fmt.Sprintf("host%d", i), Queue: n, Pool: pool, Caps: port.Caps(), MAC: port.MAC(),
		Addr: netip.PrefixFrom(addr, 24), Core: -1, Clock: func() int64 {
			return l.now
		}, NoDAD: true, NoAnnounce: true,
		ConnsMax: 16, Secret: [16]byte{byte(i + 1)}, TCP: tcp.Config{NoDelay: true, SentMax: 256},
	}
	if tune != nil {
		tune(i, &cfg)
	}
	p := must(New(cfg))(l.t)
	return &host{introducer: introducer{p}, t: l.t, pool: pool, nic: n, addr: addr, mac: cfg.MAC}
}

// turns turns all hosts until none finds work.
func (l *lab) turns() {
	for range 100_000 {
		work := 0
		for _, h := range l.hosts {
			work += h.Turn()
		}
		if work == 0 {
			return
		}
	}
	l.t.Fatal("the hosts never come to rest")
}

// step lets time pass to the next deadline; false: nothing more is due.
func (l *lab) step() bool {
	at := int64(math.MaxInt64)
	for _, h := range l.hosts {
		at = min(at, h.Deadline())
	}
	if at == math.MaxInt64 {
		return false
	}
	l.now = max(l.now+1, at)
	return true
}

// dice is chance, of a seed that the log has.
func dice(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

const patience = 400 * second

// until turns and lets time pass until cond holds.
func (l *lab) until(what string, cond func() bool) {
	l.t.Helper()
	end := l.now + patience
	for {
		for range 1000 {
			work := 0
			for _, h := range l.hosts {
				work += h.Turn()
			}
			if cond() {
				return
			}
			if work == 0 {
				break
			}
		}
		if !l.step() || l.now > end {
			l.t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// pass lets d nanoseconds pass, with everything that becomes due.
func (l *lab) pass(d int64) {
	end := l.now + d
	for l.turns(); ; l.turns() {
		next := int64(math.MaxInt64)
		for _, h := range l.hosts {
			next = min(next, h.Deadline())
		}
		if next >= end {
			l.now = end
			l.turns()
			return
		}
		l.now = max(l.now+1, next)
	}
}

// whole checks that no Buf was lost: all are free but the one each Poller keeps at hand.
func (l *lab) whole() {
	l.t.Helper()
	for _, h := range l.hosts {
		spare := 0
		if h.tx.spare != mem.NoBuf {
			spare = 1
		}
		require.Equal(l.t, h.pool.Size(), h.pool.Available()+spare, "%s: Bufs lost", h.cfg.Name)
	}
}

// stop ends all faults and hosts, and checks that every Buf came back.
func (l *lab) stop() {
	l.t.Helper()
	*l.live = nil
	for _, h := range l.hosts {
		h.nic.lose, h.nic.onSend, h.nic.onReport, h.nic.ring, h.nic.hold = nil, nil, nil, nil, false
		h.Stop()
	}
	for range 3 {
		for _, h := range l.hosts {
			h.Turn()
		}
	}
	for _, h := range l.hosts {
		h.nic.reap()
		require.Zero(l.t, h.table.n, "%s: connections left", h.cfg.Name)
		require.Zero(l.t, h.pressure.promised, "%s: Bufs promised to nobody", h.cfg.Name)
		require.Zero(l.t, h.pressure.loans.guests, "%s: guests left", h.cfg.Name)
	}
	l.drain()
	l.whole()
}

// drain takes what is still on the link, which a stopped Poller does not.
func (l *lab) drain() {
	bufs := make([]mem.Buf, 64)
	for _, h := range l.hosts {
		for n := h.nic.Rx(bufs); n > 0; n = h.nic.Rx(bufs) {
			h.pool.FreeN(bufs[:n])
		}
	}
}

// listen accepts on h; every accepted Upper gets the next of size octets to send.
func (l *lab) listen(h *host, port uint16, backlog int, send ...int) {
	require.NoError(l.t, h.Listen(port, backlog, func(c *Conn) Upper {
		u := newPeer(l.t, 2)
		u.vectors = l.vectors
		for _, n := range send {
			u.toSend += uint64(n)
		}
		u.conn = c
		l.accepted = append(l.accepted, u)
		return u
	}))
}

// dial opens from h to to, with so many octets to send.
func (l *lab) dial(h, to *host, port uint16, send ...int) *peer {
	l.t.Helper()
	return l.dialAt(h, netip.AddrPortFrom(to.addr, port), send...)
}

// dialTo opens from a to an address and port.
func (l *lab) dialTo(to string) *peer {
	l.t.Helper()
	return l.dialAt(l.a, netip.MustParseAddrPort(to))
}

func (l *lab) dialAt(h *host, to netip.AddrPort, send ...int) *peer {
	l.t.Helper()
	u := newPeer(l.t, 1)
	u.vectors = l.vectors
	for _, n := range send {
		u.toSend += uint64(n)
	}
	must(h.Dial(to, u))(l.t)
	return u
}

// openMany has a open n connections to b, which listens; l.accepted has their other ends.
func (l *lab) openMany(n int, send ...int) (us []*peer) {
	l.t.Helper()
	l.listen(l.b, 7, max(n, 16))
	us = l.dials(n, send...)
	l.until("open", func() bool { return len(l.accepted) == n })
	return us
}

// dials has a dial b n times.
func (l *lab) dials(n int, send ...int) (us []*peer) {
	l.t.Helper()
	for range n {
		us = append(us, l.dial(l.a, l.b, 7, send...))
	}
	return us
}

// allThere says whether so many octets have come in order over each connection that b accepted.
func (l *lab) allThere(octets uint64) bool {
	return !slices.ContainsFunc(l.accepted, func(v *peer) bool { return v.edge < octets })
}

// another opens one more from a to b.
func (l *lab) another() *peer {
	l.t.Helper()
	u := l.dial(l.a, l.b, 7)
	l.until("open", func() bool { return u.opened })
	return u
}

// finish closes u's half, and then v's.
func (l *lab) finish(u, v *peer) {
	l.t.Helper()
	u.closeSend()
	l.until("FIN", func() bool { return v.peerFin })
	v.closeSend()
	l.until("closed", func() bool { return u.closed == 1 && v.closed == 1 })
}

// open gives an established connection: u at a's end, v at b's.
func (l *lab) open() (u, v *peer) {
	l.t.Helper()
	l.listen(l.b, 7, 16)
	u = l.dial(l.a, l.b, 7)
	l.until("established", func() bool { return u.opened && len(l.accepted) == 1 })
	return u, l.accepted[0]
}

// opened is open of a lab that is new.
func (l *lab) opened() (self *lab, u, v *peer) {
	l.t.Helper()
	u, v = l.open()
	return l, u, v
}

// Turn is the Poller's. One that says it had no work has counted nothing, except that something
// waits, or has come to its end: a Poller that sleeps then would be late with what follows.
func (h *host) Turn() int {
	before, host := h.n, *h.host.Counters()
	work := h.Poller.Turn()
	if _, bench := h.t.(*testing.B); bench || work > 0 {
		return work
	}
	after := h.n
	for _, n := range [...]*Counters{&before, &after} {
		n.Turns, n.EmptyTurns, n.TxDeferred, n.TxWaits = 0, 0, 0, 0
		n.NoBufWaits, n.MemoryWaits, n.ShareWaits = 0, 0, 0
		n.TimersPutOff, n.Own[DropNoBuf], n.Closed, n.Rerouted = 0, 0, 0, 0
	}
	if host != *h.host.Counters() {
		require.Equal(h.t, host, *h.host.Counters(), "a Turn without work")
	}
	if before != after {
		require.Equal(h.t, before, after, "a Turn without work")
	}
	return work
}

func (h *host) counters() Counters {
	var n Counters
	h.Snapshot(&n)
	return n
}

// hoard takes Bufs until so many are left, and returns what gives them back.
func (h *host) hoard(left int) (free func()) {
	var bufs []mem.Buf
	for h.pool.Available() > left {
		bufs = append(bufs, h.pool.Alloc())
	}
	return func() { h.pool.FreeN(bufs) }
}

// taker is an Upper that takes what comes and has nothing to say, for others to embed.
type taker struct{ conn *Conn }

func (u *taker) know(c *Conn) { u.conn = c }
func (*taker) Established()   {}
func (*taker) Arrive(_ uint64, _ []mem.Buf, data [][]byte) (int, Verdict) {
	return len(data), Taken
}
func (*taker) Edge(uint64)          {}
func (*taker) Pull([][]byte) Pulled { return Pulled{} }
func (*taker) Acked(uint64)         {}
func (*taker) FinAcked()            {}
func (*taker) PeerClosed()          {}
func (*taker) Held() (int, int64)   { return 0, 0 }
func (*taker) Advice(error)         {}
func (*taker) Woken()               {}
func (*taker) Timer(int64)          {}
func (*taker) Closed(error)         {}

// knower is an Upper that is told its Conn.
type knower interface {
	Upper
	know(*Conn)
}

// introducer is a Poller that tells Uppers, if they are knowers, their Conns.
type introducer struct{ *Poller }

func introduce(u Upper, c *Conn) {
	if k, ok := u.(knower); ok && c != nil {
		k.know(c)
	}
}

func (p introducer) Dial(remote netip.AddrPort, u Upper) (*Conn, error) {
	c, err := p.Poller.Dial(remote, u)
	introduce(u, c)
	return c, err
}

func (p introducer) DialFrom(local, remote netip.AddrPort, u Upper) (*Conn, error) {
	c, err := p.Poller.DialFrom(local, remote, u)
	introduce(u, c)
	return c, err
}

func (p introducer) DialHeld(local, remote netip.AddrPort, u Upper) (*Conn, error) {
	c, err := p.Poller.DialHeld(local, remote, u)
	introduce(u, c)
	return c, err
}

func (p introducer) Listen(port uint16, backlog int, accept func(c *Conn) Upper) error {
	return p.Poller.Listen(port, backlog, introducing(accept))
}

func (p introducer) ListenAt(local netip.AddrPort, held bool, backlog int,
	accept func(c *Conn) Upper) error {
	return p.Poller.ListenAt(local, held, backlog, introducing(accept))
}

func introducing(accept func(c *Conn) Upper) func(c *Conn) Upper {
	if accept == nil {
		return nil
	}
	return func(c *Conn) Upper {
		u := accept(c)
		introduce(u, c)
		return u
	}
}

// peer is an Upper that sends a pattern and checks the one it gets, octet by octet, each exactly
// once.
type peer struct {
	taker
	t    testing.TB
	salt byte // of what it sends; the other's is 3-salt

	toSend    uint64 // octets it will have sent
	sent      uint64
	acked     uint64
	got       []bool // by offset, of what arrived
	gotCount  uint64
	edge      uint64
	opened    bool
	unit      uint64 // PSH is wanted after each so many octets, 0: only at the end
	finAfter  bool   // CloseSend once all is sent
	finned    bool
	peerFin   bool
	closed    int
	err       error
	woken     int
	timer     []int64
	log       []string
	advice    []error
	finAcked  int
	verdict   func(off uint64, n int) Verdict
	kept      []mem.Buf
	onClosed  func()
	onArrive  func()
	onPull    func()
	onWoken   func()
	chunk     int             // octets per Pull; 0: all that fit
	unchecked bool            // of any value (fuzzing)
	vectors   func(n int) int // how many of n segments to fill, or to look at; nil, and at least: one
	ran       int             // segments that came or went in vectors of several
	asked     int             // calls of Pull
}

func newPeer(t testing.TB, salt byte) *peer { return &peer{t: t, salt: salt} }

// pattern is the octet at off of the stream with a salt.
func pattern(salt byte, off uint64) byte { return byte(off*7+off>>8) ^ byte(off>>16) ^ salt*85 }

func (u *peer) note(what string) { u.log = append(u.log, what) }

func (u *peer) Established() {
	u.note("established")
	u.opened = true
	if u.toSend > 0 {
		u.conn.Send()
	}
	u.finish()
}

func (u *peer) Arrive(off uint64, bufs []mem.Buf, data [][]byte) (n int, v Verdict) {
	if len(data) > 1 {
		require.Equal(u.t, u.edge, off)
	}
	for most := u.most(len(data)); n < most && v == Taken; n++ {
		v = u.take(off, bufs[n], data[n])
		off += uint64(len(data[n]))
	}
	if n > 1 {
		u.ran += n
	}
	return n, v
}

// take takes one segment.
func (u *peer) take(off uint64, b mem.Buf, data []byte) Verdict {
	if u.onArrive != nil {
		u.onArrive()
	}
	require.True(u.t, u.opened, "Arrive before Established")
	require.Zero(u.t, u.closed, "Arrive after Closed")
	v := Taken
	if u.verdict != nil {
		v = u.verdict(off, len(data))
	}
	if v == Refused {
		return v
	}
	if v == Kept {
		u.kept = append(u.kept, b)
	}
	if end := off + uint64(len(data)); end > uint64(len(u.got)) {
		u.got = append(u.got, make([]bool, end-uint64(len(u.got)))...)
	}
	for i, octet := range data {
		if u.unchecked {
			u.got[off+uint64(i)] = true
			continue
		}
		at := off + uint64(i)
		if u.got[at] || octet != pattern(3-u.salt, at) {
			u.t.Fatalf("octet %d: twice or wrong (%v, %02x)", at, u.got[at], octet)
		}
		u.got[at] = true
	}
	u.gotCount += uint64(len(data))
	return v
}

func (u *peer) Edge(edge uint64) {
	require.Greater(u.t, edge, u.edge)
	for at := u.edge; at < edge; at++ {
		if !u.got[at] {
			u.t.Fatalf("edge %d passes octet %d, which never arrived", edge, at)
		}
	}
	u.edge = edge
}

func (u *peer) Pull(dst [][]byte) (got Pulled) {
	u.asked++
	for most := u.most(len(dst)); got.N < most; got.N++ {
		n := u.fill(dst[got.N])
		if n == 0 {
			break
		}
		before := u.sent
		if u.sent += uint64(n); u.unit > 0 && before/u.unit != u.sent/u.unit {
			got.Ends |= 1 << got.N
		}
		dst[got.N] = dst[got.N][:n]
	}
	if got.N > 1 {
		u.ran += got.N
	}
	u.finish()
	got.More = u.sent < u.toSend
	return got
}

// fill fills the next segment.
func (u *peer) fill(dst []byte) int {
	if u.onPull != nil {
		u.onPull()
	}
	n := int(min(uint64(len(dst)), u.toSend-u.sent))
	if u.chunk > 0 {
		n = min(n, u.chunk)
	}
	for i := range n {
		dst[i] = pattern(u.salt, u.sent+uint64(i))
	}
	return n
}

// most is how many of n segments it fills, or looks at.
func (u *peer) most(n int) int {
	if u.vectors == nil {
		return 1
	}
	return min(n, max(1, u.vectors(n)))
}

// finish closes our half when all is sent.
func (u *peer) finish() {
	if u.finAfter && u.opened && u.sent == u.toSend && !u.finned {
		u.finned = true
		u.conn.CloseSend()
	}
}

func (u *peer) Acked(edge uint64) {
	require.Greater(u.t, edge, u.acked)
	require.LessOrEqual(u.t, edge, u.sent)
	u.acked = edge
}

func (u *peer) PeerClosed() {
	u.note("peer closed")
	require.False(u.t, u.peerFin, "PeerClosed twice")
	u.peerFin = true
}

func (u *peer) Closed(err error) {
	u.note("closed")
	require.Zero(u.t, u.closed, "Closed twice")
	u.closed++
	u.err = err
	if u.onClosed != nil {
		u.onClosed()
	}
}

func (u *peer) Woken() {
	require.True(u.t, u.opened, "Woken before Established")
	u.woken++
	if u.onWoken != nil {
		u.onWoken()
	}
}

func (u *peer) Timer(now int64)  { u.timer = append(u.timer, now) }
func (u *peer) Advice(err error) { u.advice = append(u.advice, err) }
func (u *peer) FinAcked()        { u.finAcked++ }

// send asks for n more octets to be sent.
func (u *peer) send(n int) {
	u.toSend += uint64(n)
	u.conn.Send()
}

// closeSend closes our half once all is sent.
func (u *peer) closeSend() {
	u.finAfter = true
	u.finish()
}

func addrPort(h *host, port uint16) netip.AddrPort { return netip.AddrPortFrom(h.addr, port) }

// Frame helpers for lose and onSend.

func every([]byte) bool { return true }

func isTCP(f []byte) bool { _, _, ok := segmentOf(f); return ok }

func isARP(f []byte) bool { return f[12] == 0x08 && f[13] == 0x06 }

// segmentOf decodes the TCP segment in a frame; ok is false for anything else.
func segmentOf(f []byte) (s tcp.Segment, payload []byte, ok bool) {
	_, b, d := inet.ParseEthernet(f)
	if d != inet.DropNone || isARP(f) {
		return s, nil, false
	}
	ip, b, d := inet.ParseIPv4(b, false)
	if d != inet.DropNone || ip.Proto != inet.ProtoTCP || tcp.Parse(b, &s) != tcp.DropNone {
		return s, nil, false
	}
	return s, b[s.HdrLen : s.HdrLen+s.Len], true
}

// must is v, if there was no error.
func must[V any](v V, err error) func(require.TestingT) V {
	return func(t require.TestingT) V {
		require.NoError(t, err)
		return v
	}
}

// errOf is the error of a call whose other result does not matter.
func errOf[V any](_ V, err error) error { return err }
