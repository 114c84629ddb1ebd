/* Queue pairs of ids, and rdma_create_ep and its like. */
#include "shim.h"

/* Queues of the id's own, with channels, where the program gave none. */
static int make_cqs(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	uint32_t recvs = attr->srq ? to_srq(attr->srq)->depth : attr->cap.max_recv_wr;

	if (!attr->recv_cq) {
		if (!(id->recv_cq_channel = ibv_create_comp_channel(id->verbs)) ||
		    !(id->recv_cq = ibv_create_cq(id->verbs, recvs ? (int)recvs : 1, id,
						  id->recv_cq_channel, 0)))
			return -1;
		attr->recv_cq = id->recv_cq;
	}
	if (!attr->send_cq) {
		if (!(id->send_cq_channel = ibv_create_comp_channel(id->verbs)) ||
		    !(id->send_cq = ibv_create_cq(
			      id->verbs, attr->cap.max_send_wr ? (int)attr->cap.max_send_wr : 1, id,
			      id->send_cq_channel, 0)))
			return -1;
		attr->send_cq = id->send_cq;
	}
	return 0;
}

/* Both may be one: rsockets have it so. */
static void destroy_cqs(struct rdma_cm_id *id)
{
	if (id->recv_cq)
		ibv_destroy_cq(id->recv_cq);
	if (id->send_cq && id->send_cq != id->recv_cq)
		ibv_destroy_cq(id->send_cq);
	if (id->recv_cq_channel)
		ibv_destroy_comp_channel(id->recv_cq_channel);
	if (id->send_cq_channel && id->send_cq_channel != id->recv_cq_channel)
		ibv_destroy_comp_channel(id->send_cq_channel);
	id->recv_cq = id->send_cq = NULL;
	id->recv_cq_channel = id->send_cq_channel = NULL;
}

/* A queue pair for datagrams is ready when it was made: librdmacm moves it. */
static int to_rts(struct rdma_cm_id *id, struct ibv_qp *qp)
{
	static const enum ibv_qp_state states[] = { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS };

	for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
		struct ibv_qp_attr attr = { .qp_state = states[i] };
		int error, mask;

		if (rdma_init_qp_attr(id, &attr, &mask))
			return errno;
		error = ibv_modify_qp(qp, &attr, mask);
		if (error)
			return error;
	}
	return 0;
}

int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	struct rv_id *i = to_id(id);
	struct ibv_qp *qp;
	int error;

	if (rv_foreign(i->process))
		return rv_fail(EPERM);
	if (id->qp || !id->verbs)
		return rv_fail(EINVAL);
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd) {
		attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
		attr->pd = id->pd;
	} else if (attr->pd->context != id->verbs) {
		return rv_fail(EINVAL);
	}
	id->pd = attr->pd;
	if (id->srq && !attr->srq)
		attr->srq = id->srq;
	if (make_cqs(id, attr) || !(qp = rv_create_qp_ex(id->verbs, attr))) {
		error = errno;
		destroy_cqs(id);
		return rv_fail(error);
	}
	if (attr->qp_type == IBV_QPT_UD) {
		error = to_rts(id, qp);
		if (error) {
			ibv_destroy_qp(qp);
			destroy_cqs(id);
			return rv_fail(error);
		}
	} else {
		qp->state = IBV_QPS_INIT; /* buffers may be posted */
	}
	i->own_cqs = id->recv_cq || id->send_cq;
	id->qp = qp;
	id->qp_type = attr->qp_type;
	return 0;
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = pd ? IBV_QP_INIT_ATTR_PD : 0,
		.pd = pd,
	};
	int result = rdma_create_qp_ex(id, &ex);

	if (!result)
		attr->cap = ex.cap;
	return result;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	if (!id->qp || rv_foreign(to_id(id)->process))
		return;
	ibv_destroy_qp(id->qp);
	id->qp = NULL;
	destroy_cqs(id);
}

/* A connection's queue pair to which nobody posts; NULL, with errno. It lives as long as the id. */
static struct rv_qp *bare_qp(struct rv_id *i)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	int error;

	if (i->bare)
		return to_qp(i->bare);
	attr.send_cq = attr.recv_cq = ibv_create_cq(i->id.verbs, 1, NULL, NULL, 0);
	if (!attr.send_cq)
		return NULL;
	i->bare = ibv_create_qp(i->id.pd, &attr);
	if (!i->bare) {
		error = errno;
		ibv_destroy_cq(attr.send_cq);
		errno = error;
	}
	return i->bare ? to_qp(i->bare) : NULL;
}

void rv_destroy_bare_qp(struct rv_id *i)
{
	struct ibv_cq *cq;

	if (!i->bare)
		return;
	cq = i->bare->send_cq;
	ibv_destroy_qp(i->bare);
	ibv_destroy_cq(cq);
}

/* Not by rdma_init_qp_attr, which names no number. */
static bool connected_by_number(struct rv_qp *q)
{
	return !q->in_cm && rv_state_of(q) > IBV_QPS_INIT && q->kept.dest_qp_num;
}

struct rv_qp *rv_qp_of(struct rv_id *i, const struct rdma_conn_param *p)
{
	struct rv_qp *q;

	if (i->id.qp)
		return to_qp(i->id.qp);
	q = p ? rv_qp_find(p->qp_num) : NULL;
	if (rv_roce() && (!q || rv_is_ud(q) || connected_by_number(q)))
		return bare_qp(i);
	errno = EINVAL; /* if there is none */
	return q;
}

int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_srq *s;

	if (rv_foreign(to_id(id)->process))
		return rv_fail(EPERM);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd) {
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
		attr->pd = id->pd;
	}
	if (id->srq || !id->verbs)
		return rv_fail(EINVAL);
	s = rv_create_srq_ex(id->verbs, attr);
	if (!s)
		return -1;
	id->pd = attr->pd;
	id->srq = s;
	return 0;
}

int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_init_attr_ex ex = {
		.srq_context = attr->srq_context,
		.attr = attr->attr,
		.comp_mask = pd ? IBV_SRQ_INIT_ATTR_PD : 0,
		.pd = pd,
	};
	int result = rdma_create_srq_ex(id, &ex);

	if (!result)
		attr->attr = ex.attr;
	return result;
}

void rdma_destroy_srq(struct rdma_cm_id *id)
{
	if (rv_foreign(to_id(id)->process))
		return;
	if (id->srq)
		ibv_destroy_srq(id->srq);
	id->srq = NULL;
}

static int prepare(struct rdma_cm_id *id, struct rdma_addrinfo *res, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *attr)
{
	struct rv_id *i = to_id(id);

	if (res->ai_flags & RAI_PASSIVE) {
		if (rdma_bind_addr(id, res->ai_src_addr))
			return -1;
		if (!attr)
			return 0;
		i->qp_attr = malloc(sizeof *attr);
		if (!i->qp_attr)
			return rv_fail(ENOMEM);
		*i->qp_attr = *attr;
		i->qp_pd = pd;
		if (pd)
			id->pd = pd;
		return 0;
	}
	if (rdma_resolve_addr(id, res->ai_src_addr, res->ai_dst_addr, 2000) ||
	    rdma_resolve_route(id, 2000))
		return -1;
	if (!attr)
		return 0;
	attr->qp_type = res->ai_qp_type;
	return rdma_create_qp(id, pd, attr);
}

int rdma_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *res, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *attr)
{
	struct rdma_cm_id *i;
	int error;

	if (rdma_create_id(NULL, &i, NULL, res->ai_port_space))
		return -1;
	if (prepare(i, res, pd, attr)) {
		error = errno;
		rdma_destroy_ep(i);
		return rv_fail(error);
	}
	*id = i;
	return 0;
}

void rdma_destroy_ep(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	rdma_destroy_id(id);
}

/* The next request of a synchronous listener; its queue pair is made as rdma_create_ep was told. */
int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id)
{
	struct rv_id *l = to_id(listen);
	struct rdma_cm_event *event;
	struct rdma_cm_id *i;
	int error;

	if (rv_foreign(l->process))
		return rv_fail(EPERM);
	if (!l->sync || !l->listening)
		return rv_fail(EINVAL);
	if (rdma_get_cm_event(listen->channel, &event))
		return -1;
	if (event->status || event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
		error = event->status ? -event->status : EINVAL;
		rdma_ack_cm_event(event);
		return rv_fail(error);
	}
	i = event->id;
	i->event = event; /* until the next call; the request's private data is there */
	if (l->qp_attr) {
		struct ibv_qp_init_attr attr = *l->qp_attr;

		attr.qp_type = listen->qp_type;
		if (rdma_create_qp(i, l->qp_pd, &attr)) {
			error = errno;
			rdma_reject(i, NULL, 0); /* acknowledges the event */
			rdma_destroy_ep(i);
			return rv_fail(error);
		}
	}
	*id = i;
	return 0;
}

/*
 * What a program that moves its queue pair itself is to set: little, as the connection knows the
 * rest. As RoCE the way to the peer is told as well: UCX connects others by it.
 */
int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	if (!id->verbs || attr->qp_state < IBV_QPS_INIT || attr->qp_state > IBV_QPS_RTS)
		return rv_fail(EINVAL);
	if (rv_is_ud_id(to_id(id))) {
		*mask = IBV_QP_STATE;
		attr->port_num = 1;
		attr->pkey_index = 0;
		attr->qkey = RV_CM_QKEY;
		attr->sq_psn = 0;
		if (attr->qp_state == IBV_QPS_INIT)
			*mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
		else if (attr->qp_state == IBV_QPS_RTS)
			*mask |= IBV_QP_SQ_PSN;
		return 0;
	}
	rv_cm_moves();
	attr->qp_access_flags =
		IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	attr->port_num = 1;
	attr->pkey_index = 0;
	*mask = IBV_QP_STATE;
	if (attr->qp_state == IBV_QPS_INIT)
		*mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	if (attr->qp_state != IBV_QPS_RTS)
		*mask |= IBV_QP_ACCESS_FLAGS;
	if (rv_roce() && attr->qp_state == IBV_QPS_RTR) {
		const struct rv_id *i = to_id(id);

		rv_ah_to(&attr->ah_attr, i, rdma_get_peer_addr(id));
		attr->path_mtu = i->path.mtu ? i->path.mtu : IBV_MTU_1024;
		attr->dest_qp_num = attr->rq_psn = 0;
	}
	return 0;
}

int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	(void)id, (void)ece;
	return rv_fail(EOPNOTSUPP);
}

int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	(void)id, (void)ece;
	return rv_fail(EOPNOTSUPP);
}
