package xfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/rnicd/rnicd/rnic"
)

// The client's pipeline: so many Reads of so many octets are under way, or being hashed and written. No more than the ORD that
// start-up settled are asked of the server at a time.
const (
	readsMax = readDepth
	readMax  = 256 << 10
)

// GetConfig of one Get.
type GetConfig struct {
	Adapter *rnic.Adapter
	Addr    string // host:port
	// Begin says where the file goes, when its length is known and before an octet of it is asked for. Its error ends the transfer.
	Begin     func(length uint64) (io.Writer, error)
	Progress  func(done, length uint64) // may be nil
	NoMarkers bool
	NoCRC     bool
	Dialect   rnic.Dialect // 0: rnic's choice
	// Timeout bounds the wait for each answer of the server's (default 60 s).
	Timeout time.Duration
}

// Get reads the server's file, by RDMA Reads, and returns what both sides counted. A SHA-256 other than the server's is an
// error; whatever was written then is worth nothing.
func Get(ctx context.Context, cfg GetConfig) (Result, error) {
	if cfg.Timeout == 0 {
		cfg.Timeout = 60 * time.Second
	}
	g := get{cfg: cfg, sum: sha256.New()}
	res, err := g.run(ctx)
	res.Op, res.Err = OpGet, err
	return res, err
}

type get struct {
	cfg    GetConfig
	qp     *rnic.QueuePair
	cq     *rnic.CompletionQueue
	buf    *rnic.MemoryRegion // readsMax chunks, then the closing message and the answer
	grant  grant
	chunk  int
	sum    hash.Hash
	to     io.Writer
	posted uint64
	done   uint64
}

const getControl = readsMax * readMax // where the closing message is

func (g *get) run(ctx context.Context) (Result, error) {
	defer g.release()
	if err := g.dial(ctx); err != nil {
		return Result{}, err
	}
	var err error
	if g.to, err = g.cfg.Begin(g.grant.length); err != nil {
		return Result{}, err
	}
	begin := time.Now()
	if err := g.read(ctx); err != nil {
		return Result{}, g.explain(err)
	}
	elapsed := time.Since(begin)
	digest := [digestLen]byte(g.sum.Sum(nil))
	match, err := g.close(ctx, digest)
	st, statsErr := g.qp.Stats(ctx)
	if err := errors.Join(err, statsErr); err != nil {
		return Result{}, g.explain(err)
	}
	res := Result{
		Length: g.grant.length, Digest: digest, Wire: elapsed, Receiver: countersOf(st),
		Dialect: g.qp.Startup().Dialect, Framing: g.qp.Framing(),
	}
	if !match || digest != *g.grant.digest {
		return res, fmt.Errorf("xfer: SHA-256 mismatch: %x came, the server's file has %x", digest, *g.grant.digest)
	}
	closing, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return res, g.qp.Close(closing)
}

// release takes the buffers back once the connection is over.
func (g *get) release() {
	if g.qp != nil && g.qp.State() != rnic.Closed {
		g.qp.Abort()
		<-g.qp.Done()
	}
	if g.buf != nil {
		g.buf.Deregister()
	}
}

// explain prefers the connection's own reason over the completion that it flushed.
func (g *get) explain(err error) error {
	if cause := g.qp.Err(); cause != nil && !errors.Is(cause, rnic.ErrClosed) {
		return cause
	}
	return err
}

func (g *get) dial(ctx context.Context) (err error) {
	dev := g.cfg.Adapter
	pd := dev.AllocPD()
	if g.cq, err = dev.CreateCQ(2 * readsMax); err != nil {
		return err
	}
	g.qp, err = dev.CreateQP(rnic.QPOptions{
		PD: pd, SendCQ: g.cq, RecvCQ: g.cq, SendDepth: readsMax + 1, RecvDepth: 1, ORD: readDepth,
		NoMarkers: g.cfg.NoMarkers, NoCRC: g.cfg.NoCRC, Dialect: g.cfg.Dialect,
	})
	if err != nil {
		return err
	}
	if g.buf, err = pd.RegisterWith(make([]byte, getControl+finishLen+answerLen), rnic.RegisterOptions{Access: rnic.LocalWrite, For: g.qp}); err != nil {
		return err
	}
	if err = g.qp.PostRecv(rnic.WorkRequest{ID: idAnswerIn, Local: g.buf.Slice(getControl+finishLen, answerLen)}); err != nil {
		return err
	}
	err = g.qp.Connect(ctx, g.cfg.Addr, request{op: OpGet}.marshal())
	var rejected *rnic.RejectedError
	if errors.As(err, &rejected) {
		if text, ok := parseRefusal(rejected.PrivateData); ok {
			return fmt.Errorf("xfer: the server refused: %s", text)
		}
	}
	if err != nil {
		return err
	}
	if g.grant, err = parseGetGrant(g.qp.PeerPrivateData()); err != nil {
		return err
	}
	n, err := g.qp.PayloadMax(ctx) // of our own segments; the server's are as large on most paths
	g.chunk = readMax / max(n, 1) * n
	return err
}

// read keeps Reads under way and takes them in order, which is that of their completions.
func (g *get) read(ctx context.Context) error {
	for g.done < g.grant.length {
		for g.posted < g.grant.length && (g.posted-g.done)/uint64(g.chunk) < readsMax {
			if err := g.post(); err != nil {
				return err
			}
		}
		c, err := g.next(ctx)
		if err != nil {
			return err
		}
		if c.ID == idAnswerIn {
			return errors.New("xfer: the server answered before the transfer was complete")
		}
		if err := g.take(c); err != nil {
			return err
		}
	}
	return nil
}

// post asks for the next octets, into the buffer that was taken longest ago.
func (g *get) post() error {
	i := int(g.posted/uint64(g.chunk)) % readsMax
	n := int(min(uint64(g.chunk), g.grant.length-g.posted))
	err := g.qp.PostRead(rnic.WorkRequest{
		ID: uint64(i), Local: g.buf.Slice(i*readMax, n), Signaled: true,
		RemoteSTag: g.grant.stag, RemoteOffset: g.grant.to + g.posted,
	})
	if err == nil {
		g.posted += uint64(n)
	}
	return err
}

// take hashes and writes what a Read has fetched.
func (g *get) take(c rnic.Completion) error {
	b := g.buf.Bytes()[int(c.ID)*readMax:][:min(uint64(g.chunk), g.grant.length-g.done)]
	g.sum.Write(b) // never fails
	if _, err := g.to.Write(b); err != nil {
		return fmt.Errorf("xfer: writing at octet %d of %d: %w", g.done, g.grant.length, err)
	}
	g.done += uint64(len(b))
	if g.cfg.Progress != nil {
		g.cfg.Progress(g.done, g.grant.length)
	}
	return nil
}

// close tells the server what has come and returns its verdict.
func (g *get) close(ctx context.Context, digest [digestLen]byte) (match bool, err error) {
	finish{length: g.grant.length, digest: digest}.marshal(g.buf.Bytes()[getControl:])
	if err := g.qp.PostSend(rnic.WorkRequest{ID: idClosing, Local: g.buf.Slice(getControl, finishLen)}); err != nil {
		return false, err
	}
	c, err := g.next(ctx)
	if err != nil {
		return false, err
	}
	off := getControl + finishLen
	a, err := parseAnswer(g.buf.Bytes()[off : off+int(c.Len)])
	return a.match, err
}

// next returns the next successful completion.
func (g *get) next(ctx context.Context) (rnic.Completion, error) {
	var c [1]rnic.Completion
	for g.cq.Poll(c[:]) == 0 {
		waiting, cancel := context.WithTimeout(ctx, g.cfg.Timeout)
		err := g.cq.Wait(waiting)
		cancel()
		if err != nil {
			return c[0], fmt.Errorf("xfer: waiting for the server: %w", err)
		}
	}
	if c[0].Status == rnic.Success {
		return c[0], nil
	}
	select {
	case <-g.qp.Done():
		if err := g.qp.Err(); err != nil {
			return c[0], err
		}
		return c[0], fmt.Errorf("xfer: %v %v: the server closed the connection", c[0].Op, c[0].Status)
	case <-ctx.Done():
		return c[0], ctx.Err()
	}
}
