/*
 * Moves of queue pairs. As an RNIC the device has the connection manager connect them, as RoCE the
 * program, by number (docs/adr/0046-queue-pairs-by-number.md).
 */
#include "shim.h"

enum ibv_qp_state rv_state_of(struct rv_qp *q)
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
	enum ibv_qp_state state = rv_state_of(q);
	bool by_number = rv_roce() && !q->in_cm; /* what the program has said is told back */
	int error = !by_number && mask & (IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC)
			    ? rv_call(RV_QUERY_QP, &depths)
			    : 0;

	if (error)
		return error;
	if (!rv_roce() && fresh(state))
		state = IBV_QPS_INIT;
	if (!(mask & (IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC)))
		depths.arg[0] = depths.arg[1] = 0;
	*attr = q->kept;
	attr->qp_state = attr->cur_qp_state = state;
	attr->sq_draining = state == IBV_QPS_SQD && !rv_is_ud(q) && !load_acquire(&q->sq->drained);
	attr->cap = q->cap;
	if (!by_number) {
		attr->max_rd_atomic = (uint8_t)depths.arg[0];
		attr->max_dest_rd_atomic = (uint8_t)depths.arg[1];
	}
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
		return rv_refuse(q, mask & IBV_QP_STATE ? attr->qp_state : rv_state_of(q),
				 mask & REFUSED);
	if ((mask & IBV_QP_CUR_STATE && attr->cur_qp_state != rv_state_of(q) &&
	     !(fresh(attr->cur_qp_state) && fresh(rv_state_of(q)))) ||
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
	enum ibv_qp_state from = rv_state_of(q);
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
	KEEP(IBV_QP_PORT, port_num);
	KEEP(IBV_QP_AV, ah_attr);
	KEEP(IBV_QP_DEST_QPN, dest_qp_num);
	KEEP(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	KEEP(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	kept->rq_psn &= 0xffffff;
	kept->sq_psn &= 0xffffff;
}

#define ACCESS_KNOWN                                                                            \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |            \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |                \
	 IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_RELAXED_ORDERING)

static bool known_path(const struct ibv_ah_attr *a)
{
	static const union ibv_gid none;
	struct rv_gid g;

	return a->port_num == 1 && a->is_global && memcmp(&a->grh.dgid, &none, sizeof none) &&
	       rv_gid(a->grh.sgid_index, &g);
}

/* A path that is set again must be the same: a connection goes nowhere else. */
static bool same_path(const struct rv_qp *q, const struct ibv_ah_attr *a)
{
	const struct ibv_global_route *had = &q->kept.ah_attr.grh;

	return had->sgid_index == a->grh.sgid_index &&
	       !memcmp(&had->dgid, &a->grh.dgid, sizeof had->dgid);
}

/* The attribute whose value cannot be, or 0. */
static int impossible(const struct ibv_qp_attr *a, int mask)
{
	const struct {
		int attribute;
		bool wrong;
	} all[] = {
		{ IBV_QP_PORT, a->port_num != 1 },
		{ IBV_QP_PKEY_INDEX, a->pkey_index },
		{ IBV_QP_ACCESS_FLAGS, a->qp_access_flags & ~ACCESS_KNOWN },
		{ IBV_QP_PATH_MTU, a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096 },
		{ IBV_QP_DEST_QPN, a->dest_qp_num > 0xffffff },
		{ IBV_QP_MAX_QP_RD_ATOMIC, a->max_rd_atomic > RV_READS_MAX },
		{ IBV_QP_MAX_DEST_RD_ATOMIC, a->max_dest_rd_atomic > RV_READS_MAX },
		{ IBV_QP_TIMEOUT, a->timeout > 31 },
		{ IBV_QP_RETRY_CNT, a->retry_cnt > 7 },
		{ IBV_QP_RNR_RETRY, a->rnr_retry > 7 },
		{ IBV_QP_MIN_RNR_TIMER, a->min_rnr_timer > 31 },
	};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (mask & all[i].attribute && all[i].wrong)
			return all[i].attribute;
	return mask & IBV_QP_AV && !known_path(&a->ah_attr) ? IBV_QP_AV : 0;
}

/*
 * The attribute whose value this device does not have, or 0. There is one path, which stays; so
 * does the number of the peer's Reads that are served at a time, or gets less, which is as good.
 */
static int missing(const struct rv_qp *q, const struct ibv_qp_attr *a, int mask,
		   enum ibv_qp_state from)
{
	if (mask & IBV_QP_ALT_PATH)
		return IBV_QP_ALT_PATH;
	if (mask & IBV_QP_PATH_MIG_STATE && a->path_mig_state != IBV_MIG_MIGRATED)
		return IBV_QP_PATH_MIG_STATE;
	if (from != IBV_QPS_SQD)
		return 0;
	if (mask & IBV_QP_AV && !same_path(q, &a->ah_attr))
		return IBV_QP_AV;
	return mask & IBV_QP_MAX_DEST_RD_ATOMIC && a->max_dest_rd_atomic > q->kept.max_dest_rd_atomic ?
		       IBV_QP_MAX_DEST_RD_ATOMIC :
		       0;
}

static int check_values(struct rv_qp *q, const struct ibv_qp_attr *a, int mask,
			enum ibv_qp_state from, enum ibv_qp_state to)
{
	int wrong = impossible(a, mask);

	if (wrong)
		return rv_wrong_value(q, from, to, wrong, EINVAL);
	wrong = missing(q, a, mask, from);
	return wrong ? rv_wrong_value(q, from, to, wrong, EOPNOTSUPP) : 0;
}

/* RTR: the connection begins. */
static int begin_to_connect(struct rv_qp *q, const struct ibv_qp_attr *attr)
{
	union ibv_gid ends[2];
	struct rv_args a = {
		.arg = { q->handle, attr->dest_qp_num, attr->max_dest_rd_atomic },
		.data = ends,
		.size = sizeof ends,
	};
	struct rv_gid own;

	if (!rv_gid(attr->ah_attr.grh.sgid_index, &own))
		return EINVAL;
	ends[0] = own.gid;
	ends[1] = attr->ah_attr.grh.dgid;
	return rv_call(RV_CONNECT_QP, &a);
}

/* What says how long the peer may take. */
static int set_times(struct rv_qp *q, const struct ibv_qp_attr *k, bool ready)
{
	struct rv_args a = { .arg = { q->handle, k->timeout, k->retry_cnt, k->rnr_retry,
				      k->min_rnr_timer, ready } };

	return rv_call(RV_TIME_QP, &a);
}

/* SQD: requests that were begun complete, and no more are begun; notify: an event tells of it. */
static int pause_sends(struct rv_qp *q, bool yes, bool notify)
{
	struct rv_args a = { .arg = { q->handle, yes, notify } };

	return rv_call(RV_PAUSE_QP, &a);
}

/* As RoCE. A call that fails has changed nothing. */
static int move_by_number(struct rv_qp *q, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state from = rv_state_of(q), to = mask & IBV_QP_STATE ? attr->qp_state : from;
	struct rv_args access = { .arg = { q->handle, attr->qp_access_flags } };
	struct ibv_qp_attr kept = q->kept;
	int error = rv_check_move(q, from, to, mask);

	if (error)
		return error;
	if (mask & IBV_QP_CUR_STATE && attr->cur_qp_state != from)
		return rv_wrong_value(q, from, to, IBV_QP_CUR_STATE, EINVAL);
	error = check_values(q, attr, mask, from, to);
	if (error)
		return error;
	keep(&kept, attr, mask);
	if (to == IBV_QPS_RESET)
		error = from == IBV_QPS_RESET ? 0 : rv_reset_qp(q);
	else if (to == IBV_QPS_ERR)
		error = from == IBV_QPS_ERR ? 0 : rv_call1(RV_ABORT_QP, q->handle);
	else if (mask & IBV_QP_ACCESS_FLAGS)
		error = rv_call(RV_PERMIT_QP, &access);
	if (!error && (to == IBV_QPS_RTS || to == IBV_QPS_SQD || mask & IBV_QP_MIN_RNR_TIMER))
		error = set_times(q, &kept, to != IBV_QPS_RTR);
	if (!error && from == IBV_QPS_INIT && to == IBV_QPS_RTR)
		error = begin_to_connect(q, attr);
	if (!error && from != to && to == IBV_QPS_SQD)
		error = pause_sends(q, true, mask & IBV_QP_EN_SQD_ASYNC_NOTIFY && attr->en_sqd_async_notify);
	if (!error && from == IBV_QPS_SQD && to == IBV_QPS_RTS)
		error = pause_sends(q, false, false);
	if (error)
		return error;
	q->kept = kept;
	q->qp.qp_base.state = to;
	return 0;
}

static bool cm_moves; /* the program has asked the connection manager how to move one */

void rv_cm_moves(void)
{
	store_release(&cm_moves, true);
}

/* Whether a connection of librdmacm has it, or will: it is moved as rdma_init_qp_attr says. */
static bool moved_by_cm(const struct rv_qp *q, int mask)
{
	return q->in_cm ||
	       (load_acquire(&cm_moves) && !(mask & ~(IBV_QP_STATE | IBV_QP_ACCESS_FLAGS)) &&
		q->qp.qp_base.state >= IBV_QPS_INIT && q->qp.qp_base.state < IBV_QPS_RTS &&
		!q->kept.dest_qp_num);
}

/*
 * An RNIC connects by the connection manager only: a mask with an address or a number is refused. A
 * program may make the other moves itself, before or after it has the queue pair connected. A call
 * that fails has changed nothing.
 */
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct rv_qp *q = to_qp(qp);
	struct rv_args access = { .arg = { q->handle, attr->qp_access_flags } };
	int error;

	if (rv_foreign(q->process))
		return EPERM;
	if (rv_is_ud(q))
		return rv_modify_ud(q, attr, mask);
	if (rv_roce() && !moved_by_cm(q, mask))
		return move_by_number(q, attr, mask);
	error = check_attr(q, attr, mask);
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

