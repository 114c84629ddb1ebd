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

// The client's pipeline: so many buffers of so many octets are being read, written and hashed.
const (
	chunksMax = 8
	chunkMax  = 1 << 20
)

// What is in memory goes in longer Writes, and more of them are posted: nothing has to be read in
// between, so the client may be late, as it is where both cores belong to Pollers.
const (
	writesMax = 32
	writeMax  = 4 << 20
)

// PutConfig of one Put.
type PutConfig struct {
	Adapter *rnic.Adapter
	Addr    string // host:port
	Source  io.Reader
	Length  uint64
	Name    string // under which the server is to keep it, for others to read; empty: it keeps nothing
	// Memory, instead of a Source, is sent from where it lies, all of it. It must not change.
	Memory []byte
	// Digest, if set, is the SHA-256 of what is to be sent, as Digest found it: then nothing is
	// hashed while octets are on their way.
	Digest   *[digestLen]byte
	Hashed   time.Duration     // how long that took, for Result.ClientHash
	Progress func(done uint64) // may be nil
	// Dialect (not culley-02, which has no private data), NoMarkers, NoCRC, UserTimeout; the rest is
	// Put's
	Conn rnic.ConnParam
	// AnswerTimeout bounds the wait for the server's verdict (default 60 s).
	AnswerTimeout time.Duration
}

// HashApartMax is up to how many octets a file is better hashed before it is sent, or after it has
// come: reading it twice costs next to nothing, as the system still has it in memory, and at the
// transfer itself one sees what the network can do. A longer one is hashed as it goes.
const HashApartMax = 1 << 30

// Digest is the SHA-256 of the first length octets of source, and how long it took to find out. It
// ends early with ctx.
func Digest(ctx context.Context, source io.ReaderAt,
	length uint64) (digest [digestLen]byte, took time.Duration, err error) {
	begin, sum, b := time.Now(), sha256.New(), make([]byte, min(length, chunkMax))
	for at := uint64(0); at < length && err == nil; at += uint64(len(b)) {
		b = b[:min(uint64(len(b)), length-at)]
		n, failed := source.ReadAt(b, int64(at))
		if n < len(b) {
			return digest, 0, readFailed(failed, at, length)
		}
		sum.Write(b) // never fails
		err = ctx.Err()
	}
	sum.Sum(digest[:0])
	return digest, time.Since(begin), err
}

func readFailed(err error, at, of uint64) error {
	return fmt.Errorf("xfer: reading the source at octet %d of %d: %w", at, of, err)
}

// Put sends Length octets of Source, or Memory, into the server's memory and returns what both
// sides counted. Any difference between the hashes, or in what the server says of the transfer, is
// an error.
func Put(ctx context.Context, cfg PutConfig) (Result, error) {
	if cfg.AnswerTimeout == 0 {
		cfg.AnswerTimeout = 60 * time.Second
	}
	p := put{cfg: cfg, sum: sha256.New(), sends: 2 * chunksMax, slots: chunksMax, slot: chunkMax}
	if cfg.Memory != nil {
		p.octets, p.cfg.Length = cfg.Memory, uint64(len(cfg.Memory))
		p.sends, p.slots, p.slot = writesMax+1, writesMax, writeMax
	}
	res, err := p.run(ctx)
	res.Err = err
	return res, err
}

type put struct {
	client
	cfg    PutConfig
	grant  grant
	sends  int // work requests at once
	slots  int // Writes at once,
	slot   int // and the octets of the largest
	chunk  int // of all but the last
	sum    hash.Hash
	posted uint64
	done   uint64
	free   []int // Writes not posted; without memory, their buffers
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
		Length: p.cfg.Length, Digest: a.digest, ClientHash: p.cfg.Hashed, Hash: time.Duration(a.hashNs),
		Wire:     elapsed - time.Duration(a.hashNs),
		Receiver: a.counters, Sender: sentOf(st),
		Dialect: p.qp.Startup().Dialect, Framing: p.qp.Framing(),
	}
	if err := a.check(p.cfg.Length, p.digest()); err != nil {
		return res, err
	}
	return res, p.close(ctx)
}

// digest is the SHA-256 of what was sent.
func (p *put) digest() [digestLen]byte {
	if p.cfg.Digest != nil {
		return *p.cfg.Digest
	}
	return [digestLen]byte(p.sum.Sum(nil))
}

func (p *put) dial(ctx context.Context) error {
	if p.cfg.Memory == nil {
		p.control = p.slots * p.slot
	}
	b, err := p.client.dial(ctx, p.cfg.Adapter, p.cfg.Addr, p.sends, p.cfg.Conn,
		request{op: OpPut, length: p.cfg.Length, name: p.cfg.Name})
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
	p.chunk = p.slot / n * n
	for i := range p.slots {
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
	if err := p.finish(finish{length: p.cfg.Length, digest: p.digest()}); err != nil {
		return answer{}, err
	}
	ctx, cancel := awake.Timeout(ctx, p.cfg.AnswerTimeout, nil)
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

// post posts the Write of the next chunk.
func (p *put) post() error {
	i := p.free[len(p.free)-1]
	n := int(min(uint64(p.chunk), p.cfg.Length-p.posted))
	local, err := p.read(i, n)
	if err != nil {
		return err
	}
	_, err = p.qp.PostSend(rnic.WorkRequest{
		Op: rnic.OpWrite,
		ID: uint64(i), Local: local, Signaled: true,
		RemoteSTag: p.grant.stag, RemoteOffset: p.grant.to + p.posted,
	})
	if err != nil {
		return err
	}
	p.free = p.free[:len(p.free)-1]
	p.posted += uint64(n)
	return nil
}

// read finds the next n octets: in memory, or read into buffer i; and hashes them unless their hash
// is known.
func (p *put) read(i, n int) (rnic.SGE, error) {
	local, b := rnic.SGE{}, []byte(nil)
	if p.memory != nil {
		local, b = p.memory.Slice(int(p.posted), n), p.octets[p.posted:][:n]
	} else {
		local, b = p.buf.Slice(i*p.slot, n), p.buf.Bytes()[i*p.slot:][:n]
		if _, err := io.ReadFull(p.cfg.Source, b); err != nil {
			return local, readFailed(err, p.posted, p.cfg.Length)
		}
	}
	if p.cfg.Digest == nil {
		p.sum.Write(b) // never fails
	}
	return local, nil
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
	if err == nil && c.ID < uint64(p.slots) {
		p.free = append(p.free, int(c.ID))
		p.done += uint64(c.Len)
		if p.cfg.Progress != nil {
			p.cfg.Progress(p.done)
		}
	}
	return c, err
}
