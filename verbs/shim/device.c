/* The one device, and its attributes: an RNIC with one Ethernet port. */
#include "shim.h"

static struct ibv_device device = {
	.node_type = IBV_NODE_RNIC,
	.transport_type = IBV_TRANSPORT_IWARP,
	.name = "rnicd0",
	.dev_name = "uverbs0",
	.dev_path = "/sys/class/infiniband_verbs/uverbs0",
	.ibdev_path = "/sys/class/infiniband/rnicd0",
};

/* An EUI-64 of our own, locally administered. */

static __be64 guid(void)
{
	static const uint8_t octets[8] = { 0x02, 0x72, 0x6e, 0x69, 0x63, 0x64, 0x00, 0x01 };
	__be64 g;

	memcpy(&g, octets, sizeof g);
	return g;
}

struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list = calloc(2, sizeof *list);

	if (!list) {
		errno = ENOMEM;
		if (n)
			*n = 0;
		return NULL;
	}
	list[0] = &device;
	if (n)
		*n = 1;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *d)
{
	return d->name;
}

__be64 ibv_get_device_guid(struct ibv_device *d)
{
	(void)d;
	return guid();
}

int ibv_get_device_index(struct ibv_device *d)
{
	(void)d;
	return -1; /* what a kernel without the query says */
}

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	if (d != &device) {
		errno = ENODEV;
		return NULL;
	}
	return rv_open();
}

struct ibv_device *rv_device(void)
{
	return &device;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	(void)context;
	*attr = (struct ibv_device_attr){
		.fw_ver = "rnicd",
		.node_guid = guid(),
		.sys_image_guid = guid(),
		.max_mr_size = RV_MR_SIZE_MAX,
		.page_size_cap = 0xfffffffffffff000ull,
		.vendor_id = 0x726e69,
		.max_qp = RV_QPS_MAX,
		.max_qp_wr = RV_WR_MAX,
		.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_MEM_WINDOW |
				    IBV_DEVICE_MEM_MGT_EXTENSIONS,
		.max_sge = RV_SGE_MAX,
		.max_sge_rd = 1,
		.max_cq = RV_CQS_MAX,
		.max_cqe = RV_CQE_MAX,
		.max_mr = RV_MRS_MAX,
		.max_pd = RV_PDS_MAX,
		.max_qp_rd_atom = RV_READS_MAX,
		.max_res_rd_atom = RV_READS_MAX * RV_QPS_MAX,
		.max_qp_init_rd_atom = RV_READS_MAX,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_mw = RV_MWS_MAX,
		.max_srq = RV_SRQS_MAX,
		.max_srq_wr = RV_WR_MAX,
		.max_srq_sge = RV_SRQ_RANGES_MAX,
		.max_pkeys = 1,
		.phys_port_cnt = 1,
	};
	return 0;
}

int rv_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		       struct ibv_device_attr_ex *attr, size_t size)
{
	struct ibv_device_attr_ex all = { .phys_port_cnt_ex = 1 };

	if (input && input->comp_mask)
		return EINVAL;
	if (size < sizeof all.orig_attr)
		return EINVAL;
	ibv_query_device(context, &all.orig_attr);
	all.device_cap_flags_ex = all.orig_attr.device_cap_flags;
	memcpy(attr, &all, size < sizeof all ? size : sizeof all);
	if (size > sizeof all)
		memset((char *)attr + sizeof all, 0, size - sizeof all);
	return 0;
}

int rv_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		  size_t size)
{
	struct ibv_port_attr all = {
		.state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = IBV_MTU_1024,
		.gid_tbl_len = RV_GIDS,
		.port_cap_flags = IBV_PORT_CM_SUP,
		.max_msg_sz = RV_MESSAGE_MAX,
		.pkey_tbl_len = 1,
		.max_vl_num = 1,
		.active_width = 2, /* 4X */
		.active_speed = 4, /* of 10 Gbit/s in all, or whatever the host has */
		.phys_state = 5,   /* LinkUp */
		.link_layer = IBV_LINK_LAYER_ETHERNET,
	};

	(void)context;
	if (port != 1)
		return EINVAL;
	memset(attr, 0, size);
	memcpy(attr, &all, size < sizeof all ? size : sizeof all);
	return 0;
}

/* The struct of those that were compiled before ibv_port_attr grew ends before link_layer's flags.
 */
int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return rv_query_port(context, port, (struct ibv_port_attr *)attr,
			     offsetof(struct ibv_port_attr, port_cap_flags2));
}

/*
 * As iWARP devices have it: one GID, the port's address in its first octets. The GUID is in its
 * second half, where others have it, and programs look whether a GID is there.
 */
int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	__be64 g = guid();

	(void)context;
	if (port != 1 || index < 0 || index >= RV_GIDS)
		return rv_fail(EINVAL);
	memset(gid, 0, sizeof *gid);
	memcpy(gid->raw, &g, 6);
	gid->global.interface_id = g;
	return 0;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
		      struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	struct ibv_gid_entry all = { .gid_index = index, .port_num = port, .gid_type = IBV_GID_TYPE_IB };

	if (flags || port != 1 || index >= RV_GIDS)
		return EINVAL;
	ibv_query_gid(context, 1, (int)index, &all.gid);
	memcpy(entry, &all, size < sizeof all ? size : sizeof all);
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
			     uint32_t flags, size_t size)
{
	int error;

	if (flags || max < RV_GIDS)
		return -EINVAL;
	error = _ibv_query_gid_ex(context, 1, 0, entries, 0, size);
	return error ? -error : 1;
}

enum { GID_TYPE_SYSFS_IB_ROCE_V1 }; /* of IBVERBS_PRIVATE_34, which perftest imports */

int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type)
{
	(void)context;
	if (port != 1 || index >= RV_GIDS)
		return rv_fail(EINVAL);
	*type = GID_TYPE_SYSFS_IB_ROCE_V1;
	return 0;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	(void)context;
	if (port != 1 || index != 0)
		return rv_fail(EINVAL);
	*pkey = 0;
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	(void)context;
	return port == 1 && pkey == 0 ? 0 : -1;
}
