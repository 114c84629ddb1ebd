package stack

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/rouse"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/tap"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// tapGroup is two Pollers, a Group, on a TAP of two queues, the kernel at its other end. They sleep
// until they are roused.
func tapGroup(t *testing.T) (pollers []*kernelLab) {
	t.Helper()
	netlab.Enter(t)
	port := must(tap.New(tap.Config{Name: "group%d", Addr: kernelAddr, Queues: 2}))(t)
	g := must(NewGroup(2))(t)
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	for i := range 2 {
		pool := newPool(t, labBufs)
		q := must(port.Open(i, pool))(t)
		p, err := New(Config{
			Name: "group", Queue: q, Pool: pool, Caps: port.Caps(), MAC: port.MAC(), Addr: ourAddr,
			Core: -1, NoDAD: true, Idle: IdleInterrupt,
			ConnsMax: 64, TCP: tcp.Config{NoDelay: true, SentMax: 512, TimeWaitNs: ms}, Group: g, Member: i,
		})
		require.NoError(t, err)
		p.rouser.MaxNs = int64(time.Hour) // without a rouse it sleeps on
		pollers = append(pollers, &kernelLab{t: t, introducer: introducer{p}, pool: pool})
		run.Go(func() { _ = p.Run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		run.Wait()
		_ = port.Close()
	})
	return pollers
}

// awaitAsleep returns when p sleeps until something comes.
func awaitAsleep(t *testing.T, p *Poller) {
	t.Helper()
	require.Eventually(t, p.Asleep, 20*time.Second, 100*time.Microsecond)
}

// A Poller that sleeps is roused by what is submitted, by a frame, by a frame that came to another
// member, and by its end; so it need not wake by itself. Octets go both ways meanwhile, whichever
// queue has them, and whichever side opens the connection.
func TestInterruptsRouse(t *testing.T) {
	const octetsEach = 20_000
	pollers := tapGroup(t)
	for _, k := range pollers {
		k.do(func() {
			require.NoError(t, k.Listen(7, 16, func(*Conn) Upper { return newMirror(t, octetsEach) }))
		})
	}
	for i := range 24 { // half of them come to the member that they do not belong to
		for _, p := range pollers {
			awaitAsleep(t, p.Poller)
		}
		must(pollers[i%2].Counters(t.Context()))(t)
		c := dialUs(t, ourAddr.Addr())
		awaitAsleep(t, pollers[0].Poller)
		awaitAsleep(t, pollers[1].Poller)
		pollers[0].exchange(c, octetsEach)
		require.NoError(t, c.Close())
	}
	l := listenThere(t, kernelAddr.Addr())
	for _, p := range pollers {
		m := newMirror(t, octetsEach)
		p.exchange(p.dials(l, m), octetsEach)
		p.wait(m.ended)
		require.NoError(t, m.err)
		n := must(p.Counters(t.Context()))(t)
		require.NotZero(t, n.Sleeps)
	}
}

// A Stop that comes just before the Poller says that it is asleep rouses nobody: the last look
// finds it, and Run ends without a sleep.
func TestStopBeforeTheSleep(t *testing.T) {
	l := newLab(t, nil)
	for l.a.Turn() > 0 {
	}
	l.a.Stop()
	r := silentRouser(t)
	slept, _ := r.Sleep(l.a.Turn, func(int64) (now, at int64) {
		return l.a.now, l.a.deadline()
	}, false, 0)
	require.False(t, slept)
	l.b.Stop()
}

// quietDevice is a device that never interrupts.
type quietDevice struct {
	pmd.Queue
	fd int
}

func newQuietDevice(t *testing.T, q pmd.Queue) quietDevice { return quietDevice{q, eventfd(t)} }

func (s quietDevice) Interrupt() (fd int, ok bool) { return s.fd, true }
func (quietDevice) Arm(bool)                       {}

func eventfd(t testing.TB) int {
	fd := must(unix.Eventfd(0, unix.EFD_CLOEXEC))(t)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// silentRouser sleeps until it is roused.
func silentRouser(t *testing.T) *rouse.Rouser {
	r := &rouse.Rouser{MaxNs: int64(time.Hour)}
	r.Init(nil)
	require.NoError(t, r.Prepare(newQuietDevice(t, nil), nil))
	t.Cleanup(r.Close)
	return r
}

// Threads that run no Go wake a Poller through its Bell, which is the one word and the one
// descriptor for goroutines, too.
func TestBell(t *testing.T) {
	netlab.Enter(t)
	port := must(tap.New(tap.Config{Name: "bell%d", Addr: kernelAddr}))(t)
	defer port.Close()
	pool := newPool(t, labBufs)
	q := must(port.Open(0, pool))(t)
	fd := eventfd(t)
	asleep, turns := new(uint32), make(chan uint32, 1)
	cfg := Config{
		Name: "bell", Queue: q, Pool: pool, Caps: port.Caps(), MAC: port.MAC(), Addr: ourAddr, Core: -1,
		NoDAD: true, Idle: IdleInterrupt,
		ConnsMax: 64, TCP: tcp.Config{NoDelay: true, SentMax: 512}, OnTurn: func() int { return 0 },
	}
	_, err := New(cfg)
	require.ErrorContains(t, err, "or a Bell")
	posted := new(uint32)
	cfg.Bell = &Bell{Asleep: asleep, FD: fd}
	cfg.OnTurn = func() int {
		n := atomic.SwapUint32(posted, 0)
		if n != 0 {
			turns <- n
		}
		return int(n)
	}
	p := must(New(cfg))(t)
	p.rouser.MaxNs = int64(time.Hour) // without the Bell it sleeps on
	go func() { _ = p.Run(t.Context()) }()
	for range 20 {
		awaitAsleep(t, p)
		atomic.StoreUint32(posted, 1)
		if atomic.SwapUint32(asleep, 0) != 0 {
			must(unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}))(t)
		}
		<-turns
	}
	awaitAsleep(t, p)
	must(p.Counters(t.Context()))(t)
	p.Stop()
	<-p.Done()
}
