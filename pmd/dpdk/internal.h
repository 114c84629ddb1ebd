// What the C files of package dpdk share. Everything here knows DPDK's types.

#ifndef RNIC_DPDK_INTERNAL_H
#define RNIC_DPDK_INTERNAL_H

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>
#include <rte_ring_elem.h>

#include "shim.h"

// struct rnic_memory is one arena, known to the EAL. In PA mode each page has an IOVA of its own;
// in VA mode the IOVA is the address.
struct rnic_memory {
	uint8_t *base;
	uint64_t len;
	uint64_t page;
	unsigned page_shift;
	int pa;
	rte_iova_t *iova; // one per page
};

static inline rte_iova_t
memory_iova(const struct rnic_memory *m, const void *addr)
{
	uint64_t off = (uint64_t)((const uint8_t *)addr - m->base);

	return m->iova[off >> m->page_shift] + (off & (m->page - 1));
}

// memory_contiguous: does a device see [addr, addr+len) as one piece? len > 0.
static inline int
memory_contiguous(const struct rnic_memory *m, const void *addr, uint64_t len)
{
	uint64_t off = (uint64_t)((const uint8_t *)addr - m->base);
	uint64_t page, last;

	if (!m->pa)
		return 1;
	last = (off + len - 1) >> m->page_shift;
	for (page = off >> m->page_shift; page < last; page++)
		if (m->iova[page] + m->page != m->iova[page + 1])
			return 0;
	return 1;
}

// Headers in front of a Buf's payload: Ethernet, two tags, IP and TCP with all options.
#define RNIC_HEAD_MAX 192

// struct rnic_queue is one receive/transmit queue pair. Its owner's thread calls rnic_rx and
// rnic_tx; only tx_free may run on another thread (a port that was handed our mbuf frees it), and
// only it touches `back` from there.
struct rnic_queue {
	uint16_t port, queue;
	uint8_t *slots;
	uint32_t stride, stride64; // octets, and units of 64 octets
	uint32_t nbufs;
	const struct rnic_memory *memory;

	struct rte_mempool *rx_pool; // data rooms are our Bufs [rx_first, rx_first+rx_bufs)
	uint32_t rx_first, rx_bufs, rx_usable;
	// what the device receives into; rx_pool, or ordinary mbufs to be copied
	struct rte_mempool *device_pool;
	struct rte_mbuf **rx_mbuf; // by Buf - rx_first: the mbuf of a Buf that is out of the mempool

	struct rte_mempool *tx_pool; // headers only
	struct rte_mbuf_ext_shared_info *shinfo; // by Buf
	struct rte_ring *back;   // Bufs finished with on another thread
	uint32_t outstanding;    // headers with the device
	uint32_t idle;           // Rx calls since the device was last asked to give headers back
	int no_cleanup;          // the device cannot be asked
	uint32_t refused;        // bursts in a row that the device took nothing of; read on other threads
	uint8_t tx_checksum, tx_segment, software_gso, copy_segment, chains, copy_ethernet;
	uint16_t vlan; // the device inserts and strips it, 0: none
	// ordinary mbufs for headers that precede a Buf, NULL: no frame has one
	struct rte_mempool *head_pool;
	uint32_t rx_room;

	uint64_t thread; // rnic_thread of the one that polled last, and its lcore id
	unsigned lcore;

	struct rte_mempool *bounce_pool; // ordinary mbufs, NULL when no frame needs one

	struct rnic_io io;
};

// This thread's number, never used twice; 0 before it first polls. A pthread_t may come again.
extern __thread uint64_t rnic_thread;

// The queue whose rnic_rx or rnic_tx runs on this thread.
extern __thread struct rnic_queue *rnic_current;

void rnic_tx_free(void *addr, void *opaque);

void rnic_thread_enter(struct rnic_queue *q);

// queue_enter and queue_leave stand around all that the owner's thread does.
static inline void
queue_enter(struct rnic_queue *q)
{
	if (unlikely(q->thread != rnic_thread))
		rnic_thread_enter(q);
	rnic_current = q;
	q->io.ndone = 0;
}

static inline void
queue_leave(void)
{
	rnic_current = NULL;
}

static inline uint32_t
queue_buf(const struct rnic_queue *q, const void *slot)
{
	return (uint32_t)((uint64_t)((const uint8_t *)slot - q->slots) >> 6) / q->stride64;
}

// queue_finish takes back what was finished on other threads. Owner's thread only.
static inline void
queue_finish(struct rnic_queue *q)
{
	struct rnic_io *io = &q->io;

	if (unlikely(!rte_ring_empty(q->back)))
		io->ndone += rte_ring_sc_dequeue_burst_elem(q->back, &io->done[io->ndone],
				sizeof(uint32_t), q->nbufs - io->ndone, NULL);
}

#endif
