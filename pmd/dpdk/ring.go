//go:build dpdk

package dpdk

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"math/bits"
	"unsafe"
)

// netRing is the driver of a RingPair's ports.
const netRing = "net_ring"

// ringPair is the rings between two ports, until both are closed.
type ringPair struct {
	rings  [2 * ringQueuesMax]unsafe.Pointer // a's receive rings, b's
	queues C.uint
	names  map[string]bool // ports that were not closed yet
}

// ringPairs are those in use, by either port's name. Under environment's lock.
var ringPairs = map[string]*ringPair{}

// RingPair is ringPairQueues with one queue.
func RingPair(name string, entries int) (a, b string, err error) {
	return ringPairQueues(name, entries, 1)
}

// ringPairQueues makes two ports joined back to back by DPDK rings, a and b, to be opened as
// Config.Vdev: a network of two inside one process that needs no device and no privilege. What
// one sends on a queue the other receives on its queue of that number. entries, a power of two,
// bounds the frames on their way, each way and queue. The ports claim checksum offload, unless
// opened with Config.NoOffload: checksums are left out, as nothing is damaged on the way. The EAL
// must run (Init).
func ringPairQueues(name string, entries, queues int) (a, b string, err error) {
	environment.Lock()
	defer environment.Unlock()
	if !environment.tried || environment.err != nil {
		return "", "", fmt.Errorf("dpdk: RingPair %q before the EAL has started: call Init", name)
	}
	if entries < 2 || entries > ringMax || bits.OnesCount(uint(entries)) != 1 || name == "" ||
		len(name) > 12 {
		return "", "", fmt.Errorf("dpdk: RingPair %q, %d entries: want a name of 1 to 12 letters and a "+
			"power of two up to %d", name, entries, ringMax)
	}
	a, b = "net_ring_"+name+"_a", "net_ring_"+name+"_b"
	if queues < 1 || queues > ringQueuesMax {
		return "", "", fmt.Errorf("dpdk: RingPair %q of %d queues: want 1 to %d", name, queues,
			ringQueuesMax)
	}
	if ringPairs[a] != nil {
		return "", "", fmt.Errorf("dpdk: RingPair %q exists", name)
	}
	ca, cb := C.CString(name+"_a"), C.CString(name+"_b")
	defer C.free(unsafe.Pointer(ca))
	defer C.free(unsafe.Pointer(cb))
	r := &ringPair{queues: C.uint(queues), names: map[string]bool{a: true, b: true}}
	if rc := C.rnic_ring_pair(ca, cb, C.uint(entries), r.queues, &r.rings[0]); rc < 0 {
		return "", "", failed(a, "rte_eth_from_rings", rc)
	}
	ringPairs[a], ringPairs[b] = r, r
	return a, b, nil
}

// drain frees what waits in the rings, both ways: a cut link loses it.
func (r *ringPair) drain() { C.rnic_ring_drain(&r.rings[0], r.queues) }

// leave forgets a closed port; the second takes the rings with it.
func (r *ringPair) leave(name string) {
	delete(r.names, name)
	delete(ringPairs, name)
	if len(r.names) > 0 {
		return
	}
	C.rnic_ring_free(&r.rings[0], r.queues)
}
