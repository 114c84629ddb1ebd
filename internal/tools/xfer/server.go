package xfer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/tools/peer"
	"github.com/rnicd/rnicd/rnic"
)

// ServerConfig of a Server.
type ServerConfig struct {
	Adapter *rnic.Adapter
	Region  []byte // the memory that files land in; stays the caller's
	// Memory is that of several Servers, instead of a Region.
	Memory *Memory
	// File is what get reads, nil: nothing is served. It stays the caller's and must not change.
	File []byte
	// IdleTimeout ends a connection on which nothing arrives for so long (default 30 s).
	IdleTimeout time.Duration
	NoMarkers   bool
	NoCRC       bool
	DropBadCRC  bool
	// Done, if set, is told of every transfer that was granted, when it is over. Called from
	// several goroutines.
	Done func(Result)
	// Refused, if set, is told of every request that was rejected.
	Refused func(remote netip.AddrPort, why string)
}

// Result of one transfer, on either side.
type Result struct {
	Op     Op
	Name   string // under which the file is kept, or was read
	Remote netip.AddrPort
	Length uint64
	Digest [digestLen]byte
	Wire   time.Duration // from the grant to the closing message, hashing at the server not included
	Hash   time.Duration // the server's hashing
	// ClientHash is what the client's hashing took before the transfer (put) or after it (get), 0: it
	// hashed meanwhile. At the client only.
	ClientHash time.Duration
	Receiver   Counters
	Sender     SenderCounters
	Dialect    rnic.Dialect // 0: the connection did not come about
	Framing    rnic.Framing // of this end
	Err        error
}

// SenderCounters are those of the end that sends the file.
type SenderCounters struct{ SegmentsOut, Retransmits, FPDUs uint64 }

// Goodput in bit/s.
func (r *Result) Goodput() float64 {
	if r.Wire <= 0 {
		return 0
	}
	return float64(r.Length) * 8 / r.Wire.Seconds()
}

// Server lets clients write files into its region, several at a time as far as there is room, and
// read its File.
type Server struct {
	cfg    ServerConfig
	pd     *rnic.ProtectionDomain
	digest [digestLen]byte // of cfg.File

	Served atomic.Uint64
}

// NewServer makes a Server; Serve runs it.
func NewServer(cfg ServerConfig) *Server {
	if cfg.IdleTimeout == 0 {
		cfg.IdleTimeout = 30 * time.Second
	}
	if cfg.Memory == nil {
		cfg.Memory = NewMemory(cfg.Region, 0)
	}
	return &Server{cfg: cfg, pd: cfg.Adapter.AllocPD(), digest: sha256.Sum256(cfg.File)}
}

// Serve accepts from l until ctx ends, then waits for the transfers under way to be aborted.
func (s *Server) Serve(ctx context.Context, l *rnic.Listener) error {
	return l.Serve(ctx, s.Handle)
}

// Handle serves one connection request to its end.
func (s *Server) Handle(ctx context.Context, req *rnic.ConnRequest) {
	t, err := s.admit(req)
	if err != nil {
		peer.Refuse(ctx, req, err.Error(), s.cfg.Refused)
		return
	}
	res := t.run(ctx)
	t.vacate() // before anybody hears of it, and comes with the next
	res.Op, res.Name, res.Remote = t.want.op, t.want.name, req.Remote()
	if res.Err == nil {
		s.Served.Add(1)
	}
	if s.cfg.Done != nil {
		s.cfg.Done(res)
	}
}

// admit finds room for a request, or what is to be read; the error is for the client.
func (s *Server) admit(req *rnic.ConnRequest) (*transfer, error) {
	r, err := parseRequest(req.PrivateData())
	if err != nil {
		return nil, err
	}
	t, memory, from := &transfer{s: s, req: req, want: r}, s.cfg.Memory, req.Remote().Addr()
	switch {
	case r.op == OpGet && r.name != "":
		if t.reads, err = memory.open(r.name); err != nil {
			return nil, err
		}
		t.mem, t.digest = memory.bytes(t.reads.extent), t.reads.digest
	case r.op == OpGet && s.cfg.File == nil && memory.names != nil:
		return nil, errors.New("this server has no file of its own: say which of those that it " +
			"keeps, --name")
	case r.op == OpGet && s.cfg.File == nil:
		return nil, errors.New("this server has no file to read; start it with --file")
	case r.op == OpGet:
		t.mem, t.digest = s.cfg.File, s.digest
	default:
		if r.name != "" {
			if err := memory.mayKeep(from, r.name); err != nil {
				return nil, err
			}
		}
		x, why := memory.take(from, r.length)
		if why != "" {
			return nil, errors.New(why)
		}
		t.mem, t.room = memory.bytes(x), &x
	}
	t.want.length = uint64(len(t.mem))
	return t, nil
}

// transfer is one granted request at the server.
type transfer struct {
	s    *Server
	req  *rnic.ConnRequest
	want request
	mem  []byte
	room *extent // of the region; nil: none, given back, or kept

	reads  *kept           // get: what is read, unless it is the server's file
	digest [digestLen]byte // get: of mem

	qp      *rnic.QueuePair
	cq      *rnic.CompletionQueue
	region  *rnic.MemoryRegion // what the client may write, or read; nil for an empty file
	control *rnic.MemoryRegion // closing message in, answer out
	granted time.Time
}

const (
	idFinish = 1
	idAnswer = 2
)

// run grants, waits for the closing message, hashes and answers.
func (t *transfer) run(ctx context.Context) (res Result) {
	res.Length = t.want.length
	if err := t.grant(ctx); err != nil {
		res.Err = err
		return res
	}
	defer t.release()
	res.Dialect, res.Framing = t.qp.Startup().Dialect, t.qp.Framing()
	c, err := t.await(ctx)
	if err != nil {
		res.Err = t.fail(err)
		return res
	}
	wire := time.Since(t.granted)
	a, err := t.verify(c)
	a.wireNs = uint64(wire)
	res.Wire, res.Hash, res.Digest = wire, time.Duration(a.hashNs), a.digest
	if t.want.op == OpGet {
		res.Sender = t.sender(ctx)
	} else {
		res.Receiver = a.counters
	}
	if err == nil && !a.match {
		err = errors.New("xfer: SHA-256 mismatch between what the client has and what is in memory")
	}
	t.vacate() // before the client hears of it, and comes with the next
	sendErr := t.answer(ctx, a)
	res.Err = errors.Join(err, sendErr)
	return res
}

// grant registers the range for this QueuePair alone and accepts. A client that cannot be served
// for want of something here is told so.
func (t *transfer) grant(ctx context.Context) (err error) {
	defer func() {
		if err == nil {
			return
		}
		if t.qp != nil {
			t.qp.Abort()
		}
		t.release()
		peer.Refuse(ctx, t.req, err.Error(), nil) // in vain when the connection is over
	}()
	dev := t.s.cfg.Adapter
	if t.cq, err = dev.CreateCQ(8); err != nil {
		return err
	}
	t.qp, err = dev.CreateQP(rnic.QPOptions{PD: t.s.pd, SendCQ: t.cq, RecvCQ: t.cq, SendDepth: 2,
		RecvDepth: 2})
	if err != nil {
		return err
	}
	t.control, err = t.s.pd.RegisterWith(make([]byte, finishLen+answerLen),
		rnic.RegisterOptions{Access: rnic.LocalWrite, For: t.qp})
	if err != nil {
		return err
	}
	g, access := grant{length: t.want.length}, rnic.RemoteWrite
	if t.want.op == OpGet {
		g.digest, access = &t.digest, rnic.RemoteRead
	}
	if t.room != nil { // what an earlier client wrote there must not be read or guessed by others
		if err = wipe(ctx, t.mem); err != nil {
			return err
		}
	}
	if len(t.mem) > 0 {
		t.region, err = t.s.pd.RegisterWith(t.mem, rnic.RegisterOptions{Access: access, For: t.qp})
		if err != nil {
			return err
		}
		g.stag, g.to = t.region.STag(), t.region.Base()
	}
	if _, err = t.qp.PostRecv(
		rnic.WorkRequest{ID: idFinish, Local: t.control.Slice(0, finishLen)}); err != nil {
		return err
	}
	t.granted = time.Now()
	return t.req.Accept(ctx, t.qp, rnic.ConnParam{
		PrivateData: g.marshal(), IRD: t.depth(), NoMarkers: t.s.cfg.NoMarkers, NoCRC: t.s.cfg.NoCRC,
		DropBadCRC: t.s.cfg.DropBadCRC,
	})
}

// wipeStep is how much is cleared at a time: the runtime cannot interrupt a clear, and may have to
// stop the Pollers until it is over.
const wipeStep = 1 << 20

// wipe clears b. It takes time in proportion to its length, and ends early with ctx.
func wipe(ctx context.Context, b []byte) error {
	for len(b) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(len(b), wipeStep)
		clear(b[:n])
		b = b[n:]
	}
	return nil
}

// await waits for the closing message, as long as octets keep coming.
func (t *transfer) await(ctx context.Context) (rnic.Completion, error) {
	what := map[Op]string{OpPut: "written", OpGet: "read"}[t.want.op]
	silent := fmt.Errorf("xfer: nothing was %s by the client for %v", what, t.s.cfg.IdleTimeout)
	ctx, stop := peer.Watch(ctx, t.s.cfg.IdleTimeout, silent, t.moved)
	defer stop()
	c, err := peer.Next(ctx, t.cq)
	if err != nil {
		return c, cmp.Or(context.Cause(ctx), err)
	}
	if c.Status != rnic.Success {
		early := errors.New("xfer: the client closed the connection before its closing message")
		if m, err := t.moved(ctx); err == nil && t.want.op == OpGet && m.reads == 0 {
			early = errors.New("xfer: the client closed the connection without reading anything: it may " +
				"have no room for the file, or be told a --size-max")
		}
		return c, peer.Over(ctx, t.qp, early)
	}
	return c, nil
}

// verify hashes the memory in place. The STag is revoked first: what is hashed cannot change any
// more. A client that wrote as many octets as it asked for may have written some of them twice and
// others never, so the answer to put has a SHA-256 only where it is the client's own.
func (t *transfer) verify(c rnic.Completion) (answer, error) {
	f, err := parseFinish(t.control.Bytes()[:c.Len])
	if err != nil {
		return answer{}, err
	}
	st, err := t.qp.Stats(context.Background())
	if err != nil {
		return answer{}, err
	}
	t.revoke()
	a := answer{length: t.want.length, counters: countersOf(st)}
	if t.want.op == OpGet {
		a.digest = t.digest
		if f.length != a.length {
			return a, fmt.Errorf("xfer: the client closed with a length of %d, the file has %d",
				f.length, a.length)
		}
		a.match = f.digest == a.digest
		return a, nil
	}
	// all that was placed but the closing message
	written := a.counters.Direct + a.counters.Reassembled - uint64(c.Len)
	// no reason to hash what was not written
	if f.length != t.want.length || written < t.want.length {
		return a, fmt.Errorf("xfer: the client asked for %d octets, wrote %d and closed with a "+
			"length of %d", t.want.length, written, f.length)
	}
	begin := time.Now()
	a.match = f.digest == sha256.Sum256(t.mem)
	a.hashNs = uint64(time.Since(begin))
	if !a.match {
		return a, nil
	}
	if t.want.name != "" {
		if err := t.s.cfg.Memory.store(t.req.Remote().Addr(), t.want.name, *t.room,
			f.digest); err != nil {
			a.match = false
			return a, fmt.Errorf("xfer: %w", err)
		}
		t.room = nil
	}
	a.digest = f.digest
	return a, nil
}

func countersOf(st rnic.Stats) Counters {
	return Counters{
		Direct: st.Placed.Direct, Reassembled: st.Placed.Reassembled, OutOfOrder: st.Placed.OutOfOrder,
		SegmentsIn: st.TCP.SegmentsIn, Retransmits: st.TCP.Retransmits,
	}
}

func sentOf(st rnic.Stats) SenderCounters {
	return SenderCounters{SegmentsOut: st.TCP.SegmentsOut, Retransmits: st.TCP.Retransmits,
		FPDUs: st.FPDUsSent}
}

// answer sends the verdict and waits for the client to close.
func (t *transfer) answer(ctx context.Context, a answer) error {
	silent := errors.New("xfer: the client did not close the connection after the answer")
	ctx, cancel := awake.Timeout(ctx, t.s.cfg.IdleTimeout, silent)
	defer cancel()
	a.marshal(t.control.Bytes()[finishLen:])
	_, err := t.qp.PostSend(
		rnic.WorkRequest{ID: idAnswer, Op: rnic.OpSend, Local: t.control.Slice(finishLen, answerLen),
			Signaled: true})
	if err != nil {
		return t.fail(err)
	}
	select {
	case <-t.qp.Done():
	case <-ctx.Done():
		return t.fail(silent)
	}
	return t.qp.Err()
}

func (t *transfer) fail(err error) error {
	t.qp.Abort()
	<-t.qp.Done() // and only then: the client is not to be told of an invalid STag
	t.revoke()
	return err
}

// release takes all memory of the transfer back.
func (t *transfer) release() {
	t.revoke()
	if t.control != nil {
		t.control.Deregister()
	}
}

// revoke withdraws the client's access. Nothing is placed once it has returned.
func (t *transfer) revoke() {
	if t.region != nil {
		t.region.Deregister()
		t.region = nil
	}
}

// vacate gives the room in the region back. The next client may write there: nobody looks at it
// for this transfer any more.
func (t *transfer) vacate() {
	if t.reads != nil {
		t.s.cfg.Memory.close(t.reads)
		t.reads = nil
	}
	if t.room == nil {
		return
	}
	t.s.cfg.Memory.give(t.req.Remote().Addr(), *t.room)
	t.room = nil
}
