//go:build dpdk

package dpdk

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"math/bits"
	"strings"
	"syscall"
	"unsafe"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// Queue is one receive/transmit queue pair. One goroutine calls it.
type Queue struct {
	c        *C.struct_rnic_queue
	io       *C.struct_rnic_io
	pool     *mem.Pool
	stride   uint32
	returned []mem.Buf // over io.returned
	done     []mem.Buf // over io.done
	port     *Port
	index    int
	runs     runs
	last     C.struct_rnic_io // counters, kept when the queue has ended
}

// poolsInUse are the Pools with a queue: TakeReturned does not say for which queue a Buf was
// reserved. Under environment's lock.
var poolsInUse = map[*mem.Pool]bool{}

// overhead is room in a Buf that drivers want beside the MTU: Ethernet header, two VLAN tags, and
// the FCS.
const overhead = pmd.FrameOverhead + 4

// checkPool says whether queue i can use a Pool.
func (p *Port) checkPool(i int, pool *mem.Pool) error {
	stride := pool.Stride()
	switch {
	case poolsInUse[pool]:
		return fmt.Errorf("dpdk: %s: queue %d: its Pool already serves a DPDK queue: give each its own",
			p.name, i)
	case !p.memory.contains(pool.Memory()):
		return fmt.Errorf("dpdk: %s: queue %d: its Pool does not lie in Config.Arena", p.name, i)
	case stride-mem.Headroom < p.cfg.MTU+overhead:
		return fmt.Errorf("dpdk: %s: queue %d: an MTU of %d wants Bufs with a stride of at least %d, "+
			"the Pool's is %d", p.name, i, p.cfg.MTU, p.cfg.MTU+overhead+mem.Headroom, stride)
	case stride < int(p.info.rx_buf_min):
		return fmt.Errorf("dpdk: %s: queue %d: the device wants a stride of at least %d, the "+
			"Pool's is %d", p.name, i, p.info.rx_buf_min, stride)
	}
	return nil
}

func newQueue(p *Port, i int, pool *mem.Pool) (*Queue, error) {
	if err := p.checkPool(i, pool); err != nil {
		return nil, err
	}
	slots := pool.Memory()
	stride := pool.Stride()
	conf := C.struct_rnic_queue_conf{
		queue: C.uint16_t(i), socket: p.info.socket, memory: p.memory.c,
		slots: C.uintptr_t(uintptr(unsafe.Pointer(unsafe.SliceData(slots)))), stride: C.uint32_t(stride),
		nbufs:       C.uint32_t(pool.Size()),
		tx_checksum: p.conf.tx_checksum, tx_segment: p.conf.tx_segment, chains: p.conf.chains,
		vlan:    C.uint16_t(p.Caps().VLAN),
		rx_room: C.uint32_t(p.cfg.rxRoom),
	}
	if p.conf.tx_segment != 0 && p.driver() == "net_tap" {
		// librte_gso marks its segments' header mbufs as external buffers if the frame is one, and
		// then crashes when it frees them (seen with 22.11): without chains the frame is copied.
		// IPv6 it sends as it is, uncut.
		conf.software_gso = 1
	}
	if p.Caps().VLAN != 0 && p.insertsInSoftware() {
		conf.copy_ethernet = 1
	}
	if p.driver() == afXDP {
		conf.copy_receive = 1
	}
	rxBufs, err := p.size(&conf, pool)
	if err != nil {
		return nil, err
	}
	first, err := pool.Reserve(rxBufs)
	if err != nil {
		return nil, fmt.Errorf("dpdk: %s: queue %d: %w", p.name, i, err)
	}
	if p.driver() == netRing { // another core reads the mbufs
		pool.Circulate()
	}
	conf.rx_first, conf.rx_bufs = C.uint32_t(first), C.uint32_t(rxBufs)
	var rc C.int
	var step *C.char
	var c *C.struct_rnic_queue
	make := func() error {
		conf.port = p.id
		if c = C.rnic_queue_new(&conf, &rc, &step); c == nil {
			return fmt.Errorf("dpdk: %s: queue %d: %s: %w%s", p.name, i, C.GoString(step), errnoOf(rc),
				p.queueAdvice(C.GoString(step), errnoOf(rc)))
		}
		return nil
	}
	poolsInUse[pool] = true
	if p.driver() == afXDP {
		err = p.makeXDP(make)
	} else {
		err = make()
	}
	if err != nil {
		delete(poolsInUse, pool)
		return nil, err
	}
	io := C.rnic_queue_io(c)
	return &Queue{
		c: c, io: io, pool: pool, stride: uint32(stride), port: p, index: i,
		runs:     p.newRuns(C.rnic_queue_gathers(c) != 0),
		returned: unsafe.Slice((*mem.Buf)(unsafe.Pointer(&io.returned[0])), len(io.returned)),
		done:     unsafe.Slice((*mem.Buf)(unsafe.Pointer(io.done)), pool.Size()),
	}, nil
}

func (p *Port) queueAdvice(step string, e Errno) string {
	switch {
	case strings.HasPrefix(step, "rte_eth_") && p.driver() == afXDP:
		return " (the driver says on standard error what failed. Its umem wants CAP_IPC_LOCK or a " +
			"larger RLIMIT_MEMLOCK, and CAP_NET_RAW; its socket CAP_SYS_ADMIN, and that no other program " +
			"has this queue of the interface)"
	case strings.HasPrefix(step, "rte_eth_"):
		return " (the driver says why on standard error; many want a larger stride, or fewer descriptors)"
	case syscall.Errno(e) == syscall.ENOMEM:
		return " (the EAL's own memory ran out: free hugepages are needed beside the arena's; run " +
			"hugepages/setup.sh with more, or raise -m)"
	}
	return ""
}

// size settles descriptors and receive Bufs: what the configuration says, else what driver and Pool
// allow.
func (p *Port) size(conf *C.struct_rnic_queue_conf, pool *mem.Pool) (rxBufs int, err error) {
	rx, tx := p.cfg.RxDesc, p.cfg.TxDesc
	if tx == 0 {
		if tx = int(p.info.tx_desc); tx == 0 {
			tx = descDefault
		}
	}
	half := pool.Size() / 2
	if rx == 0 {
		if rx = int(p.info.rx_desc); rx == 0 {
			rx = descDefault
		}
		most := p.cfg.RxBufs
		if most == 0 {
			most = half
		}
		// At least as many Bufs again for frames on their way through the stack.
		rx = max(1, min(rx, 1<<(bits.Len(uint(most/2|1))-1)))
	}
	conf.rx_desc, conf.tx_desc = C.uint16_t(rx), C.uint16_t(tx)
	if rc := C.rnic_port_adjust(p.id, &conf.rx_desc, &conf.tx_desc); rc < 0 {
		return 0, failed(p.name, "rte_eth_dev_adjust_nb_rx_tx_desc", rc)
	}
	rx = int(conf.rx_desc)
	if rxBufs = p.cfg.RxBufs; rxBufs == 0 {
		rxBufs = min(4*rx, half)
	}
	if rxBufs <= rx {
		return 0, fmt.Errorf("dpdk: %s: %d Bufs to receive into do not even fill %d descriptors: raise "+
			"RxBufs (and the Pool of %d), or lower RxDesc", p.name, rxBufs, rx, pool.Size())
	}
	return rxBufs, nil
}

// Rx fills bufs with received frames, at most 128, which the caller then owns. One call into C; it
// also returns freed Bufs to the device and takes back sent ones, so it is to be called even when
// nothing is expected. Drivers with vector code receive nothing for fewer than 4 bufs.
func (q *Queue) Rx(bufs []mem.Buf) int {
	want := min(len(bufs), burstMax)
	if want == 0 || q.c == nil {
		return 0
	}
	io := q.io
	io.nreturned = C.uint32_t(q.pool.TakeReturned(q.returned))
	n := int(C.rnic_rx(q.c, C.uint32_t(want)))
	frames := io.rx[:n]
	for i := range frames {
		f := &frames[i]
		b := mem.Buf(f.buf)
		q.pool.Adopt(b)
		d := q.pool.Desc(b)
		d.Off, d.Len = uint32(f.off), uint32(f.len)
		d.Flags = mem.DescFlags(f.flags)
		d.CsumStart, d.CsumOffset, d.GSOSize, d.HdrLen = uint16(f.csum_start), uint16(f.csum_offset), 0, 0
		bufs[i] = b
	}
	q.settle()
	return n
}

// Tx sends a prefix of bufs and returns its length. One call into C per 128. Each Buf taken is held
// for the device until a later Rx or Tx finds it finished with; it must not be in the device
// already. A frame that asks for an offload the port does not have, or whose headers do not fit it,
// is taken, dropped and counted.
func (q *Queue) Tx(bufs []mem.Buf) int {
	sent := 0
	for sent < len(bufs) && q.c != nil {
		burst := bufs[sent:min(len(bufs), sent+burstMax)]
		for i, b := range burst {
			q.put(&q.io.tx[i], b)
		}
		if q.runs.framesMax > 1 {
			q.gather(burst)
		}
		n := int(C.rnic_tx(q.c, C.uint32_t(len(burst))))
		q.settle()
		sent += n
		if n < len(burst) {
			q.io.tx_full += C.uint64_t(len(bufs) - sent - (len(burst) - n)) // not even offered
			break
		}
	}
	return sent
}

// put describes b's frame to C and holds b for the device.
func (q *Queue) put(f *C.struct_rnic_tx_frame, b mem.Buf) {
	d := q.pool.Desc(b)
	if d.Off > q.stride || d.Len > q.stride-d.Off || d.Len == 0 {
		panic("dpdk: Tx: the frame does not lie in its Buf")
	}
	q.pool.HoldDevice(b)
	f.buf, f.off, f.len = C.uint32_t(b), C.uint32_t(d.Off), C.uint32_t(d.Len)
	f.flags = C.uint16_t(d.Flags)
	f.csum_start, f.csum_offset = C.uint16_t(d.CsumStart), C.uint16_t(d.CsumOffset)
	f.gso_size, f.hdr_len, f.run, f.run_flags = C.uint16_t(d.GSOSize), C.uint16_t(d.HdrLen), 0, 0
}

// rxUsable returns how many of the reserved Bufs the device receives into.
func (q *Queue) rxUsable() int { return int(C.rnic_queue_rx_usable(q.c)) }

// settle drops the device's hold on the Bufs it has finished with, or never took.
func (q *Queue) settle() {
	for _, b := range q.done[:q.io.ndone] {
		q.pool.DeviceDone(b)
	}
}

// Counters returns what this queue counted; on queue 0 also what the device dropped by itself, for
// all queues: it has to ask the device, so not for every turn. The device's transmit errors are in
// Port.Stats only, because some drivers count there what they did not take.
func (q *Queue) Counters() pmd.Counters { return q.Stats().Counters }

// Stats returns Counters and the copies made.
func (q *Queue) Stats() QueueStats {
	io := q.io
	if q.c == nil {
		io = &q.last
	}
	s := QueueStats{
		Counters: pmd.Counters{
			RxFrames: uint64(io.rx_frames), RxOctets: uint64(io.rx_octets),
			TxFrames: uint64(io.tx_frames), TxOctets: uint64(io.tx_octets),
			RxNoBuf: uint64(io.rx_no_buf), RxTooLong: uint64(io.rx_too_long),
			RxOtherVLAN: uint64(io.other_vlan),
			TxFull:      uint64(io.tx_full), TxErrors: uint64(io.tx_errors),
		},
		Runs: uint64(io.runs), TagsPut: uint64(io.tags_put),
		Copied: uint64(io.copied), Bounced: uint64(io.bounced),
	}
	if q.index == 0 {
		d := q.port.stats()
		s.RxNoBuf += d.Missed + d.NoMbuf
		s.RxErrors += d.RxErrors
	}
	return s
}

// end takes back what the stopped device held and frees the queue. It returns how many frames
// somebody else still holds; then nothing is freed.
func (q *Queue) end() int {
	await(drainMax, func() bool {
		C.rnic_queue_collect(q.c)
		q.settle()
		return C.rnic_queue_outstanding(q.c) == 0
	})
	held := int(C.rnic_queue_outstanding(q.c))
	delete(poolsInUse, q.pool)
	if held == 0 {
		q.last = *q.io
		C.rnic_queue_free(q.c)
	}
	q.c = nil
	if held > 0 {
		q.last = *q.io
	}
	return held
}
