//go:build dpdk

// One receive burst, in one call from Go:
//
//   1. mbufs of Bufs that were freed go back to the mempool the device fills from
//   2. rte_eth_rx_burst
//   3. foreign and chained mbufs are copied into one of ours
//   4. handle, offset, length and checksum verdict of each frame
//   5. sent Bufs the device has finished with

#include <rte_ip.h>
#include <rte_tcp.h>
#include <rte_udp.h>

#include "internal.h"

// Rx calls with sent Bufs outstanding before the device is asked for them. Drivers free sent mbufs
// when they send; without this a Buf that waits for its retransmission would wait for other
// traffic.
#define IDLE_MAX 64

static void
give_back(struct rnic_queue *q)
{
	struct rnic_io *io = &q->io;
	struct rte_mbuf *mb[RNIC_RETURN];
	uint32_t i;

	for (i = 0; i < io->nreturned; i++) {
		struct rte_mbuf **slot = &q->rx_mbuf[io->returned[i] - q->rx_first];

		mb[i] = *slot;
		*slot = NULL;
	}
	// Each is one segment with one reference: no other kind enters rx_mbuf.
	rte_mempool_put_bulk(q->rx_pool, (void **)mb, io->nreturned);
	io->nreturned = 0;
}

// copy_in moves a frame into an mbuf of ours. Foreign ones come from net_ring, which passes on the
// sender's mbuf; chains from a device that scatters. A sender at the other end of a ring that has
// left the checksum out says so in the flags of a frame to be sent: it is good, and f says where it
// belongs.
static struct rte_mbuf *
copy_in(struct rnic_queue *q, struct rte_mbuf *m, struct rnic_rx_frame *f)
{
	uint64_t l4 = m->ol_flags & RTE_MBUF_F_TX_L4_MASK;
	struct rte_mbuf *own, *seg;
	uint8_t *to;

	own = rte_pktmbuf_alloc(q->rx_pool);
	if (own == NULL) {
		q->io.rx_no_buf++;
		goto out;
	}
	if (m->pkt_len > RTE_MIN(q->stride, (uint32_t)UINT16_MAX) -
				 own->data_off) { // the slot, which may be longer than buf_len
		q->io.rx_too_long++;
		rte_pktmbuf_free(own);
		own = NULL;
		goto out;
	}
	to = rte_pktmbuf_mtod(own, uint8_t *);
	for (seg = m; seg != NULL; seg = seg->next) {
		memcpy(to, rte_pktmbuf_mtod(seg, void *), seg->data_len);
		to += seg->data_len;
	}
	own->data_len = m->pkt_len;
	own->pkt_len = m->pkt_len;
	own->ol_flags |= m->ol_flags & (RTE_MBUF_F_RX_IP_CKSUM_MASK | RTE_MBUF_F_RX_L4_CKSUM_MASK |
					RTE_MBUF_F_RX_VLAN_STRIPPED);
	own->vlan_tci = m->vlan_tci;
	if (l4 == RTE_MBUF_F_TX_TCP_CKSUM || l4 == RTE_MBUF_F_TX_UDP_CKSUM) {
		own->ol_flags |= RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
		f->csum_start = (uint16_t)(m->l2_len + m->l3_len);
		f->csum_offset = l4 == RTE_MBUF_F_TX_TCP_CKSUM
					 ? offsetof(struct rte_tcp_hdr, cksum)
					 : offsetof(struct rte_udp_hdr, dgram_cksum);
	}
	q->io.copied++;
out:
	rte_pktmbuf_free(m);
	return own;
}

// is_ipv6 looks past up to two VLAN tags: IPv6 has no header checksum, so the device says nothing
// of it.
static int
is_ipv6(const struct rte_mbuf *m)
{
	const uint8_t *p = rte_pktmbuf_mtod(m, const uint8_t *);
	uint32_t at = 12;

	while (at + 2 <= m->data_len && at <= 20) {
		uint16_t type = (uint16_t)(p[at] << 8 | p[at + 1]);

		if (type != RTE_ETHER_TYPE_VLAN && type != RTE_ETHER_TYPE_QINQ)
			return type == RTE_ETHER_TYPE_IPV6;
		at += 4;
	}
	return 0;
}

static uint32_t
verdict(const struct rte_mbuf *m)
{
	uint64_t ip = m->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;
	uint64_t l4 = m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;

	if (ip == RTE_MBUF_F_RX_IP_CKSUM_BAD || l4 == RTE_MBUF_F_RX_L4_CKSUM_BAD)
		return RNIC_RX_CHECKSUM_BAD;
	if (l4 == RTE_MBUF_F_RX_L4_CKSUM_GOOD && (ip == RTE_MBUF_F_RX_IP_CKSUM_GOOD || is_ipv6(m)))
		return RNIC_RX_CHECKSUM_GOOD;
	return 0;
}

// of_vlan says whether m is a frame that the stack is to see. On a port with a VLAN of its own
// those are the frames of this VLAN, without their tag. On another one a tag that the device took
// off, which some do unasked, is put back; without the headroom for that the frame is lost.
static int
of_vlan(struct rnic_queue *q, struct rte_mbuf *m)
{
	uint8_t *p;
	int stripped = (m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0;

	if (q->vlan != 0) {
		if (stripped && (m->vlan_tci & 0xfff) == q->vlan)
			return 1;
		q->io.other_vlan++;
		return 0;
	}
	if (!stripped)
		return 1;
	if (m->data_off < sizeof(struct rte_vlan_hdr) || m->data_len < RTE_ETHER_HDR_LEN) {
		q->io.other_vlan++;
		return 0;
	}
	m->data_off -= sizeof(struct rte_vlan_hdr);
	m->data_len += sizeof(struct rte_vlan_hdr);
	p = rte_pktmbuf_mtod(m, uint8_t *);
	memmove(p, p + sizeof(struct rte_vlan_hdr), 2 * RTE_ETHER_ADDR_LEN);
	p[12] = RTE_ETHER_TYPE_VLAN >> 8;
	p[13] = RTE_ETHER_TYPE_VLAN & 0xff;
	p[14] = (uint8_t)(m->vlan_tci >> 8);
	p[15] = (uint8_t)m->vlan_tci;
	q->io.tags_put++;
	return 1;
}

static void
ask_back(struct rnic_queue *q)
{
	if (q->no_cleanup || ++q->idle < IDLE_MAX)
		return;
	q->idle = 0;
	if (rte_eth_tx_done_cleanup(q->port, q->queue, 0) == -ENOTSUP)
		q->no_cleanup = 1;
}

uint32_t
rnic_rx(struct rnic_queue *q, uint32_t want)
{
	struct rnic_io *io = &q->io;
	struct rte_mbuf *mb[RNIC_BURST];
	uint32_t i, got, n = 0;
	uint64_t octets = 0;

	queue_enter(q);
	if (io->nreturned > 0)
		give_back(q);
	got = rte_eth_rx_burst(q->port, q->queue, mb, (uint16_t)want);
	for (i = 0; i < got; i++)
		rte_prefetch0(rte_pktmbuf_mtod(mb[i], void *));
	for (i = 0; i < got; i++) {
		struct rte_mbuf *m = mb[i];
		struct rnic_rx_frame *f = &io->rx[n];

		f->csum_start = f->csum_offset = 0;
		if (unlikely(m->pool != q->rx_pool || m->nb_segs > 1)) {
			m = copy_in(q, m, f);
			if (m == NULL)
				continue;
		}
		if (unlikely(q->vlan != 0 || (m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED)) && !of_vlan(q, m)) {
			rte_pktmbuf_free(m);
			continue;
		}
		f->buf = queue_buf(q, m->buf_addr);
		f->off = m->data_off;
		f->len = m->data_len;
		f->flags = verdict(m);
		q->rx_mbuf[f->buf - q->rx_first] = m;
		octets += f->len;
		n++;
	}
	io->rx_frames += n;
	io->rx_octets += octets;
	if (q->outstanding > 0) {
		ask_back(q);
		queue_finish(q);
		q->outstanding -= io->ndone;
	}
	queue_leave();
	return n;
}
