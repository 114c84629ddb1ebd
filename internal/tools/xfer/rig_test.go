package xfer

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/testnic"
	"github.com/rnicd/rnicd/rnic"
)

const patience = 20 * time.Second

// rig is a Server over the kernel's sockets on loopback, and a client's Adapter.
type rig struct {
	t       *testing.T
	ctx     context.Context
	server  *Server
	dev     *rnic.Adapter // the server's
	client  *rnic.Adapter
	region  []byte
	addr    string
	done    chan Result
	refused chan string
	stop    func() error // ends Serve and returns what it returned
}

// newRig starts a Server with a region of n octets.
func newRig(t *testing.T, n int, cfg ServerConfig) *rig {
	t.Helper()
	return newRigWith(t, n, cfg, rnic.Config{})
}

func newRigWith(t *testing.T, n int, cfg ServerConfig, server rnic.Config) *rig {
	t.Helper()
	dev, client := testnic.Open(t, server), testnic.Open(t, rnic.Config{})
	l := must(dev.Listen(context.Background(), "127.0.0.1:0", rnic.ListenOptions{}))(t)
	r := newRigOver(t, n, cfg, dev, client, l)
	r.addr = l.Addr().String()
	return r
}

func newRigOver(t *testing.T, n int, cfg ServerConfig, dev, client *rnic.Adapter,
	l *rnic.Listener) *rig {
	t.Helper()
	r := &rig{
		t: t, dev: dev, client: client, region: make([]byte, n),
		done: make(chan Result, 64), refused: make(chan string, 64),
	}
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(context.Background(), patience)
	cfg.Adapter, cfg.Region = dev, r.region
	told := cfg.Done
	cfg.Done = func(res Result) {
		if told != nil {
			told(res)
		}
		r.done <- res
	}
	cfg.Refused = func(remote netip.AddrPort, why string) {
		if !remote.IsValid() {
			t.Error("refused without an address")
		}
		r.refused <- why
	}
	r.server = NewServer(cfg)
	serving, end := context.WithCancel(r.ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.server.Serve(serving, l) }()
	r.stop = sync.OnceValue(func() error {
		end()
		return <-ended
	})
	t.Cleanup(func() {
		require.NoError(t, r.stop())
		l.Close()
		require.Zero(t, r.server.cfg.Memory.room.inUse(), "extents in use")
		cancel()
	})
	return r
}

// result waits for the server's report of a transfer.
func (r *rig) result() Result {
	r.t.Helper()
	return wait(r, r.done)
}

func wait[T any](r *rig, ch chan T) (v T) {
	r.t.Helper()
	select {
	case v = <-ch:
	case <-r.ctx.Done():
		r.t.Fatal("nothing came")
	}
	return v
}

// until waits for what is about to become true.
func (r *rig) until(cond func() bool) {
	r.t.Helper()
	tick := time.NewTicker(100 * time.Microsecond)
	defer tick.Stop()
	for !cond() {
		require.NoError(r.t, r.ctx.Err())
		<-tick.C
	}
}

func content(seed uint64, n int) []byte {
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	b := make([]byte, n)
	_, _ = rng.Read(b) // never fails
	return b
}

// rogue is a client or server of the test's making: a bare QueuePair that says what the test wants.
type rogue struct {
	conn rnic.ConnParam
	r    *rig
	dev  *rnic.Adapter
	pd   *rnic.ProtectionDomain
	cq   *rnic.CompletionQueue
	qp   *rnic.QueuePair
	buf  *rnic.MemoryRegion

	used int // octets written from buf
}

const (
	rogueInbox = 0 // messages are received here
	rogueOut   = 4096
	rogueData  = 8192
)

func (r *rig) newRogue(dev *rnic.Adapter) *rogue {
	r.t.Helper()
	return r.newRogueWith(dev, rnic.ConnParam{})
}

func (r *rig) newRogueWith(dev *rnic.Adapter, conn rnic.ConnParam) *rogue {
	r.t.Helper()
	g := &rogue{r: r, conn: conn, dev: dev, pd: dev.AllocPD()}
	var err error
	g.cq, err = dev.CreateCQ(64)
	require.NoError(r.t, err)
	g.qp, err = dev.CreateQP(rnic.QPOptions{PD: g.pd, SendCQ: g.cq, RecvCQ: g.cq})
	require.NoError(r.t, err)
	g.buf, err = g.pd.Register(make([]byte, 1<<20), rnic.LocalWrite|rnic.RemoteWrite)
	require.NoError(r.t, err)
	require.NoError(
		r.t, errOf(g.qp.PostRecv(rnic.WorkRequest{ID: 1, Local: g.buf.Slice(rogueInbox, 4096)})))
	r.t.Cleanup(func() {
		g.qp.Abort()
		<-g.qp.Done()
		g.buf.Deregister()
	})
	return g
}

// with is how the rogue connects, with private data.
func (g *rogue) with(private []byte) rnic.ConnParam {
	conn := g.conn
	conn.PrivateData = private
	return conn
}

func (g *rogue) connect(private []byte) error {
	return g.qp.Connect(g.r.ctx, g.r.addr, g.with(private))
}

// rogueClient connects with the given private data and returns the server's grant.
func (r *rig) rogueClient(private []byte) (*rogue, grant) {
	r.t.Helper()
	c := r.newRogue(r.client)
	require.NoError(r.t, c.connect(private))
	g := must(parseGrant(c.qp.PeerPrivateData()))(r.t)
	return c, g
}

// putting is a client that was granted n octets.
func (r *rig) putting(n uint64) (*rogue, grant) {
	r.t.Helper()
	return r.rogueClient(request{op: OpPut, length: n}.marshal())
}

// finishes closes the transfer as f says and returns the server's answer.
func (c *rogue) finishes(f finish) answer {
	c.r.t.Helper()
	c.send(f.marshal(make([]byte, finishLen)))
	a, err := parseAnswer(c.receive())
	require.NoError(c.r.t, err)
	return a
}

// post has a Write or a Read of 10 octets, off octets into what was granted.
func (c *rogue) post(op rnic.Opcode, g grant, off uint64) error {
	return errOf(c.qp.PostSend(rnic.WorkRequest{Op: op, Local: c.buf.Slice(rogueData, 10),
		RemoteSTag: g.stag, RemoteOffset: g.to + off}))
}

// write puts b into the granted memory.
func (c *rogue) write(g grant, off int, b []byte) {
	c.r.t.Helper()
	at := rogueData + c.used // earlier octets may still be on their way
	c.used += len(b)
	copy(c.buf.Bytes()[at:], b)
	require.NoError(c.r.t, errOf(c.qp.PostSend(rnic.WorkRequest{Op: rnic.OpWrite,
		Local: c.buf.Slice(at, len(b)), RemoteSTag: g.stag, RemoteOffset: g.to + uint64(off)})))
}

func (c *rogue) send(b []byte) {
	c.r.t.Helper()
	copy(c.buf.Bytes()[rogueOut:], b)
	require.NoError(c.r.t, errOf(c.qp.PostSend(rnic.WorkRequest{Op: rnic.OpSend, ID: 2,
		Local: c.buf.Slice(rogueOut, len(b))})))
}

// receive waits for the next message.
func (c *rogue) receive() []byte {
	c.r.t.Helper()
	require.NoError(c.r.t, c.cq.Wait(c.r.ctx))
	var cs [1]rnic.Completion
	require.Equal(c.r.t, 1, c.cq.Poll(cs[:]))
	require.Equal(c.r.t, rnic.Success, cs[0].Status, "%v", c.qp.Err())
	require.Equal(c.r.t, uint64(1), cs[0].ID)
	return c.buf.Bytes()[rogueInbox : rogueInbox+int(cs[0].Len)]
}

func (c *rogue) untilDone() error {
	c.r.t.Helper()
	select {
	case <-c.qp.Done():
	case <-c.r.ctx.Done():
		c.r.t.Fatal("the connection did not end")
	}
	return c.qp.Err()
}

// must is v, if there was no error.
func must[V any](v V, err error) func(require.TestingT) V {
	return func(t require.TestingT) V {
		require.NoError(t, err)
		return v
	}
}
