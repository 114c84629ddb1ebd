//go:build dpdk

// One transmit burst, in one call from Go:
//
//   1. an mbuf per frame, the Buf's slot attached to it as external buffer; before a run of
//   segments for the
//      device to cut, one with a copy of their common headers
//   2. offload fields; rte_eth_tx_prepare if there are any
//   3. rte_eth_tx_burst
//   4. headers of frames not taken are freed at once
//   5. Bufs the device has finished with
//
// Go holds every Buf of the burst for the device before the call. Each of them comes back through
// io->done exactly once, in this call or a later one.

#include <errno.h>
#include <string.h>

#include <rte_ip.h>
#include <rte_tcp.h>
#include <rte_udp.h>

#include "internal.h"

// rnic_tx_free is the shared info's callback: the last mbuf over a Buf is gone. On the owner's
// thread, inside rnic_rx or rnic_tx, the Buf goes straight to the list; from elsewhere, over the
// ring, which has room for every Buf.
void
rnic_tx_free(void *addr, void *opaque)
{
	struct rnic_queue *q = opaque;
	uint32_t buf = queue_buf(q, addr);

	if (likely(rnic_current == q))
		q->io.done[q->io.ndone++] = buf;
	else
		(void)rte_ring_mp_enqueue_elem(q->back, &buf, sizeof(buf));
}

// attach makes m the frame in f's Buf.
static void
attach(struct rnic_queue *q, struct rte_mbuf *m, const struct rnic_tx_frame *f)
{
	uint8_t *slot = q->slots + (uint64_t)f->buf * q->stride;
	struct rte_mbuf_ext_shared_info *shinfo = &q->shinfo[f->buf];

	rte_mbuf_ext_refcnt_set(shinfo, 1);
	rte_pktmbuf_attach_extbuf(m, slot, memory_iova(q->memory, slot),
				  (uint16_t)RTE_MIN(q->stride, (uint32_t)UINT16_MAX), shinfo);
	m->data_off = (uint16_t)f->off;
	m->data_len = (uint16_t)f->len;
	m->pkt_len = f->len;
}

// bounce replaces m by an ordinary mbuf with a copy of the frame. The Buf is finished with at once.
static struct rte_mbuf *
bounce(struct rnic_queue *q, struct rte_mbuf *m, const struct rnic_tx_frame *f)
{
	struct rte_mbuf *own = rte_pktmbuf_alloc(q->bounce_pool);

	if (own == NULL)
		return NULL;
	if (f->len > rte_pktmbuf_tailroom(own)) {
		rte_pktmbuf_free(own);
		return NULL;
	}
	memcpy(rte_pktmbuf_mtod(own, void *), q->slots + (uint64_t)f->buf * q->stride + f->off, f->len);
	own->data_len = (uint16_t)f->len;
	own->pkt_len = f->len;
	rte_pktmbuf_free(m);
	q->io.done[q->io.ndone++] = f->buf;
	q->io.bounced++;
	return own;
}

// offload translates mem.TxChecksum and mem.TxSegment into mbuf fields. The transport header begins
// at CsumStart; what lies before it is Ethernet, up to two VLAN tags, and the IP header. Returns 0
// when the frame's headers do not fit what was asked, or the port was not configured to do it.
static int
offload(const struct rnic_queue *q, struct rte_mbuf *m, const struct rnic_tx_frame *f)
{
	uint8_t *p = rte_pktmbuf_mtod(m, uint8_t *);
	uint32_t l2 = RTE_ETHER_HDR_LEN;
	uint16_t type;

	if (f->len < f->csum_start || f->csum_start < RTE_ETHER_HDR_LEN + sizeof(struct rte_ipv4_hdr))
		return 0;
	type = (uint16_t)(p[l2 - 2] << 8 | p[l2 - 1]);
	while ((type == RTE_ETHER_TYPE_VLAN || type == RTE_ETHER_TYPE_QINQ) && l2 < 22) {
		l2 += 4;
		type = (uint16_t)(p[l2 - 2] << 8 | p[l2 - 1]);
	}
	if (f->csum_start < l2 + sizeof(struct rte_ipv4_hdr))
		return 0;
	m->l2_len = l2;
	m->l3_len = f->csum_start - l2;
	if (type == RTE_ETHER_TYPE_IPV4)
		m->ol_flags |= RTE_MBUF_F_TX_IPV4;
	else if (type == RTE_ETHER_TYPE_IPV6)
		m->ol_flags |= RTE_MBUF_F_TX_IPV6;
	else
		return 0;
	if (f->flags & RNIC_TX_SEGMENT) {
		if (q->software_gso && type != RTE_ETHER_TYPE_IPV4)
			return 0;
		if (!q->tx_segment || f->hdr_len < f->csum_start + sizeof(struct rte_tcp_hdr) ||
		    f->hdr_len > f->len || f->gso_size == 0)
			return 0;
		m->l4_len = f->hdr_len - f->csum_start;
		m->tso_segsz = f->gso_size;
		m->ol_flags |= RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_TCP_CKSUM;
		if (type == RTE_ETHER_TYPE_IPV4)
			m->ol_flags |= RTE_MBUF_F_TX_IP_CKSUM;
		return 1;
	}
	if (!q->tx_checksum)
		return 0;
	if (f->csum_offset == offsetof(struct rte_tcp_hdr, cksum)) {
		m->l4_len = sizeof(struct rte_tcp_hdr);
		m->ol_flags |= RTE_MBUF_F_TX_TCP_CKSUM;
	} else if (f->csum_offset == offsetof(struct rte_udp_hdr, dgram_cksum)) {
		m->l4_len = sizeof(struct rte_udp_hdr);
		m->ol_flags |= RTE_MBUF_F_TX_UDP_CKSUM;
	} else {
		return 0;
	}
	return f->len >= f->csum_start + m->l4_len;
}

// takes_slot: can the device read f from its slot?
static int
takes_slot(const struct rnic_queue *q, const struct rnic_tx_frame *f)
{
	if ((f->flags & RNIC_TX_SEGMENT) && q->copy_segment)
		return 0;
	return memory_contiguous(q->memory, q->slots + (uint64_t)f->buf * q->stride, f->off + f->len);
}

// put_head copies the first hdr octets of a frame into an mbuf of their own, which the n mbufs m
// follow, each with what comes after its own first hdr octets. NULL: there is no mbuf.
static struct rte_mbuf *
put_head(struct rnic_queue *q, struct rte_mbuf **m, uint32_t n, uint32_t hdr)
{
	struct rte_mbuf *head = rte_pktmbuf_alloc(q->head_pool), *last = head;
	uint32_t i;

	if (head == NULL)
		return NULL;
	memcpy(rte_pktmbuf_mtod(head, void *), rte_pktmbuf_mtod(m[0], void *), hdr);
	head->data_len = hdr;
	head->pkt_len = hdr;
	for (i = 0; i < n; i++) {
		m[i]->data_off += hdr;
		m[i]->data_len -= hdr;
		head->pkt_len += m[i]->data_len;
		head->nb_segs++;
		last->next = m[i];
		last = m[i];
	}
	return head;
}

// lead makes head's headers those of all that follows: its length, the flags of the last segment,
// and the sum that a device wants to find (RTE_MBUF_F_TX_TCP_SEG: of the pseudo-header without the
// length).
static void
lead(struct rte_mbuf *head, const struct rnic_tx_frame *f)
{
	struct rte_tcp_hdr *tcp = rte_pktmbuf_mtod_offset(head, struct rte_tcp_hdr *, f->csum_start);
	void *ip = rte_pktmbuf_mtod_offset(head, void *, head->l2_len);

	tcp->tcp_flags |= (uint8_t)f->run_flags;
	if (head->ol_flags & RTE_MBUF_F_TX_IPV4) {
		struct rte_ipv4_hdr *v4 = ip;

		v4->total_length = rte_cpu_to_be_16((uint16_t)(head->pkt_len - head->l2_len));
		v4->hdr_checksum = 0;
		tcp->cksum = rte_ipv4_phdr_cksum(v4, head->ol_flags);
	} else {
		struct rte_ipv6_hdr *v6 = ip;

		v6->payload_len = rte_cpu_to_be_16((uint16_t)(head->pkt_len - head->l2_len - sizeof(*v6)));
		tcp->cksum = rte_ipv6_phdr_cksum(v6, head->ol_flags);
	}
}

// drop frees n mbufs with their Bufs attached.
static struct rte_mbuf *
drop(struct rte_mbuf **m, uint32_t n)
{
	rte_pktmbuf_free_bulk(m, n);
	return NULL;
}

// build_cut makes of n frames from f on one that the device cuts into these again, m with their
// Bufs attached. A driver that cuts in software (librte_gso) wants the headers in an mbuf of its
// own anyway: it crashes when it has copied the flags of an external buffer (seen with 22.11).
static struct rte_mbuf *
build_cut(struct rnic_queue *q, struct rte_mbuf **m, const struct rnic_tx_frame *f, uint32_t n)
{
	struct rte_mbuf *head;

	if (f->hdr_len > RNIC_HEAD_MAX || f->hdr_len >= f->len ||
	    (head = put_head(q, m, n, f->hdr_len)) == NULL)
		return drop(m, n);
	if (!offload(q, head, f)) {
		rte_pktmbuf_free(head);
		return NULL;
	}
	lead(head, f);
	q->io.runs += n > 1;
	return head;
}

// build turns n frames from f on into one mbuf, m with the Bufs attached or a bounced one. NULL:
// they cannot be sent.
static struct rte_mbuf *
build(struct rnic_queue *q, struct rte_mbuf **m, const struct rnic_tx_frame *f, uint32_t n)
{
	struct rte_mbuf *one = m[0];
	uint32_t i;

	if (unlikely(q->bounce_pool != NULL) && !takes_slot(q, f)) {
		one = bounce(q, m[0], f);
		if (one == NULL) {
			rte_pktmbuf_free(m[0]);
			q->io.done[q->io.ndone++] = f->buf;
			return NULL;
		}
	} else {
		for (i = 0; i < n; i++)
			attach(q, m[i], &f[i]);
		if (unlikely((f->flags & RNIC_TX_SEGMENT) && q->head_pool != NULL))
			return build_cut(q, m, f, n);
		if (q->copy_ethernet) {
			if (f->len <= RTE_ETHER_HDR_LEN || (one = put_head(q, m, 1, RTE_ETHER_HDR_LEN)) == NULL)
				return drop(m, 1);
		}
	}
	if (unlikely((f->flags & (RNIC_TX_CHECKSUM | RNIC_TX_SEGMENT)) && !offload(q, one, f))) {
		rte_pktmbuf_free(one);
		return NULL;
	}
	return one;
}

#define REFUSED 0xff // of a frame's number: rte_eth_tx_prepare would not have it

// hand_over gives n mbufs to the device. One that rte_eth_tx_prepare refuses is skipped, for the
// device would never take it, and marked.
static uint32_t
hand_over(struct rnic_queue *q, struct rte_mbuf **mb, uint8_t *at, uint32_t n, int prepare)
{
	uint32_t i = 0;

	if (likely(!prepare))
		return rte_eth_tx_burst(q->port, q->queue, mb, (uint16_t)n);
	while (i < n) {
		uint16_t ready = rte_eth_tx_prepare(q->port, q->queue, mb + i, (uint16_t)(n - i));
		uint16_t sent = rte_eth_tx_burst(q->port, q->queue, mb + i, ready);

		i += sent;
		if (sent < ready || i == n)
			break;
		rte_pktmbuf_free(mb[i]);
		at[i++] = REFUSED;
	}
	return i;
}

// count adds up what the device took: of mbufs that it cuts, the frames they were made of.
static uint32_t
count(struct rnic_io *io, const uint8_t *at, uint32_t sent)
{
	uint32_t i, k, frames = 0;

	for (i = 0; i < sent; i++) {
		uint32_t run;

		if (unlikely(at[i] == REFUSED))
			continue;
		run = RTE_MAX(io->tx[at[i]].run, 1u);
		for (k = 0; k < run; k++)
			io->tx_octets += io->tx[at[i] + k].len;
		frames += run;
	}
	io->tx_frames += frames;
	return frames;
}

uint32_t
rnic_tx(struct rnic_queue *q, uint32_t n)
{
	struct rnic_io *io = &q->io;
	struct rte_mbuf *header[RNIC_BURST], *mb[RNIC_BURST];
	uint32_t i, run, built = 0, sent = 0, taken = n;
	uint8_t at[RNIC_BURST]; // frame of each mbuf
	int flags = 0;

	queue_enter(q);
	q->idle = 0;
	if (unlikely(rte_pktmbuf_alloc_bulk(q->tx_pool, header, n) < 0)) {
		// More headers are out than the device has descriptors for: it is full, whatever it says.
		for (i = 0; i < n; i++)
			io->done[io->ndone++] = io->tx[i].buf;
		(void)rte_eth_tx_done_cleanup(q->port, q->queue, 0);
		q->outstanding += n;
		taken = 0;
		goto out;
	}
	for (i = 0; i < n; i += run) {
		struct rte_mbuf *m;

		run = RTE_MAX(io->tx[i].run, 1u);
		flags |= io->tx[i].flags;
		m = build(q, &header[i], &io->tx[i], run);
		if (unlikely(m == NULL))
			continue;
		if (q->vlan != 0) {
			m->ol_flags |= RTE_MBUF_F_TX_VLAN;
			m->vlan_tci = q->vlan;
		}
		at[built] = (uint8_t)i;
		mb[built++] = m;
	}
	sent = hand_over(q, mb, at, built, flags & (RNIC_TX_CHECKSUM | RNIC_TX_SEGMENT));
	if (unlikely(sent < built)) {
		taken = at[sent];
		rte_pktmbuf_free_bulk(mb + sent, built - sent);
	}
	q->outstanding += n;
	io->tx_errors +=
		taken -
		count(io, at, sent); // of the prefix, those that build or the device gave up
out:
	io->tx_full += n - taken;
	if (unlikely(taken == 0))
		__atomic_store_n(&q->refused, q->refused + 1, __ATOMIC_RELAXED);
	else if (unlikely(q->refused != 0))
		__atomic_store_n(&q->refused, 0, __ATOMIC_RELAXED);
	queue_finish(q);
	q->outstanding -= io->ndone;
	queue_leave();
	return taken;
}
