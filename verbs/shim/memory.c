/* Protection domains, memory regions, memory windows. */
#include "shim.h"

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct rv_pd *p = calloc(1, sizeof *p);
	struct rv_args a = { .arg = { 0 } };
	int error = !p ? ENOMEM : rv_foreign_device(context) ? EPERM : rv_call(RV_ALLOC_PD, &a);

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

	if (rv_foreign_device(pd->context))
		return EPERM;
	if (load_acquire(&p->users))
		return EBUSY;
	error = rv_call1(RV_FREE_PD, p->handle);
	if (!error)
		free(p);
	return error;
}

/* Fills a region with what the engine registers. */
static int enter(struct rv_mr *m, struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
		 unsigned int access)
{
	struct rv_args a = { .arg = { to_pd(pd)->handle, (uintptr_t)addr, length,
				      access & IBV_ACCESS_ZERO_BASED ? 0 : iova, access } };
	int error = rv_call(RV_REG_MR, &a);

	if (error)
		return error;
	__atomic_fetch_add(&to_pd(pd)->users, 1, __ATOMIC_ACQ_REL);
	m->handle = a.arg[0];
	m->place = rv_place_add(m->handle, addr, length);
	m->iova = iova;
	m->access = access;
	m->mr = (struct ibv_mr){
		.context = pd->context, .pd = pd, .addr = addr, .length = length, .handle = (uint32_t)m->handle,
		.lkey = (uint32_t)a.arg[1], .rkey = (uint32_t)a.arg[1],
	};
	return 0;
}

/* Returns when no peer can reach the memory. */
static int leave(struct rv_mr *m)
{
	int error = load_acquire(&m->windows) ? EBUSY : rv_call1(RV_DEREG_MR, m->handle);

	if (!error) {
		rv_place_remove(m->place);
		__atomic_fetch_sub(&to_pd(m->mr.pd)->users, 1, __ATOMIC_ACQ_REL);
	}
	return error;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned int access)
{
	struct rv_mr *m = calloc(1, sizeof *m);
	int error = m ? enter(m, pd, addr, length, iova, access) : ENOMEM;

	if (error) {
		free(m);
		errno = error;
		return NULL;
	}
	return &m->mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			       int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned int)access);
}

/* Returns when the memory is no longer accessible. EBUSY while a window is bound to it. */
int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct rv_mr *m = container(mr, struct rv_mr, mr);
	int error = rv_foreign_device(mr->context) ? EPERM : leave(m);

	if (!error)
		free(m);
	return error;
}

#define REREG \
	(IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS)

/* New rights: the keys stay. */
static int change_access(struct rv_mr *m, unsigned int access)
{
	struct rv_args a = { .arg = { m->handle, access } };
	int error = rv_place_lost(m->place) ? EFAULT : rv_call(RV_PERMIT_MR, &a);

	if (!error)
		m->access = access;
	return error;
}

/*
 * New rights alone leave the region as it is; otherwise there is a new one in the old one's struct,
 * and the keys change. A call that fails has changed nothing.
 */
int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
		 int access)
{
	struct rv_mr *m = container(mr, struct rv_mr, mr), old = *m, new = { .handle = 0 };
	bool move = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
	int error = 0;

	if (rv_foreign_device(mr->context))
		error = EPERM;
	else if (flags & ~REREG || (move && (!addr || !length)) ||
		 (access && !(flags & IBV_REREG_MR_CHANGE_ACCESS)) ||
		 (flags & IBV_REREG_MR_CHANGE_PD && (!pd || pd->context != mr->context)))
		error = EINVAL;
	else if (load_acquire(&m->windows))
		error = EBUSY;
	if (!error && flags == IBV_REREG_MR_CHANGE_ACCESS) {
		error = change_access(m, (unsigned int)access);
		if (!error)
			return 0;
	}
	if (!error)
		error = enter(
			&new, flags & IBV_REREG_MR_CHANGE_PD ? pd : mr->pd, move ? addr : mr->addr,
			move ? length : mr->length, move ? (uintptr_t)addr : m->iova,
			flags & IBV_REREG_MR_CHANGE_ACCESS ? (unsigned int)access : m->access);
	if (error) {
		errno = error;
		return IBV_REREG_MR_ERR_INPUT;
	}
	*m = new;
	leave(&old);
	return 0;
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				 int fd, int access)
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

	if (rv_foreign_device(pd->context)) {
		errno = EPERM;
		return NULL;
	}
	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) {
		errno = EINVAL;
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
	w->mw = (struct ibv_mw){ .context = pd->context,
				 .pd = pd,
				 .rkey = (uint32_t)a.arg[1],
				 .handle = (uint32_t)w->handle,
				 .type = type };
	return &w->mw;
}

/* The window is of another region now, or of none. */
static void bound_to(struct rv_mw *w, struct rv_mr *m)
{
	if (w->mr)
		__atomic_fetch_sub(&w->mr->windows, 1, __ATOMIC_ACQ_REL);
	if (m)
		__atomic_fetch_add(&m->windows, 1, __ATOMIC_ACQ_REL);
	w->mr = m;
}

int rv_dealloc_mw(struct ibv_mw *mw)
{
	struct rv_mw *w = container(mw, struct rv_mw, mw);
	int error = rv_call1(RV_FREE_MW, w->handle);

	if (error)
		return error;
	bound_to(w, NULL);
	__atomic_fetch_sub(&to_pd(mw->pd)->users, 1, __ATOMIC_ACQ_REL);
	free(w);
	return 0;
}

#define WINDOW_ACCESS                                                                        \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |         \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED)

/*
 * A request that binds a window of type 2, to the queue pair that it is posted to: the engine does
 * so in the request's turn. The key is the program's choice in its lowest octet.
 */
int rv_put_bind(struct rv_qp *q, struct rv_wqe *w, struct ibv_mw *mw, uint32_t rkey,
		const struct ibv_mw_bind_info *b)
{
	struct rv_mr *m = b->mr ? container(b->mr, struct rv_mr, mr) : NULL;

	if (!mw || mw->type != IBV_MW_TYPE_2 || mw->pd != q->qp.qp_base.pd || !m || m->mr.pd != mw->pd ||
	    !(m->access & IBV_ACCESS_MW_BIND) || !b->length ||
	    b->mw_access_flags & ~(unsigned int)WINDOW_ACCESS)
		return EINVAL;
	w->remote_stag = rkey;
	w->remote_offset = b->addr;
	w->local.stag = b->mw_access_flags;
	w->operands[0] = container(mw, struct rv_mw, mw)->handle;
	w->operands[1] = m->handle;
	w->operands[2] = b->length;
	return 0;
}

/*
 * The engine binds at once, which is earlier than the requests before it may be carried out, and
 * the new key is in mw->rkey. The completion takes its turn in the send queue, as that of a Write
 * of no octets, which the peer does not notice. A length of 0 unbinds.
 */
int rv_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	const struct ibv_mw_bind_info *b = &bind->bind_info;
	struct rv_mw *w = container(mw, struct rv_mw, mw);
	struct rv_mr *m = b->mr ? container(b->mr, struct rv_mr, mr) : NULL;
	struct rv_args a = { .arg = { w->handle, b->length && m ? m->handle : 0, b->addr, b->length,
				      b->mw_access_flags } };
	int error;

	if (rv_foreign_device(qp->context))
		return EPERM;
	if (mw->type != IBV_MW_TYPE_1 || qp->pd != mw->pd)
		return EINVAL;
	if (b->length && (!m || m->mr.pd != mw->pd || !(m->access & IBV_ACCESS_MW_BIND)))
		return EINVAL;
	if (b->mw_access_flags & ~(unsigned int)WINDOW_ACCESS)
		return EINVAL;
	error = rv_post_bind(qp, bind->wr_id, bind->send_flags, &a);
	if (error)
		return error;
	bound_to(w, b->length ? m : NULL);
	mw->rkey = (uint32_t)a.arg[0];
	return 0;
}

/* Of rdma-core 59: struct ibv_mr_init_attr, up to its memory. */
struct rv_mr_wanted {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
};
enum { WITH_IOVA = 1, WITH_ADDR = 2 };

struct ibv_mr *rv_reg_mr_ex(struct ibv_pd *pd, const struct rv_mr_wanted *m)
	__asm__("ibv_reg_mr_ex");
struct ibv_mr *rv_reg_mr_ex(struct ibv_pd *pd, const struct rv_mr_wanted *m)
{
	uint64_t iova = m->comp_mask & WITH_IOVA ? m->iova : (uintptr_t)m->addr;

	if (!(m->comp_mask & WITH_ADDR) || m->comp_mask & ~(uint64_t)(WITH_IOVA | WITH_ADDR)) {
		errno = EOPNOTSUPP; /* of a device's memory, with hints for its caches */
		return NULL;
	}
	return ibv_reg_mr_iova2(pd, m->addr, m->length, iova, (unsigned int)m->access);
}
