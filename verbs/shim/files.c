/*
 * The C library's functions for files, in front of it: they answer for the paths of paths.c, and
 * for nothing else. The C library is asked first, so that a path which cannot be read is its
 * affair, and only a path that was read is looked at here. What is opened is a memory file that
 * cannot be written, so nothing is left behind; that of a directory has its path, padded to
 * RV_PATH.
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

#define EACH(x) \
	x(access) x(eaccess) x(faccessat) x(fopen) x(fopen64) x(fstat) x(fstatat) x(getxattr) \
	x(lgetxattr) x(lstat) x(open) x(open64) x(openat) x(openat64) x(readlink) \
	x(readlinkat) x(realpath) x(stat) x(statx)
#include "libc.h"

/* Whether what the C library has answered is ours to answer. */
bool rv_is_ours(const char *path, bool failed)
{
	return !(failed && errno == EFAULT) && path && rv_path_may_be(path);
}

/* Whether a path of ours is meant, without opening another. */
bool rv_would_be_ours(const char *path)
{
	int before = errno;
	bool is = rv_is_ours(path, NEXT(access)(path, F_OK));

	errno = before;
	return is;
}

#define LOOKS_LIKE_DIRECTORY(mode, links, size) (S_ISREG(mode) && !(links) && (size) == RV_PATH)

/* No path at all will do since Linux 6.11, though the C library's headers say that there is one. */
static bool is_empty(const char *path)
{
	__asm__("" : "+r"(path)); /* or the compiler believes them */
	return !path || !*path;
}

/* The path of a directory of ours that is open. */
bool rv_path_of_descriptor(int fd, char path[RV_PATH])
{
	int before = errno;
	struct stat st;
	bool is = fd >= 0 && !syscall(SYS_fstat, fd, &st) &&
		  LOOKS_LIKE_DIRECTORY(st.st_mode, st.st_nlink, st.st_size) &&
		  syscall(SYS_pread64, fd, path, RV_PATH, 0L) == RV_PATH && !path[RV_PATH - 1] &&
		  rv_path_may_be(path);

	errno = before;
	return is;
}

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

static bool is_root(int fd)
{
	struct stat st, root;

	return !syscall(SYS_fstat, fd, &st) && !call_stat(AT_FDCWD, "/", &root, 0) &&
	       st.st_ino == root.st_ino &&
	       st.st_dev == root.st_dev;
}

/* A path that begins at a descriptor: of a directory of ours, or of the root's. */
static __attribute__((noinline)) const char *below(int dir, const char *path, char whole[RV_PATH])
{
	int error = errno;
	size_t n = 0;
	bool is;

	if (error == ENOTDIR)
		is = rv_path_of_descriptor(dir, whole);
	else
		is = (!strncmp(path, "sys/", 4) || !strncmp(path, "dev/", 4)) && is_root(dir);
	if (is && error == ENOTDIR)
		n = strlen(whole);
	is = is && n + 1 + strlen(path) < RV_PATH;
	if (is) {
		whole[n] = '/';
		strcpy(whole + n + 1, path);
		is = rv_path_may_be(whole);
	}
	errno = error;
	return is ? whole : NULL;
}

/* The path that is ours to answer for, or NULL. */
static const char *ours_at(int dir, const char *path, bool failed, char whole[RV_PATH])
{
	if (!path || (failed && errno == EFAULT))
		return NULL;
	if (dir == AT_FDCWD || path[0] == '/')
		return rv_path_may_be(path) ? path : NULL;
	return failed && (errno == ENOTDIR || errno == ENOENT) ? below(dir, path, whole) : NULL;
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

/* Of what is open already. */
static int opened_stat(int fd, struct stat *st)
{
	char path[RV_PATH];

	if (!LOOKS_LIKE_DIRECTORY(st->st_mode, st->st_nlink, st->st_size) ||
	    !rv_path_of_descriptor(fd, path))
		return 0;
	return stat_ours(path, st, 0);
}

static int any_stat(int dir, const char *path, struct stat *st, int flags)
{
	char whole[RV_PATH];
	int before = errno, failed = call_stat(dir, path, st, flags);

	if (!failed && flags & AT_EMPTY_PATH && is_empty(path))
		return opened_stat(dir, st);
	path = ours_at(dir, path, failed, whole);
	if (!path)
		return failed;
	errno = before;
	return stat_ours(path, st, flags & ~AT_EMPTY_PATH);
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

static int any_fstat(int fd, struct stat *st)
{
	int failed = next(N_fstat) ? NEXT(fstat)(fd, st) : (int)syscall(SYS_fstat, fd, st);

	return failed ? failed : opened_stat(fd, st);
}

int fstat(int fd, struct stat *st)
{
	return any_fstat(fd, st);
}

int fstat64(int fd, struct stat64 *st)
{
	return any_fstat(fd, (struct stat *)st);
}

int stat64(const char *path, struct stat64 *st)
{
	return any_stat(AT_FDCWD, path, (struct stat *)st, 0);
}

int lstat64(const char *path, struct stat64 *st)
{
	return any_stat(AT_FDCWD, path, (struct stat *)st, AT_SYMLINK_NOFOLLOW);
}

int fstatat64(int dir, const char *path, struct stat64 *st, int flags)
{
	return any_stat(dir, path, (struct stat *)st, flags);
}

/*
 * As programs have them that were linked before glibc 2.33. None calls another function here by its
 * name, under which a sanitizer may be that calls this one.
 */
#define OLD(name, what, at, answer)                               \
	int name(int version, what at, void *st);                 \
	int name(int version, what at, void *st)                  \
	{                                                         \
		return version & ~1 ? rv_fail(EINVAL) : (answer); \
	}
OLD(__xstat, const char *, path, any_stat(AT_FDCWD, path, st, 0))
OLD(__xstat64, const char *, path, any_stat(AT_FDCWD, path, st, 0))
OLD(__lxstat, const char *, path, any_stat(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW))
OLD(__lxstat64, const char *, path, any_stat(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW))
OLD(__fxstat, int, fd, any_fstat(fd, st))
OLD(__fxstat64, int, fd, any_fstat(fd, st))

int __fxstatat(int version, int dir, const char *path, struct stat *st, int flags);
int __fxstatat(int version, int dir, const char *path, struct stat *st, int flags)
{
	return version & ~1 ? rv_fail(EINVAL) : any_stat(dir, path, st, flags);
}

int __fxstatat64(int version, int dir, const char *path, struct stat64 *st, int flags);
int __fxstatat64(int version, int dir, const char *path, struct stat64 *st, int flags)
{
	return version & ~1 ? rv_fail(EINVAL) : any_stat(dir, path, (struct stat *)st, flags);
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
	char whole[RV_PATH];
	int before = errno, failed = NEXT(statx)(dir, path, flags, mask, st);

	if (!failed && flags & AT_EMPTY_PATH && is_empty(path)) {
		if (!LOOKS_LIKE_DIRECTORY(st->stx_mode, st->stx_nlink, st->stx_size) ||
		    !rv_path_of_descriptor(dir, whole))
			return 0;
		path = whole;
	} else {
		path = ours_at(dir, path, failed, whole);
	}
	if (!path)
		return failed;
	errno = before;
	return statx_ours(path, flags & ~AT_EMPTY_PATH, mask, st);
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

	if (!rv_is_ours(path, failed))
		return failed;
	errno = before;
	return access_ours(path, mode);
}

int faccessat(int dir, const char *path, int mode, int flags)
{
	char whole[RV_PATH];
	int before = errno, failed = NEXT(faccessat)(dir, path, mode, flags);

	path = ours_at(dir, path, failed, whole);
	if (!path)
		return failed;
	errno = before;
	return access_ours(path, mode);
}

int eaccess(const char *path, int mode)
{
	int before = errno, failed = NEXT(eaccess)(path, mode);

	if (!rv_is_ours(path, failed))
		return failed;
	errno = before;
	return access_ours(path, mode);
}

int euidaccess(const char *path, int mode)
{
	return eaccess(path, mode);
}

/* A file in memory; -1 and errno. */
static int open_memory(const char *text, int n, int flags)
{
	int fd = memfd_create("rnicd", (flags & O_CLOEXEC ? MFD_CLOEXEC : 0) | MFD_ALLOW_SEALING);

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

int rv_open_directory(const char *path, int flags)
{
	char padded[RV_PATH] = "";

	strcpy(padded, path);
	return open_memory(padded, RV_PATH, flags);
}

static int open_text(const struct rv_path *p, int flags)
{
	char text[RV_TEXT];
	int n;

	if ((flags & O_ACCMODE) != O_RDONLY)
		return rv_fail(EACCES);
	if (flags & O_DIRECTORY)
		return rv_fail(ENOTDIR);
	n = rv_path_text(p, text, sizeof text);
	if (n < 0)
		return rv_fail(-n);
	return open_memory(text, n, flags);
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
		return flags & (O_ACCMODE | O_CREAT) ? rv_fail(EISDIR) : rv_open_directory(p.at, flags);
	return open_text(&p, flags);
}

static mode_t mode_of(int flags, va_list more)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(more, mode_t) : 0;
}

static int opened(int dir, int fd, const char *path, int flags, mode_t mode, int before)
{
	char whole[RV_PATH];

	path = ours_at(dir, path, fd < 0, whole);
	if (!path)
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

FILE *fopen(const char *path, const char *mode)
{
	return rv_would_be_ours(path) ? fopen_ours(path, mode) : NEXT(fopen)(path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
	return rv_would_be_ours(path) ? fopen_ours(path, mode) : NEXT(fopen64)(path, mode);
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

	if (!rv_is_ours(path, n < 0))
		return n;
	errno = before;
	return readlink_ours(path, to, size);
}

ssize_t readlinkat(int dir, const char *path, char *to, size_t size)
{
	char whole[RV_PATH];
	int before = errno;
	ssize_t n = NEXT(readlinkat)(dir, path, to, size);

	path = ours_at(dir, path, n < 0, whole);
	if (!path)
		return n;
	errno = before;
	return readlink_ours(path, to, size);
}

/* ls looks for lists of rights. */
static ssize_t no_attribute(ssize_t n, const char *path)
{
	return rv_is_ours(path, n < 0) ? rv_fail(EOPNOTSUPP) : n;
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

	if (!rv_is_ours(path, !found))
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
