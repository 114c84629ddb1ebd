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
	int error = rv_call(rv_is_ud(q) ? RV_CREATE_UD : RV_CREATE_QP, &a);

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
	 IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_BIND_MW)
#define ROCE_SEND_OPS IBV_QP_EX_WITH_SEND_WITH_IMM /* of queue pairs by number */
#define UD_SEND_OPS (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)

/* There are reliable connections, as RoCE datagrams, and what these names have. */
static bool of_kind(const struct ibv_qp_init_attr_ex *a)
{
	bool ud = a->qp_type == IBV_QPT_UD;
	uint64_t ops = ud ? UD_SEND_OPS : SEND_OPS | (rv_roce() ? ROCE_SEND_OPS : 0);

	return (a->qp_type == IBV_QPT_RC || (ud && rv_roce())) &&
	       !(a->comp_mask & ~(uint32_t)QP_ATTR) &&
	       !(a->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && a->create_flags) &&
	       !(a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS &&
		 a->send_ops_flags & ~ops);
}

struct ibv_qp *rv_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct rv_qp *q;
	uint32_t inlines;
	int error = EOPNOTSUPP;

	if (rv_foreign_device(context)) {
		errno = EPERM;
		return NULL;
	}
	if (!of_kind(attr)) {
		errno = error;
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
	inlines = attr->qp_type == IBV_QPT_UD ? RV_SHORT : INLINE_MIN;
	if (q->cap.max_inline_data < inlines)
		q->cap.max_inline_data = inlines;
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
	q->qp.qp_base.qp_type = attr->qp_type;
	q->sends_from = rv_roce() ? IBV_QPS_RTS : IBV_QPS_RTR;
	q->recvs_from = rv_roce() ? IBV_QPS_INIT : IBV_QPS_RESET;
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
 * The move to RESET: what was posted is forgotten, and completions that were not polled are
 * discarded. A thread that posts meanwhile waits, and then finds the state.
 */
int rv_reset_qp(struct rv_qp *q)
{
	struct rv_completions *a = to_cq(q->qp.qp_base.send_cq), *b = to_cq(q->qp.qp_base.recv_cq);
	int error;

	rv_lock(&q->send_lock);
	rv_lock(&q->recv_lock);
	error = rv_call1(rv_is_ud(q) ? RV_MODIFY_UD : RV_RESET_QP, q->handle);
	if (!error) {
		lock_queues(q);
		rv_discard(a, q);
		if (a != b)
			rv_discard(b, q);
		q->sq_tail = q->rq_tail = 0;
		store_release(&q->sent, 0);
		store_release(&q->retired, 0);
		store_release(&q->received, 0);
		store_release(&q->recv_retired, 0);
		q->qp.qp_base.state = IBV_QPS_RESET;
		unlock_queues(q);
	}
	rv_unlock(&q->recv_lock);
	rv_unlock(&q->send_lock);
	return error;
}

/*
 * Completions of the queue pair that were not polled are discarded, and give their places back: in
 * the completion queues, and in the shared receive queue.
 */
int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct rv_qp *q = to_qp(qp);
	struct rv_completions *a = to_cq(qp->send_cq), *b = to_cq(qp->recv_cq);
	int error = rv_foreign(q->process) ?
			    EPERM :
			    rv_call1(rv_is_ud(q) ? RV_DESTROY_UD : RV_DESTROY_QP, q->handle);

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
