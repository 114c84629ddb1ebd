/* Multicast of queue pairs for datagrams, of the device as RoCE. */
#include "shim.h"

#include <netinet/in.h>

static int attach(struct ibv_qp *qp, const union ibv_gid *group, bool yes)
{
	struct rv_qp *q = to_qp(qp);
	union ibv_gid both[2];
	struct rv_args a = { .arg = { q->handle, yes }, .data = both, .size = sizeof both };
	struct rv_gid own;

	if (!rv_roce())
		return EOPNOTSUPP;
	if (!rv_is_ud(q))
		return EINVAL;
	if (!rv_gid(0, &own)) /* the interface, unless an id has joined at another one */
		return ENODEV;
	both[0] = *group;
	both[1] = own.gid;
	return rv_call(RV_ATTACH_UD, &a);
}

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	(void)lid;
	return attach(qp, gid, true);
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	(void)lid;
	return attach(qp, gid, false);
}

/*
 * The id's queue pair is attached when the event comes, which has what rdma_join_multicast was
 * given as private data.
 */
static int join(struct rdma_cm_id *id, const struct sockaddr *addr, void *context)
{
	struct rv_id *i = to_id(id);
	struct rv_args a = {
		.arg = { i->handle, id->qp ? to_qp(id->qp)->handle : 0, (uint64_t)(uintptr_t)context,
			 RV_CM_QKEY },
		.data = addr,
		.size = addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) :
						      sizeof(struct sockaddr_in),
	};

	if (!rv_is_ud_id(i))
		return rv_fail(EOPNOTSUPP);
	return rv_event_of(i, rv_call(RV_CM_JOIN, &a));
}

int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	return join(id, addr, context);
}

int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr,
			   void *context)
{
	uint32_t needs = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;

	if (attr->comp_mask != needs || attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
		return rv_fail(EINVAL);
	if (attr->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER) /* as over RoCE */
		return rv_fail(EOPNOTSUPP);
	return join(id, attr->addr, context);
}

int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr)
{
	union ibv_gid group;

	if (!rv_is_ud_id(to_id(id)))
		return rv_fail(EOPNOTSUPP);
	rv_gid_of(&group, addr);
	return id->qp ? rv_fail(attach(id->qp, &group, false)) : 0;
}
