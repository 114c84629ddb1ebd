package xfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/rnic"
)

// The client's pipeline: so many Reads of so many octets are under way, or being hashed and
// written. No more than the ORD that start-up settled are asked of the server at a time.
const (
	readsMax = readDepth
	readMax  = 256 << 10
)

// GetConfig of one Get.
type GetConfig struct {
	Adapter *rnic.Adapter
	Addr    string // host:port
	Name    string // of what is read, as it was put; empty: the server's file
	// Begin says where the file goes, when its length is known and before an octet of it is asked
	// for. Its error ends the transfer. What can be read again (io.ReaderAt), up to HashApartMax, is
	// hashed when all of it has come.
	Begin    func(length uint64) (io.Writer, error)
	Progress func(done, length uint64) // may be nil
	Conn     rnic.ConnParam            // as PutConfig's
	// Timeout bounds the wait for each answer of the server's (default 60 s).
	Timeout time.Duration
}

// Get reads the server's file, by RDMA Reads, and returns what both sides counted. A SHA-256 other
// than the server's is an error; whatever was written then is worth nothing.
func Get(ctx context.Context, cfg GetConfig) (Result, error) {
	if cfg.Timeout == 0 {
		cfg.Timeout = 60 * time.Second
	}
	g := get{cfg: cfg}
	res, err := g.run(ctx)
	res.Op, res.Err = OpGet, err
	return res, err
}

type get struct {
	client
	cfg    GetConfig
	grant  grant
	chunk  int
	sum    hash.Hash // nil: the file is hashed when it is there
	to     io.Writer
	posted uint64
	done   uint64
}

func (g *get) run(ctx context.Context) (Result, error) {
	defer g.release()
	if err := g.dial(ctx); err != nil {
		return Result{}, err
	}
	var err error
	if g.to, err = g.cfg.Begin(g.grant.length); err != nil {
		_ = g.close(ctx) // in order: nothing has gone wrong between the ends
		return Result{}, err
	}
	written, again := g.to.(io.ReaderAt)
	if again = again && g.grant.length <= HashApartMax; !again {
		g.sum = sha256.New()
	}
	begin := time.Now()
	if err := g.read(ctx); err != nil {
		return Result{}, g.fail(err)
	}
	elapsed, hashed := time.Since(begin), time.Duration(0)
	var digest [digestLen]byte
	if again {
		if digest, hashed, err = Digest(ctx, written, g.grant.length); err != nil {
			return Result{}, g.fail(err)
		}
	} else {
		g.sum.Sum(digest[:0])
	}
	a, err := g.verdict(ctx, digest)
	st, statsErr := g.qp.Stats(ctx)
	if err := errors.Join(err, statsErr); err != nil {
		return Result{}, g.fail(err)
	}
	res := Result{
		Length: g.grant.length, Digest: digest, Wire: elapsed, ClientHash: hashed,
		Receiver: countersOf(st),
		Dialect:  g.qp.Startup().Dialect, Framing: g.qp.Framing(),
	}
	if digest != *g.grant.digest {
		return res, fmt.Errorf("xfer: SHA-256 mismatch: %x came, the server's file has %x", digest,
			*g.grant.digest)
	}
	if err := a.check(g.grant.length, digest); err != nil {
		return res, err
	}
	return res, g.close(ctx)
}

func (g *get) dial(ctx context.Context) error {
	conn := g.cfg.Conn
	conn.ORD, g.control = readDepth, readsMax*readMax
	b, err := g.client.dial(ctx, g.cfg.Adapter, g.cfg.Addr, readsMax+1, conn,
		request{op: OpGet, name: g.cfg.Name})
	if err != nil {
		return err
	}
	if g.grant, err = parseGetGrant(b); err != nil {
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
	_, err := g.qp.PostSend(rnic.WorkRequest{
		Op: rnic.OpRead,
		ID: uint64(i), Local: g.buf.Slice(i*readMax, n), Signaled: true,
		RemoteSTag: g.grant.stag, RemoteOffset: g.grant.to + g.posted,
	})
	if err == nil {
		g.posted += uint64(n)
	}
	return err
}

// take writes what a Read has fetched, and hashes it unless that comes at the end.
func (g *get) take(c rnic.Completion) error {
	b := g.buf.Bytes()[int(c.ID)*readMax:][:min(uint64(g.chunk), g.grant.length-g.done)]
	if g.sum != nil {
		g.sum.Write(b) // never fails
	}
	if _, err := g.to.Write(b); err != nil {
		return fmt.Errorf("xfer: writing at octet %d of %d: %w", g.done, g.grant.length, err)
	}
	g.done += uint64(len(b))
	if g.cfg.Progress != nil {
		g.cfg.Progress(g.done, g.grant.length)
	}
	return nil
}

// verdict tells the server what has come and returns what it says of it.
func (g *get) verdict(ctx context.Context, digest [digestLen]byte) (answer, error) {
	if err := g.finish(finish{length: g.grant.length, digest: digest}); err != nil {
		return answer{}, err
	}
	for {
		c, err := g.next(ctx)
		if err != nil {
			return answer{}, err
		}
		if c.ID == idAnswerIn {
			return g.answer(c.Len)
		}
	}
}

// next bounds the wait for the server.
func (g *get) next(ctx context.Context) (rnic.Completion, error) {
	ctx, cancel := awake.Timeout(ctx, g.cfg.Timeout, nil)
	defer cancel()
	return g.client.next(ctx)
}
