package godpdk

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/yerden/go-dpdk/eal"
	"github.com/yerden/go-dpdk/ethdev"
	"github.com/yerden/go-dpdk/mempool"
)

const (
	mtuDefault  = 1500
	descDefault = 512
	mbufsQueue  = 4 * descDefault // of each queue, for both directions
	mbufHead    = 128             // RTE_PKTMBUF_HEADROOM
)

// Config says which device a Port is.
type Config struct {
	// EAL is rte_eal_init's arguments, without the program's name. The EAL starts with the first
	// Open; all devices must be named then (--vdev, -a).
	EAL    []string
	Device string // ethdev's name: net_ring0, 0000:01:00.0
	MTU    int    // default 1500
	Queues int    // default 1
}

// environment is the process's one EAL.
var environment struct {
	sync.Mutex
	started bool
	args    []string
	err     error
	pools   int // names of mempools
}

func start(args []string) error {
	e := &environment
	if e.started {
		if e.err == nil && len(args) > 0 && !slices.Equal(args, e.args) {
			return fmt.Errorf("godpdk: the EAL already runs with arguments %q, not %q: it starts once "+
				"per process", e.args, args)
		}
		return e.err
	}
	e.started, e.args = true, slices.Clone(args)
	if _, err := eal.Init(append([]string{"rnicd"}, args...)); err != nil {
		e.err = fmt.Errorf("godpdk: rte_eal_init %q: %w; the log above says why", args, err)
	}
	return e.err
}

// Port is an ethdev port. Its device starts with its last queue.
type Port struct {
	id      ethdev.Port
	cfg     Config
	mac     [6]byte
	queues  []*Queue
	started bool
	closed  bool
}

var _ pmd.Port = (*Port)(nil)

// Open configures a device of the EAL, which it starts if it does not run.
func Open(cfg Config) (*Port, error) {
	if cfg.MTU == 0 {
		cfg.MTU = mtuDefault
	}
	if cfg.Queues == 0 {
		cfg.Queues = 1
	}
	environment.Lock()
	defer environment.Unlock()
	if err := start(cfg.EAL); err != nil {
		return nil, err
	}
	id, err := ethdev.GetPortByName(cfg.Device)
	if err != nil {
		return nil, fmt.Errorf("godpdk: %s: %w; name it in the EAL's arguments, as --vdev=%s", cfg.Device,
			err, cfg.Device)
	}
	p := &Port{id: id, cfg: cfg, queues: make([]*Queue, cfg.Queues)}
	mode := ethdev.OptRxMode(ethdev.RxMode{MTU: uint32(cfg.MTU)})
	if err := id.DevConfigure(uint16(cfg.Queues), uint16(cfg.Queues), mode); err != nil {
		return nil, fmt.Errorf("godpdk: %s: rte_eth_dev_configure of %d queues, MTU %d: %w", cfg.Device,
			cfg.Queues, cfg.MTU, err)
	}
	var mac ethdev.MACAddr
	if err := id.MACAddrGet(&mac); err != nil {
		return nil, fmt.Errorf("godpdk: %s: rte_eth_macaddr_get: %w", cfg.Device, err)
	}
	copy(p.mac[:], mac.HardwareAddr())
	return p, nil
}

// Name returns the device's name as DPDK knows it.
func (p *Port) Name() string { return p.cfg.Device }

// MAC returns the device's address.
func (p *Port) MAC() [6]byte { return p.mac }

// Caps says what was configured.
func (p *Port) Caps() pmd.Caps {
	return pmd.Caps{MTU: p.cfg.MTU, Queues: p.cfg.Queues, OneThread: true}
}

// Open implements pmd.Port.
func (p *Port) Open(i int, pool *mem.Pool) (pmd.Queue, error) {
	environment.Lock()
	defer environment.Unlock()
	switch {
	case p.closed:
		return nil, fmt.Errorf("godpdk: %s is closed", p.cfg.Device)
	case i < 0 || i >= len(p.queues):
		return nil, fmt.Errorf("godpdk: %s has %d queues, there is no queue %d", p.cfg.Device,
			len(p.queues), i)
	case p.queues[i] != nil:
		return nil, fmt.Errorf("godpdk: %s: queue %d is already open", p.cfg.Device, i)
	case pool.Stride()-mem.Headroom < p.cfg.MTU+pmd.FrameOverhead:
		return nil, fmt.Errorf("godpdk: %s: queue %d: an MTU of %d wants a stride of at least %d, the "+
			"Pool's is %d",
			p.cfg.Device, i, p.cfg.MTU, p.cfg.MTU+pmd.FrameOverhead+mem.Headroom, pool.Stride())
	}
	q, err := p.newQueue(uint16(i), pool)
	if err != nil {
		return nil, err
	}
	p.queues[i] = q
	if slices.Contains(p.queues, nil) {
		return q, nil
	}
	if err := p.id.Start(); err != nil {
		return nil, fmt.Errorf("godpdk: %s: rte_eth_dev_start: %w", p.cfg.Device, err)
	}
	p.started = true
	return q, nil
}

func (p *Port) newQueue(i uint16, pool *mem.Pool) (*Queue, error) {
	// Room for what a driver wants at the least, whatever the MTU.
	room := max(2048, p.cfg.MTU+pmd.FrameOverhead+4) + mbufHead
	environment.pools++
	mbufs, err := mempool.CreateMbufPool(fmt.Sprintf("godpdk_%d", environment.pools), mbufsQueue,
		uint16(room))
	if err != nil {
		return nil, fmt.Errorf("godpdk: %s: queue %d: rte_pktmbuf_pool_create of %d: %w", p.cfg.Device, i,
			mbufsQueue, err)
	}
	if err := p.id.RxqSetup(i, descDefault, mbufs); err != nil {
		mbufs.Free()
		return nil, fmt.Errorf("godpdk: %s: queue %d: rte_eth_rx_queue_setup: %w", p.cfg.Device, i, err)
	}
	if err := p.id.TxqSetup(i, descDefault); err != nil {
		mbufs.Free()
		return nil, fmt.Errorf("godpdk: %s: queue %d: rte_eth_tx_queue_setup: %w", p.cfg.Device, i, err)
	}
	return newQueue(p.id, i, mbufs, pool), nil
}

// LinkUp says whether the device has a link.
func (p *Port) LinkUp() bool {
	link, err := p.id.EthLinkGetNowait()
	return err == nil && link.Status()
}

// Close stops the device. What waits in it is lost.
func (p *Port) Close() error {
	environment.Lock()
	defer environment.Unlock()
	if p.closed {
		return errors.New("godpdk: " + p.cfg.Device + " is closed")
	}
	p.closed = true
	if p.started {
		for _, q := range p.queues {
			q.drain()
		}
		p.id.Stop()
	}
	p.id.Close()
	for _, q := range p.queues {
		if q != nil {
			q.mbufs.Free()
		}
	}
	return nil
}
