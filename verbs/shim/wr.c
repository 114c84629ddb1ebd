/*
 * Work requests by ibv_wr_*: between wr_start and wr_complete each call of an operation begins an
 * entry, which the calls after it fill. wr_start holds the queue's lock.
 */
#include "shim.h"

static void fail(struct rv_qp *q, int error)
{
	if (!q->wr_error)
		q->wr_error = error;
}

static void start(struct ibv_qp_ex *qp)
{
	struct rv_qp *q = (struct rv_qp *)qp;

	if (rv_foreign(q->process)) { /* a thread of the parent's may hold the lock for ever */
		q->wr_error = EPERM;
		q->wr_now = NULL;
		return;
	}
	rv_lock(&q->send_lock);
	q->wr_tail = q->sq_tail;
	q->wr_sent = q->sent;
	q->wr_error = 0;
	q->wr_send_flags = 0;
	q->wr_now = NULL;
}

/* The entry in hand is whole when the next begins, or none does. */
static void finish(struct rv_qp *q)
{
	if (q->wr_now)
		q->wr_tail += 1 + rv_entries_after(q->wr_now);
	q->wr_now = NULL;
}

static struct rv_wqe *begin(struct rv_qp *q, uint8_t op, uint8_t wc)
{
	struct rv_wqe *w;

	finish(q);
	if (q->qp.qp_base.state < q->sends_from)
		fail(q, EINVAL);
	if (q->wr_sent - load_acquire(&q->retired) >= q->cap.max_send_wr)
		fail(q, ENOMEM);
	if (q->wr_error)
		return NULL;
	q->wr_entry = q->wr_tail;
	w = &q->sq_entries[q->wr_entry & q->sq_mask];
	*w = (struct rv_wqe){ .id = q->wr_sent, .op = op };
	q->wr_send_flags |= q->qp.wr_flags;
	if (q->signal_all || q->qp.wr_flags & IBV_SEND_SIGNALED)
		w->flags |= RV_FLAG_SIGNALED;
	if (q->qp.wr_flags & IBV_SEND_SOLICITED)
		w->flags |= RV_FLAG_SOLICITED;
	if (q->qp.wr_flags & IBV_SEND_FENCE)
		w->flags |= RV_FLAG_FENCE;
	q->sents[q->wr_sent++ & q->sent_mask] = (struct rv_sent){ .wr_id = q->qp.wr_id, .opcode = wc };
	q->wr_now = w;
	return w;
}

static void remote(struct ibv_qp_ex *qp, uint8_t op, uint8_t wc, uint32_t rkey, uint64_t addr,
		   uint64_t a, uint64_t b)
{
	struct rv_wqe *w = begin((struct rv_qp *)qp, op, wc);

	if (!w)
		return;
	w->remote_stag = rkey;
	w->remote_offset = addr;
	w->operands[0] = a;
	w->operands[1] = b;
}

static void bind_mw(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey,
		    const struct ibv_mw_bind_info *info)
{
	struct rv_qp *q = (struct rv_qp *)qp;
	struct rv_wqe *w = begin(q, RV_OP_BIND_WINDOW, IBV_WC_BIND_MW);
	int error = w ? rv_put_bind(q, w, mw, rkey, info) : 0;

	if (error)
		fail(q, error);
}

static void cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, uint64_t compare,
		    uint64_t swap)
{
	remote(qp, RV_OP_COMPARE_SWAP, IBV_WC_COMP_SWAP, rkey, addr, compare, swap);
}

static void fetch_add(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, uint64_t add)
{
	remote(qp, RV_OP_FETCH_ADD, IBV_WC_FETCH_ADD, rkey, addr, add, 0);
}

static void local_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	remote(qp, RV_OP_LOCAL_INVALIDATE, IBV_WC_LOCAL_INV, rkey, 0, 0, 0);
}

static void rdma_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr)
{
	remote(qp, RV_OP_READ, IBV_WC_RDMA_READ, rkey, addr, 0, 0);
}

static void rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr)
{
	remote(qp, RV_OP_WRITE, IBV_WC_RDMA_WRITE, rkey, addr, 0, 0);
}

static void rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, __be32 imm)
{
	remote(qp, RV_OP_WRITE_IMMEDIATE, IBV_WC_RDMA_WRITE, rkey, addr, imm, 0);
}

static void send_plain(struct ibv_qp_ex *qp)
{
	remote(qp, RV_OP_SEND, IBV_WC_SEND, 0, 0, 0, 0);
}

static void send_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	remote(qp, RV_OP_SEND_INVALIDATE, IBV_WC_SEND, rkey, 0, 0, 0);
}

static void send_imm(struct ibv_qp_ex *qp, __be32 imm)
{
	struct rv_qp *q = (struct rv_qp *)qp;
	struct rv_wqe *w;

	if (!rv_is_ud(q)) {
		if (!rv_sends_immediate(q))
			fail(q, EINVAL);
		remote(qp, RV_OP_SEND_IMMEDIATE, IBV_WC_SEND, 0, 0, be32toh(imm), 0);
		return;
	}
	w = begin(q, RV_OP_SEND, IBV_WC_SEND);
	if (!w)
		return;
	w->operands[2] = imm;
	w->remote_offset = RV_DATAGRAM_IMMEDIATE;
}

static void set_ud_addr(struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t number, uint32_t qkey)
{
	struct rv_qp *q = (struct rv_qp *)qp;

	if (q->wr_now)
		rv_put_destination(q, q->wr_now, to_ah(ah), number, qkey);
}

static void set_sge_list(struct ibv_qp_ex *qp, size_t n, const struct ibv_sge *list)
{
	struct rv_qp *q = (struct rv_qp *)qp;
	struct rv_wqe *w = q->wr_now;

	if (!w)
		return;
	if (n > q->cap.max_send_sge || (w->op == RV_OP_READ && n > rv_read_ranges())) {
		fail(q, EINVAL);
		return;
	}
	if (n == 0)
		return;
	if (n == 1 && rv_is_ud(q) && rv_is_short(list)) {
		rv_put_short(q, q->wr_entry, w, list);
		return;
	}
	memcpy(&w->local, list, sizeof w->local);
	w->more = (uint8_t)(n - 1);
	if (w->op == RV_OP_READ)
		q->sents[(q->wr_sent - 1) & q->sent_mask].ahead = rv_octets_in(list, w->more);
	for (size_t i = 1; i < n; i++) {
		struct rv_sge *to =
			(struct rv_sge *)&q
				->sq_entries[(q->wr_entry + 1 + (i - 1) / RV_RANGES_PER_ENTRY) &
					     q->sq_mask];

		memcpy(&to[(i - 1) % RV_RANGES_PER_ENTRY], &list[i], sizeof *list);
	}
}

static void set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge s = { .addr = addr, .length = length, .lkey = lkey };

	set_sge_list(qp, 1, &s);
}

static void set_inline_data_list(struct ibv_qp_ex *qp, size_t n, const struct ibv_data_buf *list)
{
	struct rv_qp *q = (struct rv_qp *)qp;
	struct rv_wqe *w = q->wr_now;
	size_t all = 0;

	if (!w)
		return;
	for (size_t i = 0; i < n; i++) {
		if (list[i].length > q->cap.max_inline_data - all) {
			fail(q, EINVAL);
			return;
		}
		rv_put_inline(q, q->wr_entry, all, list[i].addr, list[i].length);
		all += list[i].length;
	}
	w->flags |= RV_FLAG_INLINE;
	w->local.length = (uint32_t)all;
}

static void set_inline_data(struct ibv_qp_ex *qp, void *addr, size_t length)
{
	struct ibv_data_buf one = { .addr = addr, .length = length };

	set_inline_data_list(qp, 1, &one);
}

/* All or none. */
static int complete(struct ibv_qp_ex *qp)
{
	struct rv_qp *q = (struct rv_qp *)qp;
	unsigned int flags = q->wr_send_flags;
	int error = q->wr_error;
	uint32_t requests;

	finish(q);
	requests = error ? 0 : q->wr_sent - q->sent;
	if (requests) {
		q->sq_tail = q->wr_tail;
		store_release(&q->sent, q->wr_sent);
		store_release(&q->sq->tail, q->sq_tail);
	}
	rv_unlock(&q->send_lock);
	if (requests)
		rv_ring_batch(q->bit, requests, rv_waits_for_peer(q, flags));
	return error;
}

static void drop(struct ibv_qp_ex *qp)
{
	struct rv_qp *q = (struct rv_qp *)qp;

	q->wr_now = NULL;
	rv_unlock(&q->send_lock);
}

void rv_start_wr(struct rv_qp *q)
{
	struct ibv_qp_ex *qp = &q->qp;

	qp->wr_atomic_cmp_swp = cmp_swp;
	qp->wr_atomic_fetch_add = fetch_add;
	qp->wr_bind_mw = bind_mw;
	qp->wr_local_inv = local_inv;
	qp->wr_rdma_read = rdma_read;
	qp->wr_rdma_write = rdma_write;
	qp->wr_rdma_write_imm = rdma_write_imm;
	qp->wr_send = send_plain;
	qp->wr_send_inv = send_inv;
	qp->wr_send_imm = send_imm;
	if (rv_is_ud(q))
		qp->wr_set_ud_addr = set_ud_addr;
	qp->wr_set_inline_data = set_inline_data;
	qp->wr_set_inline_data_list = set_inline_data_list;
	qp->wr_set_sge = set_sge;
	qp->wr_set_sge_list = set_sge_list;
	qp->wr_start = start;
	qp->wr_complete = complete;
	qp->wr_abort = drop;
}
