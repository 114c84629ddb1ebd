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

// The client's pipeline: so many buffers of so many octets are being read, written and hashed.
const (
	chunksMax = 8
	chunkMax  = 1 << 20
)

// PutConfig of one Put.
type PutConfig struct {
	Adapter  *rnic.Adapter
	Addr     string // host:port
	Source   io.Reader
	Length   uint64
	Progress func(done uint64) // may be nil
	Conn     rnic.ConnParam    // Dialect (not culley-02, which has no private data), NoMarkers, NoCRC, UserTimeout; the rest is Put's
	// AnswerTimeout bounds the wait for the server's verdict (default 60 s).
	AnswerTimeout time.Duration
}

// Put sends Length octets of Source into the server's memory and returns what both sides counted.
// Any difference between the hashes, or in what the server says of the transfer, is an error.
func Put(ctx context.Context, cfg PutConfig) (Result, error) {
	if cfg.AnswerTimeout == 0 {
		cfg.AnswerTimeout = 60 * time.Second
	}
	p := put{cfg: cfg, sum: sha256.New()}
	res, err := p.run(ctx)
	res.Err = err
	return res, err
}

type put struct {
	client
	cfg    PutConfig
	grant  grant
	chunk  int
	sum    hash.Hash
	posted uint64
	done   uint64
	free   []int // chunk buffers not in use
}

func (p *put) run(ctx context.Context) (Result, error) {
	defer p.release()
	if err := p.dial(ctx); err != nil {
		return Result{}, err
	}
	begin := time.Now()
	a, err := p.transfer(ctx)
	if err != nil {
		return Result{}, p.fail(err)
	}
	elapsed := time.Since(begin)
	st, err := p.qp.Stats(ctx)
	if err != nil {
		return Result{}, err
	}
	res := Result{
		Length: p.cfg.Length, Digest: a.digest, Hash: time.Duration(a.hashNs), Wire: elapsed - time.Duration(a.hashNs),
		Receiver: a.counters, Sender: sentOf(st),
		Dialect: p.qp.Startup().Dialect, Framing: p.qp.Framing(),
	}
	if err := a.check(p.cfg.Length, [digestLen]byte(p.sum.Sum(nil))); err != nil {
		return res, err
	}
	return res, p.close(ctx)
}

func (p *put) dial(ctx context.Context) error {
	p.control = chunksMax * chunkMax
	b, err := p.client.dial(ctx, p.cfg.Adapter, p.cfg.Addr, 2*chunksMax, p.cfg.Conn, request{op: OpPut, length: p.cfg.Length})
	if err != nil {
		return err
	}
	if p.grant, err = parseGrant(b); err == nil && p.grant.length < p.cfg.Length {
		err = fmt.Errorf("xfer: %d octets to send, %d granted", p.cfg.Length, p.grant.length)
	}
	if err != nil {
		return err
	}
	return p.sizeChunks(ctx)
}

// sizeChunks makes a chunk a whole number of full FPDUs, so that segments stay full and aligned.
func (p *put) sizeChunks(ctx context.Context) error {
	n, err := p.qp.PayloadMax(ctx)
	if err != nil {
		return err
	}
	p.chunk = chunkMax / n * n
	for i := range chunksMax {
		p.free = append(p.free, i)
	}
	return nil
}

// transfer writes everything, then closes with length and hash and waits for the verdict.
func (p *put) transfer(ctx context.Context) (answer, error) {
	for p.posted < p.cfg.Length {
		if len(p.free) == 0 {
			if err := p.reap(ctx); err != nil {
				return answer{}, err
			}
			continue
		}
		if err := p.post(); err != nil {
			return answer{}, err
		}
		if err := ctx.Err(); err != nil {
			return answer{}, err
		}
	}
	if err := p.finish(finish{length: p.cfg.Length, digest: [digestLen]byte(p.sum.Sum(nil))}); err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.AnswerTimeout)
	defer cancel()
	for {
		c, err := p.next(ctx)
		if err != nil {
			return answer{}, err
		}
		if c.ID == idAnswerIn {
			return p.answer(c.Len)
		}
	}
}

// post reads the next chunk, hashes it and posts its Write.
func (p *put) post() error {
	i := p.free[len(p.free)-1]
	n := int(min(uint64(p.chunk), p.cfg.Length-p.posted))
	b := p.buf.Bytes()[i*chunkMax : i*chunkMax+n]
	if _, err := io.ReadFull(p.cfg.Source, b); err != nil {
		return fmt.Errorf("xfer: reading the source at octet %d of %d: %w", p.posted, p.cfg.Length, err)
	}
	p.sum.Write(b) // never fails
	_, err := p.qp.PostSend(rnic.WorkRequest{
		Op: rnic.OpWrite,
		ID: uint64(i), Local: p.buf.Slice(i*chunkMax, n), Signaled: true,
		RemoteSTag: p.grant.stag, RemoteOffset: p.grant.to + p.posted,
	})
	if err != nil {
		return err
	}
	p.free = p.free[:len(p.free)-1]
	p.posted += uint64(n)
	return nil
}

// reap waits for at least one Write to complete.
func (p *put) reap(ctx context.Context) error {
	c, err := p.next(ctx)
	if err != nil {
		return err
	}
	if c.ID == idAnswerIn {
		return errors.New("xfer: the server answered before the transfer was complete")
	}
	return nil
}

// next takes a Write's buffer back.
func (p *put) next(ctx context.Context) (rnic.Completion, error) {
	c, err := p.client.next(ctx)
	if err == nil && c.ID < chunksMax {
		p.free = append(p.free, int(c.ID))
		p.done += uint64(c.Len)
		if p.cfg.Progress != nil {
			p.cfg.Progress(p.done)
		}
	}
	return c, err
}
