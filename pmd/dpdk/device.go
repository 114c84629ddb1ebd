//go:build dpdk

package dpdk

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Link asks the device; it does not wait. Most virtual devices are up for ever.
func (p *Port) Link() Link {
	environment.Lock()
	defer environment.Unlock()
	var l C.struct_rnic_port_link
	if p.closed || C.rnic_port_link(p.id, &l) < 0 {
		return Link{}
	}
	return Link{Up: l.up != 0, FullDuplex: l.full_duplex != 0, Mbps: int(l.mbps)}
}

// LinkUp says whether the device has a link.
func (p *Port) LinkUp() bool { return p.Link().Up }

// XStats are the driver's statistics. It may be slow; not for the packet path.
func (p *Port) XStats() ([]XStat, error) {
	environment.Lock()
	defer environment.Unlock()
	if p.closed {
		return nil, fmt.Errorf("dpdk: %s is closed", p.name)
	}
	for have := C.int(64); ; {
		x := make([]C.struct_rnic_xstat, have)
		n := C.rnic_port_xstats(p.id, &x[0], C.unsigned(have))
		if n < 0 {
			return nil, failed(p.name, "rte_eth_xstats_get", n)
		}
		if n > have {
			have = n
			continue
		}
		stats := make([]XStat, n)
		for i := range stats {
			stats[i] = XStat{C.GoString(&x[i].name[0]), uint64(x[i].value)}
		}
		return stats, nil
	}
}

const offloadsMax = 2048 // octets of their names

// Offloads are the names of those that are switched on, as DPDK has them, with rx: or tx: before.
func (p *Port) Offloads() []string {
	environment.Lock()
	defer environment.Unlock()
	text := make([]C.char, offloadsMax)
	if p.closed || C.rnic_port_offloads(p.id, &text[0], offloadsMax) < 0 {
		return nil
	}
	return strings.Fields(C.GoString(&text[0]))
}

// setMAC gives the device Config.MAC, before it starts.
func (p *Port) setMAC() error {
	if p.cfg.MAC == ([6]byte{}) {
		return nil
	}
	mac := cMAC(p.cfg.MAC)
	if rc := C.rnic_port_set_mac(p.id, &mac[0]); rc < 0 {
		return failed(p.name, "rte_eth_dev_default_mac_addr_set", rc)
	}
	return nil
}

func cMAC(mac [6]byte) (c [6]C.uint8_t) {
	for i, b := range mac {
		c[i] = C.uint8_t(b)
	}
	return c
}

// AddMAC has the device let frames to mac through as well.
func (p *Port) AddMAC(mac [6]byte) error { return p.filterMAC(mac, 1, "rte_eth_dev_mac_addr_add") }

// RemoveMAC ends what AddMAC began.
func (p *Port) RemoveMAC(mac [6]byte) error {
	return p.filterMAC(mac, 0, "rte_eth_dev_mac_addr_remove")
}

func (p *Port) filterMAC(mac [6]byte, add C.int, step string) error {
	environment.Lock()
	defer environment.Unlock()
	if p.closed {
		return fmt.Errorf("dpdk: %s is closed", p.name)
	}
	c := cMAC(mac)
	if rc := C.rnic_port_filter_mac(p.id, &c[0], add); rc < 0 {
		return failed(p.name, step, rc)
	}
	return nil
}

// setFlowControl gives the device Config.FlowControl, once it has started.
func (p *Port) setFlowControl() error {
	if p.cfg.FlowControl == "" {
		return nil
	}
	if rc := C.rnic_port_flow_control(
		p.id, C.int(slices.Index(flowControls, p.cfg.FlowControl))); rc < 0 {
		return failed(p.name, "rte_eth_dev_flow_ctrl_set "+p.cfg.FlowControl, rc)
	}
	return nil
}

// FlowControl asks the device for its mode, as in Config.
func (p *Port) FlowControl() (string, error) {
	environment.Lock()
	defer environment.Unlock()
	mode := C.int(-C.int(syscall.ENODEV))
	if !p.closed {
		mode = C.rnic_port_flow_control_mode(p.id)
	}
	if mode < 0 || int(mode) >= len(flowControls) {
		return "", failed(p.name, "rte_eth_dev_flow_ctrl_get", mode)
	}
	return flowControls[mode], nil
}

// Lost returns an error that is ErrGone if the device has been removed, or the kernel's interface
// under it. Frames sent then are lost, none comes, and only Close is of use. Any goroutine of the
// interface's network namespace.
func (p *Port) Lost() error {
	environment.Lock()
	defer environment.Unlock()
	if p.closed {
		return nil
	}
	if C.rnic_port_removed(p.id) == 1 {
		return fmt.Errorf("%w: %s was removed", ErrGone, p.name)
	}
	if p.info.if_index == 0 {
		return nil
	}
	if _, err := net.InterfaceByIndex(int(p.info.if_index)); err != nil && isNoInterface(err) {
		return fmt.Errorf("%w: %s: its interface, number %d, was deleted", ErrGone, p.name,
			p.info.if_index)
	}
	return nil
}

// isNoInterface tells an interface that is not there from a kernel that could not be asked.
func isNoInterface(err error) bool {
	return errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENXIO) ||
		strings.Contains(err.Error(), "no such network interface")
}

// Stuck looks which queues have taken no frame that was offered, from one look to another, for at
// least so long. Look about once a second: now is the time of the look.
func (p *Port) Stuck(now time.Time, atLeast time.Duration) (queues []int) {
	environment.Lock()
	defer environment.Unlock()
	if p.stuck == nil {
		p.stuck = map[int]time.Time{}
	}
	for i, q := range p.queues {
		if p.closed || q == nil || q.c == nil || C.rnic_queue_refused(q.c) == 0 {
			delete(p.stuck, i)
			continue
		}
		since, known := p.stuck[i]
		if !known {
			p.stuck[i], since = now, now
		}
		if now.Sub(since) >= atLeast {
			queues = append(queues, i)
		}
	}
	return queues
}

// Interrupt implements pmd.Interrupter: the descriptor that becomes readable when a frame comes.
func (q *Queue) Interrupt() (fd int, ok bool) {
	if !q.port.cfg.Interrupts || q.c == nil {
		return -1, false
	}
	rc := C.rnic_queue_interrupt_fd(q.c)
	return int(rc), rc >= 0
}

// Arm implements pmd.Interrupter.
func (q *Queue) Arm(on bool) {
	if q.c == nil {
		return
	}
	arm := C.int(0)
	if on {
		arm = 1
	}
	C.rnic_queue_interrupt(q.c, arm)
}
