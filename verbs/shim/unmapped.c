/*
 * Registered memory that the program unmaps. The engine keeps no page where it is: a peer's Write
 * would reach what is mapped there next. So calls that take pages away come by here, as those of
 * MPI libraries do, and a region that loses some is revoked before they go.
 *
 * The functions have the C library's version of their names and are hidden: the loader binds
 * programs to them, which ask for that version, and dlsym passes over them. UCX, Open MPI and
 * libfabric look the C library's functions up by dlsym and write a jump into them, to hear of its
 * own calls as well. If they found these they would hear of the program's calls alone.
 *
 * Not seen are the C library's own calls (free of what malloc has mapped), shmdt, and system calls
 * without it; nor those of a program whose functions are found first and look the C library's up
 * by dlsym, as a sanitizer's are. What is touched after these and not mapped again faults, which
 * ends the connection that did (rnic/internal/qp/unreachable.go).
 *
 * A call that certainly fails revokes nothing. What only the kernel can tell, as what a descriptor
 * is by then, comes too late: the region is revoked, and the memory may still be there.
 */
#include "shim.h"

#include <stdarg.h>
#include <sys/mman.h>

#include "versions.h"

#define EACH(x) x(mmap64) x(mremap) x(munmap)
#include "libc.h"

/* Defines rv_name as name, under the C library's version. */
#define VERSIONED(name) __asm__(".symver rv_" #name ", " #name "@" VERSION_##name)

#define PAGE 4096
#define ADDRESSES ((size_t)1 << 56) /* a program has none from here on */

/* A region. Who looks takes no lock, as a handler of a signal may: the handle is written last. */
struct place {
	uint64_t handle; /* 0: free */
	uintptr_t from, to;
	uint32_t lost, next_free;
};

static struct rv_lock lock; /* of those who write */
static struct place places[RV_MRS_MAX];
static uint32_t used, first_free; /* 1 + the index; 0: none */

void rv_lock_places(void)
{
	rv_lock(&lock);
}

void rv_unlock_places(void)
{
	rv_unlock(&lock);
}

/* Returns 0 where there is no room, as for more regions than the engine has. */
uint32_t rv_place_add(uint64_t handle, const void *addr, size_t length)
{
	struct place *p = NULL;
	uint32_t number = 0;

	rv_lock(&lock);
	if (first_free) {
		number = first_free;
		first_free = places[number - 1].next_free;
	} else if (used < RV_MRS_MAX) {
		number = used + 1;
	}
	if (number) {
		p = &places[number - 1];
		p->from = (uintptr_t)addr;
		p->to = p->from + length;
		p->lost = 0;
		store_release(&p->handle, handle);
		if (number > used)
			store_release(&used, number);
	}
	rv_unlock(&lock);
	return number;
}

void rv_place_remove(uint32_t number)
{
	if (!number)
		return;
	rv_lock(&lock);
	store_release(&places[number - 1].handle, 0);
	places[number - 1].next_free = first_free;
	first_free = number;
	rv_unlock(&lock);
}

bool rv_place_lost(uint32_t number)
{
	return number && load_acquire(&places[number - 1].lost);
}

/* The next region from *at on that has octets of [from, to), or NULL. */
RV_EARLY static struct place *touched(uint32_t *at, uintptr_t from, uintptr_t to, uint64_t *handle)
{
	for (uint32_t n = load_acquire(&used); *at < n;) {
		struct place *p = &places[(*at)++];

		*handle = load_acquire(&p->handle);
		if (*handle && p->from < to && from < p->to && load_acquire(&p->handle) == *handle)
			return p;
	}
	return NULL;
}

/* The octets of whole pages that a call about length octets means. 0: none, or it fails. */
RV_EARLY static size_t pages(uintptr_t from, size_t length)
{
	if (from % PAGE || from > ADDRESSES || length > ADDRESSES - from)
		return 0;
	return (length + PAGE - 1) & ~(size_t)(PAGE - 1);
}

RV_EARLY static bool registered(uintptr_t from, size_t length)
{
	size_t n = pages(from, length);
	uint32_t at = 0;
	uint64_t handle;

	return n && touched(&at, from, from + n, &handle) != NULL;
}

/* Revokes what the pages go from. Returns when no octet can be placed there any more. */
RV_EARLY static void lose(uintptr_t from, size_t length)
{
	size_t n = pages(from, length);
	int before = errno;
	uint32_t at = 0;
	struct place *p;
	uint64_t handle;

	while (n && (p = touched(&at, from, from + n, &handle))) {
		store_release(&p->lost, 1);
		rv_call1(RV_REVOKE_MR, handle); /* of the parent's, in a child of fork: EPERM */
	}
	errno = before;
}

RV_EARLY int rv_munmap(void *addr, size_t length)
{
	lose((uintptr_t)addr, length);
	return NEXT(munmap)(addr, length);
}
VERSIONED(munmap);

/* Whether the call takes away what is there, unless the kernel knows better. */
RV_EARLY static bool maps_over(int flags, int fd, off64_t offset)
{
	return flags & MAP_FIXED && (flags & MAP_FIXED_NOREPLACE) != MAP_FIXED_NOREPLACE &&
	       flags & MAP_TYPE && offset % PAGE == 0 && (flags & MAP_ANONYMOUS || fd >= 0);
}

RV_EARLY void *rv_mmap(void *addr, size_t length, int prot, int flags, int fd, off64_t offset)
{
	if (maps_over(flags, fd, offset))
		lose((uintptr_t)addr, length);
	return NEXT(mmap64)(addr, length, prot, flags, fd, offset);
}
VERSIONED(mmap);

RV_EARLY void *rv_mmap64(void *addr, size_t length, int prot, int flags, int fd, off64_t offset)
{
	return rv_mmap(addr, length, prot, flags, fd, offset);
}
VERSIONED(mmap64);

/* False: mremap says EINVAL before it looks at memory. */
RV_EARLY static bool remaps(uintptr_t from, size_t old_size, uintptr_t to, size_t new_size,
			    int flags)
{
	size_t old = pages(from, old_size), new = pages(0, new_size);

	if (from % PAGE || !new)
		return false;
	if (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) && !(flags & MREMAP_MAYMOVE))
		return false;
	if (flags & MREMAP_DONTUNMAP && old != new)
		return false;
	return !(flags & MREMAP_FIXED) ||
	       (pages(to, new_size) && (to >= from + old || from >= to + new));
}

/* What is lost when memory shrinks, or goes elsewhere. What grows where it is stays. */
RV_EARLY static void lose_moved(uintptr_t from, size_t old_size, uintptr_t to, size_t new_size,
				int flags)
{
	size_t old = pages(from, old_size), new = pages(0, new_size);

	if (flags & MREMAP_FIXED)
		lose(to, new);
	if (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP))
		lose(from, old);
	else if (new < old)
		lose(from + new, old - new);
}

/*
 * Memory that can grow where it is stays. Only where there is no room, ENOMEM, it may move.
 */
RV_EARLY void *rv_mremap(void *old, size_t old_size, size_t new_size, int flags, ...)
{
	uintptr_t from = (uintptr_t)old;
	void *to = NULL;
	va_list more;

	va_start(more, flags);
	if (flags & MREMAP_FIXED)
		to = va_arg(more, void *);
	va_end(more);
	if (!remaps(from, old_size, (uintptr_t)to, new_size, flags))
		return NEXT(mremap)(old, old_size, new_size, flags, to);
	lose_moved(from, old_size, (uintptr_t)to, new_size, flags);
	if (!(flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) && new_size > old_size &&
	    registered(from, old_size)) {
		int before = errno;
		void *same = NEXT(mremap)(old, old_size, new_size, 0);

		if (same != MAP_FAILED || errno != ENOMEM || !(flags & MREMAP_MAYMOVE))
			return same;
		errno = before;
		lose(from, old_size);
	}
	return NEXT(mremap)(old, old_size, new_size, flags, to);
}
VERSIONED(mremap);
