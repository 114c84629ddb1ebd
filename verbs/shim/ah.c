/*
 * Address handles, of the device as RoCE: where datagrams go. As iWARP there are none. They are
 * objects of this library alone, which keep what the program has said.
 */
#include "shim.h"

#include <netinet/in.h>
#include <netinet/ip.h>

/*
 * As the kernel's RoCE drivers check it: an address of a network needs a GID at both ends. The
 * rsockets of librdmacm know LIDs only when they make a handle to themselves, which fails over RoCE
 * adapters.
 */
static int check(struct ibv_pd *pd, struct ibv_ah_attr *attr, union ibv_gid *source)
{
	static const union ibv_gid none;
	struct rv_gid g;

	if (!attr->is_global && !attr->dlid && rv_is_of_ids(pd) && rv_gid(0, &g)) {
		attr->is_global = 1;
		attr->grh = (struct ibv_global_route){ .dgid = g.gid };
	}
	if (attr->port_num != 1 || !attr->is_global || attr->grh.sgid_index >= rv_gids() ||
	    !memcmp(&attr->grh.dgid, &none, sizeof none) || !rv_gid(attr->grh.sgid_index, &g))
		return EINVAL;
	*source = g.gid;
	return 0;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *given)
{
	struct ibv_ah_attr kept, *attr = &kept;
	union ibv_gid source;
	struct rv_ah *a;
	int error = !rv_roce() ? EOPNOTSUPP : rv_foreign_device(pd->context) ? EPERM : 0;

	if (!error) {
		kept = *given;
		error = check(pd, attr, &source);
	}
	if (!error && !(a = calloc(1, sizeof *a)))
		error = ENOMEM;
	if (error) {
		errno = error;
		return NULL;
	}
	a->ah.context = pd->context;
	a->ah.pd = pd;
	a->attr = *attr;
	a->source = source;
	rv_keep_source(attr->grh.sgid_index, &source);
	__atomic_fetch_add(&to_pd(pd)->users, 1, __ATOMIC_RELAXED);
	return &a->ah;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	if (!rv_roce())
		return EINVAL;
	__atomic_fetch_sub(&to_pd(ah->pd)->users, 1, __ATOMIC_RELEASE);
	free(to_ah(ah));
	return 0;
}

/* The header of IPv4 is in the second half of the 40 octets, after 20 that mean nothing. */
static bool is_ipv4(const struct ibv_grh *grh)
{
	const uint8_t *header = (const uint8_t *)grh + 20;
	uint32_t sum = 0;

	if (header[0] != 0x45)
		return false;
	for (int i = 0; i < 20; i += 2)
		sum += (uint32_t)(header[i] << 8 | header[i + 1]);
	return (sum >> 16) + (sum & 0xffff) == 0xffff;
}

static void mapped(union ibv_gid *gid, const void *address)
{
	memset(gid, 0, sizeof *gid);
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, address, 4);
}

/* The way back to where a datagram came from. */
int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc,
			struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	const struct ip *ip = (const struct ip *)((const uint8_t *)grh + 20);
	uint32_t first;
	union ibv_gid own;
	int index;

	(void)context;
	if (!rv_roce())
		return rv_fail(EOPNOTSUPP);
	if (port != 1 || !(wc->wc_flags & IBV_WC_GRH))
		return rv_fail(EINVAL);
	memset(attr, 0, sizeof *attr);
	attr->port_num = port;
	attr->sl = wc->sl;
	attr->is_global = 1;
	attr->grh.hop_limit = 0xff;
	if (is_ipv4(grh)) {
		mapped(&attr->grh.dgid, &ip->ip_src);
		mapped(&own, &ip->ip_dst);
		attr->grh.traffic_class = ip->ip_tos;
	} else {
		first = ntohl(grh->version_tclass_flow);
		attr->grh.dgid = grh->sgid;
		own = grh->dgid;
		attr->grh.flow_label = first & 0xfffff;
		attr->grh.traffic_class = first >> 20 & 0xff;
	}
	index = rv_gid_index(&own);
	if (index < 0)
		return rv_fail(EINVAL);
	attr->grh.sgid_index = (uint8_t)index;
	return 0;
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
				     uint8_t port)
{
	struct ibv_ah_attr attr;

	return ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) ? NULL : ibv_create_ah(pd, &attr);
}

/* Known of our own addresses; others are the network's to find. */
int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
				uint8_t mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	struct rv_link l;

	(void)context;
	if (!rv_roce())
		return rv_fail(EOPNOTSUPP);
	if (rv_gid_index(&attr->grh.dgid) < 0)
		return rv_fail(EHOSTUNREACH);
	rv_link(&l);
	memcpy(mac, l.mac, ETHERNET_LL_SIZE);
	if (vid)
		*vid = 0xffff; /* no VLAN */
	return 0;
}
