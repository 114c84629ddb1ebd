//go:build dpdk

// A queue pair's memory: mempools over the arena, the tables by Buf, and how they end.

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>

#include "internal.h"

// An mbuf's buf_len is 16 bits wide; a larger stride is used in part.
#define ROOM_MAX (UINT16_MAX & ~63u)

#define MEMPOOL_CACHE 64u

__thread struct rnic_queue *rnic_current;

struct chosen {
	struct rnic_queue *q;
	struct rte_mbuf **good;
	uint32_t n;
};

// room is what an mbuf may use of a slot.
static uint32_t
room(const struct rnic_queue *q)
{
	return RTE_MIN(q->stride, ROOM_MAX);
}

// rx_room is what the device may fill of a slot.
static uint32_t
rx_room(const struct rnic_queue *q)
{
	return q->rx_room == 0 ? room(q) : RTE_MIN(q->rx_room + RTE_PKTMBUF_HEADROOM, room(q));
}

// choose_rx gives a receive mbuf its own IOVA, and keeps it if the device sees its slot as one
// piece.
static void
choose_rx(struct rte_mempool *mp, void *arg, void *obj, unsigned idx)
{
	struct chosen *c = arg;
	struct rte_mbuf *m = obj;

	(void)mp;
	(void)idx;
	if (!memory_contiguous(c->q->memory, m->buf_addr, m->buf_len))
		return;
	m->buf_iova = memory_iova(c->q->memory, m->buf_addr);
	c->good[c->n++] = m;
}

// new_rx_pool makes the receive mempool over Bufs [rx_first, rx_first+rx_bufs). In PA mode a slot
// may lie across two pages that are no neighbours for the device: its mbuf stays out of the mempool
// for good.
static int
new_rx_pool(struct rnic_queue *q, const char *name, int socket)
{
	struct rte_pktmbuf_extmem mem;
	struct chosen c = { .q = q };
	struct rte_mbuf **all;
	int err = 0;

	memset(&mem, 0, sizeof(mem));
	mem.buf_ptr = q->slots + (uint64_t)q->rx_first * q->stride;
	mem.buf_iova = memory_iova(q->memory, mem.buf_ptr);
	mem.buf_len = (size_t)q->rx_bufs * q->stride;
	mem.elt_size = q->stride;
	q->rx_pool = rte_pktmbuf_pool_create_extbuf(name, q->rx_bufs,
						    RTE_MIN(MEMPOOL_CACHE, q->rx_bufs / 8), 0,
						    rx_room(q), socket, &mem, 1);
	if (q->rx_pool == NULL)
		return -rte_errno;
	all = calloc(2 * (size_t)q->rx_bufs, sizeof(*all));
	if (all == NULL)
		return -ENOMEM;
	c.good = all + q->rx_bufs;
	rte_mempool_obj_iter(q->rx_pool, choose_rx, &c);
	if (rte_mempool_generic_get(q->rx_pool, (void **)all, q->rx_bufs, NULL) < 0)
		err = -ENOBUFS;
	else
		rte_mempool_generic_put(q->rx_pool, (void **)c.good, c.n, NULL);
	q->rx_usable = c.n;
	free(all);
	return err;
}

// new_tx_pools makes the mempool of headers, and one of whole mbufs if any slot is in two pieces or
// the driver cannot cut external buffers.
static int
new_tx_pools(struct rnic_queue *q, const char *name, const char *bounce, uint32_t n, int socket)
{
	uint32_t i, split = 0;

	q->tx_pool = rte_pktmbuf_pool_create(name, n, MEMPOOL_CACHE, 0, 0, socket);
	if (q->tx_pool == NULL)
		return -rte_errno;
	for (i = 0; i < q->nbufs; i++)
		if (!memory_contiguous(q->memory, q->slots + (uint64_t)i * q->stride, q->stride))
			split++;
	if (q->copy_segment)
		split = q->nbufs;
	if (split == 0)
		return 0;
	q->bounce_pool = rte_pktmbuf_pool_create(bounce, RTE_MIN(n, 2 * split + RNIC_BURST), 0, 0,
						 room(q), socket);
	return q->bounce_pool == NULL ? -rte_errno : 0;
}

// new_device_pool makes ordinary mbufs for a driver that takes the mempool's own memory for the
// packets' (net_af_xdp lets the kernel write there).
static int
new_device_pool(struct rnic_queue *q, const char *name, const struct rnic_queue_conf *conf)
{
	q->device_pool = q->rx_pool;
	if (!conf->copy_receive)
		return 0;
	q->device_pool = rte_pktmbuf_pool_create(name, 4u * conf->rx_desc + 4 * RNIC_BURST,
						 MEMPOOL_CACHE, 0, room(q), conf->socket);
	return q->device_pool == NULL ? -rte_errno : 0;
}

// new_head_pool makes mbufs for headers in front of payload that stays in its Buf. As many as there
// are for Bufs: no frame has a head without at least one of those.
static int
new_head_pool(struct rnic_queue *q, const char *name, uint32_t n, int socket)
{
	if (!q->chains || !(q->tx_segment || q->copy_ethernet))
		return 0;
	q->head_pool = rte_pktmbuf_pool_create(name, n, MEMPOOL_CACHE, 0,
					       RTE_PKTMBUF_HEADROOM + RNIC_HEAD_MAX, socket);
	return q->head_pool == NULL ? -rte_errno : 0;
}

static int
new_tables(struct rnic_queue *q, const char *name, int socket)
{
	uint32_t i;

	q->rx_mbuf = calloc(q->rx_bufs, sizeof(*q->rx_mbuf));
	q->shinfo = calloc(q->nbufs, sizeof(*q->shinfo));
	q->io.done = calloc(q->nbufs, sizeof(*q->io.done));
	if (q->rx_mbuf == NULL || q->shinfo == NULL || q->io.done == NULL)
		return -ENOMEM;
	for (i = 0; i < q->nbufs; i++) {
		q->shinfo[i].free_cb = rnic_tx_free;
		q->shinfo[i].fcb_opaque = q;
	}
	q->back = rte_ring_create_elem(name, sizeof(uint32_t), q->nbufs, socket,
				       RING_F_SC_DEQ | RING_F_EXACT_SZ);
	return q->back == NULL ? -rte_errno : 0;
}

// rnic_queue_new sets up queue conf->queue of a configured, stopped port. On failure *step says
// where.
struct rnic_queue *
rnic_queue_new(const struct rnic_queue_conf *conf, int *err, const char **step)
{
	static unsigned serial; // callers hold package dpdk's lock
	struct rnic_queue *q;
	char device[RTE_MEMPOOL_NAMESIZE], rx[RTE_MEMPOOL_NAMESIZE], tx[RTE_MEMPOOL_NAMESIZE],
		bounce[RTE_MEMPOOL_NAMESIZE];
	char head[RTE_MEMPOOL_NAMESIZE], back[RTE_RING_NAMESIZE];
	uint32_t headers = 2u * conf->tx_desc + 4 * RNIC_BURST;

	serial++;
	snprintf(device, sizeof(device), "rnic_device_%u", serial);
	snprintf(rx, sizeof(rx), "rnic_rx_%u", serial);
	snprintf(tx, sizeof(tx), "rnic_tx_%u", serial);
	snprintf(bounce, sizeof(bounce), "rnic_bounce_%u", serial);
	snprintf(head, sizeof(head), "rnic_head_%u", serial);
	snprintf(back, sizeof(back), "rnic_back_%u", serial);
	*step = "allocate";
	q = aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_ALIGN_CEIL(sizeof(*q), RTE_CACHE_LINE_SIZE));
	if (q == NULL) {
		*err = -ENOMEM;
		return NULL;
	}
	memset(q, 0, sizeof(*q));
	q->port = conf->port;
	q->queue = conf->queue;
	q->slots = (uint8_t *)conf->slots;
	q->stride = conf->stride;
	q->stride64 = conf->stride >> 6;
	q->nbufs = conf->nbufs;
	q->memory = conf->memory;
	q->rx_first = conf->rx_first;
	q->rx_bufs = conf->rx_bufs;
	q->thread = UINT64_MAX; // none
	q->lcore = LCORE_ID_ANY;
	q->tx_checksum = conf->tx_checksum;
	q->tx_segment = conf->tx_segment;
	q->chains = conf->chains;
	q->software_gso = conf->software_gso;
	q->copy_segment = conf->software_gso && !conf->chains;
	q->copy_ethernet = conf->copy_ethernet;
	q->vlan = conf->vlan;
	q->rx_room = conf->rx_room;

	if ((*err = new_tables(q, back, conf->socket)) < 0)
		goto fail;
	*step = "receive mempool";
	if ((*err = new_rx_pool(q, rx, conf->socket)) < 0)
		goto fail;
	if ((*err = new_device_pool(q, device, conf)) < 0)
		goto fail;
	*step = "transmit mempools";
	if ((*err = new_tx_pools(q, tx, bounce, headers, conf->socket)) < 0)
		goto fail;
	if ((*err = new_head_pool(q, head, headers, conf->socket)) < 0)
		goto fail;
	*step = "rte_eth_rx_queue_setup";
	if ((*err = rte_eth_rx_queue_setup(q->port, q->queue, conf->rx_desc, conf->socket, NULL,
					   q->device_pool)) < 0)
		goto fail;
	*step = "rte_eth_tx_queue_setup";
	if ((*err = rte_eth_tx_queue_setup(q->port, q->queue, conf->tx_desc, conf->socket, NULL)) < 0)
		goto fail;
	return q;
fail:
	rnic_queue_free(q);
	return NULL;
}

struct rnic_io *
rnic_queue_io(struct rnic_queue *q)
{
	return &q->io;
}

uint32_t
rnic_queue_rx_usable(const struct rnic_queue *q)
{
	return q->rx_usable;
}

// rnic_queue_gathers: a frame that must be copied before it is sent is no part of a run.
uint32_t
rnic_queue_gathers(const struct rnic_queue *q)
{
	return q->tx_segment && q->head_pool != NULL && q->bounce_pool == NULL;
}

uint32_t
rnic_queue_outstanding(const struct rnic_queue *q)
{
	return q->outstanding;
}

// rnic_queue_drain empties a started queue, so that mbufs of others do not stay with us: a software
// ring keeps what was not received.
void
rnic_queue_drain(struct rnic_queue *q)
{
	struct rte_mbuf *mb[32];
	unsigned turns = 4096; // a device under traffic never runs dry
	uint16_t n;

	do {
		n = rte_eth_rx_burst(q->port, q->queue, mb, RTE_DIM(mb));
		rte_pktmbuf_free_bulk(mb, n);
	} while (n > 0 && --turns > 0);
	(void)rte_eth_tx_done_cleanup(q->port, q->queue, 0);
}

// rnic_queue_collect fills io->done outside of rnic_rx and rnic_tx, once the device has stopped.
void
rnic_queue_collect(struct rnic_queue *q)
{
	q->io.ndone = 0;
	queue_finish(q);
	q->outstanding -= q->io.ndone;
}

// rnic_queue_free needs a closed port and no header outstanding: a late rnic_tx_free would find
// nothing.
void
rnic_queue_free(struct rnic_queue *q)
{
	if (q->device_pool != q->rx_pool)
		rte_mempool_free(q->device_pool);
	rte_mempool_free(q->rx_pool);
	rte_mempool_free(q->tx_pool);
	rte_mempool_free(q->bounce_pool);
	rte_mempool_free(q->head_pool);
	rte_ring_free(q->back);
	free(q->rx_mbuf);
	free(q->shinfo);
	free(q->io.done);
	free(q);
}
