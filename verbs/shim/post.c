/* Work requests onto the rings. */
#include "shim.h"

_Static_assert(sizeof(struct rv_sge) == sizeof(struct ibv_sge) &&
		       offsetof(struct rv_sge, stag) == offsetof(struct ibv_sge, lkey),
	       "ranges are copied as they are");

/* What a request of each kind is, and completes as. */
static const struct {
	uint8_t op, wc;
} kinds[] = {
	[IBV_WR_RDMA_WRITE] = { RV_OP_WRITE, IBV_WC_RDMA_WRITE },
	[IBV_WR_RDMA_WRITE_WITH_IMM] = { RV_OP_WRITE_IMMEDIATE, IBV_WC_RDMA_WRITE },
	[IBV_WR_SEND] = { RV_OP_SEND, IBV_WC_SEND },
	[IBV_WR_SEND_WITH_IMM] = { RV_OP_SEND_IMMEDIATE, IBV_WC_SEND },
	[IBV_WR_RDMA_READ] = { RV_OP_READ, IBV_WC_RDMA_READ },
	[IBV_WR_ATOMIC_CMP_AND_SWP] = { RV_OP_COMPARE_SWAP, IBV_WC_COMP_SWAP },
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = { RV_OP_FETCH_ADD, IBV_WC_FETCH_ADD },
	[IBV_WR_LOCAL_INV] = { RV_OP_LOCAL_INVALIDATE, IBV_WC_LOCAL_INV },
	[IBV_WR_SEND_WITH_INV] = { RV_OP_SEND_INVALIDATE, IBV_WC_SEND },
	[IBV_WR_BIND_MW] = { RV_OP_BIND_WINDOW, IBV_WC_BIND_MW },
};

uint32_t rv_entries_after(const struct rv_wqe *w)
{
	if (w->flags & RV_FLAG_INLINE)
		return (w->local.length + sizeof *w - 1) / sizeof *w;
	return (w->more + RV_RANGES_PER_ENTRY - 1) / RV_RANGES_PER_ENTRY;
}

/* Inline octets go into the entries after entry at, from offset on. */
void rv_put_inline(struct rv_qp *q, uint32_t at, size_t offset, const void *data, size_t n)
{
	const char *from = data;

	while (n > 0) {
		size_t in = offset % sizeof(struct rv_wqe), k = sizeof(struct rv_wqe) - in;
		char *to = (char *)&q->sq_entries[(at + 1 + offset / sizeof(struct rv_wqe)) & q->sq_mask];

		if (k > n)
			k = n;
		memcpy(to + in, from, k);
		from += k;
		offset += k;
		n -= k;
	}
}

uint32_t rv_octets_in(const struct ibv_sge *list, size_t n)
{
	uint32_t sum = 0;

	while (n > 0)
		sum += list[--n].length;
	return sum;
}

/* Ranges after the first go into the entries after entry at. */
static void put_list(struct rv_wqe *entries, uint32_t mask, uint32_t at, const struct ibv_sge *list,
		     uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct rv_sge *to = (struct rv_sge *)&entries[(at + 1 + i / RV_RANGES_PER_ENTRY) & mask];

		memcpy(&to[i % RV_RANGES_PER_ENTRY], &list[i], sizeof *list);
	}
}

static int put_data(struct rv_qp *q, struct rv_wqe *w, const struct ibv_send_wr *wr)
{
	size_t n = 0;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > q->cap.max_send_sge)
		return EINVAL;
	if (!(wr->send_flags & IBV_SEND_INLINE) || w->op == RV_OP_READ ||
	    w->op == RV_OP_FETCH_ADD || w->op == RV_OP_COMPARE_SWAP) {
		if (wr->num_sge > 0) {
			memcpy(&w->local, wr->sg_list, sizeof w->local);
			w->more = (uint8_t)(wr->num_sge - 1);
			put_list(q->sq_entries, q->sq_mask, q->sq_tail, wr->sg_list + 1, w->more);
		}
		return w->op == RV_OP_READ && w->more >= rv_read_ranges() ? EINVAL : 0;
	}
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *s = &wr->sg_list[i];

		if (s->length > q->cap.max_inline_data - n)
			return EINVAL;
		rv_put_inline(q, q->sq_tail, n, (const void *)(uintptr_t)s->addr, s->length);
		n += s->length;
	}
	w->flags |= RV_FLAG_INLINE;
	w->local.length = (uint32_t)n;
	return 0;
}

/*
 * A short datagram's octets are taken when it is posted, and its range is what the engine checks.
 * On an HCA it would have left before a program could see that the peer answers, and UCX relies on
 * that: see docs/adr/0048-datagrams.md.
 */
void rv_put_short(struct rv_qp *q, uint32_t at, struct rv_wqe *w, const struct ibv_sge *s)
{
	memcpy(&w->local, s, sizeof w->local);
	rv_put_inline(q, at, 0, (const void *)(uintptr_t)s->addr, s->length);
	w->flags |= RV_FLAG_INLINE;
}

static uint8_t flags_of(const struct rv_qp *q, unsigned int flags)
{
	return (q->signal_all || flags & IBV_SEND_SIGNALED ? RV_FLAG_SIGNALED : 0) |
	       (flags & IBV_SEND_SOLICITED ? RV_FLAG_SOLICITED : 0) |
	       (flags & IBV_SEND_FENCE ? RV_FLAG_FENCE : 0);
}

static void begin_datagram(struct rv_qp *q, struct rv_wqe *w, const struct ibv_send_wr *wr)
{
	*w = (struct rv_wqe){ .id = q->sent, .op = RV_OP_SEND, .flags = flags_of(q, wr->send_flags) };
	if (wr->opcode == IBV_WR_SEND_WITH_IMM) {
		w->operands[2] = wr->imm_data;
		w->remote_offset = RV_DATAGRAM_IMMEDIATE;
	}
	rv_put_destination(q, w, to_ah(wr->wr.ud.ah), wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
}

static int put_datagram(struct rv_qp *q, struct rv_wqe *w, const struct ibv_send_wr *wr)
{
	int error = 0;

	if ((wr->opcode != IBV_WR_SEND && wr->opcode != IBV_WR_SEND_WITH_IMM) || !wr->wr.ud.ah)
		return EINVAL;
	begin_datagram(q, w, wr);
	if (wr->num_sge == 1 && !(wr->send_flags & IBV_SEND_INLINE) && rv_is_short(wr->sg_list))
		rv_put_short(q, q->sq_tail, w, wr->sg_list);
	else
		error = put_data(q, w, wr);
	if (error)
		return error;
	q->sents[q->sent & q->sent_mask] = (struct rv_sent){ .wr_id = wr->wr_id, .opcode = IBV_WC_SEND };
	q->sq_tail += 1 + rv_entries_after(w);
	store_release(&q->sent, q->sent + 1);
	return 0;
}

/* One request, at the tail, which moves when all of the chain is there. */
static int put(struct rv_qp *q, const struct ibv_send_wr *wr)
{
	struct rv_wqe *w = &q->sq_entries[q->sq_tail & q->sq_mask];
	int error;

	if (q->sent - load_acquire(&q->retired) >= q->cap.max_send_wr)
		return ENOMEM;
	if (rv_is_ud(q))
		return put_datagram(q, w, wr);
	if ((unsigned)wr->opcode >= sizeof kinds / sizeof *kinds || !kinds[wr->opcode].op)
		return EINVAL;
	*w = (struct rv_wqe){ .id = q->sent, .op = kinds[wr->opcode].op,
			      .flags = flags_of(q, wr->send_flags) };
	switch (w->op) {
	case RV_OP_WRITE_IMMEDIATE:
		w->operands[0] = wr->imm_data;
		/* fall through */
	case RV_OP_WRITE:
	case RV_OP_READ:
		w->remote_offset = wr->wr.rdma.remote_addr;
		w->remote_stag = wr->wr.rdma.rkey;
		break;
	case RV_OP_FETCH_ADD:
	case RV_OP_COMPARE_SWAP:
		if (wr->num_sge != 1)
			return EINVAL;
		w->remote_offset = wr->wr.atomic.remote_addr;
		w->remote_stag = wr->wr.atomic.rkey;
		w->operands[0] = wr->wr.atomic.compare_add;
		w->operands[1] = w->op == RV_OP_COMPARE_SWAP ? wr->wr.atomic.swap : 0;
		break;
	case RV_OP_SEND_IMMEDIATE:
		if (!rv_sends_immediate(q))
			return EINVAL; /* iWARP has none */
		w->operands[0] = be32toh(wr->imm_data);
		break;
	case RV_OP_BIND_WINDOW:
		error = rv_put_bind(q, w, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
		if (error)
			return error;
		break;
	case RV_OP_SEND_INVALIDATE:
	case RV_OP_LOCAL_INVALIDATE:
		w->remote_stag = wr->invalidate_rkey;
		break;
	}
	if (w->op != RV_OP_LOCAL_INVALIDATE && w->op != RV_OP_BIND_WINDOW) {
		error = put_data(q, w, wr);
		if (error)
			return error;
	}
	q->sents[q->sent & q->sent_mask] =
		(struct rv_sent){ .wr_id = wr->wr_id,
				  .opcode = kinds[wr->opcode].wc,
				  .ahead = w->op == RV_OP_READ ? rv_octets_in(wr->sg_list, w->more) : 0 };
	q->sq_tail += 1 + rv_entries_after(w);
	store_release(&q->sent, q->sent + 1);
	return 0;
}

int rv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct rv_qp *q = to_qp(qp);
	uint32_t before, requests;
	unsigned int flags = 0;
	int error = 0;

	if (rv_foreign(q->process)) {
		*bad = wr;
		return EPERM;
	}
	rv_lock(&q->send_lock);
	before = q->sent;
	for (; wr; wr = wr->next) {
		error = qp->state < q->sends_from ? EINVAL : put(q, wr); /* a RESET may just be over */
		if (error) {
			*bad = wr;
			break;
		}
		flags |= wr->send_flags;
	}
	requests = q->sent - before;
	if (requests)
		store_release(&q->sq->tail, q->sq_tail);
	rv_unlock(&q->send_lock);
	if (requests)
		rv_ring_batch(q->bit, requests, rv_waits_for_peer(q, flags));
	return error;
}

/* Binds a window, if there is room for its completion, which comes after those of what was posted.
 */
int rv_post_bind(struct ibv_qp *qp, uint64_t wr_id, unsigned int flags, struct rv_args *bind)
{
	struct rv_qp *q = to_qp(qp);
	struct ibv_send_wr wr = { .wr_id = wr_id,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = flags & ~(unsigned int)IBV_SEND_INLINE };
	int error;

	if (rv_foreign(q->process))
		return EPERM;
	rv_lock(&q->send_lock);
	if (qp->state < q->sends_from)
		error = EINVAL;
	else if (q->sent - load_acquire(&q->retired) >= q->cap.max_send_wr)
		error = ENOMEM;
	else
		error = rv_call(RV_BIND_MW, bind);
	if (!error) {
		put(q, &wr); /* there is room */
		q->sents[(q->sent - 1) & q->sent_mask].opcode = IBV_WC_BIND_MW;
		store_release(&q->sent, q->sent); /* after which the opcode is read */
		store_release(&q->sq->tail, q->sq_tail);
	}
	rv_unlock(&q->send_lock);
	if (!error)
		rv_ring(q->bit);
	return error;
}

/* A receive buffer of a queue pair or of a shared receive queue. */
static void put_buffer(struct rv_wqe *entries, uint32_t mask, uint32_t *tail, uint32_t id,
		       const struct ibv_recv_wr *wr)
{
	struct rv_wqe *w = &entries[*tail & mask];

	*w = (struct rv_wqe){ .id = id, .op = RV_OP_RECV };
	if (wr->num_sge > 0) {
		memcpy(&w->local, wr->sg_list, sizeof w->local);
		w->more = (uint8_t)(wr->num_sge - 1);
		put_list(entries, mask, *tail, wr->sg_list + 1, w->more);
	}
	*tail += 1 + rv_entries_after(w);
}

int rv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct rv_qp *q = to_qp(qp);
	int error = 0;

	if (rv_foreign(q->process)) {
		*bad = wr;
		return EPERM;
	}
	rv_lock(&q->recv_lock);
	for (; wr; wr = wr->next) {
		if (qp->state < q->recvs_from || qp->srq ||
		    wr->num_sge < 0 || (uint32_t)wr->num_sge > q->cap.max_recv_sge)
			error = EINVAL;
		else if (q->received - load_acquire(&q->recv_retired) >= q->cap.max_recv_wr)
			error = ENOMEM;
		if (error) {
			*bad = wr;
			break;
		}
		q->recvs[q->received & q->recv_mask] = wr->wr_id;
		put_buffer(q->rq_entries, q->rq_mask, &q->rq_tail, q->received, wr);
		store_release(&q->received, q->received + 1);
	}
	store_release(&q->rq->tail, q->rq_tail);
	rv_unlock(&q->recv_lock);
	atomic_thread_fence(memory_order_seq_cst); /* the engine says that it is over and then looks */
	if (load_relaxed(&q->rq->over))
		rv_ring(q->bit); /* nothing arrives any more that would have buffers looked for */
	return error;
}

/* What the engine has given back becomes free. The lock is held. */
static void collect(struct rv_srq *s)
{
	for (uint32_t i = 0; i < (s->depth + 63) / 64; i++) {
		uint64_t bits = load_relaxed(&s->returned[i]);

		if (bits)
			bits = __atomic_exchange_n(&s->returned[i], 0, __ATOMIC_ACQUIRE);
		for (; bits && s->free_count < s->depth; bits &= bits - 1)
			s->free[s->free_count++] = i * 64 + (uint32_t)__builtin_ctzll(bits);
	}
}

int rv_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct rv_srq *s = to_srq(srq);
	int error = 0;

	if (rv_foreign(s->process)) {
		*bad = wr;
		return EPERM;
	}
	rv_lock(&s->lock);
	for (; wr; wr = wr->next) {
		uint32_t index;

		if (!s->free_count)
			collect(s);
		if (wr->num_sge < 0 || wr->num_sge > RV_SRQ_RANGES_MAX)
			error = EINVAL;
		else if (!s->free_count)
			error = ENOMEM;
		if (error) {
			*bad = wr;
			break;
		}
		index = s->free[--s->free_count];
		s->wr_ids[index] = wr->wr_id;
		put_buffer(s->entries, s->mask, &s->tail, index, wr);
	}
	store_release(&s->ring->tail, s->tail);
	rv_unlock(&s->lock);
	return error;
}
