/* Completion queues. */
#include "shim.h"

#include <time.h>

static void start_reading(struct ibv_cq_ex *cq);

static struct rv_completions *create(struct ibv_context *context, uint32_t cqe, void *cq_context,
				     struct ibv_comp_channel *channel, int comp_vector, bool timed)
{
	struct rv_channel *ch = channel ? container(channel, struct rv_channel, channel) : NULL;
	struct rv_completions *q;
	struct rv_args a;
	int error;

	if (rv_foreign_device(context) || (ch && rv_foreign(ch->socket.process))) {
		errno = EPERM;
		return NULL;
	}
	if (cqe < 1 || cqe > RV_CQE_MAX || comp_vector < 0 || comp_vector >= context->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	q = calloc(1, sizeof *q);
	if (!q || !(q->cookie = rv_table_add(q))) {
		free(q);
		errno = ENOMEM;
		return NULL;
	}
	a = (struct rv_args){
		.arg = { cqe, ch ? (uint64_t)ch->socket.engine_fd : (uint64_t)-1, q->cookie,
			 to_context(context)->handle, ch ? (uintptr_t)&ch->socket.waits : 0,
			 timed },
	};
	error = rv_call(RV_CREATE_CQ, &a);
	if (error) {
		rv_table_remove(q->cookie);
		free(q);
		errno = error;
		return NULL;
	}
	q->handle = a.arg[0];
	q->process = rv_process();
	q->ring = (struct rv_cq *)(uintptr_t)a.arg[1];
	q->entries = (struct rv_cqe *)(q->ring + 1);
	q->mask = (uint32_t)a.arg[2] - 1;
	q->cq.context = context;
	q->cq.channel = channel;
	q->cq.cq_context = cq_context;
	q->cq.handle = (uint32_t)q->handle;
	q->cq.cqe = (int)q->mask + 1;
	pthread_mutex_init(&q->cq.mutex, NULL);
	pthread_cond_init(&q->cq.cond, NULL);
	if (channel) {
		rv_tell(channel, q);
		__atomic_fetch_add(&channel->refcnt, 1, __ATOMIC_ACQ_REL);
	}
	return q;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int comp_vector)
{
	struct rv_completions *q =
		create(context, cqe < 0 ? 0 : (uint32_t)cqe, cq_context, channel, comp_vector, false);

	return q ? ibv_cq_ex_to_cq(&q->cq) : NULL;
}

/* What a completion of ours can tell. There are no VLANs, flows and tags. */
#define WC_TIMES                               \
	(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | \
	 IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
#define WC_FLAGS                                                                \
	(IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | \
	 IBV_WC_EX_WITH_SRC_QP | IBV_WC_EX_WITH_SLID | IBV_WC_EX_WITH_SL |      \
	 IBV_WC_EX_WITH_DLID_PATH_BITS | WC_TIMES)

struct ibv_cq_ex *rv_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct rv_completions *q;

	if (attr->wc_flags & ~(uint64_t)WC_FLAGS ||
	    (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS &&
	     attr->flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED) ||
	    attr->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	q = create(context, attr->cqe, attr->cq_context, attr->channel, (int)attr->comp_vector,
		   attr->wc_flags & WC_TIMES);
	if (!q)
		return NULL;
	q->walled = attr->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
	start_reading(&q->cq);
	return &q->cq;
}

/*
 * More entries, with what is there. To fewer the queue is not made, which is allowed; but fewer
 * than it holds are an error. Who polls waits meanwhile.
 */
int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	struct rv_completions *q = to_cq(cq);
	struct rv_args a = { .arg = { q->handle, (uint64_t)cqe } };
	int error;

	if (rv_foreign(q->process))
		return EPERM;
	if (cqe < 1 || cqe > RV_CQE_MAX)
		return EINVAL;
	rv_lock(&q->lock);
	error = rv_call(RV_RESIZE_CQ, &a);
	if (!error) {
		q->entries = (struct rv_cqe *)(uintptr_t)a.arg[0];
		q->mask = (uint32_t)a.arg[1] - 1;
		cq->cqe = (int)a.arg[1];
	}
	rv_unlock(&q->lock);
	return error;
}

/*
 * EBUSY while queue pairs complete into it. Waits until all events that were read are acknowledged;
 * others about the queue are never read.
 */
int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct rv_completions *q = to_cq(cq);
	int error;

	if (rv_foreign(q->process))
		return EPERM;
	if (load_acquire(&q->users))
		return EBUSY;
	if (cq->channel)
		rv_tell_no_more(cq->channel, q); /* who waits there looks at its ring */
	error = rv_call1(RV_DESTROY_CQ, q->handle);
	if (error)
		return error;
	if (cq->channel)
		rv_forget(&container(cq->channel, struct rv_channel, channel)->socket, q->cookie);
	rv_forget(&to_context(cq->context)->events, q->cookie);
	rv_table_remove(q->cookie);
	rv_wait_acked(&q->acks);
	rv_wait_acked(&q->async_acks);
	if (cq->channel)
		__atomic_fetch_sub(&cq->channel->refcnt, 1, __ATOMIC_ACQ_REL);
	free(q);
	return 0;
}

/*
 * An event for the next completion, not for those that are there: programs arm and then poll, and
 * ib_send_lat -e counts on one completion for each event. The engine publishes a completion and
 * then looks at armed, and what is polled after this was there or is told.
 */
int rv_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	struct rv_completions *q = to_cq(cq);
	uint32_t want = solicited_only ? 1 : 2;
	uint32_t was = load_relaxed(&q->ring->armed);

	if (rv_foreign(q->process))
		return EPERM;
	while (was < want && !__atomic_compare_exchange_n(&q->ring->armed, &was, want, false,
							  __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
	__atomic_store_n(&q->rearmed, true, __ATOMIC_RELAXED);
	if (load_relaxed(&q->ring->written))
		__atomic_store_n(&q->ring->written, 0,
				 __ATOMIC_RELAXED); /* the program looks at memory after this */
	atomic_thread_fence(memory_order_seq_cst);
	rv_attend();
	return 0;
}

/* ibv_cq_ex: one completion at a time, read by functions. */
static int next_poll(struct ibv_cq_ex *cq)
{
	struct rv_completions *q = (struct rv_completions *)cq;

	int n = rv_poll_cq(ibv_cq_ex_to_cq(cq), 1, &q->wc);

	if (n != 1)
		return n ? -n : ENOENT;
	if (q->walled) {
		struct timespec t;

		clock_gettime(CLOCK_REALTIME, &t);
		q->wall_ahead = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec - rv_now_ns();
	}
	cq->status = q->wc.status;
	cq->wr_id = q->wc.wr_id;
	return 0;
}

static int start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
	return attr && attr->comp_mask ? EINVAL : next_poll(cq);
}

static void end_poll(struct ibv_cq_ex *cq)
{
	(void)cq;
}

#define READ(type, name, expression)                                          \
	static type read_##name(struct ibv_cq_ex *cq)                         \
	{                                                                     \
		const struct ibv_wc *wc = &((struct rv_completions *)cq)->wc; \
		(void)wc;                                                     \
		return expression;                                            \
	}

READ(enum ibv_wc_opcode, opcode, wc->opcode)
READ(uint32_t, vendor_err, wc->vendor_err)
READ(uint32_t, byte_len, wc->byte_len)
READ(__be32, imm_data, wc->imm_data) /* and invalidated_rkey */
READ(uint32_t, qp_num, wc->qp_num)
READ(uint32_t, src_qp, wc->src_qp)
READ(unsigned int, wc_flags, wc->wc_flags)
READ(uint32_t, slid, 0)
READ(uint8_t, sl, wc->sl)
READ(uint8_t, dlid_path_bits, 0)

static uint64_t read_time(struct ibv_cq_ex *cq)
{
	return ((struct rv_completions *)cq)->time;
}

static uint64_t read_wall_time(struct ibv_cq_ex *cq)
{
	struct rv_completions *q = (struct rv_completions *)cq;

	return q->time + q->wall_ahead;
}

static void start_reading(struct ibv_cq_ex *cq)
{
	cq->start_poll = start_poll;
	cq->next_poll = next_poll;
	cq->end_poll = end_poll;
	cq->read_opcode = read_opcode;
	cq->read_vendor_err = read_vendor_err;
	cq->read_byte_len = read_byte_len;
	cq->read_imm_data = read_imm_data;
	cq->read_qp_num = read_qp_num;
	cq->read_src_qp = read_src_qp;
	cq->read_wc_flags = read_wc_flags;
	cq->read_slid = read_slid;
	cq->read_sl = read_sl;
	cq->read_dlid_path_bits = read_dlid_path_bits;
	cq->read_completion_ts = read_time;
	cq->read_completion_wallclock_ns = read_wall_time;
}
