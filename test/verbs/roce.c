/*
 * The device as a RoCE adapter: what it says of itself. The arguments are the addresses that its
 * table of GIDs has, in this order.
 */
#include "walk.h"

#include <arpa/inet.h>

/* Of IBVERBS_PRIVATE_34, as perftest calls it. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type);

static union ibv_gid gid_of(const char *address)
{
	union ibv_gid g = { 0 };

	if (inet_pton(AF_INET6, address, g.raw) == 1)
		return g;
	g.raw[10] = g.raw[11] = 0xff;
	CHECK(inet_pton(AF_INET, address, g.raw + 12) == 1);
	return g;
}

static void table(struct ibv_context *c, int n, char **addresses)
{
	struct ibv_gid_entry all[80], entry;
	union ibv_gid g, none = { 0 };
	struct ibv_port_attr port;
	char text[64];
	int type;

	CHECK(!ibv_query_port(c, 1, &port) && port.gid_tbl_len > n && port.gid_tbl_len <= 80);
	CHECK(ibv_query_gid_table(c, all, 80, 0) >= n);
	for (int i = 0; i < n; i++) {
		g = gid_of(addresses[i]);
		if (memcmp(&all[i].gid, &g, sizeof g)) {
			fprintf(stderr, "entry %d is %s\n", i, inet_ntop(AF_INET6, &all[i].gid, text, sizeof text));
			exit(1);
		}
		CHECK(all[i].gid_index == (uint32_t)i && all[i].gid_type == IBV_GID_TYPE_ROCE_V2 &&
		      all[i].port_num == 1);
		CHECK(!ibv_query_gid_ex(c, 1, i, &entry, 0) && !memcmp(&entry, &all[i], sizeof entry));
		CHECK(!ibv_query_gid(c, 1, i, &g) && !memcmp(&g, &entry.gid, sizeof g));
		CHECK(!ibv_query_gid_type(c, 1, i, &type) && type == 1);
	}
	CHECK(ibv_query_gid_table(c, all, 80, 0) == n);
	FAILS(-ibv_query_gid_table(c, all, n - 1, 0), EINVAL);
	FAILS(ibv_query_gid_ex(c, 1, n, &entry, 0), ENODATA);
	FAILS(ibv_query_gid_ex(c, 1, port.gid_tbl_len, &entry, 0), EINVAL);
	CHECK(!ibv_query_gid(c, 1, n, &g) && !memcmp(&g, &none, sizeof g));
	FAILS(ibv_query_gid(c, 1, port.gid_tbl_len, &g), EINVAL);
}

static void handles(struct ibv_context *c, const char *address)
{
	struct ibv_ah_attr attr = { .port_num = 1, .is_global = 1, .grh = { .hop_limit = 64 } }, back;
	union ibv_gid own = gid_of(address);
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH };
	struct ibv_grh grh = { 0 };
	struct ibv_pd *pd = ibv_alloc_pd(c);
	uint8_t mac[6];
	struct ibv_ah *ah;
	uint16_t vid = 0;

	CHECK(pd && !ibv_create_ah(pd, &attr) && errno == EINVAL); /* to nowhere */
	attr.grh.dgid = own;
	CHECK((ah = ibv_create_ah(pd, &attr)) && ah->pd == pd && ah->context == c);
	FAILS(ibv_dealloc_pd(pd), EBUSY);
	CHECK(!ibv_destroy_ah(ah));
	CHECK(!ibv_resolve_eth_l2_from_gid(c, &attr, mac, &vid) && vid == 0xffff);
	attr.is_global = 0;
	CHECK(!ibv_create_ah(pd, &attr) && errno == EINVAL);
	attr.is_global = 1;
	attr.grh.sgid_index = 60;
	CHECK(!ibv_create_ah(pd, &attr) && errno == EINVAL);
	attr.grh.dgid.raw[15] ^= 0x55;
	FAILS(ibv_resolve_eth_l2_from_gid(c, &attr, mac, &vid), EHOSTUNREACH);

	/* the way back of a datagram over IPv6 */
	grh.version_tclass_flow = htonl(6u << 28 | 7 << 20 | 5);
	grh.sgid = gid_of("2001:db8::5");
	grh.dgid = own;
	CHECK(!ibv_init_ah_from_wc(c, 1, &wc, &grh, &back));
	CHECK(!memcmp(&back.grh.dgid, &grh.sgid, 16) && !back.grh.sgid_index &&
	      back.grh.traffic_class == 7 && back.grh.flow_label == 5);
	CHECK((ah = ibv_create_ah_from_wc(pd, &wc, &grh, 1)) && !ibv_destroy_ah(ah));
	grh.dgid = grh.sgid; /* not to us */
	FAILS(ibv_init_ah_from_wc(c, 1, &wc, &grh, &back), EINVAL);

	/* and over IPv4, whose header is in the second half */
	if (!memcmp(own.raw, gid_of("0.0.0.0").raw, 12)) {
		uint8_t *h = (uint8_t *)&grh + 20;
		uint32_t sum = 0;

		memset(&grh, 0, sizeof grh);
		h[0] = 0x45, h[1] = 9;
		inet_pton(AF_INET, "192.0.2.77", h + 12);
		memcpy(h + 16, own.raw + 12, 4);
		for (int i = 0; i < 20; i += 2)
			sum += (uint32_t)(h[i] << 8 | h[i + 1]);
		sum = ~((sum >> 16) + (sum & 0xffff));
		h[10] = sum >> 8 & 0xff, h[11] = sum & 0xff;
		CHECK(!ibv_init_ah_from_wc(c, 1, &wc, &grh, &back) && back.grh.traffic_class == 9);
		CHECK(!memcmp(back.grh.dgid.raw, gid_of("192.0.2.77").raw, 16));
	}
	CHECK(!ibv_dealloc_pd(pd));
}

/* The engine has it, too. */
static void datagrams(struct ibv_context *c)
{
	struct ibv_cq *cq = ibv_create_cq(c, 4, NULL, NULL, 0);
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD, .cap = { 4, 4, 1, 1, 0 },
					 .send_cq = cq, .recv_cq = cq };
	struct ibv_qp *qp;

	CHECK(cq && pd && (qp = ibv_create_qp(pd, &init)));
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
}

int main(int argc, char **argv)
{
	/* a program may decide it itself, before its first call */
	int n = setenv("RNICD_DEVICE", "roce", 1);
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	struct ibv_context *c;
	uint16_t pkey;

	CHECK(n == 1 && list[0]->transport_type == IBV_TRANSPORT_IB &&
	      list[0]->node_type == IBV_NODE_CA);
	CHECK(c = ibv_open_device(list[0]));
	CHECK(!ibv_query_device(c, &attr) && attr.node_guid == ibv_get_device_guid(list[0]) &&
	      attr.max_ah > 0 && attr.max_srq_sge >= 2);
	CHECK(!ibv_query_port(c, 1, &port) && port.state == IBV_PORT_ACTIVE &&
	      port.link_layer == IBV_LINK_LAYER_ETHERNET && port.flags & IBV_QPF_GRH_REQUIRED);
	CHECK(port.pkey_tbl_len == 1 && !ibv_query_pkey(c, 1, 0, &pkey) && pkey == 0xffff &&
	      !ibv_get_pkey_index(c, 1, pkey));
	CHECK(ibv_get_pkey_index(c, 1, 0) == -1);
	table(c, argc - 1, argv + 1);
	handles(c, argv[1]);
	if (!strcmp(argv[1], "127.0.0.1"))
		datagrams(c); /* not over our own TCP */
	CHECK(!ibv_close_device(c));
	printf("mtu %d\nall well\n", 128 << port.active_mtu);
	return 0;
}
