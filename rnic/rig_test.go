package rnic

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// kind is what carries the connections of a rig.
type kind int

const (
	turned  kind = iota // Pollers over pmd/wire, turned on the test's goroutine in virtual time
	running             // Pollers over pmd/wire, each on a goroutine of its own
	sockets             // the kernel's, on loopback
)

func (k kind) String() string {
	return [...]string{"poller", "running poller", "sockets"}[k]
}

// Limits of a test that hangs: real time, and steps of a turned rig.
const (
	patience = 20 * time.Second
	stepsMax = 3_000_000
	stepNs   = 1000 // virtual time of a step with work
)

const (
	rigPort     = 7174
	regionBytes = 64 << 10
	canaryBytes = 4096
	canary      = 0xa5
)

// rig is two Adapters and a way between them.
type rig struct {
	driver
	kind           kind
	server, client *Adapter
	hosts          [2]*rigHost // server, client; none over sockets
	listener       *Listener
}

type rigHost struct {
	poller *stack.Poller
	pool   *mem.Pool
	faulty *fault.Queue
}

// rigConfig refines newRig.
type rigConfig struct {
	mtu    int
	pool   int // Bufs per host
	faults bool
	tcp    tcp.Config
	server Config // of the Adapter

	// of the server, whichever the transport; 0: the rig's. The client may have no fewer
	connsMax, peerMax int
	listen            ListenOptions
	tentative         bool // the client's address, at first
	wrap              func(i int, q pmd.Queue, pool *mem.Pool) pmd.Queue
}

// over runs f on a rig of each of the given kinds.
func over(t *testing.T, kinds []kind, cfg rigConfig, f func(t *testing.T, r *rig)) {
	t.Helper()
	for _, k := range kinds {
		t.Run(k.String(), func(t *testing.T) { f(t, newRig(t, k, cfg)) })
	}
}

// each runs f on a turned rig of its own for each case, by its name.
func each[T any](t *testing.T, cfg rigConfig, cases map[string]T,
	f func(t *testing.T, r *rig, x T)) {
	t.Helper()
	for name, x := range cases {
		t.Run(name, func(t *testing.T) { f(t, newRig(t, turned, cfg), x) })
	}
}

// both are the two transports, blocking are the rigs on which blocking calls may be made.
var (
	both     = []kind{turned, sockets}
	blocking = []kind{running, sockets}
	all      = []kind{turned, running, sockets}
)

func newRig(t *testing.T, of kind, cfg rigConfig) *rig {
	t.Helper()
	r := &rig{driver: driver{t: t, time: int64(time.Second)}, kind: of}
	r.renew()
	client := Config{}
	cfg.server.ConnsMax = cmp.Or(cfg.connsMax, cfg.server.ConnsMax)
	cfg.server.PeerMax = cmp.Or(cfg.peerMax, cfg.server.PeerMax)
	if of != sockets {
		r.wireUp(cfg)
		cfg.server.Pollers = []*stack.Poller{r.hosts[0].poller}
		client.Pollers = []*stack.Poller{r.hosts[1].poller}
		if of == turned {
			r.move = r.step
			cfg.server.Manual, client.Manual = r.step, r.step
		}
	}
	r.server = must(Open(cfg.server))
	r.client = must(Open(client))
	if of == running {
		testhost.Run(t, r.hosts[0].poller, r.hosts[1].poller)
	}
	addr := r.anyPort()
	if of != sockets {
		addr = fmt.Sprintf(":%d", rigPort)
	}
	r.listener = must(r.server.Listen(r.ctx, addr, cfg.listen))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		r.listener.Close()
		require.NoError(t, r.server.Close(ctx))
		require.NoError(t, r.client.Close(ctx))
	})
	return r
}

// renew begins patience, for what the peers do from here on: after work of the test's own that a
// loaded machine takes long for.
func (r *rig) renew() {
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(context.Background(), patience)
	r.t.Cleanup(cancel)
}

// wireUp makes two Pollers at the ends of a cable.
func (r *rig) wireUp(cfg rigConfig) {
	cfg.mtu, cfg.pool = cmp.Or(cfg.mtu, 1500), cmp.Or(cfg.pool, 1024)
	connection := must(wire.New(wire.Config{MTU: cfg.mtu}))
	for i := range r.hosts {
		r.hosts[i] = r.newHost(i, cfg, connection.Port(i))
	}
}

func (r *rig) newHost(i int, cfg rigConfig, port *wire.Port) *rigHost {
	h := &rigHost{pool: testhost.NewPool(r.t, cfg.pool, cfg.mtu)}
	queue := must(port.Open(0, h.pool))
	if cfg.faults {
		h.faulty = must(fault.Wrap(queue, h.pool, fault.Spec{Seed: uint64(i + 1)}, r.now))
		queue = h.faulty
	}
	if cfg.wrap != nil {
		queue = cfg.wrap(i, queue, h.pool)
	}
	c := stack.Config{
		Queue: queue, Pool: h.pool, MTU: cfg.mtu,
		Addr:     netip.MustParsePrefix(fmt.Sprintf("10.9.0.%d/24", i+1)),
		ConnsMax: max(32, cfg.connsMax), TCP: cfg.tcp, Secret: [16]byte{1, byte(i)},
		QuickDAD: cfg.tentative && i == 1,
	}
	if i == 0 {
		c.ConnsMax, c.PeerMax = cmp.Or(cfg.connsMax, c.ConnsMax), cfg.peerMax
	}
	if r.kind == turned {
		c.Clock = r.now
	}
	h.poller = testhost.NewPoller(r.t, port, c)
	return h
}

func (r *rig) now() int64 { return r.time }

// step turns both hosts once; when neither had anything to do, the clock goes to the next deadline.
func (r *rig) step() {
	work, next := 0, int64(math.MaxInt64)
	for _, h := range r.hosts {
		work += h.poller.Turn()
		next = min(next, h.poller.Deadline())
		if h.faulty != nil {
			next = min(next, h.faulty.Deadline())
		}
	}
	if work == 0 {
		r.time = max(r.time, min(next, r.time+int64(time.Second))-stepNs)
	}
	r.time += stepNs
}

// faults has both hosts meet f in what arrives, from now on.
func (r *rig) faults(f fault.Faults) {
	for _, h := range r.hosts {
		h.faults(f, fault.Faults{})
	}
}

// faults has h meet them in what arrives, and in what it sends.
func (h *rigHost) faults(rx, tx fault.Faults) {
	if err := h.faulty.Set(rx, tx); err != nil {
		panic(err)
	}
}

// pass lets d of virtual time go by. Turned rigs only.
func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	end := r.time + int64(d)
	for steps := 0; r.time < end; steps++ {
		require.Less(r.t, steps, stepsMax, "steps")
		r.step()
	}
}

// reap steps until n completions have been polled from the queues of ends, and allocates nothing.
// Turned rigs only.
func (r *rig) reap(n int, cs []Completion, ends ...*end) {
	for steps := 0; n > 0; steps++ {
		if steps == stepsMax {
			r.t.Fatalf("%d completions missing", n)
		}
		r.step()
		for _, e := range ends {
			n -= e.cq.Poll(cs)
		}
	}
}

// requireNoAllocations calls round until it is warm, and then counts what it allocates.
func requireNoAllocations(t *testing.T, round func()) {
	t.Helper()
	for range 50 {
		round()
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector allocates a little for itself
	require.Zero(t, testing.AllocsPerRun(50, round))
}

// soon receives what must come.
func soon[T any](d *driver, from <-chan T) (x T) {
	d.t.Helper()
	d.until(fmt.Sprintf("a %T", x), func() bool {
		select {
		case x = <-from:
			return true
		default:
			return false
		}
	})
	return x
}

// untilDone waits for the end of a QueuePair's connection.
func (d *driver) untilDone(q *QueuePair) {
	d.t.Helper()
	d.until(fmt.Sprintf("end of queue pair %d", q.Number()), func() bool { return isDone(q) })
}

func isDone(q *QueuePair) bool { return isClosed(q.Done()) }

// anyPort is where to listen for a port of the system's choice.
func (r *rig) anyPort() string {
	if r.kind == sockets {
		return "127.0.0.1:0"
	}
	return ":0"
}

// addr is where the rig's Listener listens.
func (r *rig) addr() string { return r.listener.Addr().String() }

// opts are what a QueuePair of a rig is, and how it connects.
type opts struct {
	QPOptions
	ConnParam
}

// end is one end of a connection: a QueuePair and its memory.
type end struct {
	d       *driver
	pd      *ProtectionDomain
	cq      *CompletionQueue
	qp      *QueuePair
	conn    ConnParam     // how it connects
	guarded []byte        // region with canaries around it
	region  *MemoryRegion // the peer writes here
	source  *MemoryRegion // random octets to send
	inbox   *MemoryRegion // messages are received here
	done    []Completion  // polled and not yet asked for
}

// newEnd makes an idle QueuePair. opt's PD and queues are filled in, unless they are there.
func (r *rig) newEnd(a *Adapter, opt opts) *end {
	r.t.Helper()
	return r.newEndOf(a, opt, regionBytes)
}

// newEndOf is newEnd with memory of n octets each.
func (r *rig) newEndOf(a *Adapter, opt opts, n int) *end {
	r.t.Helper()
	e := r.bareEnd(a, opt)
	e.guarded = bytes.Repeat([]byte{canary}, n+2*canaryBytes)
	clear(e.guarded[canaryBytes : canaryBytes+n])
	e.region = must(e.pd.Register(e.guarded[canaryBytes:canaryBytes+n], RemoteWrite|LocalWrite))
	e.source = must(e.pd.Register(randomBytes(uint64(e.qp.Number()), n), 0))
	e.inbox = must(e.pd.Register(make([]byte, n), LocalWrite))
	return e
}

// bareEnd is an end without memory.
func (d *driver) bareEnd(a *Adapter, opt opts) *end {
	d.t.Helper()
	e := &end{d: d, conn: opt.ConnParam}
	if opt.PD == nil {
		opt.PD = a.AllocPD()
	}
	if opt.SendCQ == nil {
		opt.SendCQ = must(a.CreateCQ(1024))
		opt.RecvCQ = opt.SendCQ
	}
	e.pd, e.cq = opt.PD, opt.SendCQ
	e.qp = must(a.CreateQP(opt.QPOptions))
	return e
}

// with is how e connects, with private data.
func (e *end) with(private []byte) ConnParam {
	c := e.conn
	if private != nil {
		c.PrivateData = private
	}
	return c
}

func randomBytes(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, (n+7)&^7)
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rng.Uint64())
	}
	return b[:n]
}

// dial starts a connection of c to the rig's Listener and returns the request that arrives there.
func (r *rig) dial(c *end, private []byte) *ConnRequest {
	r.t.Helper()
	require.NoError(r.t, c.qp.StartConnect(r.ctx, r.addr(), c.with(private)))
	return r.request()
}

func (r *rig) request() *ConnRequest {
	r.t.Helper()
	var req *ConnRequest
	r.until("a connection request", func() bool {
		req = r.listener.Poll()
		return req != nil
	})
	return req
}

// accept has s accept the next request.
func (r *rig) accept(s *end) {
	r.t.Helper()
	require.NoError(r.t, r.request().Accept(r.ctx, s.qp, s.conn))
}

// connected is a turned rig and two QueuePairs in service.
func connected(t *testing.T, sopt, copt opts) (r *rig, s, c *end) {
	t.Helper()
	r = newRig(t, turned, rigConfig{})
	s, c = r.connect(sopt, copt)
	return r, s, c
}

// connect puts two QueuePairs into service.
func (r *rig) connect(sopt, copt opts) (s, c *end) {
	r.t.Helper()
	return r.connectEnds(r.newEnd(r.server, sopt), r.newEnd(r.client, copt))
}

func (r *rig) connectEnds(s, c *end) (*end, *end) {
	r.t.Helper()
	req := r.dial(c, nil)
	require.NoError(r.t, req.Accept(r.ctx, s.qp, s.conn))
	c.expectInService()
	require.Equal(r.t, RTS, s.qp.State())
	return s, c
}

// write is an RDMA Write of octets [off, off+n) of e's source to the same place of the peer's
// region.
func (e *end) write(peer *end, id uint64, off, n int) WorkRequest {
	return WorkRequest{
		ID: id, Op: OpWrite, Local: e.source.Slice(off, n), Signaled: true,
		RemoteSTag: peer.region.STag(), RemoteOffset: peer.region.Base() + uint64(off),
	}
}

// recvAt is a receive buffer of n octets at off of e's inbox.
func (e *end) recvAt(id uint64, off, n int) WorkRequest {
	return WorkRequest{ID: id, Local: e.inbox.Slice(off, n)}
}

// exchange writes, sends and checks a little in both directions: the connection is in order.
func (r *rig) exchange(s, c *end) {
	r.t.Helper()
	const n = 3000
	for _, x := range [][2]*end{{c, s}, {s, c}} { // a Responder may not speak first
		from, to := x[0], x[1]
		to.postRecv(to.recvAt(77, 0, n))
		from.post(from.write(to, 1, 100, n))
		from.post(from.send(2, 200, n))
		from.expectCompletions(
			Completion{ID: 1, Len: n, Op: OpWrite},
			Completion{ID: 2, Len: n, Op: OpSend},
		)
		to.expectCompletions(Completion{ID: 77, Len: n, Op: OpRecv})
		require.True(r.t, bytes.Equal(from.source.Bytes()[100:100+n], to.region.Bytes()[100:100+n]),
			"written octets")
		require.True(r.t, bytes.Equal(from.source.Bytes()[200:200+n], to.inbox.Bytes()[:n]),
			"sent octets")
		to.unharmed(r.t)
	}
}

// leave closes p's half, and waits for the end of e's connection.
func (p *peer) leave(e *end) {
	p.d.t.Helper()
	p.closeSend()
	e.awaitClosed()
}

// arrived waits until all that c has posted is at s: a Send that is posted after it has come.
func arrived(c, s *end) {
	c.d.t.Helper()
	s.postRecv(s.recvAt(98, 0, 10))
	c.post(c.sendQuietly(0, 10))
	require.Equal(c.d.t, Success, s.await(1)[0].Status, "%v", s.qp.Err())
}

// statuses are the completions'.
func statuses(cs []Completion) (all []Status) {
	for _, c := range cs {
		all = append(all, c.Status)
	}
	return all
}

// bystander is a connection of the rig's Adapters that shall not notice what happens beside it.
type bystander struct {
	r    *rig
	s, c *end
}

// newBystander connects one. opt is the server's end's.
func (r *rig) newBystander(opt opts) *bystander {
	r.t.Helper()
	b := &bystander{r: r}
	b.s, b.c = r.connect(opt, opts{})
	b.goesOn()
	return b
}

// goesOn: the connection works both ways.
func (b *bystander) goesOn() {
	b.r.t.Helper()
	b.r.exchange(b.s, b.c)
}

// unharmed: nothing was written outside the region.
func (e *end) unharmed(t testing.TB) {
	t.Helper()
	for i, b := range e.guarded {
		if (i < canaryBytes || i >= len(e.guarded)-canaryBytes) && b != canary {
			t.Fatalf("octet %d outside the region was written", i-canaryBytes)
		}
	}
}

// slotsTaken is how many connections over kernel sockets have a slot. It takes all that there are
// for a moment, those of silent connections, which end, too.
func (a *Adapter) slotsTaken() (n int) {
	var all []*transport.Slot
	for at, gaveWay, err := a.host.Slots.Take(); err == nil; at, gaveWay, err = a.host.Slots.Take() {
		if all = append(all, at); gaveWay != nil {
			gaveWay.GiveWay()
			n++
		}
	}
	for _, at := range all {
		at.Free()
	}
	return n + a.cfg.ConnsMax - len(all)
}

// close ends the connection in order from c's side.
func (r *rig) close(s, c *end) {
	r.t.Helper()
	c.qp.Disconnect()
	awaitClosed(c, s)
	require.NoError(r.t, c.qp.Err())
	require.NoError(r.t, s.qp.Err())
}

func yield() { runtime.Gosched() }
