/* The one device, and its attributes: an RNIC with one Ethernet port. */
#include "shim.h"

#define LOOKS                                                    \
	.name = "rnicd0", .dev_name = "uverbs0",                 \
	.dev_path = "/sys/class/infiniband_verbs/uverbs0",       \
	.ibdev_path = "/sys/class/infiniband/rnicd0"

static struct ibv_device rnic = {
	.node_type = IBV_NODE_RNIC, .transport_type = IBV_TRANSPORT_IWARP, LOOKS
};
static struct ibv_device roce = {
	.node_type = IBV_NODE_CA, .transport_type = IBV_TRANSPORT_IB, LOOKS
};

/*
 * What the device looks like, from RNICD_DEVICE: an RNIC, which programs reach by librdmacm, or a
 * RoCE adapter, for programs that know no other (docs/adr/0047-device.md). It is decided once.
 */
bool rv_roce(void)
{
	static uint32_t decided; /* 1: an RNIC, 2: RoCE */
	uint32_t is = load_relaxed(&decided);

	if (!is) {
		const char *value = rv_setting("RNICD_DEVICE");

		is = value && !strcmp(value, "roce") ? 2 : 1;
		__atomic_store_n(&decided, is, __ATOMIC_RELAXED);
	}
	return is == 2;
}

struct ibv_device *rv_device(void)
{
	return rv_roce() ? &roce : &rnic;
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
	list[0] = rv_device();
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
	return rv_guid();
}

int ibv_get_device_index(struct ibv_device *d)
{
	(void)d;
	return -1; /* what a kernel without the query says */
}

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	if (d != rv_device()) {
		errno = ENODEV;
		return NULL;
	}
	return rv_open();
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	(void)context;
	*attr = (struct ibv_device_attr){
		.fw_ver = "rnicd",
		.node_guid = rv_guid(),
		.sys_image_guid = rv_guid(),
		.max_mr_size = RV_MR_SIZE_MAX,
		.page_size_cap = 0xfffffffffffff000ull,
		.vendor_id = 0x726e69,
		.max_qp = RV_QPS_MAX,
		.max_qp_wr = RV_WR_MAX,
		.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_MEM_WINDOW |
				    IBV_DEVICE_MEM_WINDOW_TYPE_2B |
				    IBV_DEVICE_MEM_MGT_EXTENSIONS,
		.max_sge = RV_SGE_MAX,
		.max_sge_rd = rv_read_ranges(),
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
	if (rv_roce()) {
		attr->device_cap_flags |= IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID;
		attr->max_ah = RV_AHS_MAX;
		if (!rv_own_tcp()) {
			attr->max_mcast_grp = RV_GROUPS_MAX;
			attr->max_mcast_qp_attach = RV_QPS_MAX;
			attr->max_total_mcast_qp_attach = RV_QPS_MAX;
		}
		attr->local_ca_ack_delay = 15; /* 0.13 s, as soft-RoCE */
	}
	return 0;
}

#define ODP_UD (IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV)
#define ODP_RC \
	(ODP_UD | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC)

int rv_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		       struct ibv_device_attr_ex *attr, size_t size)
{
	struct ibv_device_attr_ex all = { .phys_port_cnt_ex = 1 };

	if (input && input->comp_mask)
		return EINVAL;
	if (size < sizeof all.orig_attr)
		return EINVAL;
	ibv_query_device(context, &all.orig_attr);
	/* nothing is pinned, so all memory is paged on demand */
	all.odp_caps.general_caps = IBV_ODP_SUPPORT;
	all.odp_caps.per_transport_caps.rc_odp_caps = ODP_RC;
	if (rv_roce())
		all.odp_caps.per_transport_caps.ud_odp_caps = ODP_UD;
	all.completion_timestamp_mask = UINT64_MAX;
	all.hca_core_clock = 1000000; /* kHz */
	all.device_cap_flags_ex = all.orig_attr.device_cap_flags;
	memcpy(attr, &all, size < sizeof all ? size : sizeof all);
	if (size > sizeof all)
		memset((char *)attr + sizeof all, 0, size - sizeof all);
	return 0;
}

/* The clock of completions, in its ticks, as HCAs tell it. */
int rv_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	(void)context;
	if (values->comp_mask & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK)
		return EOPNOTSUPP;
	if (values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK)
		values->raw_clock = (struct timespec){ .tv_nsec = (long)rv_now_ns() };
	return 0;
}

/* The octets of a message in a packet: what RoCE's headers leave of the interface's MTU. */
static enum ibv_mtu path_mtu(uint32_t mtu)
{
	static const enum ibv_mtu sizes[] = { IBV_MTU_4096, IBV_MTU_2048, IBV_MTU_1024, IBV_MTU_512 };
	const uint32_t headers = 40 + 8 + 12 + 4 + 28 + 4;

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		if (mtu >= headers + (128u << sizes[i]))
			return sizes[i];
	return IBV_MTU_256;
}

/* What the kernel says of an Ethernet port of such a speed; 4X QDR where that is unknown. */
static const struct speed {
	int mbps;
	uint8_t width, speed;
	const char *text;
} speeds[] = {
	{ 0, 2, 4, "40 Gb/sec (4X QDR)" },        { 1000, 1, 1, "2.5 Gb/sec (1X SDR)" },
	{ 10000, 1, 8, "10 Gb/sec (1X FDR10)" },  { 20000, 2, 2, "20 Gb/sec (4X DDR)" },
	{ 25000, 1, 32, "25 Gb/sec (1X EDR)" },   { 40000, 2, 8, "40 Gb/sec (4X FDR10)" },
	{ 50000, 1, 64, "50 Gb/sec (1X HDR)" },   { 100000, 2, 32, "100 Gb/sec (4X EDR)" },
	{ 200000, 2, 64, "200 Gb/sec (4X HDR)" }, { 400000, 2, 128, "400 Gb/sec (4X NDR)" },
};

static const struct speed *speed_of(int mbps)
{
	size_t i = 1;

	if (mbps <= 0)
		return &speeds[0];
	while (i + 1 < sizeof speeds / sizeof *speeds && speeds[i].mbps < mbps)
		i++;
	return &speeds[i];
}

const char *rv_rate(void)
{
	struct rv_link l;

	rv_link(&l);
	return speed_of(l.mbps)->text;
}

int rv_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		  size_t size)
{
	struct ibv_port_attr all = {
		.state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = IBV_MTU_1024,
		.gid_tbl_len = (int)rv_gids(),
		.port_cap_flags = RV_PORT_CAPS,
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
	if (rv_roce()) {
		struct rv_link l;

		rv_link(&l);
		if (rv_port_down()) {
			all.state = IBV_PORT_DOWN;
			all.phys_state = 3; /* Disabled */
		}
		all.active_mtu = path_mtu(l.mtu);
		all.active_width = speed_of(l.mbps)->width;
		all.active_speed = speed_of(l.mbps)->speed;
		all.flags = IBV_QPF_GRH_REQUIRED;
		if (rv_area)
			all.qkey_viol_cntr = (uint32_t)load_relaxed(&rv_area->drops[RV_DROP_Q_KEY]);
	}
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

/* Of rdma-core 62: in 100 Mbit/s. */
int rv_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed)
	__asm__("ibv_query_port_speed");
int rv_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed)
{
	struct rv_link l;

	(void)context;
	if (port != 1)
		return EINVAL;
	rv_link(&l);
	*speed = l.mbps > 0 ? (uint64_t)l.mbps / 100 : 400;
	return 0;
}
