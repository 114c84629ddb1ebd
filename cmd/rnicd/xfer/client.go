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
	Adapter   *rnic.Adapter
	Addr      string // host:port
	Source    io.Reader
	Length    uint64
	Progress  func(done uint64) // may be nil
	NoMarkers bool
	NoCRC     bool
	Dialect   rnic.Dialect // 0: rnic's choice; culley-02 has no private data, which transfers need
	// AnswerTimeout bounds the wait for the server's verdict (default 60 s).
	AnswerTimeout time.Duration
}

// Put sends Length octets of Source into the server's memory and returns what both sides counted. Any difference
// between the hashes is an error.
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
	cfg    PutConfig
	qp     *rnic.QueuePair
	cq     *rnic.CompletionQueue
	buf    *rnic.MemoryRegion // chunksMax chunks, then the closing message and the answer
	grant  grant
	chunk  int
	sum    hash.Hash
	posted uint64
	done   uint64
	free   []int // chunk buffers not in use
}

const (
	idAnswerIn = 1 << 32
	idClosing  = 1 << 33
	controlOff = chunksMax * chunkMax
)

func (p *put) run(ctx context.Context) (Result, error) {
	defer p.release()
	if err := p.dial(ctx); err != nil {
		return Result{}, err
	}
	begin := time.Now()
	a, err := p.transfer(ctx)
	if err != nil {
		p.qp.Abort()
		<-p.qp.Done()
		return Result{}, p.explain(err)
	}
	elapsed := time.Since(begin)
	st, err := p.qp.Stats(ctx)
	if err != nil {
		return Result{}, err
	}
	res := Result{
		Length: p.cfg.Length, Digest: a.digest, Hash: time.Duration(a.hashNs), Wire: elapsed - time.Duration(a.hashNs),
		Receiver: a.counters,
		Sender:   SenderCounters{SegmentsOut: st.TCP.SegmentsOut, Retransmits: st.TCP.Retransmits, FPDUs: st.FPDUsSent},
		Dialect:  p.qp.Startup().Dialect, Framing: p.qp.Framing(),
	}
	if !a.match || a.digest != [digestLen]byte(p.sum.Sum(nil)) {
		p.qp.Abort()
		return res, fmt.Errorf("xfer: SHA-256 mismatch: sent %x, the server's memory holds %x", p.sum.Sum(nil), a.digest)
	}
	closing, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return res, p.qp.Close(closing)
}

// release takes the buffers back once the connection is over.
func (p *put) release() {
	if p.buf == nil {
		return
	}
	if p.qp != nil && p.qp.State() != rnic.Closed {
		p.qp.Abort()
		<-p.qp.Done()
	}
	p.buf.Deregister()
}

// explain prefers the connection's own reason over the completion that it flushed.
func (p *put) explain(err error) error {
	if cause := p.qp.Err(); cause != nil && !errors.Is(cause, rnic.ErrClosed) {
		return cause
	}
	return err
}

func (p *put) dial(ctx context.Context) (err error) {
	dev := p.cfg.Adapter
	pd := dev.AllocPD()
	if p.cq, err = dev.CreateCQ(4 * chunksMax); err != nil {
		return err
	}
	if p.buf, err = pd.Register(make([]byte, controlOff+finishLen+answerLen), rnic.LocalWrite); err != nil {
		return err
	}
	p.qp, err = dev.CreateQP(rnic.QPOptions{
		PD: pd, SendCQ: p.cq, RecvCQ: p.cq, SendDepth: 2 * chunksMax, RecvDepth: 2, NoMarkers: p.cfg.NoMarkers, NoCRC: p.cfg.NoCRC,
		Dialect: p.cfg.Dialect,
	})
	if err != nil {
		return err
	}
	if err = p.qp.PostRecv(rnic.WorkRequest{ID: idAnswerIn, Local: p.buf.Slice(controlOff+finishLen, answerLen)}); err != nil {
		return err
	}
	err = p.qp.Connect(ctx, p.cfg.Addr, request{op: OpPut, length: p.cfg.Length}.marshal())
	var rejected *rnic.RejectedError
	if errors.As(err, &rejected) {
		if text, ok := parseRefusal(rejected.PrivateData); ok {
			return fmt.Errorf("xfer: the server refused: %s", text)
		}
	}
	if err != nil {
		return err
	}
	if p.grant, err = parseGrant(p.qp.PeerPrivateData()); err == nil && p.grant.length < p.cfg.Length {
		err = fmt.Errorf("xfer: %d octets to send, %d granted", p.cfg.Length, p.grant.length)
	}
	if err != nil {
		p.qp.Abort()
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
	f := finish{length: p.cfg.Length, digest: [digestLen]byte(p.sum.Sum(nil))}
	f.marshal(p.buf.Bytes()[controlOff:])
	err := p.qp.PostSend(rnic.WorkRequest{ID: idClosing, Local: p.buf.Slice(controlOff, finishLen), Signaled: true})
	if err != nil {
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
			off := controlOff + finishLen
			return parseAnswer(p.buf.Bytes()[off : off+int(c.Len)])
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
	err := p.qp.PostWrite(rnic.WorkRequest{
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

// next returns the next successful completion and takes a Write's buffer back.
func (p *put) next(ctx context.Context) (rnic.Completion, error) {
	var c [1]rnic.Completion
	for p.cq.Poll(c[:]) == 0 {
		if err := p.cq.Wait(ctx); err != nil {
			return c[0], fmt.Errorf("xfer: waiting for the server: %w", err)
		}
	}
	if c[0].Status != rnic.Success {
		<-p.qp.Done()
		if err := p.qp.Err(); err != nil {
			return c[0], err
		}
		return c[0], fmt.Errorf("xfer: %v %v: the server closed the connection", c[0].Op, c[0].Status)
	}
	if c[0].ID < chunksMax {
		p.free = append(p.free, int(c[0].ID))
		p.done += uint64(c[0].Len)
		if p.cfg.Progress != nil {
			p.cfg.Progress(p.done)
		}
	}
	return c[0], nil
}
