/* What iWARP has not, or this library: refused as a device without it does. */
#include "shim.h"

#define NULL_OPNOTSUPP              \
	do {                        \
		errno = EOPNOTSUPP; \
		return NULL;        \
	} while (0)

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

/*
 * What libibverbs and librdmacm have got since Debian 12's, up to rdma-core 65: programs that were
 * built with newer headers are not loaded without. The C names are others, as those headers may be
 * here, with types that we do not know.
 */
#define NEWER(result, name, ...)                            \
	result rv_newer_##name(__VA_ARGS__) __asm__(#name); \
	result rv_newer_##name(__VA_ARGS__)

#define NEWER_NULL(name)                         \
	NEWER(void *, name, void)                \
	{                                        \
		NULL_OPNOTSUPP;                  \
	}
#define NEWER_ERROR(name)                        \
	NEWER(int, name, void)                   \
	{                                        \
		return EOPNOTSUPP;               \
	}
#define NEWER_MINUS(name)                        \
	NEWER(int, name, void)                   \
	{                                        \
		return rv_fail(EOPNOTSUPP);      \
	}

NEWER_NULL(ibv_alloc_dmah)
NEWER_ERROR(ibv_dealloc_dmah)
NEWER_MINUS(ibv_dm_export_dmabuf_fd)
NEWER_NULL(ibv_alloc_buf)
NEWER_NULL(ibv_reg_buf_mr)
NEWER_MINUS(ibv_export_buf_dmabuf_fd)
NEWER_ERROR(_ibv_query_comp_cntr_caps)
NEWER_NULL(ibv_create_comp_cntr)
NEWER_ERROR(ibv_destroy_comp_cntr)
NEWER_ERROR(ibv_inc_comp_cntr)
NEWER_ERROR(ibv_inc_err_comp_cntr)
NEWER_ERROR(ibv_qp_attach_comp_cntr)
NEWER_ERROR(ibv_read_comp_cntr)
NEWER_ERROR(ibv_read_err_comp_cntr)
NEWER_ERROR(ibv_set_comp_cntr)
NEWER_ERROR(ibv_set_err_comp_cntr)
NEWER_MINUS(rdma_query_addrinfo)
NEWER_MINUS(rdma_resolve_addrinfo)
NEWER_MINUS(rdma_write_cm_event)

NEWER(void, ibv_free_buf, void *buf)
{
	(void)buf;
}
