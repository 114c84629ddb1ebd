/* An opened device: its operations, which inline functions of verbs.h call through pointers. */
#include "shim.h"

/* The header's mark of a context with a verbs_context around it. */
#ifndef __VERBS_ABI_IS_EXTENDED
#define __VERBS_ABI_IS_EXTENDED ((void *)UINTPTR_MAX)
#endif

struct ibv_context *rv_open(void)
{
	static struct rv_sockets kind = { .size = sizeof(struct rv_context) };
	struct rv_context *x = rv_open_socket(&kind);
	struct ibv_context *c;
	struct rv_args a;
	int error;

	if (!x)
		return NULL;
	c = &x->verbs.context;
	x->cookie = rv_table_add(x);
	a = (struct rv_args){ .arg = { (uint64_t)x->events.engine_fd, x->cookie } };
	error = x->cookie ? rv_call(RV_OPEN, &a) : ENOMEM;
	x->events.process = rv_process(); /* which may have an engine only now */
	if (error) {
		rv_table_remove(x->cookie);
		rv_close(x->events.engine_fd);
		rv_close_socket(&x->events);
		errno = error;
		return NULL;
	}
	x->handle = a.arg[0];
	c->async_fd = x->events.fd;
	c->device = rv_device();
	c->cmd_fd = x->events.fd; /* which may be duplicated, for ibv_import_device to refuse it */
	c->num_comp_vectors = 1;
	c->abi_compat = __VERBS_ABI_IS_EXTENDED;
	pthread_mutex_init(&c->mutex, NULL);
	c->ops.alloc_mw = rv_alloc_mw;
	c->ops.bind_mw = rv_bind_mw;
	c->ops.dealloc_mw = rv_dealloc_mw;
	c->ops.poll_cq = rv_poll_cq;
	c->ops.req_notify_cq = rv_req_notify_cq;
	c->ops.post_srq_recv = rv_post_srq_recv;
	c->ops.post_send = rv_post_send;
	c->ops.post_recv = rv_post_recv;
	rv_gids_look(true);
	x->verbs.sz = sizeof x->verbs;
	x->verbs.query_port = rv_query_port;
	x->verbs.query_device_ex = rv_query_device_ex;
	x->verbs.advise_mr = rv_advise_mr;
	x->verbs.query_rt_values = rv_query_rt_values;
	x->verbs.create_cq_ex = rv_create_cq_ex;
	x->verbs.create_qp_ex = rv_create_qp_ex;
	x->verbs.create_srq_ex = rv_create_srq_ex;
	x->verbs.get_srq_num = rv_get_srq_num;
	return c;
}

int ibv_close_device(struct ibv_context *c)
{
	struct rv_context *x = to_context(c);
	int error = rv_call1(RV_CLOSE, x->handle);

	rv_table_remove(x->cookie);
	rv_close_socket(&x->events);
	pthread_mutex_destroy(&c->mutex);
	return rv_fail(error == EPERM ? 0 : error);
}

int ibv_fork_init(void)
{
	return 0; /* registered memory is the program's own, and stays where it is */
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}
