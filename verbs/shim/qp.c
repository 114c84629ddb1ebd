/* Queue pairs. */
#include "shim.h"

/* By number, in chains. A completion is polled under the lock of its queue, and a queue pair leaves
 * its chain while those of both of its queues are held, so a pointer that was found stays good. */
#define BUCKETS 1024

static struct rv_lock table_lock;
static struct rv_qp *buckets[BUCKETS];

struct rv_qp *rv_qp_find(uint32_t number)
{
	struct rv_qp *q;

	rv_lock(&table_lock);
	for (q = buckets[number % BUCKETS]; q && q->qp.qp_base.qp_num != number; q = q->next)
		;
	rv_unlock(&table_lock);
	return q;
}

static void enter(struct rv_qp *q)
{
	struct rv_qp **at = &buckets[q->qp.qp_base.qp_num % BUCKETS];

	rv_lock(&table_lock);
	q->next = *at;
	*at = q;
	rv_unlock(&table_lock);
}

static void leave(struct rv_qp *q)
{
	struct rv_qp **at = &buckets[q->qp.qp_base.qp_num % BUCKETS];

	rv_lock(&table_lock);
	while (*at && *at != q)
		at = &(*at)->next;
	if (*at)
		*at = q->next;
	rv_unlock(&table_lock);
}

void rv_lock_qps(void)
{
	rv_lock(&table_lock);
}

void rv_unlock_qps(void)
{
	rv_unlock(&table_lock);
}

void rv_forget_qps(void)
{
	memset(buckets, 0, sizeof buckets);
}

/* What a queue pair can have inline that asked for nothing: rdma_xclient relies on it. */
#define INLINE_MIN 64

static uint32_t power_of_two(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p *= 2;
	return p;
}

static bool possible(const struct ibv_qp_init_attr_ex *a)
{
	const struct ibv_qp_cap *c = &a->cap;

	/* ibv_create_qp(3): with an SRQ what is about receives is ignored */
	return a->send_cq && a->recv_cq && c->max_send_wr <= RV_WR_MAX &&
	       c->max_send_sge <= RV_SGE_MAX && c->max_inline_data <= RV_INLINE_MAX &&
	       (a->srq || (c->max_recv_wr <= RV_WR_MAX && c->max_recv_sge <= RV_SGE_MAX));
}

static void release(struct rv_qp *q)
{
	free(q->sents);
	free(q->recvs);
	free(q);
}

/* The engine's part: rings and number. */
static int make(struct rv_qp *q, struct ibv_context *context,
		const struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp_cap *cap = &q->cap;
	uint32_t sges = cap->max_send_sge > cap->max_recv_sge ? cap->max_send_sge : cap->max_recv_sge;
	struct rv_args a = {
		.arg = { to_pd(attr->pd)->handle, to_cq(attr->send_cq)->handle, to_cq(attr->recv_cq)->handle,
			 attr->srq ? to_srq(attr->srq)->handle : 0, cap->max_send_wr, cap->max_recv_wr, sges,
			 cap->max_inline_data, q->cookie, to_context(context)->handle },
	};
	int error = rv_call(RV_CREATE_QP, &a);

	if (error)
		return error;
	q->handle = a.arg[0];
	q->qp.qp_base.qp_num = (uint32_t)a.arg[1];
	q->qp.qp_base.handle = (uint32_t)q->handle;
	q->bit = (uint32_t)a.arg[2];
	q->sq = (struct rv_queue *)(uintptr_t)a.arg[3];
	q->sq_entries = (struct rv_wqe *)(q->sq + 1);
	q->sq_mask = (uint32_t)a.arg[4] - 1;
	q->rq = (struct rv_queue *)(uintptr_t)a.arg[5];
	q->rq_entries = (struct rv_wqe *)(q->rq + 1);
	q->rq_mask = (uint32_t)a.arg[6] - 1;
	return 0;
}

/* What a peer may do unless the program moves its queue pair with less. */
#define PEER_ACCESS (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

#define QP_ATTR \
	(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
#define SEND_OPS                                                                                \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | \
	 IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |                         \
	 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV |                       \
	 IBV_QP_EX_WITH_SEND_WITH_INV)

struct ibv_qp *rv_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct rv_qp *q;
	int error = EOPNOTSUPP;

	if (rv_foreign_device(context)) {
		errno = EPERM;
		return NULL;
	}
	if (attr->qp_type != IBV_QPT_RC || attr->comp_mask & ~(uint32_t)QP_ATTR ||
	    (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && attr->create_flags) ||
	    (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS &&
	     attr->send_ops_flags & ~(uint64_t)SEND_OPS)) {
		errno = error; /* there are reliable connections, and what SEND_OPS names */
		return NULL;
	}
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd || !possible(attr)) {
		errno = EINVAL;
		return NULL;
	}
	q = calloc(1, sizeof *q);
	if (!q) {
		errno = ENOMEM;
		return NULL;
	}
	q->cap = attr->cap;
	if (q->cap.max_inline_data < INLINE_MIN)
		q->cap.max_inline_data = INLINE_MIN;
	if (attr->srq)
		q->cap.max_recv_wr = q->cap.max_recv_sge = 0;
	q->signal_all = attr->sq_sig_all;
	q->sent_mask = power_of_two(q->cap.max_send_wr + 1) - 1;
	q->recv_mask = power_of_two(q->cap.max_recv_wr + 1) - 1;
	q->sents = calloc(q->sent_mask + 1, sizeof *q->sents);
	q->recvs = calloc(q->recv_mask + 1, sizeof *q->recvs);
	q->cookie = rv_table_add(q);
	q->qp.qp_base.context = context;
	q->qp.qp_base.qp_context = attr->qp_context;
	q->qp.qp_base.pd = attr->pd;
	q->qp.qp_base.send_cq = attr->send_cq;
	q->qp.qp_base.recv_cq = attr->recv_cq;
	q->qp.qp_base.srq = attr->srq;
	q->qp.qp_base.state = IBV_QPS_RESET;
	q->qp.qp_base.qp_type = IBV_QPT_RC;
	q->kept = (struct ibv_qp_attr){ .path_mtu = IBV_MTU_1024, .port_num = 1,
		.qp_access_flags = PEER_ACCESS };
	error = q->sents && q->recvs && q->cookie ? make(q, context, attr) : ENOMEM;
	if (error) {
		rv_table_remove(q->cookie);
		release(q);
		errno = error;
		return NULL;
	}
	__atomic_fetch_add(&to_pd(attr->pd)->users, 1, __ATOMIC_ACQ_REL);
	__atomic_fetch_add(&to_cq(attr->send_cq)->users, 1, __ATOMIC_ACQ_REL);
	__atomic_fetch_add(&to_cq(attr->recv_cq)->users, 1, __ATOMIC_ACQ_REL);
	if (attr->srq)
		__atomic_fetch_add(&to_srq(attr->srq)->users, 1, __ATOMIC_ACQ_REL);
	q->process = rv_process();
	rv_start_wr(q);
	enter(q);
	attr->cap = q->cap;
	return &q->qp.qp_base;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp = rv_create_qp_ex(pd->context, &ex);

	if (qp)
		attr->cap = ex.cap;
	return qp;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return &to_qp(qp)->qp;
}

/* The locks of both completion queues, in an order that all keep. */
static void lock_queues(struct rv_qp *q)
{
	struct rv_completions *a = to_cq(q->qp.qp_base.send_cq), *b = to_cq(q->qp.qp_base.recv_cq);

	rv_lock(a < b ? &a->lock : &b->lock);
	if (a != b)
		rv_lock(a < b ? &b->lock : &a->lock);
}

static void unlock_queues(struct rv_qp *q)
{
	struct rv_completions *a = to_cq(q->qp.qp_base.send_cq), *b = to_cq(q->qp.qp_base.recv_cq);

	rv_unlock(&a->lock);
	if (a != b)
		rv_unlock(&b->lock);
}

/*
 * Completions of the queue pair that were not polled are discarded, and give their places back: in
 * the completion queues, and in the shared receive queue.
 */
int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct rv_qp *q = to_qp(qp);
	struct rv_completions *a = to_cq(qp->send_cq), *b = to_cq(qp->recv_cq);
	int error = rv_foreign(q->process) ? EPERM : rv_call1(RV_DESTROY_QP, q->handle);

	if (error)
		return error;
	lock_queues(q);
	rv_discard(a, q);
	if (a != b)
		rv_discard(b, q);
	leave(q);
	if (a->last == q)
		a->last = NULL;
	if (b->last == q)
		b->last = NULL;
	unlock_queues(q);
	rv_forget(&to_context(qp->context)->events, q->cookie);
	rv_table_remove(q->cookie);
	rv_wait_acked(&q->acks);
	__atomic_fetch_sub(&to_pd(qp->pd)->users, 1, __ATOMIC_ACQ_REL);
	__atomic_fetch_sub(&a->users, 1, __ATOMIC_ACQ_REL);
	__atomic_fetch_sub(&b->users, 1, __ATOMIC_ACQ_REL);
	if (qp->srq)
		__atomic_fetch_sub(&to_srq(qp->srq)->users, 1, __ATOMIC_ACQ_REL);
	release(q);
	return 0;
}

static enum ibv_qp_state state_of(struct rv_qp *q)
{
	if (load_acquire(&q->sq->over))
		q->qp.qp_base.state = IBV_QPS_ERR;
	return q->qp.qp_base.state;
}

/*
 * A queue pair of an RNIC is in INIT from the beginning, as Linux has it, whatever qp->state says.
 */
static bool fresh(enum ibv_qp_state s)
{
	return s == IBV_QPS_RESET || s == IBV_QPS_INIT;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init)
{
	struct rv_qp *q = to_qp(qp);
	struct rv_args depths = { .arg = { q->handle } };
	enum ibv_qp_state state = fresh(state_of(q)) ? IBV_QPS_INIT : state_of(q);
	int error = mask & (IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC)
			    ? rv_call(RV_QUERY_QP, &depths)
			    : 0;

	if (error)
		return error;
	if (!(mask & (IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC)))
		depths.arg[0] = depths.arg[1] = 0;
	*attr = q->kept;
	attr->qp_state = attr->cur_qp_state = state;
	attr->cap = q->cap;
	attr->max_rd_atomic = (uint8_t)depths.arg[0];
	attr->max_dest_rd_atomic = (uint8_t)depths.arg[1];
	if (mask & IBV_QP_STATE)
		qp->state = state;
	*init = (struct ibv_qp_init_attr){
		.qp_context = qp->qp_context,
		.send_cq = qp->send_cq,
		.recv_cq = qp->recv_cq,
		.srq = qp->srq,
		.cap = q->cap,
		.qp_type = qp->qp_type,
		.sq_sig_all = q->signal_all,
	};
	return 0;
}

/* What only a connection by number has, and what no queue pair of ours can change. */
enum {
	REFUSED = IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE |
		  IBV_QP_CAP | IBV_QP_RATE_LIMIT,
};
#define KNOWN ((IBV_QP_DEST_QPN << 1) - 1)

static int check_attr(struct rv_qp *q, const struct ibv_qp_attr *attr, int mask)
{
	if (mask & ~(KNOWN | IBV_QP_RATE_LIMIT))
		return EINVAL;
	if (mask & REFUSED)
		return EOPNOTSUPP;
	if ((mask & IBV_QP_CUR_STATE && attr->cur_qp_state != state_of(q) &&
	     !(fresh(attr->cur_qp_state) && fresh(state_of(q)))) ||
	    (mask & IBV_QP_PORT && attr->port_num != 1) ||
	    (mask & IBV_QP_PKEY_INDEX && attr->pkey_index) ||
	    (mask & IBV_QP_MAX_QP_RD_ATOMIC && attr->max_rd_atomic > RV_READS_MAX) ||
	    (mask & IBV_QP_MAX_DEST_RD_ATOMIC && attr->max_dest_rd_atomic > RV_READS_MAX))
		return EINVAL;
	return 0;
}

/*
 * Whether the program may move it. A connection moves its queue pair by itself, so RTR and RTS, and
 * for one that the program has made itself INIT, have been passed and change nothing. 0, or an
 * errno.
 */
static int may_move(struct rv_qp *q, enum ibv_qp_state to)
{
	enum ibv_qp_state from = state_of(q);
	bool passed = q->in_cm && from != IBV_QPS_ERR;

	switch (to) {
	case IBV_QPS_ERR:
		return 0;
	case IBV_QPS_RESET:
		return q->in_cm || from == IBV_QPS_ERR ? EOPNOTSUPP : 0;
	case IBV_QPS_INIT:
		return (passed && q->by_number) || fresh(from) ? 0 : EINVAL;
	case IBV_QPS_RTR:
		return passed || fresh(from) ? 0 : EINVAL;
	case IBV_QPS_RTS:
		return passed || from == IBV_QPS_RTR || from == IBV_QPS_RTS ? 0 : EINVAL;
	default:
		return EINVAL;
	}
}

static void keep(struct ibv_qp_attr *kept, const struct ibv_qp_attr *attr, int mask)
{
#define KEEP(flag, field) kept->field = mask & (flag) ? attr->field : kept->field
	KEEP(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	KEEP(IBV_QP_PATH_MTU, path_mtu);
	KEEP(IBV_QP_TIMEOUT, timeout);
	KEEP(IBV_QP_RETRY_CNT, retry_cnt);
	KEEP(IBV_QP_RNR_RETRY, rnr_retry);
	KEEP(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	KEEP(IBV_QP_RQ_PSN, rq_psn);
	KEEP(IBV_QP_SQ_PSN, sq_psn);
	KEEP(IBV_QP_QKEY, qkey);
}

/*
 * iWARP connects by the connection manager only: a mask with an address or a number is refused. A
 * program may make the other moves itself, before or after it has the queue pair connected. A call
 * that fails has changed nothing.
 */
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct rv_qp *q = to_qp(qp);
	struct rv_args access = { .arg = { q->handle, attr->qp_access_flags } };
	int error = rv_foreign(q->process) ? EPERM : check_attr(q, attr, mask);

	if (!error && mask & IBV_QP_STATE)
		error = may_move(q, attr->qp_state);
	if (!error && mask & IBV_QP_ACCESS_FLAGS)
		error = rv_call(RV_PERMIT_QP, &access);
	if (!error && mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_ERR)
		error = rv_call1(RV_ABORT_QP, q->handle);
	if (error)
		return error;
	keep(&q->kept, attr, mask);
	if (mask & IBV_QP_STATE && (!q->in_cm || attr->qp_state == IBV_QPS_ERR))
		qp->state = attr->qp_state;
	return 0;
}

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp;
	memset(ece, 0, sizeof *ece);
	return EOPNOTSUPP;
}

int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp, (void)ece;
	return EOPNOTSUPP;
}

int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	(void)qp, (void)op, (void)flags;
	return 0;
}
