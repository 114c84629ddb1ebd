/* What iWARP has not, or this library: refused as a device without it does. */
#include "shim.h"

#define NULL_OPNOTSUPP              \
	do {                        \
		errno = EOPNOTSUPP; \
		return NULL;        \
	} while (0)

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	(void)qp, (void)gid, (void)lid;
	return EOPNOTSUPP;
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	(void)qp, (void)gid, (void)lid;
	return EOPNOTSUPP;
}

struct ibv_context *ibv_import_device(int cmd_fd)
{
	(void)cmd_fd;
	NULL_OPNOTSUPP;
}

struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
	(void)context, (void)handle;
	NULL_OPNOTSUPP;
}

void ibv_unimport_pd(struct ibv_pd *pd)
{
	(void)pd;
}

struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	(void)pd, (void)handle;
	NULL_OPNOTSUPP;
}

void ibv_unimport_mr(struct ibv_mr *mr)
{
	(void)mr;
}

struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
	(void)context, (void)handle;
	NULL_OPNOTSUPP;
}

void ibv_unimport_dm(struct ibv_dm *dm)
{
	(void)dm;
}

int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	(void)id, (void)addr, (void)context;
	return rv_fail(EOPNOTSUPP);
}

int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr,
			   void *context)
{
	(void)id, (void)attr, (void)context;
	return rv_fail(EOPNOTSUPP);
}

int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr)
{
	(void)id, (void)addr;
	return rv_fail(EOPNOTSUPP);
}

int ibv_dontfork_range(void *base, size_t size)
{
	(void)base, (void)size;
	return 0;
}

int ibv_dofork_range(void *base, size_t size)
{
	(void)base, (void)size;
	return 0;
}
