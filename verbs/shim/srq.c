/* Shared receive queues. */
#include "shim.h"

struct ibv_srq *rv_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	struct rv_srq *s;
	struct rv_args a;
	uint32_t depth = 1;
	int error;

	if (rv_foreign_device(context)) {
		errno = EPERM;
		return NULL;
	}
	if (attr->comp_mask >= IBV_SRQ_INIT_ATTR_RESERVED ||
	    (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && attr->srq_type != IBV_SRQT_BASIC)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd || attr->attr.max_wr < 1 ||
	    attr->attr.max_wr > RV_WR_MAX || attr->attr.max_sge > RV_SRQ_RANGES_MAX) {
		errno = EINVAL;
		return NULL;
	}
	while (depth < attr->attr.max_wr)
		depth *= 2;
	s = calloc(1, sizeof *s);
	if (!s) {
		errno = ENOMEM;
		return NULL;
	}
	s->depth = depth;
	s->wr_ids = calloc(depth, sizeof *s->wr_ids);
	s->free = calloc(depth, sizeof *s->free);
	s->cookie = rv_table_add(s);
	a = (struct rv_args){ .arg = { to_pd(attr->pd)->handle, depth, RV_SRQ_RANGES_MAX, s->cookie,
				       to_context(context)->handle } };
	error = s->wr_ids && s->free && s->cookie ? rv_call(RV_CREATE_SRQ, &a) : ENOMEM;
	if (error) {
		rv_table_remove(s->cookie);
		free(s->wr_ids);
		free(s->free);
		free(s);
		errno = error;
		return NULL;
	}
	for (uint32_t i = 0; i < depth; i++)
		s->free[s->free_count++] = depth - 1 - i;
	s->handle = a.arg[0];
	s->process = rv_process();
	s->ring = (struct rv_queue *)(uintptr_t)a.arg[1];
	s->entries = (struct rv_wqe *)(s->ring + 1);
	s->mask = (uint32_t)a.arg[2] - 1;
	s->returned = (uint64_t *)(uintptr_t)a.arg[3];
	s->srq.context = context;
	s->srq.srq_context = attr->srq_context;
	s->srq.pd = attr->pd;
	s->srq.handle = (uint32_t)s->handle;
	attr->attr.max_wr = depth;
	attr->attr.max_sge = RV_SRQ_RANGES_MAX;
	__atomic_fetch_add(&to_pd(attr->pd)->users, 1, __ATOMIC_ACQ_REL);
	return &s->srq;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_init_attr_ex ex = {
		.srq_context = attr->srq_context, .attr = attr->attr, .comp_mask = IBV_SRQ_INIT_ATTR_PD, .pd = pd,
	};
	struct ibv_srq *s = rv_create_srq_ex(pd->context, &ex);

	if (s)
		attr->attr = ex.attr;
	return s;
}

int rv_get_srq_num(struct ibv_srq *srq, uint32_t *num)
{
	(void)srq, (void)num;
	return EOPNOTSUPP; /* of XRC only */
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	struct rv_srq *s = to_srq(srq);
	struct rv_args a = { .arg = { s->handle, attr->srq_limit } };

	if (rv_foreign(s->process))
		return EPERM;
	if (mask & IBV_SRQ_MAX_WR)
		return EOPNOTSUPP;
	if (!(mask & IBV_SRQ_LIMIT))
		return 0;
	if (attr->srq_limit > s->depth)
		return EINVAL;
	return rv_call(RV_ARM_SRQ, &a);
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	struct rv_srq *s = to_srq(srq);
	struct rv_args a = { .arg = { s->handle } };
	int error = rv_call(RV_QUERY_SRQ, &a);

	if (!error)
		*attr = (struct ibv_srq_attr){ .max_wr = s->depth, .max_sge = RV_SRQ_RANGES_MAX,
			.srq_limit = (uint32_t)a.arg[0] };
	return error;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	struct rv_srq *s = to_srq(srq);
	int error;

	if (rv_foreign(s->process))
		return EPERM;
	if (load_acquire(&s->users))
		return EBUSY;
	error = rv_call1(RV_DESTROY_SRQ, s->handle);
	if (error)
		return error;
	rv_forget(&to_context(srq->context)->events, s->cookie);
	rv_table_remove(s->cookie);
	rv_wait_acked(&s->acks);
	__atomic_fetch_sub(&to_pd(srq->pd)->users, 1, __ATOMIC_ACQ_REL);
	free(s->wr_ids);
	free(s->free);
	free(s);
	return 0;
}
