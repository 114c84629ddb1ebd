package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

const (
	patience = 60 * time.Second
	bufs     = 4096
	stride   = 2048
)

// lab is two running Pollers at the ends of a cable. When the test ends both stop, and every Buf
// must be back.
type lab struct {
	t     testing.TB
	hosts [2]*host
	ctx   context.Context
}

type host struct {
	*stack.Poller
	pool   *mem.Pool
	addr   netip.Addr
	faulty *fault.Queue // if there are faults
	run    sync.WaitGroup
	mine   []*stack.Poller // this one
}

type labConfig struct {
	bufs   int // of host 1
	faults *fault.Spec
	mtu    int
	tcp    tcp.Config
	watch  func(i int, frame []byte) // of what host i sends, on its goroutine
}

// watched is a Queue that shows what it sends.
type watched struct {
	pmd.Queue
	pool *mem.Pool
	see  func(frame []byte)
}

func (w watched) Tx(bufs []mem.Buf) int {
	n := w.Queue.Tx(bufs)
	for _, b := range bufs[:n] {
		w.see(w.pool.Data(b))
	}
	return n
}

func newLab(t testing.TB, cfg labConfig) *lab {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	l := &lab{t: t, ctx: ctx}
	link := must(wire.New(wire.Config{MTU: cfg.mtu}))(t)
	for i := range l.hosts {
		l.hosts[i] = newHost(t, i, link.Port(i), cfg)
	}
	t.Cleanup(func() {
		for _, h := range l.hosts {
			h.Stop()
			h.run.Wait()
		}
		for _, h := range l.hosts {
			if h.faulty != nil {
				h.faulty.Drop()
			}
			require.Equal(t, h.pool.Size(), h.pool.Available(), "%s: Bufs lost", h.Name())
			require.Zero(t, pollerStateOf(h.Poller).kept, "%s: Bufs counted as kept", h.Name())
		}
	})
	return l
}

var epoch = time.Now()

func clock() int64 { return int64(time.Since(epoch)) }

func newHost(t testing.TB, i int, port pmd.Port, cfg labConfig) *host {
	if cfg.bufs == 0 || i == 0 {
		cfg.bufs = bufs
	}
	pool := testhost.NewPool(t, cfg.bufs, max(1500, cfg.mtu))
	q := must(port.Open(0, pool))(t)
	h := &host{pool: pool, addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})}
	if cfg.faults != nil {
		spec := *cfg.faults
		spec.Seed += uint64(i)
		h.faulty = must(fault.Wrap(q, pool, spec, clock))(t)
		q = h.faulty
	}
	if cfg.watch != nil {
		q = watched{q, pool, func(f []byte) { cfg.watch(i, f) }}
	}
	if cfg.tcp.RTOMinNs == 0 {
		cfg.tcp.RTOMinNs, cfg.tcp.DelayedAckNs = int64(40*time.Millisecond), int64(5*time.Millisecond)
	}
	cfg.tcp.TimeWaitNs = int64(10 * time.Millisecond)
	if cfg.faults != nil { // the last ACK may be lost: its FIN must find somebody when it comes again
		cfg.tcp.TimeWaitNs = int64(time.Second)
	}
	h.Poller = testhost.NewPoller(t, port, stack.Config{
		Name: fmt.Sprintf("host%d", i), Queue: q, Pool: pool, Addr: netip.PrefixFrom(h.addr, 24),
		ConnsMax: 64, TCP: cfg.tcp,
	})
	h.mine = []*stack.Poller{h.Poller}
	h.run.Go(func() { _ = h.Run(context.Background()) })
	return h
}

// do runs fn on h's goroutine and waits for it.
func (l *lab) do(h *host, fn func()) {
	l.t.Helper()
	done := make(chan struct{})
	require.NoError(l.t, submit(l.ctx, h.Poller, func() { fn(); close(done) }))
	l.wait(done)
}

func (l *lab) wait(done <-chan struct{}) {
	l.t.Helper()
	select {
	case <-done:
	case <-l.ctx.Done():
		l.t.Fatal("waited in vain")
	}
}

// until looks at cond now and then.
func (l *lab) until(what string, cond func() bool) {
	l.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-l.ctx.Done():
			l.t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// listen opens a port of host 1.
func (l *lab) listen(opts Options) *Listener {
	l.t.Helper()
	ln := must(Listen(l.hosts[1].mine, 0, opts))(l.t)
	l.t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// dial opens a connection from host 0 to a port of host 1.
func (l *lab) dial(ln *Listener, opts Options) *Conn {
	l.t.Helper()
	return must(Dial(l.ctx, l.hosts[0].mine, ln.Addr().(*net.TCPAddr).AddrPort(), opts))(l.t)
}

// pair gives both ends of a connection; both time out with the test.
func (l *lab) pair(copts, sopts Options) (c, s *Conn) {
	l.t.Helper()
	ln := l.listen(sopts)
	c = l.dial(ln, copts)
	s = must(ln.AcceptStream())(l.t)
	end, _ := l.ctx.Deadline()
	for _, x := range []*Conn{c, s} {
		require.NoError(l.t, x.SetDeadline(end))
		l.t.Cleanup(func() { _ = abort(x) })
	}
	return c, s
}

// newPair is a lab and both ends of a connection in it, with the dialler's and the other's Options.
func newPair(t testing.TB, cfg labConfig, opts ...Options) (l *lab, c, s *Conn) {
	t.Helper()
	l, opts = newLab(t, cfg), append(opts, Options{}, Options{})
	c, s = l.pair(opts[0], opts[1])
	return l, c, s
}

// abort closes c by a reset.
func abort(c interface {
	SetLinger(int) error
	Close() error
}) error {
	return errors.Join(c.SetLinger(0), c.Close())
}

// unread writes text to from and waits until there is something to be read at to, the other end.
func (l *lab) unread(from, to *Conn, text string) {
	l.t.Helper()
	must(from.Write([]byte(text)))(l.t)
	l.until("octets there", func() bool { return to.u.rx.tail.Load() > 0 })
}

// idle waits until both hosts have no Buf out but what their Pollers keep at hand.
func (l *lab) idle() {
	l.t.Helper()
	for _, h := range l.hosts {
		l.until("all Bufs back", func() bool {
			n := 0
			l.do(h, func() { n = h.pool.Size() - h.pool.Available() })
			return n <= 1
		})
	}
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

func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(b)
	return b
}

// send writes b in uneven pieces and closes that half.
func send(t testing.TB, c net.Conn, b []byte, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	for len(b) > 0 {
		n := min(len(b), 1+rng.IntN(40000))
		k := must(c.Write(b[:n]))(t)
		require.Equal(t, n, k)
		b = b[n:]
	}
	require.NoError(t, c.(interface{ CloseWrite() error }).CloseWrite())
}

// receive reads to the end in uneven pieces and compares.
func receive(t testing.TB, c net.Conn, want []byte, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 8))
	buf := make([]byte, 50000)
	at := 0
	for {
		n, err := c.Read(buf[:1+rng.IntN(len(buf))])
		if at+n > len(want) || !bytes.Equal(buf[:n], want[at:at+n]) {
			t.Errorf("octets from %d on are wrong", at)
			return
		}
		at += n
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
	}
	require.Equal(t, len(want), at)
}

// exchange sends n octets each way at once, to the end of both halves.
func exchange(t testing.TB, a, b net.Conn, n int) {
	var wg sync.WaitGroup
	ab, ba := random(1, n), random(2, n)
	wg.Go(func() { send(t, a, ab, 1) })
	wg.Go(func() { send(t, b, ba, 2) })
	wg.Go(func() { receive(t, a, ba, 3) })
	wg.Go(func() { receive(t, b, ab, 4) })
	wg.Wait()
}

// withUnread is b with n Bufs that may wait for readers.
func withUnread(b stack.Budget, n int) stack.Budget {
	b.Unread, b.OutOfOrder, b.Squeeze = n, n-n/4, n/4*3
	return b
}

func (ps *pollerState) shorten(n int) { ps.budget = withUnread(ps.budget, n) }
