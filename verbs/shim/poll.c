/* Completions from the ring to the program. */
#include "shim.h"

#include <sched.h>
#include <time.h>

/* The engine's statuses as verbs has them. */
static const uint8_t statuses[] = {
	[RV_SUCCESS] = IBV_WC_SUCCESS,
	[RV_LOCAL_PROTECTION] = IBV_WC_LOC_PROT_ERR,
	[RV_LOCAL_LENGTH] = IBV_WC_LOC_LEN_ERR,
	[RV_FLUSHED] = IBV_WC_WR_FLUSH_ERR,
	[RV_REMOTE_ACCESS] = IBV_WC_REM_ACCESS_ERR,
	[RV_REMOTE_INVALID_REQUEST] = IBV_WC_REM_INV_REQ_ERR,
	[RV_REMOTE_OPERATION] = IBV_WC_REM_OP_ERR,
	[RV_BAD_RESPONSE] = IBV_WC_BAD_RESP_ERR,
	[RV_LOCAL_OPERATION] = IBV_WC_LOC_QP_OP_ERR,
	[RV_RNR_RETRY_EXCEEDED] = IBV_WC_RNR_RETRY_EXC_ERR,
	[RV_RETRY_EXCEEDED] = IBV_WC_RETRY_EXC_ERR,
	[RV_WINDOW_BIND] = IBV_WC_MW_BIND_ERR,
};

uint64_t rv_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* In vain, in one poll: two microseconds. */
#define TURNS 4

/*
 * When a program that polls in vain gives way: RV_VAIN_MAX and those after it in rnicd_ring.h. The
 * poll that found slot empty, which was head's, has ended, and without the lock.
 */
static void give_way(struct rv_completions *c, const struct rv_cqe *slot, uint32_t head)
{
	uint32_t seen = load_acquire(&rv_area->progress);
	uint64_t before = rv_now_ns(), took;

	if (before < load_relaxed(&c->yield_from) && load_relaxed(&rv_area->drives))
		return;
	if (before < load_relaxed(&c->yield_from) ||
	    (load_relaxed(&c->shared) >= RV_SHARED_MAX && !load_relaxed(&rv_area->drives))) {
		__atomic_store_n(&c->shared, RV_SHARED_MAX - 1, __ATOMIC_RELAXED);
		/* What has completed since we were here last may be in another queue, to be polled next. */
		if (seen == load_relaxed(&c->seen))
			/* the queue may have grown: it stays mapped */
			rv_await_progress(seen, &slot->seq, head + 1, &c->waits);
		__atomic_store_n(&c->seen, seen, __ATOMIC_RELAXED);
		return;
	}
	sched_yield();
	took = rv_now_ns() - before;
	if (took > RV_YIELD_LONG_NS)
		__atomic_store_n(&c->yield_from, before + took * RV_YIELD_SHARE, __ATOMIC_RELAXED);
	else if (took < RV_YIELD_SHARED_NS && !load_relaxed(&rv_area->crowded))
		__atomic_store_n(&c->shared, 0, __ATOMIC_RELAXED);
	else
		__atomic_store_n(&c->shared, load_relaxed(&c->shared) + 1, __ATOMIC_RELAXED);
}

/* What a receive completes: the buffer's wr_id, and room for another. */
static uint64_t take_buffer(struct rv_qp *q, uint32_t index)
{
	uint64_t wr_id;

	if (q->qp.qp_base.srq) {
		struct rv_srq *s = to_srq(q->qp.qp_base.srq);

		rv_lock(&s->lock);
		index &= s->depth - 1;
		wr_id = s->wr_ids[index];
		if (s->free_count < s->depth)
			s->free[s->free_count++] = index;
		rv_unlock(&s->lock);
		return wr_id;
	}
	(void)load_acquire(&q->received); /* beyond index, and with it what was posted there */
	wr_id = q->recvs[index & q->recv_mask];
	store_release(&q->recv_retired, index + 1);
	return wr_id;
}

/* What follows in the ring moves to later entries; an entry's seq says where it is, and stays. */
void rv_discard(struct rv_completions *c, struct rv_qp *q)
{
	uint32_t end = c->head, to;

	while (end - c->head <= c->mask && load_acquire(&c->entries[end & c->mask].seq) == end + 1)
		end++;
	to = end;
	for (uint32_t at = end; at != c->head;) {
		const struct rv_cqe *e = &c->entries[--at & c->mask];

		if (e->qp == q->qp.qp_base.qp_num) {
			if (e->op == RV_OP_RECV)
				take_buffer(q, (uint32_t)e->id);
		} else if (--to != at) {
			memcpy(&c->entries[to & c->mask], e, offsetof(struct rv_cqe, seq));
		}
	}
	c->head = to;
	store_release(&c->ring->head, to);
}

/* How HCAs of Mellanox tell RoCE v2's two headers apart. UCX up to 1.13 relies on it. */
enum { SL_IPV6 = 9, SL_IPV4 = 10 };

/* Fills *wc from *e. False: the queue pair is gone, or the completion comes twice. */
static bool translate(struct rv_completions *c, const struct rv_cqe *e, struct ibv_wc *wc)
{
	struct rv_qp *q = c->last;
	uint32_t index = (uint32_t)e->id;

	if (!q || q->qp.qp_base.qp_num != e->qp) {
		q = rv_qp_find(e->qp);
		if (!q)
			return false;
		c->last = q;
	}
	c->time = e->time;
	wc->status = e->status < sizeof statuses ? statuses[e->status] : IBV_WC_GENERAL_ERR;
	wc->vendor_err = e->terminate;
	wc->byte_len = e->len;
	wc->qp_num = e->qp;
	wc->src_qp = rv_is_ud(q) ? (uint32_t)e->original : 0;
	wc->wc_flags = 0;
	wc->imm_data = 0;
	wc->pkey_index = 0;
	wc->slid = 0;
	wc->sl = 0;
	wc->dlid_path_bits = 0;
	if (e->op == RV_OP_RECV) {
		wc->wr_id = take_buffer(q, index);
		wc->opcode = IBV_WC_RECV;
		if (e->with_immediate) {
			memcpy(&wc->imm_data, e->immediate, 4);
			if (!rv_is_ud(q) && !e->beside_send)
				wc->opcode = IBV_WC_RECV_RDMA_WITH_IMM;
			wc->wc_flags = IBV_WC_WITH_IMM;
		} else if (e->invalidated) {
			wc->invalidated_rkey = e->invalidated;
			wc->wc_flags = IBV_WC_WITH_INV;
		}
		if (rv_is_ud(q)) {
			wc->wc_flags |= IBV_WC_GRH;
			wc->sl = e->original & RV_DATAGRAM_FROM_V4 ? SL_IPV4 : SL_IPV6;
		}
		return true;
	}
	if (index - q->retired >= load_acquire(&q->sent) - q->retired) /* and with it what was posted */
		return false;
	wc->wr_id = q->sents[index & q->sent_mask].wr_id;
	wc->opcode = q->sents[index & q->sent_mask].opcode;
	wc->byte_len += q->sents[index & q->sent_mask].ahead;
	store_release(&q->retired, index + 1);
	return true;
}

/*
 * The thread has polled again, after a poll in vain, and found work for the engine, but nothing for
 * itself. Of two threads that say so at once, one may not be counted.
 */
static void count_poll(void)
{
	__atomic_store_n(&rv_area->polls, load_relaxed(&rv_area->polls) + 1, __ATOMIC_RELAXED);
}

/*
 * A program with several queues polls them in turn, and answers what it found in one after it has
 * polled the others. A Turn in each of these would come before the answer, and cost as much as the
 * way here. So after a queue has given something, or a Turn has found work that was not for it, so
 * many polls in vain of other queues make none; until the thread posts, or polls that queue again.
 */
#define ELSEWHERE_MAX 8

static __thread const struct rv_completions *served
	__attribute__((tls_model("initial-exec")));

static void serve(const struct rv_completions *c)
{
	served = c;
	rv_elsewhere = ELSEWHERE_MAX;
}

/* The poll of c in vain makes no Turn. */
static bool elsewhere(const struct rv_completions *c)
{
	if (!rv_elsewhere)
		return false;
	if (c == served || load_relaxed(&c->rearmed)) { /* or the thread looks once more, and waits */
		rv_elsewhere = 0;
		return false;
	}
	rv_elsewhere--;
	return true;
}

int rv_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct rv_completions *c = to_cq(cq);
	uint32_t head;
	int got = 0;
	bool looked = false, again = false;

	if (rv_foreign(c->process))
		return -EPERM;
	rv_posted = false;
look:
	rv_lock(&c->lock);
	head = c->head;
	while (got < n) {
		const struct rv_cqe *slot = &c->entries[head & c->mask]; /* ours until head moves */

		if (load_acquire(&slot->seq) != head + 1)
			break;
		head++;
		if (translate(c, slot, &wc[got]))
			got++;
	}
	if (head != c->head) {
		c->head = head;
		store_release(&c->ring->head, head);
		c->vain = 0;
		__atomic_store_n(&c->shared, 0, __ATOMIC_RELAXED);
		serve(c);
	} else if (n > 0 && (looked || !elsewhere(c))) {
		const struct rv_cqe *slot = &c->entries[head & c->mask];
		/* Holding signals back costs as much as two Turns, so one who polls again gets some. */
		int turns = c->vain ? TURNS : 1;
		bool vain;

		again = looked ? again : c->vain > 0;
		vain = ++c->vain > RV_VAIN_MAX;
		rv_unlock(&c->lock);
		if (!looked && rv_turn(turns)) {
			looked = true;
			serve(c);
			goto look;
		}
		if (looked && again)
			count_poll();
		/*
		 * A program that has armed looks once more and then waits. One that polls on, as UCX does
		 * with a queue that it has armed for good, does not: the engine would not leave it alone.
		 */
		if (load_relaxed(&c->rearmed)) {
			__atomic_store_n(&c->rearmed, false, __ATOMIC_RELAXED);
			rv_attend();
		}
		if (vain && !looked) /* what was found may be another queue's, to be polled next */
			give_way(c, slot, head);
		return 0;
	}
	rv_unlock(&c->lock);
	return got;
}
