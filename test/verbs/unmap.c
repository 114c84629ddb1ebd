/*
 * Registered memory that goes away: the connection of the peer that reaches for it ends, at worst,
 * and nothing else: neither the program, nor its other connections, nor what is mapped there by
 * then. With an argument, the same where somebody has hooks in the C library's functions.
 */
#include "walk.h"

#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define PAGE 4096
#define PAGES 8
#define SIZE (PAGES * PAGE)
#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

/* The program's own handler is not told of what the engine meets. */
static void on_fault(int sig)
{
	(void)sig;
	_exit(9);
}

static void messages(struct pair *p)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(&p->client, &sge, IBV_WR_SEND, 100);

	post_recv(&p->server, 1, 0, 100);
	CHECK(!post(&p->client, &wr));
	CHECK(await(&p->client).status == IBV_WC_SUCCESS);
	CHECK(await(&p->server).status == IBV_WC_SUCCESS);
}

static char *map(void *at, int flags)
{
	char *m = mmap(at, SIZE, RW, ANON | flags, -1, 0);

	CHECK(m != MAP_FAILED);
	return m;
}

/* Ways in which the page of index 4 goes; something else is there afterwards. */
static void unmap(char *m, int fd)
{
	(void)fd;
	CHECK(!munmap(m, SIZE) && map(m, MAP_FIXED_NOREPLACE) == m);
}

static void map_over(char *m, int fd)
{
	(void)fd;
	CHECK(mmap(m + 4 * PAGE, PAGE, RW, ANON | MAP_FIXED, -1, 0) == m + 4 * PAGE);
}

static void move(char *m, int fd)
{
	char *to = map(NULL, 0);

	(void)fd;
	CHECK(mremap(m, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	CHECK(map(m, MAP_FIXED_NOREPLACE) == m && !munmap(to, SIZE));
}

static void move_over(char *m, int fd)
{
	char *from = map(NULL, 0);

	(void)fd;
	CHECK(mremap(from, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, m) == m);
}

static void shrink(char *m, int fd)
{
	(void)fd;
	CHECK(mremap(m, SIZE, 4 * PAGE, 0) == m);
	CHECK(mmap(m + 4 * PAGE, 4 * PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) ==
	      m + 4 * PAGE);
}

static void grow_away(char *m, int fd)
{
	char *wall = mmap(m + SIZE, PAGE, PROT_NONE, ANON | MAP_FIXED_NOREPLACE, -1, 0), *to;

	(void)fd;
	to = mremap(m, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
	CHECK(to != MAP_FAILED && to != m && map(m, MAP_FIXED_NOREPLACE) == m && !munmap(to, 2 * SIZE));
	if (wall != MAP_FAILED)
		munmap(wall, PAGE);
}

/* These fault; the last one the library does not see. */
static void protect(char *m, int fd)
{
	(void)fd;
	CHECK(!mprotect(m + 4 * PAGE, PAGE, PROT_NONE));
}

static void read_only(char *m, int fd)
{
	(void)fd;
	CHECK(!mprotect(m + 4 * PAGE, PAGE, PROT_READ));
}

static void truncated(char *m, int fd)
{
	(void)m;
	CHECK(!ftruncate(fd, 4 * PAGE));
}

static void by_itself(char *m, int fd)
{
	(void)fd;
	CHECK(!syscall(SYS_munmap, m + 4 * PAGE, PAGE));
}

static void nothing(char *m, int fd)
{
	char *page = map(NULL, 0);

	(void)m, (void)fd;
	CHECK(!munmap(page, SIZE) && !munmap(m - PAGE, PAGE) && !munmap(m + SIZE, PAGE));
	CHECK(mremap(m, SIZE, SIZE, MREMAP_MAYMOVE) == m);
}

/* Calls that fail, and take nothing. */
static void fail(char *m, int fd)
{
	char *at = m + 4 * PAGE, *other = map(NULL, 0);
	const int move = MREMAP_MAYMOVE | MREMAP_FIXED;

	(void)fd;
#define NOT(call, error) CHECK((call) == MAP_FAILED && errno == (error))
	CHECK(munmap(at, 0) && errno == EINVAL);
	CHECK(munmap(at + 1, PAGE) && errno == EINVAL);
	CHECK(munmap(at, SIZE_MAX - (size_t)at) && errno == EINVAL);
	CHECK(munmap(at, SIZE_MAX / 2) && errno == EINVAL);
	NOT(mremap(m, SIZE, 0, 0), EINVAL);
	NOT(mremap(m, SIZE, 0, MREMAP_MAYMOVE), EINVAL);
	NOT(mremap(m, SIZE, SIZE, MREMAP_FIXED, other), EINVAL);
	NOT(mremap(m, SIZE, SIZE, move, other + 1), EINVAL);
	NOT(mremap(m, SIZE, SIZE, move, m + PAGE), EINVAL);
	NOT(mremap(m, SIZE, 0, move, other), EINVAL);
	NOT(mremap(m, SIZE, 2 * SIZE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP), EINVAL);
	NOT(mremap(m, (size_t)1 << 45, (size_t)1 << 46, MREMAP_MAYMOVE), EFAULT);
	NOT(mremap(other + 1, SIZE, SIZE, move, m), EINVAL);
	NOT(mremap(other, SIZE, SIZE, move, at + 1), EINVAL);
	NOT(mremap(other, SIZE, 0, move, m), EINVAL);
	NOT(mremap(other, SIZE, SIZE, MREMAP_FIXED, m), EINVAL);
	NOT(mmap(at, 0, RW, ANON | MAP_FIXED, -1, 0), EINVAL);
	NOT(mmap(at + 1, PAGE, RW, ANON | MAP_FIXED, -1, 0), EINVAL);
	NOT(mmap(at, PAGE, RW, ANON | MAP_FIXED, -1, 1), EINVAL);
	NOT(mmap(at, PAGE, RW, MAP_ANONYMOUS | MAP_FIXED, -1, 0), EINVAL);
	NOT(mmap(at, PAGE, RW, MAP_PRIVATE | MAP_FIXED, -1, 0), EBADF);
	NOT(mmap(at, SIZE_MAX / 2, RW, ANON | MAP_FIXED, -1, 0), ENOMEM);
	CHECK(!munmap(other, SIZE));
}

static const struct way {
	const char *name;
	void (*take)(char *m, int fd);
	bool ends, file, other; /* whether the connection does, it is a file, other memory is there then */
} ways[] = {
	{ "munmap", unmap, true, false, true },
	{ "mmap", map_over, true, false, true },
	{ "mremap", move, true, false, true },
	{ "mremap over it", move_over, true, false, true },
	{ "mremap smaller", shrink, true, false, true },
	{ "mremap larger", grow_away, true, false, true },
	{ "mprotect", protect, true, false, false },
	{ "mprotect to read", read_only, true, false, false },
	{ "ftruncate", truncated, true, true, false },
	{ "the system call", by_itself, true, false, false },
	{ "neighbours", nothing, false, false, false },
	{ "calls that fail", fail, false, false, false },
};

static void write_to(struct pair *p, struct ibv_mr *mr, char *at)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(&p->client, &sge, IBV_WR_RDMA_WRITE, 256);

	memset(p->client.memory, 0xaa, 256);
	wr.wr.rdma.remote_addr = (uintptr_t)at;
	wr.wr.rdma.rkey = mr->rkey;
	CHECK(!post(&p->client, &wr));
	await(&p->client); /* the peer has not said yet */
}

static void lose(const struct way *w)
{
	char *room = mmap(NULL, SIZE + 2 * PAGE, RW, ANON, -1, 0), *m = room + PAGE;
	struct pair p;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	int fd = -1;

	CHECK(room != MAP_FAILED);
	if (w->file) {
		CHECK((fd = memfd_create("lost", MFD_CLOEXEC)) >= 0 && !ftruncate(fd, SIZE));
		CHECK(mmap(m, SIZE, RW, MAP_SHARED | MAP_FIXED, fd, 0) == m);
	}
	connect_pair(&p, 0);
	CHECK(mr = ibv_reg_mr(p.server.id->pd, m, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	write_to(&p, mr, m);
	w->take(m, fd);
	write_to(&p, mr, m + 4 * PAGE);
	for (int i = 0; i < 1000; i++) /* so that it is found in a Turn of this thread's */
		CHECK(ibv_poll_cq(p.server.cq, 1, &wc) >= 0);
	if (w->ends) {
		rdma_ack_cm_event(event_of(p.events, RDMA_CM_EVENT_DISCONNECTED));
		rdma_ack_cm_event(event_of(p.events, RDMA_CM_EVENT_DISCONNECTED));
	} else {
		messages(&p);
		CHECK((unsigned char)m[4 * PAGE] == 0xaa);
	}
	for (int i = 0; w->other && i < 256; i++)
		CHECK(m[4 * PAGE + i] == 0);
	if (w->other)
		CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE) &&
		      errno == EFAULT);
	CHECK(!ibv_dereg_mr(mr));
	if (w->ends)
		close_ended(&p);
	else
		close_pair(&p);
	if (fd >= 0)
		close(fd);
}

/* A page goes as a whole, whichever octets of it the call and the region name. */
static void move_page(struct ibv_pd *pd)
{
	char *m = map(NULL, 0), *to;
	struct ibv_mr *mr = ibv_reg_mr(pd, m + PAGE / 2, 64, IBV_ACCESS_LOCAL_WRITE);

	CHECK(mr);
	to = mremap(m, 16, 2 * PAGE, MREMAP_MAYMOVE); /* there is no room: another page follows */
	CHECK(to != MAP_FAILED && to != m);
	CHECK(mmap(m, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == m);
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE) &&
	      errno == EFAULT);
	CHECK(!ibv_dereg_mr(mr) && !munmap(to, 2 * PAGE) && !munmap(m, SIZE));
}

/* Hooks, as those of UCX, Open MPI and libfabric, and who has come there. */
enum { HOOK_MMAP = 1, HOOK_MREMAP = 2, HOOK_MUNMAP = 4 };
static int hooked; /* by any thread */

static void *hook_mmap(void *at, size_t length, int prot, int flags, int fd, off_t offset)
{
	__atomic_fetch_or(&hooked, HOOK_MMAP, __ATOMIC_RELAXED);
	return (void *)syscall(SYS_mmap, at, length, prot, flags, fd, offset);
}

static void *hook_mremap(void *old, size_t old_size, size_t new_size, int flags, void *to)
{
	__atomic_fetch_or(&hooked, HOOK_MREMAP, __ATOMIC_RELAXED);
	return (void *)syscall(SYS_mremap, old, old_size, new_size, flags, to);
}

static int hook_munmap(void *at, size_t length)
{
	__atomic_fetch_or(&hooked, HOOK_MUNMAP, __ATOMIC_RELAXED);
	return (int)syscall(SYS_munmap, at, length);
}

/*
 * Writes a jump to hook, of x86-64, into the function that dlsym finds, which is all that a library
 * can look for whose place is after the C library's.
 */
static void jump(const char *name, void *hook)
{
	unsigned char code[] = { 0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3 };
	char *at = dlsym(RTLD_DEFAULT, name), *page = at - (uintptr_t)at % PAGE;

	memcpy(code + 2, &hook, sizeof hook);
	CHECK(at && !mprotect(page, 2 * PAGE, RW | PROT_EXEC));
	memcpy(at, code, sizeof code);
	CHECK(!mprotect(page, 2 * PAGE, PROT_READ | PROT_EXEC));
}

/* Sees the program's calls, and the C library's own. */
static void set_hooks(void)
{
	char *m;

	jump("mmap", (void *)hook_mmap);
	jump("mremap", (void *)hook_mremap);
	jump("munmap", (void *)hook_munmap);
	m = map(NULL, 0);
	CHECK((m = mremap(m, SIZE, 2 * SIZE, MREMAP_MAYMOVE)) != MAP_FAILED && !munmap(m, 2 * SIZE));
	CHECK(hooked == (HOOK_MMAP | HOOK_MREMAP | HOOK_MUNMAP));
	hooked = 0;
	CHECK(m = malloc(1 << 20));
	__asm__("" : "+r"(m)); /* or the compiler leaves it out */
	free(m);
	CHECK(hooked == (HOOK_MMAP | HOOK_MUNMAP));
}

int main(int argc, char **argv)
{
	struct sigaction act = { .sa_handler = on_fault };
	size_t size = (size_t)sysconf(_SC_SIGSTKSZ);
	stack_t own = { .ss_sp = malloc(size), .ss_size = size };
	struct pair beside;

	(void)argv;
	if (argc > 1)
		set_hooks();
	CHECK(!sigaction(SIGSEGV, &act, NULL) && !sigaction(SIGBUS, &act, NULL));
	connect_pair(&beside, 0);
	CHECK(!sigaction(SIGSEGV, &act, NULL) && !sigaction(SIGBUS, &act, NULL)); /* after loading, too */
	for (int with_stack = 0; with_stack < 2; with_stack++) {
		for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
			fprintf(stderr, "%s\n", ways[i].name);
			lose(&ways[i]);
			messages(&beside);
		}
		CHECK(own.ss_sp && !sigaltstack(&own, NULL)); /* small, and the program's */
	}
	move_page(beside.client.id->pd);
	close_pair(&beside);
	printf("all well\n");
	return 0;
}
