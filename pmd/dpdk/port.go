//go:build dpdk

package dpdk

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// Port is an ethdev port.
//
//	Open(Config)      Port.Open(0..Queues-1)          Port.Close
//	----> configured ------------------------> started ---------> gone
type Port struct {
	id      C.uint16_t
	name    string
	vdev    string // to unplug on Close, or ""
	cfg     Config
	info    C.struct_rnic_port_info
	conf    C.struct_rnic_port_conf
	memory  *arenaMemory
	extra   map[*byte]*arenaMemory // what Map added, by first octet
	mapped  bool
	started bool
	closed  bool
	queues  []*Queue // nil where not open yet
	rings   *ringPair
	last    PortStats // once closed
	link    *linkWatch
	stuck   map[int]time.Time // queues that refused all at the last look, since when

	sockets  map[int]uint64 // of net_af_xdp, by descriptor: inodes
	socketed int            // its queues that have one
}

// rssKey is Toeplitz key material for the longest key of any driver: two octets again and again, so
// that both directions of a connection have one hash (S. Woo, K. Park, "Scalable TCP Session
// Monitoring with Symmetric Receive-side Scaling", 2012). A number of ones that is odd makes all
// 65536 ports of a peer come to different hashes.
var rssKey = [64]byte(slices.Repeat([]byte{0x6d, 0x5a}, 32))

// keyDefault is the length of a Toeplitz key that covers an IPv6 4-tuple: 36 octets of input and 4
// more.
const keyDefault = 40

// Open opens the device and configures it; frames flow once every queue is open. It starts the EAL
// if there is none.
func Open(cfg Config) (pmd.Port, error) {
	if wantsXDPQueues(&cfg) {
		x, err := openXDPQueues(cfg)
		if err != nil {
			return nil, err
		}
		return x, nil
	}
	p, err := open(cfg)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func open(cfg Config) (*Port, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	environment.Lock()
	defer environment.Unlock()
	if err := startEAL(cfg.EALArgs, cfg.PCI); err != nil {
		return nil, err
	}
	p := &Port{cfg: cfg, name: cfg.device(), queues: make([]*Queue, cfg.Queues),
		sockets: map[int]uint64{}}
	if err := p.plug(); err != nil {
		return nil, err
	}
	if err := p.configure(); err != nil {
		p.unplug()
		return nil, err
	}
	return p, nil
}

// plug finds the device or makes it, for this Port alone.
func (p *Port) plug() error {
	if openPorts[p.name] {
		return fmt.Errorf("dpdk: %s is already open in this process", p.name)
	}
	if strings.HasPrefix(p.cfg.Vdev, afXDP) {
		if err := p.mayLeaveXDP(); err != nil {
			return err
		}
	}
	if err := p.find(); err != nil {
		return err
	}
	p.rings = ringPairs[p.name]
	openPorts[p.name] = true
	return nil
}

// find finds the device or makes it.
func (p *Port) find() error {
	name, args := C.CString(p.deviceName()), C.CString(p.cfg.deviceArgs())
	defer C.free(unsafe.Pointer(name))
	defer C.free(unsafe.Pointer(args))
	if C.rnic_port_find(name, &p.id) != 0 {
		bus := "vdev"
		if p.cfg.PCI != "" {
			bus = "pci"
		}
		if err := p.removeStaleSocket(); err != nil {
			return err
		}
		cbus := C.CString(bus)
		defer C.free(unsafe.Pointer(cbus))
		if rc := C.rnic_port_probe(cbus, name, args); rc < 0 {
			return fmt.Errorf("dpdk: %s: rte_eal_hotplug_add: %w (%s)", p.name, errnoOf(rc),
				probeAdvice(bus, errnoOf(rc)))
		}
		if rc := C.rnic_port_find(name, &p.id); rc != 0 {
			return fmt.Errorf("dpdk: %s: probed, but it is no Ethernet device: %w", p.name, errnoOf(rc))
		}
	}
	if p.cfg.Vdev != "" {
		p.vdev = p.deviceName()
	}
	return nil
}

// openPorts are the devices in use, by name. Under environment's lock.
var openPorts = map[string]bool{}

func probeAdvice(bus string, e Errno) string {
	if bus == "pci" {
		return "is it bound to vfio-pci, and does dpdk-devbind.py --status show it? see " +
			"docs/guides/dpdk.md"
	}
	switch syscall.Errno(e) {
	case syscall.EFAULT: // what rte_devargs_parse says of a name no driver owns
		return "no such virtual device, or its driver's plugin is not installed; the name must begin " +
			"with the driver's, such as net_tap0"
	case syscall.EPERM, syscall.EACCES:
		if os.Geteuid() == 0 { // EPERM is what drivers return of an argument they do not like
			return "check the device's arguments, and that an interface named there exists; in a " +
				"container, CAP_NET_ADMIN and CAP_NET_RAW"
		}
		return "needs root, or CAP_NET_ADMIN (net_tap) or CAP_NET_RAW (net_af_packet)"
	}
	return "check the device's arguments"
}

func (p *Port) configure() error {
	if rc := C.rnic_port_info(p.id, &p.info); rc < 0 {
		return failed(p.name, "rte_eth_dev_info_get", rc)
	}
	if most := max(1, int(p.info.queues_max)); p.cfg.Queues > most {
		return fmt.Errorf("dpdk: %s has %d queue pairs, %d wanted: set Queues to at most that", p.name,
			most, p.cfg.Queues)
	}
	if most := int(p.info.max_mtu); p.cfg.MTU > most {
		return fmt.Errorf("dpdk: %s carries an MTU of at most %d, %d wanted", p.name, most, p.cfg.MTU)
	}
	p.conf.queues = C.uint16_t(p.cfg.Queues)
	p.conf.mtu = C.uint16_t(p.cfg.MTU)
	if !p.cfg.NoOffload {
		p.conf.rx_checksum, p.conf.tx_checksum, p.conf.tx_segment = p.info.rx_checksum,
			p.info.tx_checksum, p.info.tx_segment
		if p.ownsVLAN() {
			p.conf.vlan_strip, p.conf.vlan_insert = 1, 1
		}
		if p.info.tx_segment != 0 || p.ownsVLAN() && p.insertsInSoftware() {
			p.conf.chains = p.info.chains
		}
	}
	if p.driver() == "net_af_packet" {
		// The kernel takes the tag off; not asked for that the driver would put it back, but not into
		// buffers like ours.
		p.conf.vlan_strip = 1
	}
	if p.cfg.Queues > 1 && p.spreads() {
		p.conf.rss = 1
		p.conf.key_size = p.info.key_size
		if p.conf.key_size == 0 {
			p.conf.key_size = keyDefault
		}
		for i := range p.conf.key {
			p.conf.key[i] = C.uint8_t(rssKey[i])
		}
	}
	if p.cfg.Interrupts {
		p.conf.interrupts = 1
	}
	if rc := C.rnic_port_configure(p.id, &p.conf); rc < 0 {
		return failed(p.name, "rte_eth_dev_configure", rc)
	}
	if p.rings != nil && !p.cfg.NoOffload {
		// What goes from memory to memory is not damaged there: the two ends agree to leave checksums
		// out (copy_in), which the driver need not know.
		p.conf.rx_checksum, p.conf.tx_checksum = 1, 1
	}
	err := p.pagesStay(p.cfg.Arena.PageSize())
	if err != nil {
		return err
	}
	if p.memory, err = registerArena(p.cfg.Arena); err != nil {
		return fmt.Errorf("dpdk: %s: %w", p.name, err)
	}
	if rc := C.rnic_memory_dma_map(p.memory.c, p.id); rc < 0 {
		return fmt.Errorf("dpdk: %s: rte_dev_dma_map of the arena: %w (is RLIMIT_MEMLOCK large enough? "+
			"ulimit -l unlimited)", p.name, errnoOf(rc))
	}
	p.mapped = true
	return nil
}

// ownsVLAN says whether the device puts Config.VLAN into frames and takes it off. Some drivers
// put it in by themselves, into the frame, for which its first octets must lie in an mbuf of
// their own.
func (p *Port) ownsVLAN() bool {
	return p.cfg.VLAN != 0 && !p.cfg.NoOffload && p.info.vlan != 0 &&
		(!p.insertsInSoftware() || p.info.chains != 0)
}

func (p *Port) insertsInSoftware() bool {
	switch p.driver() {
	case "net_af_packet", "net_virtio", "net_virtio_user":
		return true
	}
	return false
}

// spreads says whether the device puts a flow on the queue its Toeplitz hash names; the others have
// a stack.Group put right what comes to the wrong queue. net_tap claims RSS, but what spreads there
// is the kernel, by a hash of its own.
func (p *Port) spreads() bool {
	return p.info.rss != 0 && p.driver() != "net_tap"
}

func (p *Port) driver() string { return C.GoString(&p.info.driver[0]) }

// Name returns the device's name as DPDK knows it.
func (p *Port) Name() string { return p.name }

// MAC returns the device's address, or Config.MAC.
func (p *Port) MAC() (mac [6]byte) {
	if p.cfg.MAC != mac {
		return p.cfg.MAC
	}
	for i := range mac {
		mac[i] = byte(p.info.mac[i])
	}
	return mac
}

// Caps says what was configured. RSSKey and RSSTable, of several queues where the device has a
// redirection table, are there once every queue is open.
func (p *Port) Caps() pmd.Caps {
	c := pmd.Caps{
		MTU:        p.cfg.MTU,
		Queues:     p.cfg.Queues,
		RxChecksum: p.conf.rx_checksum != 0,
		TxChecksum: p.conf.tx_checksum != 0,
		TxSegment:  p.conf.tx_segment != 0,
		OneThread:  true, // thread.c
	}
	if p.ownsVLAN() {
		c.VLAN = p.cfg.VLAN
	}
	if p.conf.table_size > 0 {
		for _, q := range p.conf.table[:p.conf.table_size] {
			c.RSSTable = append(c.RSSTable, uint16(q))
		}
		for _, b := range p.conf.key[:p.conf.key_size] {
			c.RSSKey = append(c.RSSKey, byte(b))
		}
	}
	return c
}

// Open sets up queue i over pool, which must lie in Config.Arena, serve no other DPDK queue and not
// have been used yet: the queue reserves Config.RxBufs of it. The device starts with its last
// queue.
func (p *Port) Open(i int, pool *mem.Pool) (pmd.Queue, error) {
	environment.Lock()
	defer environment.Unlock()
	switch {
	case p.closed:
		return nil, fmt.Errorf("dpdk: %s is closed", p.name)
	case i < 0 || i >= len(p.queues):
		return nil, fmt.Errorf("dpdk: %s has %d queues, there is no queue %d", p.name, len(p.queues), i)
	case p.queues[i] != nil:
		return nil, fmt.Errorf("dpdk: %s: queue %d is already open", p.name, i)
	}
	q, err := newQueue(p, i, pool)
	if err != nil {
		return nil, err
	}
	p.queues[i] = q
	if slices.Contains(p.queues, nil) {
		return q, nil
	}
	promiscuous := C.int(0)
	if p.cfg.Promiscuous {
		promiscuous = 1
	}
	if err := p.setMAC(); err != nil {
		return nil, err
	}
	if rc := C.rnic_port_start(p.id, &p.conf, promiscuous); rc < 0 {
		return nil, failed(p.name, "rte_eth_dev_start", rc)
	}
	p.started = true
	if err := p.setFlowControl(); err != nil {
		return nil, err
	}
	if _, ok := q.Interrupt(); p.cfg.Interrupts && !ok {
		return nil, fmt.Errorf("dpdk: %s (driver %s) has no receive interrupts: leave Interrupts off",
			p.name, p.driver())
	}
	return q, nil
}

// Stats asks the device. It may be slow; not for the packet path.
func (p *Port) Stats() PortStats {
	environment.Lock()
	defer environment.Unlock()
	return p.stats()
}

func (p *Port) stats() PortStats {
	var s C.struct_rnic_port_stats
	if p.closed || C.rnic_port_stats(p.id, &s) < 0 {
		return p.last
	}
	return PortStats{Missed: uint64(s.missed), NoMbuf: uint64(s.no_mbuf),
		RxErrors: uint64(s.rx_errors), TxErrors: uint64(s.tx_errors)}
}

// drainMax is how long Close waits for a peer that holds our frames.
const drainMax = time.Second

// Close stops the device and gives it up. Frames sent but not finished are lost. Bufs the device
// held are given back to their Pools; received ones that their owners still have stay valid. The
// Arena must stay mapped if Close returns an error that says so: somebody else still reads frames
// of ours.
func (p *Port) Close() error {
	p.link.stop()
	p.link = nil
	environment.Lock()
	defer environment.Unlock()
	if p.closed {
		return nil
	}
	var errs []error
	if p.started {
		p.last = p.stats()
		for _, q := range p.queues {
			C.rnic_queue_drain(q.c)
		}
		if rc := C.rnic_port_stop(p.id); rc < 0 {
			errs = append(errs, failed(p.name, "rte_eth_dev_stop", rc))
		}
	}
	if p.mapped {
		C.rnic_memory_dma_unmap(p.memory.c, p.id)
	}
	for _, m := range p.extra {
		p.unmap(m)
	}
	if err := p.unplug(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// unplug ends the device and frees what belongs to it.
func (p *Port) unplug() error {
	var errs []error
	p.closed = true
	if p.leavesXDP() {
		xdpLeft[p.name]++
	} else {
		vdev := C.CString(p.vdev)
		defer C.free(unsafe.Pointer(vdev))
		if rc := C.rnic_port_close(p.id, vdev); rc < 0 {
			errs = append(errs, failed(p.name, "rte_eth_dev_close", rc))
		}
	}
	p.closeXDP()
	delete(openPorts, p.name)
	if p.rings != nil {
		p.rings.drain()
	}
	held := 0
	for _, q := range p.queues {
		if q != nil {
			held += q.end()
		}
	}
	if p.rings != nil {
		p.rings.leave(p.name)
	}
	if held > 0 {
		// The peer's callbacks still need the queue's tables and the arena: both are left as they
		// are.
		return errors.Join(append(errs, fmt.Errorf("dpdk: %s: %d sent frames are still held by a peer: "+
			"keep the arena mapped", p.name, held))...)
	}
	if p.memory != nil {
		p.memory.release()
	}
	return errors.Join(errs...)
}

// await calls done until it says true or the time is up. For set-up and tear-down only.
func await(limit time.Duration, done func() bool) bool {
	for deadline := time.Now().Add(limit); !done(); runtime.Gosched() {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}
