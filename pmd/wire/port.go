package wire

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// Port is one end of a Link.
type Port struct {
	index int
	name  string
	mac   [6]byte
	caps  pmd.Caps

	// up: the port has a receiver. Its rings are what the two cores share; this word is read once
	// per burst.
	up     atomic.Bool
	closed atomic.Bool // its queue is used no more
	opened bool
	in     []*ring
	out    []egress
	pair   *poolPair // nil where frames are copied
}

// egress is one way out of a port: the ring that only this port fills, and the port that empties
// it.
type egress struct {
	ring    *ring
	to      *Port
	up      bool // to.up, as read at the start of the burst
	pending int  // reserved and filled in this burst, not yet published
	gone    bool // to is closed, and what it had not received was taken back
}

func newPort(i int, cfg Config) *Port {
	p := &Port{
		index: i,
		name:  fmt.Sprintf("wire%d", i),
		mac:   defaultMAC(i),
		caps: pmd.Caps{MTU: cfg.MTU, Queues: 1, RxChecksum: cfg.ChecksumOffload,
			TxChecksum: cfg.ChecksumOffload},
	}
	if cfg.MACs != nil {
		p.mac = cfg.MACs[i]
	}
	if cfg.Names != nil {
		p.name = cfg.Names[i]
	}
	return p
}

func (p *Port) Name() string   { return p.name }
func (p *Port) MAC() [6]byte   { return p.mac }
func (p *Port) Caps() pmd.Caps { return p.caps }

// Open brings the port up: from now on it is sent frames. Errors: not queue 0, opened before, Bufs
// too small for the MTU; with Config.ZeroCopy a Pool that is not the pair of the other end's.
func (p *Port) Open(i int, pool *mem.Pool) (pmd.Queue, error) {
	if i != 0 {
		return nil, fmt.Errorf("wire: %s: no queue %d; a wire port has queue 0 only", p.name, i)
	}
	if p.opened {
		return nil, fmt.Errorf("wire: %s: opened before; make a new link to start again", p.name)
	}
	if err := checkPool(p.name, pool, p.caps.MTU); err != nil {
		return nil, err
	}
	if err := p.pair.take(p, pool); err != nil {
		return nil, err
	}
	q := &queue{port: p, pool: pool, frameMax: p.caps.MTU + pmd.FrameOverhead}
	q.macHi, q.macLo = make([]uint32, len(p.out)), make([]uint16, len(p.out))
	for k := range p.out {
		mac := p.out[k].to.mac
		q.macHi[k], q.macLo[k] = binary.BigEndian.Uint32(mac[:]), binary.BigEndian.Uint16(mac[4:])
	}
	p.opened = true
	p.up.Store(true)
	return q, nil
}

// Close takes the port down: what is sent to it is lost, and counted by the sender. Any goroutine
// may call it; frames still in the rings stay there, and without copying their sender takes them
// back. Those that the receiver had got are never its again.
func (p *Port) Close() error {
	p.up.Store(false)
	p.closed.Store(true)
	return nil
}
