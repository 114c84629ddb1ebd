/*
 * Descriptors of the engine's are not open to the program: one that closes all numbers, as one does
 * that becomes a daemon, or a wrong one, gets EBADF for them. Go's runtime would end the process
 * without its own. In a child of fork they are copies, and it may.
 */
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <unistd.h>

/* The C library's own, as in signals.c. */
enum { CLOSE, CLOSE_RANGE, CLOSEFROM, FORMS };
static const char *const names[FORMS] = { "close", "close_range", "closefrom" };
static void *libc[FORMS];

static void *next(int form)
{
	if (!load_relaxed(&libc[form]))
		__atomic_store_n(&libc[form], dlsym(RTLD_NEXT, names[form]), __ATOMIC_RELAXED);
	return libc[form];
}

__attribute__((constructor)) static void look_up(void)
{
	for (int i = 0; i < FORMS; i++)
		next(i);
}

/* The engine's table; NULL: there is none in this process. */
static const uint64_t *table(void)
{
	return rv_process() ? (const uint64_t *)(uintptr_t)load_acquire(&rv_area->owned) : NULL;
}

static bool has(const uint64_t *table, unsigned fd)
{
	return fd < RV_OWNED_MAX && load_relaxed(&table[fd / 64]) >> fd % 64 & 1;
}

int close(int fd)
{
	const uint64_t *owned = table();

	if (owned && has(owned, (unsigned)fd)) {
		errno = EBADF;
		return -1;
	}
	return ((int (*)(int))next(CLOSE))(fd);
}

static int range(unsigned first, unsigned last, int flags)
{
	int (*real)(unsigned, unsigned, int) = (int (*)(unsigned, unsigned, int))next(CLOSE_RANGE);

	if (real)
		return real(first, last, flags);
	errno = ENOSYS;
	return -1;
}

/* What is between ours. With flags it closes nothing, or copies of this thread's alone. */
int close_range(unsigned first, unsigned last, int flags)
{
	const uint64_t *owned = table();

	if (!owned || flags || first > last)
		return range(first, last, flags);
	for (unsigned fd = first; fd <= last && fd < RV_OWNED_MAX; fd++) {
		if (!has(owned, fd))
			continue;
		if (first < fd && range(first, fd - 1, 0))
			return -1;
		first = fd + 1;
	}
	return first <= last ? range(first, last, 0) : 0;
}

void closefrom(int low)
{
	unsigned first = low < 0 ? 0 : (unsigned)low;
	void (*real)(int) = (void (*)(int))next(CLOSEFROM);
	long most;

	if (!table() && real) {
		real(low);
		return;
	}
	if (!close_range(first, UINT_MAX, 0))
		return;
	most = sysconf(_SC_OPEN_MAX); /* Linux 5.8 and before has no close_range */
	for (long fd = first; fd < most; fd++)
		close((int)fd);
}
