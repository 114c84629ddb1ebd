/*
 * What the kernel would have of the device below /sys/class and /dev, had it one. Programs read
 * that besides verbs: files.c answers them from this table. Where the kernel has devices of its
 * own, these replace them, as ibv_get_device_list does.
 *
 * The interface of the first GID is the parent of the device. Where that interface has a device of
 * the kernel's, so has ours, with its processors and its place on the bus.
 *
 * This file, files.c and directories.c are built without sanitizers, which call the C library
 * early.
 */
#include "shim.h"

#include <sys/syscall.h>
#include <unistd.h>

#define CLASS "/sys/class/infiniband"
#define DEVICE CLASS "/rnicd0"
#define PORT DEVICE "/ports/1"
#define VERBS CLASS "_verbs"
#define UVERBS VERBS "/uverbs0"
#define DEV "/dev/infiniband"

/* A path; "#" is an index of the table of GIDs, "@" at the end the interface. */
static const struct node {
	const char *path;
	enum { DIR_, TEXT, GUID, GID, NDEV, TYPE, RATE, CAPS, STATE, PHYS, VIA } what;
	const char *text; /* as an RNIC; of VIA where it is in truth, followed by the rest of the path */
	const char *roce; /* where that differs */
} nodes[] = {
	{ CLASS, DIR_, 0, 0 },
	{ DEVICE, DIR_, 0, 0 },
	{ DEVICE "/node_type", TEXT, "4: RNIC", "1: CA" },
	{ DEVICE "/node_guid", GUID, 0, 0 },
	{ DEVICE "/sys_image_guid", GUID, 0, 0 },
	{ DEVICE "/node_desc", TEXT, "rnicd", 0 },
	{ DEVICE "/fw_ver", TEXT, "rnicd", 0 },
	{ DEVICE "/hw_rev", TEXT, "0", 0 },
	{ DEVICE "/hca_type", TEXT, "rnicd", 0 },
	{ DEVICE "/board_id", TEXT, "rnicd", 0 },
	{ DEVICE "/device", DIR_, 0, 0 },
	{ DEVICE "/device/numa_node", TEXT, "-1", 0 },
	{ DEVICE "/device/local_cpulist", VIA, "/sys/devices/system/cpu/online", 0 },
	{ DEVICE "/device/local_cpus", VIA, "/sys/devices/system/node/node0/cpumap", 0 },
	{ DEVICE "/device/net", DIR_, 0, 0 },
	{ DEVICE "/device/net/@", VIA, "/sys/class/net/@", 0 },
	{ DEVICE "/ports", DIR_, 0, 0 },
	{ PORT, DIR_, 0, 0 },
	{ PORT "/cap_mask", CAPS, 0, 0 },
	{ PORT "/gid_attrs", DIR_, 0, 0 },
	{ PORT "/gid_attrs/ndevs", DIR_, 0, 0 },
	{ PORT "/gid_attrs/ndevs/#", NDEV, 0, 0 },
	{ PORT "/gid_attrs/types", DIR_, 0, 0 },
	{ PORT "/gid_attrs/types/#", TYPE, "IB/RoCE v1", "RoCE v2" },
	{ PORT "/gids", DIR_, 0, 0 },
	{ PORT "/gids/#", GID, 0, 0 },
	{ PORT "/lid", TEXT, "0x0", 0 },
	{ PORT "/lid_mask_count", TEXT, "0", 0 },
	{ PORT "/link_layer", TEXT, "Ethernet", 0 },
	{ PORT "/phys_state", PHYS, 0, 0 },
	{ PORT "/pkeys", DIR_, 0, 0 },
	{ PORT "/pkeys/0", TEXT, "0x0000", "0xffff" },
	{ PORT "/rate", RATE, 0, 0 },
	{ PORT "/sm_lid", TEXT, "0x0", 0 },
	{ PORT "/sm_sl", TEXT, "0", 0 },
	{ PORT "/state", STATE, 0, 0 },
	{ VERBS, DIR_, 0, 0 },
	{ VERBS "/abi_version", TEXT, "6", 0 },
	{ UVERBS, DIR_, 0, 0 },
	{ UVERBS "/abi_version", TEXT, "1", 0 },
	{ UVERBS "/dev", TEXT, "1:3", 0 }, /* what uverbs0 is */
	{ UVERBS "/device", VIA, DEVICE "/device", 0 },
	{ UVERBS "/ibdev", TEXT, "rnicd0", 0 },
	{ CLASS "_mad", DIR_, 0, 0 }, /* libibumad looks whether there is one */
	{ CLASS "_mad/abi_version", TEXT, "5", 0 },
	{ DEV, DIR_, 0, 0 },
	/* A character device that may be read and written. */
	{ DEV "/rdma_cm", VIA, "/dev/null", 0 },
	{ DEV "/uverbs0", VIA, "/dev/null", 0 },
};
#define NODES (int)(sizeof nodes / sizeof *nodes)

static bool begins(const char *path, const char *with)
{
	return !strncmp(path, with, strlen(with));
}

/* The working directory, if that is one of ours; relative paths begin there. */
static char here[RV_PATH];

void rv_path_enter(const char *directory)
{
	if (here[0] || directory[0]) /* a child of vfork writes nothing */
		strcpy(here, directory);
}

const char *rv_path_here(void)
{
	return here;
}

bool rv_path_may_be(const char *path)
{
	const char *rest;

	if (path[0] != '/')
		return here[0] && path[0];
	if (begins(path, DEV))
		rest = path + sizeof DEV - 1;
	else if (!begins(path, CLASS))
		return false;
	else if (begins(rest = path + sizeof CLASS - 1, "_verbs"))
		rest += 6;
	else if (begins(rest, "_mad"))
		rest += 4;
	return !*rest || *rest == '/';
}

static void interface(char *name)
{
	struct rv_link l;

	rv_link(&l);
	memcpy(name, l.interface, sizeof l.interface);
}

/* Whether the interface has a device of the kernel's, and where. */
static bool has_device(char *path, size_t size)
{
	char name[IF_NAMESIZE];
	int error = errno;
	bool has;

	interface(name);
	snprintf(path, size, "/sys/class/net/%s/device", name);
	has = name[0] && !syscall(SYS_faccessat, AT_FDCWD, path, F_OK);
	errno = error;
	return has;
}

/* What of a node's path is left after its part that path matches; NULL: another one. */
static const char *match(const char *path, const char *pattern, uint32_t *index)
{
	char name[IF_NAMESIZE];
	size_t n;

	for (; *pattern; pattern++) {
		if (*pattern == '#') {
			char *end, again[8];
			unsigned long i = strtoul(path, &end, 10);

			snprintf(again, sizeof again, "%lu", i);
			if (i >= rv_gids() || strlen(again) != (size_t)(end - path) || !begins(path, again))
				return NULL;
			*index = (uint32_t)i;
			path = end;
		} else if (*pattern == '@') {
			interface(name);
			n = strlen(name);
			if (!n || strncmp(path, name, n))
				return NULL;
			path += n;
		} else if (*path++ != *pattern) {
			return NULL;
		}
	}
	return path;
}

/* The place that a VIA is in truth. False: that is too long. */
static bool lead(struct rv_path *p, const char *to, const char *rest)
{
	char name[IF_NAMESIZE] = "", path[sizeof p->at];
	size_t n = strlen(to);

	if (n && to[n - 1] == '@') {
		interface(name);
		n--;
	}
	n = (size_t)snprintf(path, sizeof path, "%.*s%s%s", (int)n, to, name, rest);
	memcpy(p->at, path, sizeof path);
	p->kind = RV_ELSEWHERE;
	return n < sizeof path;
}

/* The path without empty parts, "." and ".."; after a device of the kernel's it is the kernel's. */
static bool tidy(struct rv_path *p, const char *path)
{
	char real[64 + IF_NAMESIZE];
	size_t n = 0, part;

	if (path[0] != '/') {
		strcpy(p->at, here);
		n = strlen(here);
	}
	for (; *path; path += part) {
		while (*path == '/')
			path++;
		part = strcspn(path, "/");
		if (!part || (part == 1 && *path == '.'))
			continue;
		if (part == 2 && begins(path, "..")) {
			while (n && p->at[--n] != '/')
				;
			p->at[n] = 0;
			continue;
		}
		if (n + 1 + part >= sizeof p->at)
			return false;
		p->at[n] = '/';
		memcpy(p->at + n + 1, path, part);
		n += 1 + part;
		p->at[n] = 0;
		if ((!strcmp(p->at, DEVICE "/device") || !strcmp(p->at, UVERBS "/device")) &&
		    has_device(real, sizeof real))
			return lead(p, real, path + part);
	}
	return true;
}

/* errno of a path that is not there, or 0. */
int rv_path_find(const char *path, struct rv_path *p)
{
	*p = (struct rv_path){ 0 };
	if (!tidy(p, path))
		return ENAMETOOLONG;
	if (p->kind == RV_ELSEWHERE)
		return 0;
	if (!p->at[0])
		strcpy(p->at, "/");
	if (!rv_path_may_be(p->at)) { /* by ".." */
		p->kind = RV_ELSEWHERE;
		return 0;
	}
	for (p->node = 0; p->node < NODES; p->node++) {
		const struct node *n = &nodes[p->node];
		const char *rest = match(p->at, n->path, &p->index);

		if (!rest || (*rest && (*rest != '/' || n->what != VIA)))
			continue;
		if (n->what == VIA) {
			char more[sizeof p->at];

			strcpy(more, rest);
			if (!lead(p, n->text, more))
				return ENAMETOOLONG;
			return rv_path_may_be(p->at) ? rv_path_find(strcpy(more, p->at), p) : 0;
		}
		p->kind = n->what == DIR_ ? RV_DIRECTORY : RV_FILE;
		return 0;
	}
	return ENOENT;
}

const char *rv_path_of(int directory)
{
	return nodes[directory].path;
}

/* Numbers of 16 bits, as sysfs has GIDs. */
static int groups(char *text, size_t size, const uint8_t *octets, int n)
{
	int at = 0;

	for (int i = 0; i < n; i += 2)
		at += snprintf(text + at, size - (size_t)at, "%s%02x%02x", i ? ":" : "", octets[i],
			       octets[i + 1]);
	return at;
}

/* What is in a file; its length, or -errno. */
int rv_path_text(const struct rv_path *p, char *text, size_t size)
{
	const struct node *n = &nodes[p->node];
	const char *fixed = n->roce && rv_roce() ? n->roce : n->text;
	struct rv_gid g;
	__be64 guid;
	int length;

	switch (n->what) {
	case GUID:
		guid = rv_guid();
		length = groups(text, size, (const uint8_t *)&guid, 8);
		break;
	case GID:
		rv_gid(p->index, &g); /* zero where there is none */
		length = groups(text, size, g.gid.raw, 16);
		break;
	case NDEV:
	case TYPE:
		if (!rv_gid(p->index, &g))
			return -EINVAL; /* as the kernel says */
		if (n->what == NDEV && !rv_roce()) /* an RNIC's GID has no address */
			interface(g.interface);
		if (n->what == NDEV && !g.interface[0])
			return -EINVAL;
		length = snprintf(text, size, "%s", n->what == NDEV ? g.interface : fixed);
		break;
	case RATE:
		length = snprintf(text, size, "%s", rv_rate());
		break;
	case STATE:
		length = snprintf(text, size, "%s", rv_port_down() ? "1: DOWN" : "4: ACTIVE");
		break;
	case PHYS:
		length = snprintf(text, size, "%s", rv_port_down() ? "3: Disabled" : "5: LinkUp");
		break;
	case CAPS:
		length = snprintf(text, size, "0x%08x", RV_PORT_CAPS);
		break;
	default:
		length = snprintf(text, size, "%s", fixed);
	}
	text[length++] = '\n';
	return length;
}

/* The name of what is in a directory, in some order from 0 on, and its d_type. False: no more. */
bool rv_path_child(int directory, int nth, char name[RV_NAME], unsigned char *type)
{
	size_t n = strlen(nodes[directory].path);
	char real[64 + IF_NAMESIZE];

	for (int i = 0; i < NODES; i++) {
		const char *path = nodes[i].path;
		uint32_t many = 1;

		if (strncmp(path, nodes[directory].path, n) || path[n] != '/' ||
		    strchr(path + n + 1, '/'))
			continue;
		snprintf(name, RV_NAME, "%s", path + n + 1);
		*type = nodes[i].what == DIR_ ? DT_DIR : DT_REG;
		if (!strcmp(name, "#")) {
			many = rv_gids();
		} else if (!strcmp(name, "@")) {
			interface(name);
			many = name[0] != 0;
			*type = DT_LNK;
		} else if (begins(path, DEV "/")) {
			*type = DT_CHR;
		} else if (!strcmp(path, DEVICE "/device") || !strcmp(path, UVERBS "/device")) {
			*type = has_device(real, sizeof real) ? DT_LNK : DT_DIR;
		}
		if ((uint32_t)nth < many) {
			if (!strcmp(name, "#"))
				snprintf(name, RV_NAME, "%d", nth);
			return true;
		}
		nth -= (int)many;
	}
	return false;
}

const char *ibv_get_sysfs_path(void)
{
	return "/sys";
}

/* A file of the device's, without the end of its line. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char path[RV_PATH], text[RV_TEXT];
	struct rv_path p;
	ssize_t n;
	int fd;

	if (size)
		buf[0] = 0;
	if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, file) >= sizeof path)
		return -1;
	if (!rv_path_may_be(path)) {
		strcpy(p.at, path);
		p.kind = RV_ELSEWHERE;
	} else if (rv_path_find(path, &p) || p.kind == RV_DIRECTORY) {
		return -1;
	}
	if (p.kind == RV_FILE) {
		n = rv_path_text(&p, text, sizeof text);
	} else {
		fd = (int)syscall(SYS_openat, AT_FDCWD, p.at, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return -1;
		n = syscall(SYS_read, fd, text, sizeof text);
		rv_close(fd);
	}
	if (n < 0)
		return -1;
	n = n < (ssize_t)size ? n : (ssize_t)size;
	memcpy(buf, text, (size_t)n);
	if (n && buf[n - 1] == '\n')
		buf[--n] = 0;
	else if (n < (ssize_t)size)
		buf[n] = 0;
	return (int)n;
}
