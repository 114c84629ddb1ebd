// Package godpdk is a pmd.Port over github.com/yerden/go-dpdk: its eal, mempool, mbuf and ethdev,
// and no C of our own. It is a module by itself, because the public module proxy does not serve
// go-dpdk and what must build without it does not depend on it (docs/adr/0001-own-dpdk-binding.md).
// Driver registers it as --pmd godpdk.
//
// For service use pmd/dpdk. What go-dpdk has not costs a copy of each frame, both ways, and a call
// into C for each frame sent:
//
//   - pools of external buffers: a received frame is copied into a Buf, one to be sent out of its
//     Buf into an mbuf, so sent Bufs are finished with at once
//   - a setter for an mbuf's lengths: frames are appended, one call each
//   - hotplug: devices are named in the arguments that start the EAL
//   - DMA mapping and registration of threads: the mempool's own memory is what devices reach, and
//     Pollers work without mempool caches
//
// No offloads. Several queues where the device has them; it does not say how they spread.
package godpdk
