/*
 * The C library's functions for directories, in front of it, as files.c has those for files: lists
 * of ours, and the working directory.
 */
#undef _FORTIFY_SOURCE
#include "shim.h"

#include <sys/stat.h>
#include <unistd.h>

#define EACH(x) \
	x(chdir) x(closedir) x(dirfd) x(fchdir) x(fdopendir) x(getcwd) x(opendir) x(readdir) \
	x(readdir_r) x(rewinddir) x(scandir) x(seekdir) x(telldir)
#include "libc.h"

/* Directories of ours that are open. What the C library has never lies in between. */
#define DIRECTORIES 32

static struct directory {
	uint32_t open;
	int node;
	int at; /* entries that were read */
	int fd; /* -1: none yet */
	struct dirent entry;
} directories[DIRECTORIES];

static struct directory *ours(DIR *d)
{
	struct directory *o = (struct directory *)d;

	return o >= directories && o < directories + DIRECTORIES ? o : NULL;
}

static DIR *list_of(int node, int fd)
{
	for (int i = 0; i < DIRECTORIES; i++)
		if (!__atomic_exchange_n(&directories[i].open, 1, __ATOMIC_ACQUIRE)) {
			directories[i].node = node;
			directories[i].at = 0;
			directories[i].fd = fd;
			return (DIR *)&directories[i];
		}
	errno = EMFILE;
	return NULL;
}

static __attribute__((noinline)) DIR *opendir_ours(const char *path)
{
	struct rv_path p;
	int error = rv_path_find(path, &p);

	if (!error && p.kind == RV_ELSEWHERE)
		return NEXT(opendir)(p.at);
	if (!error && p.kind == RV_DIRECTORY)
		return list_of(p.node, -1);
	errno = error ? error : ENOTDIR;
	return NULL;
}

DIR *opendir(const char *path)
{
	int before = errno;
	DIR *d = NEXT(opendir)(path);

	if (!rv_is_ours(path, !d))
		return d;
	if (d)
		NEXT(closedir)(d);
	errno = before;
	return opendir_ours(path);
}

DIR *fdopendir(int fd)
{
	int before = errno;
	DIR *d = NEXT(fdopendir)(fd);
	char path[RV_PATH];
	struct rv_path p;

	if (d || errno != ENOTDIR || !rv_path_of_descriptor(fd, path) || rv_path_find(path, &p))
		return d;
	errno = before;
	return list_of(p.node, fd);
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
	if (o->fd >= 0)
		rv_close(o->fd);
	o->fd = -1;
	store_release(&o->open, 0);
	return 0;
}

int dirfd(DIR *d)
{
	struct directory *o = ours(d);

	if (!o)
		return NEXT(dirfd)(d);
	if (o->fd < 0)
		o->fd = rv_open_directory(rv_path_of(o->node), O_CLOEXEC);
	return o->fd;
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

	if (!rv_is_ours(path, n < 0))
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

	if (rv_would_be_ours(path))
		return chdir_ours(path);
	failed = NEXT(chdir)(path);
	if (!failed)
		rv_path_enter("");
	return failed;
}

int fchdir(int fd)
{
	int before = errno, failed = NEXT(fchdir)(fd);
	char path[RV_PATH];

	if (failed && errno == ENOTDIR && rv_path_of_descriptor(fd, path)) {
		errno = before;
		return chdir_ours(path);
	}
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

void __chk_fail(void) __attribute__((noreturn)); /* by -D_FORTIFY_SOURCE */

char *__getcwd_chk(char *to, size_t size, size_t room);
char *__getcwd_chk(char *to, size_t size, size_t room)
{
	if (size > room)
		__chk_fail();
	return getcwd(to, size);
}
