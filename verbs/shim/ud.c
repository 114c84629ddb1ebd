/* Queue pairs for datagrams, of the device as RoCE. */
#include "shim.h"

static int check(struct rv_qp *q, const struct ibv_qp_attr *attr, int mask, enum ibv_qp_state to)
{
	enum ibv_qp_state from = rv_state_of(q);
	int error = rv_check_move(q, from, to, mask), wrong = 0;

	if (error)
		return error;
	if (mask & IBV_QP_CUR_STATE && attr->cur_qp_state != from)
		wrong = IBV_QP_CUR_STATE;
	else if (mask & IBV_QP_PORT && attr->port_num != 1)
		wrong = IBV_QP_PORT;
	else if (mask & IBV_QP_PKEY_INDEX && attr->pkey_index)
		wrong = IBV_QP_PKEY_INDEX;
	return wrong ? rv_wrong_value(q, from, to, wrong, EINVAL) : 0;
}

static int move(struct rv_qp *q, enum ibv_qp_state to, uint32_t qkey, bool notify)
{
	struct rv_args a = { .arg = { q->handle, to, qkey, notify } };

	return to == IBV_QPS_RESET ? rv_reset_qp(q) : rv_call(RV_MODIFY_UD, &a);
}

int rv_modify_ud(struct rv_qp *q, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : rv_state_of(q);
	uint32_t qkey = mask & IBV_QP_QKEY ? attr->qkey : q->kept.qkey;
	int error = rv_foreign(q->process) ? EPERM : check(q, attr, mask, to);

	if (!error)
		error = move(q, to, qkey,
			     mask & IBV_QP_EN_SQD_ASYNC_NOTIFY && attr->en_sqd_async_notify);
	if (error)
		return error;
	q->kept.qkey = qkey;
	if (mask & IBV_QP_SQ_PSN)
		q->kept.sq_psn = attr->sq_psn;
	q->qp.qp_base.state = to;
	return 0;
}

/* Where a datagram goes: see wqe.go. A Q_Key with the high bit stands for the queue pair's own. */
void rv_put_destination(struct rv_qp *q, struct rv_wqe *w, const struct rv_ah *ah, uint32_t number,
			uint32_t qkey)
{
	const struct ibv_global_route *grh = &ah->attr.grh;

	memcpy(w->operands, &grh->dgid, sizeof grh->dgid);
	w->remote_stag = qkey >> 31 ? q->kept.qkey : qkey;
	w->remote_offset |= (number & 0xffffff) |
			    (uint64_t)grh->sgid_index << RV_DATAGRAM_SOURCE_SHIFT |
			    (uint64_t)grh->traffic_class << RV_DATAGRAM_CLASS_SHIFT;
}

/* The engine finds the address of an index here. */
void rv_keep_source(uint32_t index, const union ibv_gid *gid)
{
	uint64_t words[2];

	memcpy(words, gid, sizeof words);
	for (int i = 0; i < 2; i++)
		__atomic_store_n(&rv_area->sources[2 * (index % RV_GIDS_MAX) + i], words[i],
				 __ATOMIC_RELAXED);
}
