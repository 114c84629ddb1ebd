/* Protection domains, memory regions, memory windows. */
#include "shim.h"

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct rv_pd *p = calloc(1, sizeof *p);
	struct rv_args a = { .arg = { 0 } };
	int error = p ? rv_call(RV_ALLOC_PD, &a) : ENOMEM;

	if (error) {
		free(p);
		errno = error;
		return NULL;
	}
	p->pd.context = context;
	p->handle = a.arg[0];
	p->pd.handle = (uint32_t)p->handle;
	return &p->pd;
}

/* EBUSY while regions, windows, queue pairs or shared receive queues are of it. */
int ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct rv_pd *p = to_pd(pd);
	int error;

	if (load_acquire(&p->users))
		return EBUSY;
	error = rv_call1(RV_FREE_PD, p->handle);
	if (!error)
		free(p);
	return error;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	struct rv_mr *m = calloc(1, sizeof *m);
	struct rv_args a = { .arg = { to_pd(pd)->handle, (uintptr_t)addr, length, iova, access } };
	int error;

	if (access & IBV_ACCESS_ZERO_BASED)
		a.arg[3] = 0;
	error = m ? rv_call(RV_REG_MR, &a) : ENOMEM;
	if (error) {
		free(m);
		errno = error;
		return NULL;
	}
	__atomic_fetch_add(&to_pd(pd)->users, 1, __ATOMIC_ACQ_REL);
	m->handle = a.arg[0];
	m->mr = (struct ibv_mr){
		.context = pd->context, .pd = pd, .addr = addr, .length = length, .handle = (uint32_t)m->handle,
		.lkey = (uint32_t)a.arg[1], .rkey = (uint32_t)a.arg[1],
	};
	return &m->mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned int)access);
}

/* Returns when the memory is no longer accessible. */
int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct rv_mr *m = container(mr, struct rv_mr, mr);
	int error = rv_call1(RV_DEREG_MR, m->handle);

	if (error)
		return error;
	__atomic_fetch_sub(&to_pd(mr->pd)->users, 1, __ATOMIC_ACQ_REL);
	free(m);
	return 0;
}

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	(void)mr, (void)flags, (void)pd, (void)addr, (void)length, (void)access;
	errno = EOPNOTSUPP;
	return IBV_REREG_MR_ERR_INPUT; /* the region stays valid */
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	(void)pd, (void)offset, (void)length, (void)iova, (void)fd, (void)access;
	errno = EOPNOTSUPP;
	return NULL;
}

struct ibv_mw *rv_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct rv_mw *w;
	struct rv_args a = { .arg = { to_pd(pd)->handle } };
	int error;

	if (type != IBV_MW_TYPE_1) {
		errno = type == IBV_MW_TYPE_2 ? EOPNOTSUPP : EINVAL;
		return NULL;
	}
	w = calloc(1, sizeof *w);
	error = w ? rv_call(RV_ALLOC_MW, &a) : ENOMEM;
	if (error) {
		free(w);
		errno = error;
		return NULL;
	}
	__atomic_fetch_add(&to_pd(pd)->users, 1, __ATOMIC_ACQ_REL);
	w->handle = a.arg[0];
	w->mw = (struct ibv_mw){ .context = pd->context, .pd = pd, .rkey = (uint32_t)a.arg[1], .handle = (uint32_t)w->handle, .type = type };
	return &w->mw;
}

int rv_dealloc_mw(struct ibv_mw *mw)
{
	struct rv_mw *w = container(mw, struct rv_mw, mw);
	int error = rv_call1(RV_FREE_MW, w->handle);

	if (error)
		return error;
	__atomic_fetch_sub(&to_pd(mw->pd)->users, 1, __ATOMIC_ACQ_REL);
	free(w);
	return 0;
}

/* A bind has to take its turn in the send queue, which the engine cannot yet. */
int rv_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	(void)qp, (void)mw, (void)bind;
	return EOPNOTSUPP;
}
