package interop

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/skip"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/pmd/tap"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/test/interop/guest"
)

// patience bounds a test: an emulated processor is slow.
const patience = 90 * time.Second

const (
	inboxBytes  = 4096
	inboxes     = 16
	regionBytes = 64 << 10
)

// rig is our end of the conversation: an Adapter over one of the two transports.
type rig struct {
	t       *testing.T
	ctx     context.Context
	adapter *rnic.Adapter
	host    string // our address
	port    int    // of a Listener, a new one each time
	failed  chan rnic.ConnFailure
}

// The transports of our end.
const (
	overOurTCP  = "our TCP" // on a TAP
	overSockets = "kernel sockets"
)

// over runs a test over both transports.
func over(t *testing.T, f func(r *rig)) {
	t.Helper()
	overThese(t, []string{overOurTCP, overSockets}, f)
}

func overThese(t *testing.T, transports []string, f func(r *rig)) {
	t.Helper()
	if !*live {
		skip.Because(t, skip.VirtualMachine, "-live is not set")
	}
	for _, name := range transports {
		t.Run(name, func(t *testing.T) {
			needCard(t)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			t.Cleanup(cancel)
			r := &rig{t: t, ctx: ctx, host: bridgeAddr.Addr().String(),
				failed: make(chan rnic.ConnFailure, 64)}
			cfg := rnic.Config{}
			if name == overOurTCP {
				r.host = ourAddr.Addr().String()
				cfg.Pollers = []*stack.Poller{r.poller()}
			}
			var err error
			r.adapter, err = rnic.Open(cfg)
			require.NoError(t, err)
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				require.NoError(t, r.adapter.Close(ctx))
				if t.Failed() {
					t.Logf("the guest's kernel:\n%s", vm.Console())
				}
			})
			f(r)
		})
	}
}

// poller runs our stack on a TAP of its own in the bridge. Frames are as on a wire: no offloads.
func (r *rig) poller() *stack.Poller {
	r.t.Helper()
	port := must(tap.New(tap.Config{Name: ourTAP, NoOffload: true}))(r.t)
	r.t.Cleanup(func() { require.NoError(r.t, port.Close()) })
	require.NoError(r.t, ip("link set "+ourTAP+" master "+bridge+" up"))
	p := testhost.NewPoller(r.t, port,
		stack.Config{Addr: ourAddr, MTU: 1500, Pool: testhost.NewPool(r.t, 2048, 1500), ConnsMax: 64})
	testhost.Run(r.t, p)
	return p
}

// ports are those our Listeners and the guest's programs listen on, each once.
var ports = 7200

func newPort() int {
	ports++
	return ports
}

// listen makes a Listener; the guest's programs find it at r.host and its port.
func (r *rig) listen() *rnic.Listener {
	r.t.Helper()
	r.port = newPort()
	l, err := r.adapter.Listen(r.ctx, net.JoinHostPort(r.host, strconv.Itoa(r.port)),
		rnic.ListenOptions{
			OnFailure: func(f rnic.ConnFailure) { r.failed <- f },
		})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { l.Close() })
	return l
}

func (r *rig) accept(l *rnic.Listener) *rnic.ConnRequest {
	r.t.Helper()
	return must(l.Accept(r.ctx))(r.t)
}

// end is a QueuePair with what it needs.
type end struct {
	r      *rig
	qp     *rnic.QueuePair
	conn   rnic.ConnParam
	cq     *rnic.CompletionQueue
	source *rnic.MemoryRegion // to send from
	inbox  *rnic.MemoryRegion // receive buffers, all posted
	region *rnic.MemoryRegion // for the peer's Writes and Reads, and what we read
	sent   uint64
}

func (r *rig) newEnd(conn rnic.ConnParam) *end {
	r.t.Helper()
	e := &end{r: r, conn: conn}
	var err error
	e.cq, err = r.adapter.CreateCQ(256)
	require.NoError(r.t, err)
	opt := rnic.QPOptions{PD: r.adapter.AllocPD(), SendCQ: e.cq, RecvCQ: e.cq}
	for _, m := range []struct {
		region **rnic.MemoryRegion
		access rnic.Access
		bytes  int
	}{{&e.source, 0, regionBytes}, {&e.inbox, rnic.LocalWrite, inboxes * inboxBytes},
		{&e.region, rnic.LocalWrite | rnic.RemoteWrite | rnic.RemoteRead, regionBytes}} {
		*m.region, err = opt.PD.Register(make([]byte, m.bytes), m.access)
		require.NoError(r.t, err)
	}
	e.qp, err = r.adapter.CreateQP(opt)
	require.NoError(r.t, err)
	for i := range inboxes {
		e.postRecv(uint64(i))
	}
	return e
}

func (e *end) postRecv(i uint64) {
	e.r.t.Helper()
	require.NoError(e.r.t,
		errOf(
			e.qp.PostRecv(rnic.WorkRequest{ID: i, Local: e.inbox.Slice(int(i)*inboxBytes, inboxBytes)})))
}

// send posts a message; nothing of it completes unless it fails.
func (e *end) send(b []byte) {
	e.r.t.Helper()
	require.NoError(e.r.t, errOf(e.qp.PostSend(rnic.WorkRequest{Op: rnic.OpSend, Local: e.put(b)})))
}

func (e *end) write(b []byte, to guestRegion, off int) {
	e.r.t.Helper()
	require.NoError(e.r.t,
		errOf(
			e.qp.PostSend(rnic.WorkRequest{Op: rnic.OpWrite, Local: e.put(b), RemoteSTag: to.stag,
				RemoteOffset: to.at + uint64(off)})))
}

// read fetches n octets of the peer's. Nothing else completes meanwhile.
func (e *end) read(from guestRegion, n int) []byte {
	e.r.t.Helper()
	wr := rnic.WorkRequest{Op: rnic.OpRead, Signaled: true, Local: e.region.Slice(0, n),
		RemoteSTag: from.stag, RemoteOffset: from.at}
	require.NoError(e.r.t, errOf(e.qp.PostSend(wr)))
	c, err := e.next(e.r.ctx)
	require.NoError(e.r.t, err)
	require.Equal(e.r.t, []any{rnic.OpRead, rnic.Success}, []any{c.Op, c.Status}, "%v", e.qp.Err())
	return e.region.Bytes()[:n]
}

// expose is rping's message that says where n octets of our region are, from off.
func (e *end) expose(off, n int) []byte {
	b := binary.BigEndian.AppendUint64(nil, e.region.Base()+uint64(off))
	b = binary.BigEndian.AppendUint32(b, uint32(e.region.STag()))
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

// put lays octets out to be sent, each time elsewhere.
func (e *end) put(b []byte) rnic.SGE {
	at := int(e.sent) % (regionBytes / inboxBytes) * inboxBytes
	e.sent++
	copy(e.source.Bytes()[at:], b)
	return e.source.Slice(at, len(b))
}

// receive returns the next message.
func (e *end) receive() []byte {
	e.r.t.Helper()
	b, err := e.await(e.r.ctx)
	require.NoError(e.r.t, err)
	return b
}

// await is receive, with an end to its patience.
func (e *end) await(ctx context.Context) ([]byte, error) {
	e.r.t.Helper()
	c, err := e.next(ctx)
	if err != nil {
		return nil, err
	}
	if c.Status != rnic.Success || c.Op != rnic.OpRecv {
		return nil, fmt.Errorf("%v: %v (%w)", c.Op, c.Status, e.qp.Err())
	}
	b := append([]byte(nil), e.inbox.Bytes()[int(c.ID)*inboxBytes:][:c.Len]...)
	e.postRecv(c.ID)
	return b, nil
}

// next waits for the next completion.
func (e *end) next(ctx context.Context) (rnic.Completion, error) {
	var c [1]rnic.Completion
	for e.cq.Poll(c[:]) == 0 {
		if err := e.cq.Wait(ctx); err != nil {
			return c[0], err
		}
	}
	return c[0], nil
}

// over waits for the end of the connection and returns the reason.
func (e *end) over() error {
	e.r.t.Helper()
	select {
	case <-e.qp.Done():
		return e.qp.Err()
	case <-e.r.ctx.Done():
		require.FailNow(e.r.t, "the connection does not end")
		return nil
	}
}

// start begins a script in the guest; it is gone when the test is over.
func (r *rig) start(format string, args ...any) *guest.Job {
	r.t.Helper()
	j := must(vm.Start(fmt.Sprintf(format, args...)))(r.t)
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(r.t, j.Kill(ctx))
		if r.t.Failed() {
			r.t.Logf("%s:\n%s", j.Script, j)
		}
	})
	return j
}

// serve starts a server in the guest and returns when it listens. The script has its port as $port.
func (r *rig) serve(script string) (j *guest.Job, addr string) {
	r.t.Helper()
	port := newPort()
	j = r.start("port=%d; %s", port, script)
	_, err := vm.Run(r.ctx, fmt.Sprintf("listening %d", port))
	require.NoError(r.t, err, "%s", j)
	return j, net.JoinHostPort(guestAddr.Addr().String(), strconv.Itoa(port))
}

// ends waits for a program of the guest's, which must succeed.
func (r *rig) ends(j *guest.Job) {
	r.t.Helper()
	require.Zero(r.t, r.status(j), "%s: %s", j.Script, j)
}

func (r *rig) status(j *guest.Job) int {
	r.t.Helper()
	return must(j.Wait(r.ctx))(r.t)
}

// expect returns what the groups of the first line match that matches.
func (r *rig) expect(j *guest.Job, pattern string) []string {
	r.t.Helper()
	m := must(j.Expect(r.ctx, pattern))(r.t)
	return m[1:]
}

// loaded is how siw was loaded last.
var loaded string

// siw loads the guest's driver as Debian compiles it, "std", or with switches, "opt
// peer_to_peer=1".
func (r *rig) siw(how string) {
	r.t.Helper()
	if how == loaded {
		return
	}
	loaded = ""
	must(vm.Run(r.ctx, "siw "+how))(r.t)
	loaded = how
}

// stats are the connection's counters.
func (e *end) stats() rnic.Stats {
	e.r.t.Helper()
	s, err := e.qp.Stats(e.r.ctx)
	require.NoError(e.r.t, err)
	return s
}

// advert is a message of rping's: where octets are.
func advert(t *testing.T, b []byte) (at guestRegion, size int) {
	t.Helper()
	require.Len(t, b, 16)
	return guestRegion{at: binary.BigEndian.Uint64(b),
		stag: rnic.STag(binary.BigEndian.Uint32(b[8:]))}, int(binary.BigEndian.Uint32(b[12:]))
}

// must is v, if there was no error.
func must[V any](v V, err error) func(require.TestingT) V {
	return func(t require.TestingT) V {
		require.NoError(t, err)
		return v
	}
}
