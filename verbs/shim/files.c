/*
 * The C library's functions for files, in front of it: they answer for the paths of paths.c, and
 * for nothing else. The C library is asked first, so that a path which cannot be read is its
 * affair, and only a path that was read is looked at here. A file is a memory file that cannot be
 * written, so nothing is left behind; a directory is listed, but has no descriptor.
 *
 * Not seen are system calls without the C library, and its own calls (glob, nftw).
 */
#undef _FORTIFY_SOURCE
#include "shim.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

/* The C library's own. Handlers of signals call some, so they are looked up early; a constructor
 * that came before ours looks them up itself. */
#define EACH(x) \
	x(access) x(chdir) x(closedir) x(dirfd) x(eaccess) x(faccessat) \
	x(fchdir) x(fopen) x(fopen64) x(fstatat) x(getcwd) x(getxattr) \
	x(lgetxattr) x(lstat) x(open) x(open64) x(openat) x(openat64) \
	x(opendir) x(readdir) x(readdir_r) x(readlink) x(readlinkat) \
	x(realpath) x(rewinddir) x(scandir) x(seekdir) x(stat) x(statx) \
	x(telldir)
#define NUMBER(name) N_##name,
#define NAME(name) #name,
enum { EACH(NUMBER) FUNCTIONS };
static const char *const names[] = { EACH(NAME) };
static void *libc[FUNCTIONS];

static void *next(int function)
{
	if (!load_relaxed(&libc[function]))
		__atomic_store_n(&libc[function], dlsym(RTLD_NEXT, names[function]), __ATOMIC_RELAXED);
	return libc[function];
}

__attribute__((constructor)) static void look_up(void)
{
	for (int i = 0; i < FUNCTIONS; i++)
		next(i);
}

#define NEXT(name) ((__typeof__(&name))next(N_##name))

/* Whether what the C library has answered is ours to answer. */
static bool is_ours(const char *path, bool failed)
{
	return !(failed && errno == EFAULT) && path && rv_path_may_be(path);
}

/* The same of a path that begins at a descriptor. */
static bool is_ours_at(int dir, const char *path, bool failed)
{
	return is_ours(path, failed) && (dir == AT_FDCWD || path[0] == '/');
}

/* What a path stands for. Of what is here itself, that is like the root's directory, which is there
 * whatever a process has mounted. */
static int like(const char *path, struct rv_path *p)
{
	int error = rv_path_find(path, p);

	if (!error && p->kind != RV_ELSEWHERE)
		strcpy(p->at, "/");
	return error;
}

#define OF_SYSFS 4096 /* octets of each file there */
#define MODE(p, mode) ((p)->kind == RV_FILE ? S_IFREG | 0444 : (mode))
#define INODE(p) (1000u * (1 + (unsigned)(p)->node) + (p)->index)

/* stat, lstat, fstatat: struct stat is the kernel's. glibc before 2.33 has not these names. */
static int call_stat(int dir, const char *path, struct stat *st, int flags)
{
	int function = flags ? N_lstat : N_stat;

	if (dir == AT_FDCWD && !(flags & ~AT_SYMLINK_NOFOLLOW) && next(function))
		return ((int (*)(const char *, struct stat *))next(function))(path, st);
	if (next(N_fstatat))
		return NEXT(fstatat)(dir, path, st, flags);
#ifdef SYS_newfstatat
	return (int)syscall(SYS_newfstatat, dir, path, st, flags);
#else
	return (int)syscall(SYS_fstatat, dir, path, st, flags);
#endif
}

static __attribute__((noinline)) int stat_ours(const char *path, struct stat *st, int flags)
{
	struct rv_path p;
	int error = like(path, &p);

	if (error)
		return rv_fail(error);
	if (call_stat(AT_FDCWD, p.at, st, flags))
		return -1;
	if (p.kind != RV_ELSEWHERE) {
		st->st_mode = MODE(&p, st->st_mode);
		st->st_size = OF_SYSFS;
		st->st_ino = INODE(&p);
		st->st_nlink = 1;
	}
	return 0;
}

static int any_stat(int dir, const char *path, struct stat *st, int flags)
{
	int before = errno, failed = call_stat(dir, path, st, flags);

	if (!is_ours_at(dir, path, failed))
		return failed;
	errno = before;
	return stat_ours(path, st, flags);
}

int stat(const char *path, struct stat *st)
{
	return any_stat(AT_FDCWD, path, st, 0);
}

int lstat(const char *path, struct stat *st)
{
	return any_stat(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}

int fstatat(int dir, const char *path, struct stat *st, int flags)
{
	return any_stat(dir, path, st, flags);
}

int stat64(const char *path, struct stat64 *st)
{
	return stat(path, (struct stat *)st);
}

int lstat64(const char *path, struct stat64 *st)
{
	return lstat(path, (struct stat *)st);
}

int fstatat64(int dir, const char *path, struct stat64 *st, int flags)
{
	return fstatat(dir, path, (struct stat *)st, flags);
}

/* As programs have them that were linked before glibc 2.33. */
#define OLD(old, new, type)                                                 \
	int old(int version, const char *path, type *st);                   \
	int old(int version, const char *path, type *st)                    \
	{                                                                   \
		return version & ~1 ? rv_fail(EINVAL) : new (path, st);     \
	}
OLD(__xstat, stat, struct stat)
OLD(__xstat64, stat64, struct stat64)
OLD(__lxstat, lstat, struct stat)
OLD(__lxstat64, lstat64, struct stat64)

int __fxstatat(int version, int dir, const char *path, struct stat *st, int flags);
int __fxstatat(int version, int dir, const char *path, struct stat *st, int flags)
{
	return version & ~1 ? rv_fail(EINVAL) : fstatat(dir, path, st, flags);
}

int __fxstatat64(int version, int dir, const char *path, struct stat64 *st, int flags);
int __fxstatat64(int version, int dir, const char *path, struct stat64 *st, int flags)
{
	return __fxstatat(version, dir, path, (struct stat *)st, flags);
}

static __attribute__((noinline)) int statx_ours(const char *path, int flags, unsigned int mask,
						struct statx *st)
{
	struct rv_path p;
	int error = like(path, &p);

	if (error)
		return rv_fail(error);
	if (NEXT(statx)(AT_FDCWD, p.at, flags, mask, st))
		return -1;
	if (p.kind != RV_ELSEWHERE) {
		st->stx_mode = (uint16_t)MODE(&p, st->stx_mode);
		st->stx_size = OF_SYSFS;
		st->stx_ino = INODE(&p);
		st->stx_nlink = 1;
	}
	return 0;
}

int statx(int dir, const char *path, int flags, unsigned int mask, struct statx *st)
{
	int before = errno, failed = NEXT(statx)(dir, path, flags, mask, st);

	if (!is_ours_at(dir, path, failed))
		return failed;
	errno = before;
	return statx_ours(path, flags, mask, st);
}

static __attribute__((noinline)) int access_ours(const char *path, int mode)
{
	struct rv_path p;
	int error = like(path, &p);

	if (!error && p.kind == RV_FILE && mode & X_OK)
		error = EACCES;
	return error ? rv_fail(error) : NEXT(access)(p.at, mode);
}

int access(const char *path, int mode)
{
	int before = errno, failed = NEXT(access)(path, mode);

	if (!is_ours(path, failed))
		return failed;
	errno = before;
	return access_ours(path, mode);
}

int faccessat(int dir, const char *path, int mode, int flags)
{
	int before = errno, failed = NEXT(faccessat)(dir, path, mode, flags);

	if (!is_ours_at(dir, path, failed))
		return failed;
	errno = before;
	return access_ours(path, mode);
}

int eaccess(const char *path, int mode)
{
	int before = errno, failed = NEXT(eaccess)(path, mode);

	if (!is_ours(path, failed))
		return failed;
	errno = before;
	return access_ours(path, mode);
}

int euidaccess(const char *path, int mode)
{
	return eaccess(path, mode);
}

/* A descriptor of what is in a file; -1 and errno. */
static int open_text(const struct rv_path *p, int flags)
{
	char text[RV_TEXT];
	int n, fd;

	if ((flags & O_ACCMODE) != O_RDONLY)
		return rv_fail(EACCES);
	if (flags & O_DIRECTORY)
		return rv_fail(ENOTDIR);
	n = rv_path_text(p, text, sizeof text);
	if (n < 0)
		return rv_fail(-n);
	fd = memfd_create("rnicd", (flags & O_CLOEXEC ? MFD_CLOEXEC : 0) | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -1;
	if (syscall(SYS_pwrite64, fd, text, n, 0L) != n || fchmod(fd, 0444) ||
	    syscall(SYS_fcntl, fd, F_ADD_SEALS,
		    F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)) {
		int error = errno;

		rv_close(fd);
		return rv_fail(error);
	}
	return fd;
}

static __attribute__((noinline)) int open_ours(const char *path, int flags, mode_t mode, int had)
{
	struct rv_path p;
	int error = rv_path_find(path, &p);

	if (had >= 0)
		rv_close(had);
	if (error)
		return rv_fail(error);
	if (p.kind == RV_ELSEWHERE)
		return NEXT(open)(p.at, flags & ~(O_CREAT | O_TRUNC), mode);
	if (p.kind == RV_DIRECTORY)
		return rv_fail((flags & O_ACCMODE) == O_RDONLY ? EACCES : EISDIR);
	return open_text(&p, flags);
}

static mode_t mode_of(int flags, va_list more)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(more, mode_t) : 0;
}

static int opened(int dir, int fd, const char *path, int flags, mode_t mode, int before)
{
	if (!is_ours_at(dir, path, fd < 0))
		return fd;
	errno = before;
	return open_ours(path, flags, mode, fd);
}

#define OPEN(name)                                                                          \
	int name(const char *path, int flags, ...)                                          \
	{                                                                                   \
		int before = errno;                                                         \
		va_list more;                                                               \
		mode_t mode;                                                                \
                                                                                            \
		va_start(more, flags);                                                      \
		mode = mode_of(flags, more);                                                \
		va_end(more);                                                               \
		return opened(AT_FDCWD, NEXT(name)(path, flags, mode), path, flags, mode,   \
			      before);                                                      \
	}                                                                                   \
	int __##name##_2(const char *path, int flags);                                      \
	int __##name##_2(const char *path, int flags) /* by -D_FORTIFY_SOURCE: no mode */   \
	{                                                                                   \
		return name(path, flags, 0);                                                \
	}
#define OPENAT(name)                                                                          \
	int name(int dir, const char *path, int flags, ...)                                   \
	{                                                                                     \
		int before = errno;                                                           \
		va_list more;                                                                 \
		mode_t mode;                                                                  \
                                                                                              \
		va_start(more, flags);                                                        \
		mode = mode_of(flags, more);                                                  \
		va_end(more);                                                                 \
		return opened(dir, NEXT(name)(dir, path, flags, mode), path, flags, mode,     \
			      before);                                                        \
	}                                                                                     \
	int __##name##_2(int dir, const char *path, int flags);                               \
	int __##name##_2(int dir, const char *path, int flags)                                \
	{                                                                                     \
		return name(dir, path, flags, 0);                                             \
	}
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

static __attribute__((noinline)) FILE *fopen_ours(const char *path, const char *mode)
{
	struct rv_path p;
	int error = rv_path_find(path, &p), fd;
	FILE *f;

	if (error) {
		errno = error;
		return NULL;
	}
	if (p.kind == RV_ELSEWHERE)
		return NEXT(fopen)(p.at, mode);
	if (p.kind == RV_DIRECTORY) {
		errno = EISDIR;
		return NULL;
	}
	fd = open_text(&p, (mode[0] == 'r' && !strchr(mode, '+') ? O_RDONLY : O_RDWR) |
				   (strchr(mode, 'e') ? O_CLOEXEC : 0));
	if (fd < 0)
		return NULL;
	f = fdopen(fd, "r");
	if (!f)
		rv_close(fd);
	return f;
}

/* Whether a file of ours is meant, without opening another. */
static bool would_be_ours(const char *path)
{
	int before = errno;
	bool is = is_ours(path, NEXT(access)(path, F_OK));

	errno = before;
	return is;
}

FILE *fopen(const char *path, const char *mode)
{
	return would_be_ours(path) ? fopen_ours(path, mode) : NEXT(fopen)(path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
	return would_be_ours(path) ? fopen_ours(path, mode) : NEXT(fopen64)(path, mode);
}

/* Directories of ours that are open. What the C library has never lies in between. */
#define DIRECTORIES 32

static struct directory {
	uint32_t open;
	int node;
	int at; /* entries that were read */
	struct dirent entry;
} directories[DIRECTORIES];

static struct directory *ours(DIR *d)
{
	struct directory *o = (struct directory *)d;

	return o >= directories && o < directories + DIRECTORIES ? o : NULL;
}

static __attribute__((noinline)) DIR *opendir_ours(const char *path)
{
	struct rv_path p;
	int error = rv_path_find(path, &p);

	if (!error && p.kind == RV_ELSEWHERE)
		return NEXT(opendir)(p.at);
	if (!error && p.kind == RV_FILE)
		error = ENOTDIR;
	for (int i = 0; !error && i < DIRECTORIES; i++)
		if (!__atomic_exchange_n(&directories[i].open, 1, __ATOMIC_ACQUIRE)) {
			directories[i].node = p.node;
			directories[i].at = 0;
			return (DIR *)&directories[i];
		}
	errno = error ? error : EMFILE;
	return NULL;
}

DIR *opendir(const char *path)
{
	int before = errno;
	DIR *d = NEXT(opendir)(path);

	if (!is_ours(path, !d))
		return d;
	if (d)
		NEXT(closedir)(d);
	errno = before;
	return opendir_ours(path);
}

/* Entry at of a directory: ".", "..", and what is in it. */
static bool entry(int node, int at, struct dirent *e)
{
	char name[RV_NAME];

	e->d_type = DT_DIR;
	if (at < 2)
		strcpy(name, at ? ".." : ".");
	else if (!rv_path_child(node, at - 2, name, &e->d_type))
		return false;
	e->d_ino = 1; /* some number */
	e->d_off = at + 1;
	e->d_reclen = sizeof *e;
	strcpy(e->d_name, name);
	return true;
}

struct dirent *readdir(DIR *d)
{
	struct directory *o = ours(d);

	if (!o)
		return NEXT(readdir)(d);
	if (!entry(o->node, o->at, &o->entry))
		return NULL;
	o->at++;
	return &o->entry;
}

struct dirent64 *readdir64(DIR *d)
{
	return (struct dirent64 *)readdir(d);
}

static int read_next(DIR *d, struct dirent *e, struct dirent **result)
{
	struct directory *o = ours(d);

	if (!o)
		return ((int (*)(DIR *, struct dirent *, struct dirent **))next(N_readdir_r))(d, e, result);
	*result = entry(o->node, o->at, e) ? e : NULL;
	o->at += *result != NULL;
	return 0;
}

int readdir_r(DIR *d, struct dirent *e, struct dirent **result)
{
	return read_next(d, e, result);
}

int readdir64_r(DIR *d, struct dirent64 *e, struct dirent64 **result)
{
	return read_next(d, (struct dirent *)e, (struct dirent **)result);
}

int closedir(DIR *d)
{
	struct directory *o = ours(d);

	if (!o)
		return NEXT(closedir)(d);
	store_release(&o->open, 0);
	return 0;
}

int dirfd(DIR *d)
{
	return ours(d) ? rv_fail(ENOTSUP) : NEXT(dirfd)(d);
}

void rewinddir(DIR *d)
{
	struct directory *o = ours(d);

	if (o)
		o->at = 0;
	else
		NEXT(rewinddir)(d);
}

long telldir(DIR *d)
{
	struct directory *o = ours(d);

	return o ? o->at : NEXT(telldir)(d);
}

void seekdir(DIR *d, long at)
{
	struct directory *o = ours(d);

	if (o)
		o->at = (int)at;
	else
		NEXT(seekdir)(d, at);
}

typedef int chooses(const struct dirent *);
typedef int compares(const struct dirent **, const struct dirent **);

static void free_list(struct dirent **list, int n)
{
	while (n > 0)
		free(list[--n]);
	free(list);
}

static int list_ours(int node, struct dirent ***result, chooses *choose, compares *compare)
{
	struct dirent e, **list = NULL, **more;
	int n = 0;

	for (int at = 0; entry(node, at, &e); at++) {
		if (choose && !choose(&e))
			continue;
		more = realloc(list, (size_t)(n + 1) * sizeof *list);
		if (!more || !(more[n] = malloc(sizeof e))) {
			free_list(more ? more : list, n);
			return rv_fail(ENOMEM);
		}
		list = more;
		*list[n++] = e;
	}
	if (n && compare)
		qsort(list, (size_t)n, sizeof *list, (int (*)(const void *, const void *))compare);
	*result = list;
	return n;
}

static __attribute__((noinline)) int scandir_ours(const char *path, struct dirent ***list,
						  chooses *choose, compares *compare)
{
	struct rv_path p;
	int error = rv_path_find(path, &p);

	if (error || p.kind == RV_FILE)
		return rv_fail(error ? error : ENOTDIR);
	if (p.kind == RV_ELSEWHERE)
		return NEXT(scandir)(p.at, list, choose, compare);
	return list_ours(p.node, list, choose, compare);
}

int scandir(const char *path, struct dirent ***list, chooses *choose, compares *compare)
{
	int before = errno, n = NEXT(scandir)(path, list, choose, compare);

	if (!is_ours(path, n < 0))
		return n;
	if (n >= 0)
		free_list(*list, n);
	errno = before;
	return scandir_ours(path, list, choose, compare);
}

int scandir64(const char *path, struct dirent64 ***list, int (*choose)(const struct dirent64 *),
	      int (*compare)(const struct dirent64 **, const struct dirent64 **))
{
	return scandir(path, (struct dirent ***)list, (chooses *)choose, (compares *)compare);
}

/* Where a link of the kernel's leads, from here. */
static __attribute__((noinline)) ssize_t readlink_ours(const char *path, char *to, size_t size)
{
	struct rv_path p;
	int error = rv_path_find(path, &p);
	char *target;
	ssize_t n;

	if (error || p.kind != RV_ELSEWHERE)
		return rv_fail(error ? error : EINVAL);
	n = NEXT(readlink)(p.at, to, size);
	if (n < 0 || !(target = NEXT(realpath)(p.at, NULL)))
		return -1;
	n = (ssize_t)strnlen(target, size);
	memcpy(to, target, (size_t)n);
	free(target);
	return n;
}

ssize_t readlink(const char *path, char *to, size_t size)
{
	int before = errno;
	ssize_t n = NEXT(readlink)(path, to, size);

	if (!is_ours(path, n < 0))
		return n;
	errno = before;
	return readlink_ours(path, to, size);
}

ssize_t readlinkat(int dir, const char *path, char *to, size_t size)
{
	int before = errno;
	ssize_t n = NEXT(readlinkat)(dir, path, to, size);

	if (!is_ours_at(dir, path, n < 0))
		return n;
	errno = before;
	return readlink_ours(path, to, size);
}

/* ls looks for lists of rights. */
static ssize_t no_attribute(ssize_t n, const char *path)
{
	return is_ours(path, n < 0) ? rv_fail(EOPNOTSUPP) : n;
}

ssize_t getxattr(const char *path, const char *name, void *value, size_t size)
{
	return no_attribute(NEXT(getxattr)(path, name, value, size), path);
}

ssize_t lgetxattr(const char *path, const char *name, void *value, size_t size)
{
	return no_attribute(NEXT(lgetxattr)(path, name, value, size), path);
}

/* By -D_FORTIFY_SOURCE. */
void __chk_fail(void) __attribute__((noreturn));

ssize_t __readlink_chk(const char *path, char *to, size_t size, size_t room);
ssize_t __readlink_chk(const char *path, char *to, size_t size, size_t room)
{
	if (size > room)
		__chk_fail();
	return readlink(path, to, size);
}

ssize_t __readlinkat_chk(int dir, const char *path, char *to, size_t size, size_t room);
ssize_t __readlinkat_chk(int dir, const char *path, char *to, size_t size, size_t room)
{
	if (size > room)
		__chk_fail();
	return readlinkat(dir, path, to, size);
}

static __attribute__((noinline)) char *realpath_ours(const char *path, char *to)
{
	struct rv_path p;
	int error = rv_path_find(path, &p);

	if (error) {
		errno = error;
		return NULL;
	}
	if (p.kind == RV_ELSEWHERE)
		return NEXT(realpath)(p.at, to);
	return to ? strcpy(to, p.at) : strdup(p.at);
}

char *realpath(const char *path, char *to)
{
	int before = errno;
	char *found = NEXT(realpath)(path, to);

	if (!is_ours(path, !found))
		return found;
	if (!to)
		free(found);
	errno = before;
	return realpath_ours(path, to);
}

char *__realpath_chk(const char *path, char *to, size_t room);
char *__realpath_chk(const char *path, char *to, size_t room)
{
	if (room < PATH_MAX)
		__chk_fail();
	return realpath(path, to);
}

char *canonicalize_file_name(const char *path)
{
	return realpath(path, NULL);
}

/* In a directory of ours the process is in one of the kernel's that it cannot write, in truth. */
static __attribute__((noinline)) int chdir_ours(const char *path)
{
	struct rv_path p;
	int error = rv_path_find(path, &p);

	if (error || p.kind == RV_FILE)
		return rv_fail(error ? error : ENOTDIR);
	if (NEXT(chdir)(p.kind == RV_ELSEWHERE ? p.at : "/sys/class"))
		return -1;
	rv_path_enter(p.kind == RV_ELSEWHERE ? "" : p.at);
	return 0;
}

int chdir(const char *path)
{
	int failed;

	if (would_be_ours(path))
		return chdir_ours(path);
	failed = NEXT(chdir)(path);
	if (!failed)
		rv_path_enter("");
	return failed;
}

int fchdir(int fd)
{
	int failed = NEXT(fchdir)(fd);

	if (!failed)
		rv_path_enter("");
	return failed;
}

char *getcwd(char *to, size_t size)
{
	const char *here = rv_path_here();
	size_t n = strlen(here) + 1;

	if (n == 1)
		return NEXT(getcwd)(to, size);
	if ((to || size) && size < n) {
		errno = to && !size ? EINVAL : ERANGE;
		return NULL;
	}
	if (!to && !(to = malloc(size ? size : n)))
		return NULL;
	return strcpy(to, here);
}

char *__getcwd_chk(char *to, size_t size, size_t room);
char *__getcwd_chk(char *to, size_t size, size_t room)
{
	if (size > room)
		__chk_fail();
	return getcwd(to, size);
}
