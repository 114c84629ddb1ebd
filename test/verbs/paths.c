/*
 * The device's files in /sys and /dev, by each of the C library's functions; and that these do for
 * other paths what they did. The last argument is the interface of the first GID.
 */
#include "walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#define DEVICE "/sys/class/infiniband/rnicd0"
#define PORT DEVICE "/ports/1"
#define UVERBS "/dev/infiniband/uverbs0"

int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

/* What programs call that were linked before glibc 2.33, or with -D_FORTIFY_SOURCE. */
int __xstat(int, const char *, struct stat *), __lxstat(int, const char *, struct stat *);
int __fxstatat(int, int, const char *, struct stat *, int);
int __xstat64(int, const char *, struct stat64 *), __lxstat64(int, const char *, struct stat64 *);
int __open_2(const char *, int), __open64_2(const char *, int), __openat_2(int, const char *, int);
ssize_t __readlink_chk(const char *, char *, size_t, size_t);
char *__realpath_chk(const char *, char *, size_t);

#define LIBC(version, name) __asm__(".symver " #name "," #name "@" version)
#if defined __x86_64__ && !defined SANITIZED
LIBC("GLIBC_2.2.5", __xstat);
LIBC("GLIBC_2.2.5", __lxstat);
LIBC("GLIBC_2.2.5", __xstat64);
LIBC("GLIBC_2.2.5", __lxstat64);
LIBC("GLIBC_2.4", __fxstatat);
#endif

/* The call succeeds and leaves errno, as a real file would have it. */
#define KEEPS(call)                       \
	do {                              \
		errno = 77;               \
		CHECK(call);              \
		CHECK(errno == 77);       \
	} while (0)

static void contains(int fd, const char *want)
{
	char text[200] = "";
	ssize_t n = read(fd, text, sizeof text - 1);

	if (n < 0 || strcmp(text, want)) {
		fprintf(stderr, "%s, not %s", text, want);
		exit(1);
	}
	CHECK(write(fd, "x", 1) == -1);
	CHECK(!close(fd));
}

static void read_it(const char *path, const char *want)
{
	char text[200] = "";
	FILE *f;

	KEEPS(f = fopen(path, "r"));
	CHECK(fgets(text, sizeof text, f) && !strcmp(text, want));
	CHECK(!fclose(f));
	KEEPS(f = fopen64(path, "re"));
	CHECK(fcntl(fileno(f), F_GETFD) == FD_CLOEXEC && !fclose(f));
	CHECK(!fopen(path, "w") && errno == EACCES);
	CHECK(!fopen(path, "r+") && errno == EACCES);
	contains(open(path, O_RDONLY), want);
	contains(open64(path, O_RDONLY | O_CLOEXEC), want);
	contains(openat(AT_FDCWD, path, O_RDONLY), want);
	contains(openat64(AT_FDCWD, path, O_RDONLY), want);
	contains(__open_2(path, O_RDONLY), want);
	contains(__open64_2(path, O_RDONLY), want);
	contains(__openat_2(AT_FDCWD, path, O_RDONLY), want);
	FAILS(open(path, O_WRONLY), EACCES);
	FAILS(open(path, O_RDONLY | O_DIRECTORY), ENOTDIR);
}

static void files(void)
{
	char gid[64];

	read_it(DEVICE "/node_type", "1: CA\n");
	read_it("/sys/class/infiniband//./rnicd0/ports/../ports/1/link_layer", "Ethernet\n");
	read_it(PORT "/state", "4: ACTIVE\n");
	read_it(PORT "/pkeys/0", "0xffff\n");
	read_it(PORT "/gid_attrs/types/0", "RoCE v2\n");
	read_it("/sys/class/infiniband_verbs/uverbs0/ibdev", "rnicd0\n");
	read_it("/sys/class/infiniband_verbs/abi_version", "6\n");
	read_it(PORT "/gids/63", "0000:0000:0000:0000:0000:0000:0000:0000\n");
	FAILS(open(PORT "/gid_attrs/types/63", O_RDONLY), EINVAL);
	FAILS(open(PORT "/gid_attrs/ndevs/63", O_RDONLY), EINVAL);
	FAILS(open(PORT "/gids/64", O_RDONLY), ENOENT);
	FAILS(open(PORT "/gids/01", O_RDONLY), ENOENT);
	FAILS(open(PORT "/nothing", O_RDONLY), ENOENT);
	FAILS(open("/sys/class/infiniband/rnicd1/node_type", O_RDONLY), ENOENT);
	FAILS(open("/sys/class/infiniband/rnicd0/new", O_CREAT | O_RDWR, 0600), ENOENT);
	FAILS(open(DEVICE, O_RDWR), EISDIR);
	CHECK(!fopen(DEVICE, "r") && errno == EISDIR);
	CHECK(ibv_read_sysfs_file(PORT, "gids/0", gid, sizeof gid) == 39 && !strchr(gid, '\n'));
	CHECK(ibv_read_sysfs_file(PORT, "nothing", gid, sizeof gid) == -1);
	CHECK(ibv_read_sysfs_file("/proc/self", "comm", gid, sizeof gid) == 5 && !strcmp(gid, "paths"));
}

static void kinds(void)
{
	static const struct {
		const char *path;
		mode_t type;
	} all[] = { { "/sys/class/infiniband", S_IFDIR },  { DEVICE, S_IFDIR },
		    { DEVICE "/", S_IFDIR },               { PORT "/gids/0", S_IFREG },
		    { UVERBS, S_IFCHR },                   { "/dev/infiniband/rdma_cm", S_IFCHR },
		    { "/sys/class/infiniband_verbs/uverbs0", S_IFDIR } };
	struct statx x;
	struct stat64 st64;
	struct stat st;
	int fd;

	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		const char *p = all[i].path;
		mode_t type = all[i].type;

		KEEPS(!stat(p, &st) && (st.st_mode & S_IFMT) == type);
		KEEPS(!lstat(p, &st) && (st.st_mode & S_IFMT) == type);
		KEEPS(!fstatat(AT_FDCWD, p, &st, 0) && (st.st_mode & S_IFMT) == type);
		KEEPS(!stat64(p, &st64) && (st64.st_mode & S_IFMT) == type);
		KEEPS(!lstat64(p, &st64) && (st64.st_mode & S_IFMT) == type);
		KEEPS(!fstatat64(AT_FDCWD, p, &st64, 0) && (st64.st_mode & S_IFMT) == type);
		KEEPS(!statx(AT_FDCWD, p, 0, STATX_ALL, &x) && (x.stx_mode & S_IFMT) == type);
		KEEPS(!access(p, R_OK) && !faccessat(AT_FDCWD, p, R_OK, 0) && !euidaccess(p, F_OK));
#if defined __x86_64__ && !defined SANITIZED
		KEEPS(!__xstat(1, p, &st) && (st.st_mode & S_IFMT) == type);
		KEEPS(!__lxstat(1, p, &st) && (st.st_mode & S_IFMT) == type);
		KEEPS(!__xstat64(1, p, &st64) && (st64.st_mode & S_IFMT) == type);
		KEEPS(!__lxstat64(1, p, &st64) && (st64.st_mode & S_IFMT) == type);
		KEEPS(!__fxstatat(1, AT_FDCWD, p, &st, 0) && (st.st_mode & S_IFMT) == type);
#endif
	}
	CHECK(!stat(PORT "/rate", &st) && st.st_size == 4096 && (st.st_mode & 0777) == 0444);
	FAILS(access(PORT "/rate", X_OK), EACCES);
	CHECK(!access(UVERBS, R_OK | W_OK));
	CHECK(!stat(UVERBS, &st) && st.st_rdev == makedev(1, 3));
	CHECK((fd = open(UVERBS, O_RDWR | O_CLOEXEC)) >= 0 && !close(fd));
	FAILS(stat(PORT "/nothing", &st), ENOENT);
	FAILS(access("/dev/infiniband/uverbs1", F_OK), ENOENT);
	FAILS(lstat("/sys/class/infiniband_verbs/uverbs1", &st), ENOENT);
}

static int gids_only(const struct dirent *e)
{
	return !strncmp(e->d_name, "gid", 3);
}

/* What a list says of its entries is so. */
static int walk(const char *path)
{
	char below[PATH_MAX];
	struct dirent *e;
	struct stat st;
	int n = 0;
	DIR *d = opendir(path);

	CHECK(d);
	while ((e = readdir(d))) {
		snprintf(below, sizeof below, "%s/%s", path, e->d_name);
		if (lstat(below, &st)) { /* a kernel without NUMA */
			CHECK(errno == ENOENT && strstr(below, "/device/local_cpu"));
			continue;
		}
		if (IFTODT(st.st_mode) != e->d_type) {
			fprintf(stderr, "%s: d_type %d\n", below, e->d_type);
			exit(1);
		}
		if (e->d_type == DT_DIR && e->d_name[0] != '.')
			n += walk(below);
		n++;
	}
	CHECK(!closedir(d));
	return n;
}

static void directories(void)
{
	struct dirent **list, *e;
	int n = 0, dirs = 0;
	long third = 0;
	DIR *d;

	KEEPS(d = opendir(PORT "/"));
	while ((e = readdir(d))) {
		char path[PATH_MAX];
		struct stat st;

		dirs += e->d_type == DT_DIR;
		snprintf(path, sizeof path, PORT "/%s", e->d_name);
		CHECK(!stat(path, &st) && S_ISDIR(st.st_mode) == (e->d_type == DT_DIR));
		if (++n == 3)
			third = telldir(d);
	}
	CHECK(n >= 12 && dirs == 5); /* . .. gids gid_attrs pkeys */
	rewinddir(d);
	CHECK((e = readdir(d)) && !strcmp(e->d_name, "."));
	seekdir(d, third);
	while (readdir64(d))
		n--;
	CHECK(n == 3 && !closedir(d));

	for (int i = 0; i < 100; i++) /* none is lost */
		CHECK((d = opendir("/sys/class/infiniband")) && !closedir(d));
	CHECK(walk("/sys/class/infiniband") > 200 && walk("/sys/class/infiniband_verbs") > 5);
	CHECK(walk("/dev/infiniband") == 4);
	CHECK(!opendir(PORT "/rate") && errno == ENOTDIR);
	CHECK(!opendir(PORT "/nothing") && errno == ENOENT);

	KEEPS(scandir(PORT, &list, gids_only, alphasort) == 2);
	CHECK(!strcmp(list[0]->d_name, "gid_attrs") && !strcmp(list[1]->d_name, "gids"));
	free(list[0]), free(list[1]), free(list);
	CHECK(scandir(PORT "/gids", &list, NULL, NULL) == 66);
	for (n = 0; n < 66; n++)
		free(list[n]);
	free(list);
	FAILS(scandir(PORT "/nothing", &list, NULL, NULL), ENOENT);
}

/* Directories by descriptors, as find and hwloc do. */
static void descriptors(void)
{
	int top = open("/sys/class/infiniband", O_RDONLY | O_DIRECTORY | O_CLOEXEC), ports, root;
	const char *volatile none = NULL;
	DIR *volatile closed;
	struct statx x;
	struct stat st;
	struct dirent *e;
	char text[8];
	int n = 0;
	DIR *d;

	CHECK(top >= 0);
	KEEPS(!fstat(top, &st) && S_ISDIR(st.st_mode));
	KEEPS(!fstatat(top, "", &st, AT_EMPTY_PATH) && S_ISDIR(st.st_mode));
	KEEPS(!statx(top, "", AT_EMPTY_PATH, STATX_ALL, &x) && S_ISDIR(x.stx_mode));
#ifndef SANITIZED /* before Linux 6.11 a path is needed */
	CHECK(fstatat(top, none, &st, AT_EMPTY_PATH) ? errno == EFAULT : S_ISDIR(st.st_mode));
	CHECK(statx(top, none, AT_EMPTY_PATH, STATX_ALL, &x) ? errno == EFAULT : S_ISDIR(x.stx_mode));
#else
	(void)none;
#endif
	KEEPS((ports = openat(top, "rnicd0/ports", O_RDONLY | O_DIRECTORY)) >= 0);
	KEEPS(!fstatat(ports, "1/rate", &st, 0) && S_ISREG(st.st_mode));
	KEEPS(!faccessat(ports, "1/rate", R_OK, 0));
	contains(openat(ports, "1/../1/state", O_RDONLY), "4: ACTIVE\n");
	FAILS(openat(ports, "2", O_RDONLY), ENOENT);
	FAILS(readlinkat(ports, "1", text, sizeof text), EINVAL);
	KEEPS(d = fdopendir(ports));
	CHECK(dirfd(d) == ports);
	while ((e = readdir(d)))
		n += !strcmp(e->d_name, "1");
	closed = d;
	CHECK(n == 1 && !closedir(d));
	FAILS(fstat(ports, &st), EBADF); /* closed with it */
	CHECK(fcntl(top, F_DUPFD, ports) == ports);
	closedir(closed); /* a program's mistake, which costs it no other descriptor */
	CHECK(!fstat(ports, &st) && !close(ports));
	CHECK((d = opendir(PORT)) && (n = dirfd(d)) >= 0 && n == dirfd(d));
	CHECK(!fstatat(n, "gids", &st, 0) && S_ISDIR(st.st_mode) && !closedir(d));
	FAILS(fstat(n, &st), EBADF);
	CHECK(!fchdir(top) && !access("rnicd0", F_OK) && !chdir("/") && !close(top));

	CHECK((root = open("/", O_RDONLY | O_DIRECTORY)) >= 0);
	contains(openat(root, "sys/class/infiniband/rnicd0/node_type", O_RDONLY), "1: CA\n");
	KEEPS(!fstatat(root, "dev/infiniband/uverbs0", &st, 0) && S_ISCHR(st.st_mode));
	FAILS(openat(root, "sys/class/nothing", O_RDONLY), ENOENT);
	CHECK(!close(root) && (root = open("/tmp", O_RDONLY | O_DIRECTORY)) >= 0);
	FAILS(openat(root, "sys/class/infiniband/rnicd0/node_type", O_RDONLY), ENOENT);
	CHECK(!close(root));
}

static void links(const char *interface)
{
	char path[PATH_MAX], text[PATH_MAX], *made;
	struct stat st;

	KEEPS(realpath("/sys/class/infiniband/../infiniband/rnicd0/", text) &&
	      !strcmp(text, DEVICE));
	CHECK((made = realpath(PORT, NULL)) && !strcmp(made, PORT));
	free(made);
	CHECK((made = canonicalize_file_name(PORT)) && !strcmp(made, PORT));
	free(made);
	CHECK(__realpath_chk(PORT, text, sizeof text));
	CHECK(!realpath(PORT "/nothing", text) && errno == ENOENT);
	FAILS(readlink(PORT, text, sizeof text), EINVAL);
	FAILS(__readlink_chk(PORT, text, sizeof text, sizeof text), EINVAL);
	FAILS(readlinkat(AT_FDCWD, PORT "/nothing", text, sizeof text), ENOENT);

	/* the interface, of this host */
	snprintf(path, sizeof path, DEVICE "/device/net/%s/address", interface);
	CHECK(!access(path, R_OK));
	CHECK(!stat("/sys/class/infiniband_verbs/uverbs0/device/net", &st) && S_ISDIR(st.st_mode));
	snprintf(path, sizeof path, DEVICE "/device/net/%s", interface);
	CHECK(realpath(path, text) && strstr(text, interface));
	CHECK(!access(DEVICE "/device/numa_node", R_OK) || errno == ENOENT);
}

static void working_directory(void)
{
	char text[PATH_MAX], before[PATH_MAX], *made;
	struct stat st;
	int there;

	CHECK(getcwd(before, sizeof before));
	CHECK((there = open(".", O_RDONLY | O_DIRECTORY)) >= 0);
	CHECK(!chdir(DEVICE) && getcwd(text, sizeof text) && !strcmp(text, DEVICE));
	CHECK(!chdir("ports/1") && !stat("gids", &st) && S_ISDIR(st.st_mode));
	contains(open("../../node_type", O_RDONLY), "1: CA\n");
	CHECK((made = getcwd(NULL, 0)) && !strcmp(made, PORT));
	free(made);
	FAILS(!getcwd(text, 5) - 1, ERANGE);
	FAILS(chdir("rate"), ENOTDIR);
	FAILS(chdir("nothing"), ENOENT);
	FAILS(openat(there, "rate", O_RDONLY), ENOENT);
	CHECK(!fchdir(there) && getcwd(text, sizeof text) && !strcmp(text, before));
	FAILS(open("rate", O_RDONLY), ENOENT);
	CHECK(!close(there));
}

/* What is not ours. */
static void others(void)
{
	char dir[] = "/tmp/rnicd-paths-XXXXXX", path[64], text[PATH_MAX];
	const char *bad = (const char *)4096;
	struct statx x;
	struct stat st;
	struct dirent *e;
	DIR *d, *nested;
	int fd, n = 0;

	CHECK(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/file", dir);
	KEEPS((fd = open(path, O_CREAT | O_RDWR | O_EXCL, 0640)) >= 0);
	CHECK(!fstat(fd, &st) && (st.st_mode & 07777) == 0640 && write(fd, "text", 4) == 4 && !close(fd));
	KEEPS(!stat(path, &st) && st.st_size == 4);
	FAILS(open(path, O_CREAT | O_EXCL, 0640), EEXIST);
	CHECK((fd = open(dir, O_TMPFILE | O_RDWR, 0600)) >= 0 && !fstat(fd, &st));
	CHECK((st.st_mode & 0777) == 0600 && !close(fd));
	KEEPS(d = opendir(dir));
	CHECK(nested = opendir(PORT));
	while ((e = readdir(d)))
		n++;
	CHECK(n == 3 && dirfd(d) >= 0 && !closedir(nested) && !closedir(d));
	CHECK(!unlink(path) && !rmdir(dir));
	FAILS(stat(path, &st), ENOENT);
	FAILS(stat("/sys/class/infinibandages", &st), ENOENT);
	CHECK(!access("/sys/class/net", F_OK) && readlink("/proc/self/exe", text, sizeof text) > 0);

	CHECK(!fstatat(0, "", &st, AT_EMPTY_PATH));
	FAILS(fstatat(-1, "relative", &st, 0), EBADF);
#ifndef SANITIZED /* what cannot be read */
	FAILS(stat(bad, &st), EFAULT);
	FAILS(lstat(NULL, &st), EFAULT);
	FAILS(fstatat(AT_FDCWD, bad, &st, 0), EFAULT);
	FAILS(statx(AT_FDCWD, bad, 0, STATX_ALL, &x), EFAULT);
	FAILS(access(bad, F_OK), EFAULT);
	FAILS(faccessat(AT_FDCWD, bad, F_OK, 0), EFAULT);
	FAILS(open(bad, O_RDONLY), EFAULT);
	FAILS(openat(AT_FDCWD, bad, O_RDONLY), EFAULT);
	FAILS(readlink(bad, text, sizeof text), EFAULT);
	FAILS(chdir(bad), EFAULT);
	CHECK(!fopen(bad, "r") && errno == EFAULT);
#else
	(void)bad, (void)x;
#endif
}

/* A thread with the least stack that there may be; sanitizers need more. */
#ifdef SANITIZED
#define ROOM 65536
#else
#define ROOM 16384
#endif

static void *small(void *unused)
{
	struct stat st;

	CHECK(!stat(PORT "/gids/0", &st) && !access(UVERBS, R_OK));
	contains(open(PORT "/gid_attrs/types/0", O_RDONLY), "RoCE v2\n");
	return unused;
}

static void elsewhere(void)
{
	pthread_attr_t attr;
	pthread_t thread;
	int status;
	pid_t child;

	CHECK(!pthread_attr_init(&attr) && !pthread_attr_setstacksize(&attr, ROOM));
	CHECK(!pthread_create(&thread, &attr, small, NULL) && !pthread_join(thread, NULL));
	if (!(child = fork())) {
		small(NULL);
		directories();
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && !status);
	if (!(child = vfork()))
		_exit(access(UVERBS, R_OK | W_OK) || access(PORT "/gids", F_OK));
	CHECK(waitpid(child, &status, 0) == child && !status);
	if (!(child = fork())) {
		struct stat st;
		int fd;

		/* nothing is mounted there */
		CHECK(!chroot("/proc/self/fdinfo") && !stat(PORT "/gids/0", &st) && S_ISREG(st.st_mode));
		CHECK(!stat(DEVICE, &st) && S_ISDIR(st.st_mode));
		CHECK((fd = open(PORT "/pkeys/0", O_RDONLY)) >= 0);
		contains(fd, "0xffff\n");
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && !status);
}

#ifdef EARLY /* as a library whose constructor runs before that of ours */
__attribute__((constructor)) static void early(void)
{
	small(NULL);
	printf("early\n");
}
#endif

int main(int argc, char **argv)
{
	files();
	kinds();
	directories();
	descriptors();
	links(argv[argc - 1]);
	working_directory();
	others();
	elsewhere();
	printf("all well\n");
	return 0;
}
