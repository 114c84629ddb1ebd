/*
 * The table of GIDs. As RoCE it has the addresses in use, an IPv4 address as ::ffff:a.b.c.d: this
 * host's, or those that the engine has alone. The default route's address comes first, because
 * programs that are told nothing take entry 0; loopback comes last. Link-local IPv6 addresses mean
 * nothing without an interface, which a GID does not name. An entry keeps its index while its
 * address is there. The table is read again when the device is opened, and after the engine has
 * said that addresses have changed.
 *
 * The device is at the interface of entry 0; while that is empty at the one that it had, as long as
 * there is such an interface.
 *
 * As iWARP it has one entry, the port's address in the first octets; the table then says only which
 * interface the device is at.
 */
#include "shim.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct rv_lock lock; /* of what follows */
static struct rv_gid table[RV_GIDS];
static bool looked, own;
static uint32_t own_mtu;
static uint8_t own_mac[6];
static char home[IF_NAMESIZE]; /* the interface; empty: none of the kernel's */
static uint32_t seen;          /* of rv_area->changes */

void rv_lock_gids(void)
{
	rv_lock(&lock);
}

void rv_unlock_gids(void)
{
	rv_unlock(&lock);
}

/* An EUI-64 of our own, locally administered. */
static const uint8_t fixed_guid[8] = { 0x02, 0x72, 0x6e, 0x69, 0x63, 0x64, 0x00, 0x01 };

/* The order of addresses in a new table. */
enum { DEFAULT4, GLOBAL4, DEFAULT6, GLOBAL6, LINK4, LOOPBACK4, LOOPBACK6, NEVER };

struct found {
	struct rv_gid g;
	int rank;
};

static bool of_address(union ibv_gid *gid, const struct sockaddr *a)
{
	memset(gid, 0, sizeof *gid);
	if (a && a->sa_family == AF_INET) {
		gid->raw[10] = gid->raw[11] = 0xff;
		memcpy(gid->raw + 12, &((const struct sockaddr_in *)a)->sin_addr, 4);
		return true;
	}
	if (a && a->sa_family == AF_INET6) {
		memcpy(gid->raw, &((const struct sockaddr_in6 *)a)->sin6_addr, 16);
		return true;
	}
	return false;
}

/* The address that the default route has, from the kernel's own choice; nothing is sent. */
static union ibv_gid default_source(int family)
{
	struct sockaddr_in to4 = { .sin_family = AF_INET, .sin_port = 9,
				   .sin_addr.s_addr = htonl(0xcb007101) }; /* TEST-NET-3 */
	struct sockaddr_in6 to6 = { .sin6_family = AF_INET6, .sin6_port = 9,
				    .sin6_addr.s6_addr = { 0x26 } };
	struct sockaddr_storage at;
	socklen_t size = sizeof at;
	union ibv_gid gid = { 0 };
	int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	long failed;

	if (fd < 0)
		return gid;
	failed = family == AF_INET ? syscall(SYS_connect, fd, &to4, sizeof to4) :
				     syscall(SYS_connect, fd, &to6, sizeof to6);
	if (!failed && !getsockname(fd, (struct sockaddr *)&at, &size))
		of_address(&gid, (struct sockaddr *)&at);
	rv_close(fd);
	return gid;
}

static int rank(const union ibv_gid *g, const union ibv_gid *default4,
		const union ibv_gid *default6)
{
	const struct in6_addr *a = (const struct in6_addr *)g->raw;

	if (IN6_IS_ADDR_V4MAPPED(a)) {
		if (g->raw[12] == 127)
			return LOOPBACK4;
		if (g->raw[12] == 169 && g->raw[13] == 254)
			return LINK4;
		return memcmp(g, default4, sizeof *g) ? GLOBAL4 : DEFAULT4;
	}
	if (IN6_IS_ADDR_LOOPBACK(a))
		return LOOPBACK6;
	if (IN6_IS_ADDR_LINKLOCAL(a))
		return NEVER;
	return memcmp(g, default6, sizeof *g) ? GLOBAL6 : DEFAULT6;
}

/* This host's addresses, the best first. */
static int look_at_host(struct found *all)
{
	union ibv_gid default4 = default_source(AF_INET), default6 = default_source(AF_INET6);
	struct ifaddrs *list = NULL;
	struct found f;
	int n = 0, at;

	if (getifaddrs(&list))
		return 0;
	for (struct ifaddrs *i = list; i; i = i->ifa_next) {
		memset(&f, 0, sizeof f);
		if (!(i->ifa_flags & IFF_UP) || !of_address(&f.g.gid, i->ifa_addr))
			continue;
		strncpy(f.g.interface, i->ifa_name, sizeof f.g.interface - 1);
		f.rank = rank(&f.g.gid, &default4, &default6);
		for (at = n; at > 0 && all[at - 1].rank > f.rank; at--)
			if (at < RV_GIDS)
				all[at] = all[at - 1];
		if (f.rank == NEVER || at == RV_GIDS)
			continue;
		all[at] = f;
		n += n < RV_GIDS;
	}
	freeifaddrs(list);
	return n;
}

static int index_in(const struct found *all, int n, const union ibv_gid *gid)
{
	for (int i = 0; i < n; i++)
		if (!memcmp(&all[i].g.gid, gid, sizeof *gid))
			return i;
	return -1;
}

bool rv_gid_is_set(const struct rv_gid *g)
{
	static const union ibv_gid none;

	return memcmp(&g->gid, &none, sizeof none);
}

/* The table is locked. */
static void settle_home(void)
{
	if (!table[0].interface[0] && (!home[0] || !if_nametoindex(home)))
		for (int i = RV_GIDS - 1; i > 0; i--)
			if (table[i].interface[0] && strcmp(table[i].interface, "lo"))
				memcpy(home, table[i].interface, sizeof home);
	if (table[0].interface[0])
		memcpy(home, table[0].interface, sizeof home);
}

/* Takes what is gone out of the table, and puts what is new where there is room. */
static void put(const struct found *all, int n)
{
	bool had[RV_GIDS] = { false };
	int at, free = 0;

	rv_lock(&lock);
	for (int i = 0; i < RV_GIDS; i++) {
		at = rv_gid_is_set(&table[i]) ? index_in(all, n, &table[i].gid) : -1;
		if (at < 0) {
			memset(&table[i], 0, sizeof table[i]);
		} else {
			table[i] = all[at].g;
			had[at] = true;
		}
	}
	for (int i = 0; i < n; i++) {
		while (free < RV_GIDS && rv_gid_is_set(&table[free]))
			free++;
		if (!had[i] && free < RV_GIDS)
			table[free] = all[i].g;
	}
	settle_home();
	store_release(&looked, true);
	rv_unlock(&lock);
}

/* Whether the environment may give the engine addresses of its own, which only it can tell. */
static bool engine_decides(void)
{
	static const char *const names[] = { "RNICD_CONFIG", "RNICD_PMD", "RNICD_DRIVER", "RNICD_ADDR",
					     "RNICD_ADDRESSES" };

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const char *value = rv_setting(names[i]);

		if (value && *value)
			return true;
	}
	return false;
}

void rv_gids_look(bool opened)
{
	union ibv_gid list[RV_GIDS];
	struct rv_args a = { .ret = list, .ret_size = sizeof list };
	struct found all[RV_GIDS] = { 0 }, of_engine[RV_GIDS] = { 0 };
	int before, error = errno, n, at;

	if (opened ? !rv_roce() : engine_decides())
		return;
	if (opened)
		__atomic_store_n(&seen, load_acquire(&rv_area->changes), __ATOMIC_RELAXED);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	n = look_at_host(all);
	if (opened && !rv_call(RV_ADDRESSES, &a) && a.ret_size) {
		int count = (int)(a.ret_size / sizeof *list);

		for (int i = 0; i < count; i++) {
			at = index_in(all, n, &list[i]);
			if (at >= 0)
				of_engine[i] = all[at];
			of_engine[i].g.gid = list[i];
		}
		rv_lock(&lock);
		own = a.arg[0] != 0;
		own_mtu = (uint32_t)a.arg[0];
		memcpy(own_mac, &a.arg[1], sizeof own_mac);
		rv_unlock(&lock);
		put(of_engine, count);
	} else {
		put(all, n);
	}
	if (opened) {
		char name[IF_NAMESIZE];

		rv_lock(&lock);
		memcpy(name, home, sizeof name);
		rv_unlock(&lock);
		a = (struct rv_args){ .data = name, .size = sizeof name };
		rv_call(RV_WATCH_PORT, &a);
	}
	pthread_setcancelstate(before, &before);
	errno = error;
}

static void look(void)
{
	if (!load_acquire(&looked))
		rv_gids_look(false);
	if (rv_process() && load_acquire(&rv_area->changes) != load_relaxed(&seen))
		rv_gids_look(true);
}

static bool entry(uint32_t index, struct rv_gid *g)
{
	look();
	rv_lock(&lock);
	*g = table[index];
	rv_unlock(&lock);
	return rv_gid_is_set(g);
}

/* The entry. False: there is none; it is zero then. */
bool rv_gid(uint32_t index, struct rv_gid *g)
{
	memset(g, 0, sizeof *g);
	if (rv_roce())
		return index < RV_GIDS && entry(index, g);
	if (index)
		return false;
	/* The GUID is in its second half, where others have it: programs look if it is there. */
	memcpy(g->gid.raw, fixed_guid, 6);
	memcpy(g->gid.raw + 8, fixed_guid, 8);
	return true;
}

/* The GID of an address, IPv4's as IPv6's mapped one. */
void rv_gid_of(union ibv_gid *gid, const struct sockaddr *a)
{
	memset(gid, 0, sizeof *gid);
	if (a->sa_family == AF_INET6) {
		memcpy(gid, &((const struct sockaddr_in6 *)a)->sin6_addr, sizeof *gid);
	} else if (a->sa_family == AF_INET) {
		gid->raw[10] = gid->raw[11] = 0xff;
		memcpy(gid->raw + 12, &((const struct sockaddr_in *)a)->sin_addr, 4);
	}
}

int rv_gid_index(const union ibv_gid *gid)
{
	struct rv_gid g;

	for (uint32_t i = 0; i < rv_gids(); i++)
		if (rv_gid(i, &g) && !memcmp(&g.gid, gid, sizeof *gid))
			return (int)i;
	return -1;
}

uint32_t rv_gids(void)
{
	return rv_roce() ? RV_GIDS : 1;
}

/* A number that the kernel writes about an interface, or -1. */
static int number_of(const char *interface, const char *what)
{
	char path[64 + IF_NAMESIZE], text[16] = "";
	int fd;

	snprintf(path, sizeof path, "/sys/class/net/%s/%s", interface, what);
	fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (syscall(SYS_read, fd, text, sizeof text - 1) <= 0)
		strcpy(text, "-1");
	rv_close(fd);
	return atoi(text);
}

/* The device was opened, so that this is known. */
bool rv_own_tcp(void)
{
	bool yes;

	rv_lock(&lock);
	yes = own;
	rv_unlock(&lock);
	return yes;
}

void rv_link(struct rv_link *l)
{
	struct ifreq request = { 0 };
	struct rv_gid g = { 0 };
	int fd, error = errno;

	memset(l, 0, sizeof *l);
	l->mbps = -1;
	look();
	rv_lock(&lock);
	memcpy(g.interface, home, sizeof home);
	if (own) {
		l->mtu = own_mtu;
		memcpy(l->mac, own_mac, sizeof own_mac);
	}
	rv_unlock(&lock);
	if (!g.interface[0])
		return;
	memcpy(l->interface, g.interface, sizeof l->interface);
	memcpy(request.ifr_name, g.interface, sizeof request.ifr_name);
	l->mbps = number_of(g.interface, "speed");
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0) {
		if (!ioctl(fd, SIOCGIFMTU, &request))
			l->mtu = (uint32_t)request.ifr_mtu;
		if (!ioctl(fd, SIOCGIFHWADDR, &request))
			memcpy(l->mac, request.ifr_hwaddr.sa_data, sizeof l->mac);
		rv_close(fd);
	}
	errno = error;
}

/* Whether the port is, as the engine has said; programs that have none only read files. */
bool rv_port_down(void)
{
	return rv_process() && load_acquire(&rv_area->port_down);
}

/*
 * As RoCE it is made of the host's first MAC, whichever addresses are in use: two hosts have two,
 * and all programs of a host the same.
 */
__be64 rv_guid(void)
{
	static uint64_t known; /* 0: not yet */
	uint64_t guid = load_relaxed(&known);
	struct ifaddrs *list = NULL;
	uint8_t octets[8];
	int before, first = 0, error = errno;

	if (guid)
		return guid;
	memcpy(octets, fixed_guid, sizeof octets);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	if (rv_roce() && !getifaddrs(&list)) {
		for (struct ifaddrs *i = list; i; i = i->ifa_next) {
			const struct sockaddr_ll *ll = (const struct sockaddr_ll *)i->ifa_addr;

			if (!ll || ll->sll_family != AF_PACKET || ll->sll_halen != 6 || !(i->ifa_flags & IFF_UP) ||
			    i->ifa_flags & IFF_LOOPBACK || (first && ll->sll_ifindex > first))
				continue;
			first = ll->sll_ifindex;
			memcpy(octets, ll->sll_addr, 3);
			octets[0] ^= 2;
			octets[3] = 0xff, octets[4] = 0xfe;
			memcpy(octets + 5, ll->sll_addr + 3, 3);
		}
		freeifaddrs(list);
	}
	pthread_setcancelstate(before, &before);
	errno = error;
	memcpy(&guid, octets, sizeof guid);
	__atomic_store_n(&known, guid, __ATOMIC_RELAXED);
	return guid;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	struct rv_gid g;

	(void)context;
	if (port != 1 || index < 0 || (uint32_t)index >= rv_gids())
		return rv_fail(EINVAL);
	rv_gid((uint32_t)index, &g); /* an empty entry is zero, as the kernel has it */
	*gid = g.gid;
	return 0;
}

static struct ibv_gid_entry entry_of(uint32_t index, const struct rv_gid *g)
{
	return (struct ibv_gid_entry){
		.gid = g->gid,
		.gid_index = index,
		.port_num = 1,
		.gid_type = rv_roce() ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_IB,
		.ndev_ifindex = g->interface[0] ? if_nametoindex(g->interface) : 0,
	};
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
		      struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	struct ibv_gid_entry all;
	struct rv_gid g;

	(void)context;
	if (flags || port != 1 || index >= rv_gids())
		return EINVAL;
	if (!rv_gid(index, &g))
		return ENODATA;
	all = entry_of(index, &g);
	memcpy(entry, &all, size < sizeof all ? size : sizeof all);
	return 0;
}

/* Only the entries that are there. */
ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
			     uint32_t flags, size_t size)
{
	struct ibv_gid_entry all;
	struct rv_gid g;
	size_t n = 0;

	(void)context;
	if (flags)
		return -EINVAL;
	for (uint32_t i = 0; i < rv_gids(); i++) {
		if (!rv_gid(i, &g))
			continue;
		if (n == max)
			return -EINVAL;
		all = entry_of(i, &g);
		memcpy((char *)entries + n++ * size, &all, size < sizeof all ? size : sizeof all);
	}
	return (ssize_t)n;
}

/* Of IBVERBS_PRIVATE_34, which perftest imports. */
enum { GID_TYPE_SYSFS_IB_ROCE_V1, GID_TYPE_SYSFS_ROCE_V2 };

int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type)
{
	(void)context;
	if (port != 1 || index >= rv_gids())
		return rv_fail(EINVAL);
	*type = rv_roce() ? GID_TYPE_SYSFS_ROCE_V2 : GID_TYPE_SYSFS_IB_ROCE_V1;
	return 0;
}

/* One partition key, as RoCE the default one with full membership; as iWARP none. */
__be16 rv_pkey(void)
{
	return rv_roce() ? 0xffff : 0;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	(void)context;
	if (port != 1 || index != 0)
		return rv_fail(EINVAL);
	*pkey = rv_pkey();
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	(void)context;
	return port == 1 && pkey == rv_pkey() ? 0 : -1;
}
