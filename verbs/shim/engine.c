/* Loading the engine, calls to it, doorbells. */
#include "shim.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct rv_area *rv_area;

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static int (*engine_turn)(int most);
static uint32_t loaded; /* 0, 1: the engine serves the area, 2: it cannot */

/*
 * A page that fork makes zero in the child, which has none of the engine's threads. It has the
 * number of this process, from 1 on along a line of descent; 0: it has no engine.
 */
static const uint32_t no_process;
const uint32_t *rv_process_page = &no_process;
static uint32_t processes;

void rv_lock_slow(struct rv_lock *l)
{
	int n = 0;

	do {
		while (load_relaxed(&l->held))
			if (++n % 64 == 0)
				sched_yield();
	} while (__atomic_exchange_n(&l->held, 1, __ATOMIC_ACQUIRE));
}

static long futex(uint32_t *word, int op, uint32_t value)
{
	return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

void rv_acked(struct rv_acks *a, uint32_t n)
{
	/* The object may be gone once the last is acknowledged. */
	if (__atomic_fetch_add(&a->acked, 2 * n, __ATOMIC_ACQ_REL) & 1)
		futex(&a->acked, FUTEX_WAKE, INT_MAX);
}

void rv_wait_acked(struct rv_acks *a)
{
	uint32_t want = 2 * load_acquire(&a->given) + 1, acked;

	__atomic_fetch_or(&a->acked, 1, __ATOMIC_ACQ_REL);
	while ((int32_t)(want - (acked = load_acquire(&a->acked))) > 0)
		futex(&a->acked, FUTEX_WAIT, acked);
}

int rv_socketpair(int *mine, int *engines)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
		return errno;
	*mine = fds[0];
	*engines = fds[1];
	return 0;
}

void rv_close(int fd)
{
	syscall(SYS_close, fd);
}

const char *rv_setting(const char *variable)
{
	return secure_getenv(variable);
}

/* Where the engine is, and which file that was. */
static char engine_path[PATH_MAX];
static struct stat engine_file;

/*
 * A copy of the engine. Go's runtime cannot go on in a child of fork, which has none of its
 * threads; the loader takes a copy for another library, and initializes it.
 */
static void *open_copy(void)
{
	char copy[64];
	int from = (int)syscall(SYS_openat, AT_FDCWD, engine_path, O_RDONLY | O_CLOEXEC);
	int to = memfd_create("librnicd_engine.so", MFD_CLOEXEC);
	void *engine = NULL;
	struct stat now;
	ssize_t n = -1;

	if (from >= 0 && to >= 0 && !fstat(from, &now)) {
		if (now.st_ino != engine_file.st_ino || now.st_dev != engine_file.st_dev)
			errno = ESTALE; /* another version perhaps */
		else
			while ((n = sendfile(to, from, NULL, 1 << 30)) > 0)
				;
	}
	if (n == 0) {
		snprintf(copy, sizeof copy, "/proc/%d/fd/%d", getpid(), to); /* a name that no other copy has */
		engine = dlopen(copy, RTLD_NOW | RTLD_LOCAL);
	} else {
		fprintf(stderr, "rnicd: %s: %s\n", engine_path, strerror(errno));
	}
	rv_close(from);
	rv_close(to);
	return engine;
}

/* The engine stands beside this library, whichever way that was found. */
static void *open_engine(void)
{
	static const char name[] = "librnicd_engine.so";
	const char *path = rv_setting("RNICD_ENGINE");
	char beside[PATH_MAX], real[PATH_MAX];
	Dl_info self;

	if (processes)
		return open_copy();
	if (!path && dladdr(&loaded, &self) && self.dli_fname && realpath(self.dli_fname, real)) {
		char *slash = strrchr(real, '/');

		if (slash && (size_t)(slash - real) + sizeof name + 1 < sizeof beside) {
			memcpy(beside, real, (size_t)(slash - real) + 1);
			memcpy(beside + (slash - real) + 1, name, sizeof name);
			path = beside;
		}
	}
	if (!path || !realpath(path, engine_path) || stat(engine_path, &engine_file))
		return dlopen(path ? path : name, RTLD_NOW | RTLD_LOCAL); /* a child of fork will do without */
	return dlopen(engine_path, RTLD_NOW | RTLD_LOCAL);
}

static void *symbol(void *engine, const char *name)
{
	void *found = dlsym(engine, name);

	if (!found)
		fprintf(stderr, "rnicd: %s\n", dlerror());
	return found;
}

/* No handler of the program runs while Go changes their actions: all signals wait. */
static void *load_engine(void (**attach)(void *))
{
	enum rv_thread (*on_engine_thread)(void) = NULL;
	struct rv_signals signals;
	sigset_t all, before;
	void *engine;
	char *why;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rv_signals_before(&signals);
	engine = open_engine();
	if (!engine && (why = dlerror()))
		fprintf(stderr, "rnicd: %s\n", why);
	else if (engine && (on_engine_thread = symbol(engine, "rnicd_engine_thread")))
		rv_signals_after(&signals, on_engine_thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!on_engine_thread)
		return NULL;
	engine_turn = (int (*)(int))symbol(engine, "rnicd_engine_turn");
	*attach = (void (*)(void *))symbol(engine, "rnicd_engine_attach");
	return *attach ? engine : NULL;
}

/* The environment that the process was started with, where Go's runtime looks: after argv. */
static char **started_with;

__attribute__((constructor)) static void begin(int argc, char **argv)
{
	started_with = argv + argc + 1;
}

/*
 * Go's runtime obeys these variables before any code of the engine's runs; GOTRACEBACK it takes for
 * none in a secure program. It does not see what clearenv(3) has done.
 */
static const char *obeyed_by_go(void)
{
	static const char *const names[] = { "GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT" };

	for (char **v = started_with; *v; v++)
		for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
			size_t n = strlen(names[i]);

			if (!strncmp(*v, names[i], n) && (*v)[n] == '=')
				return names[i];
		}
	return NULL;
}

/* In a program with other rights than its caller's it must decide nothing (secure_getenv(3)). */
static bool environment_decides(void)
{
	const char *name = getauxval(AT_SECURE) ? obeyed_by_go() : NULL;

	if (name)
		fprintf(stderr,
			"rnicd: no device: %s is set, which the engine would obey in a program "
			"with other rights than its caller's (setuid, setgid, capabilities): "
			"start it without\n",
			name);
	return name;
}

static int attach_engine(void)
{
	void (*attach)(void *);
	uint32_t *page;

	if (environment_decides())
		return ENODEV;
	rv_area = mmap(NULL, sizeof *rv_area, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (rv_area == MAP_FAILED || page == MAP_FAILED)
		return ENOMEM;
	if (madvise(page, 4096, MADV_WIPEONFORK)) /* Linux 4.14 */
		return errno;
	rv_area->process = processes + 1;
	rv_area->looks = rv_roce();
	rv_area->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (rv_area->wake_fd < 0)
		return errno;
	if (!load_engine(&attach))
		return ENODEV;
	attach(rv_area);
	*page = ++processes;
	store_release(&rv_process_page, page);
	return 0;
}

/* No thread is cancelled in between, which holds the lock. */
static int load(void)
{
	int before, error;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	error = attach_engine();
	pthread_setcancelstate(before, &before);
	return error;
}

/* Until the child of fork has an engine of its own, its own calls begin with one of these. */
static bool begins(uint32_t op)
{
	return op == RV_OPEN || op == RV_CM_CREATE;
}

/*
 * Whether the engine serves this process, for a call. It is loaded when this is first asked; in a
 * child of fork, which has but its parent's objects, when it begins with one of its own.
 */
static int ready(uint32_t op)
{
	uint32_t is = load_acquire(&loaded);

	if (is == 1 && !rv_process() && !begins(op))
		return EPERM;
	if (is == 0 || (is == 1 && !rv_process())) {
		pthread_mutex_lock(&load_lock);
		if (loaded == 0 || (loaded == 1 && !rv_process()))
			store_release(&loaded, load() ? 2 : 1);
		pthread_mutex_unlock(&load_lock);
	}
	return load_relaxed(&loaded) == 1 ? 0 : ENODEV;
}

void rv_lock_load(void)
{
	pthread_mutex_lock(&load_lock);
}

void rv_unlock_load(void)
{
	pthread_mutex_unlock(&load_lock);
}

/* Wakes who sleeps until fd is written. The first of those that find it asleep does. */
static void wake(uint32_t *asleep, int fd)
{
	static const uint64_t one = 1;

	atomic_thread_fence(memory_order_seq_cst); /* what was published, then this */
	if (load_relaxed(asleep) && __atomic_exchange_n(asleep, 0, __ATOMIC_SEQ_CST)) {
		/* Not write(2), a point of cancellation: nobody else wakes it. Full means that it is awake. */
		syscall(SYS_write, fd, &one, sizeof one);
	}
}

static uint32_t calls; /* that were made */

/*
 * The engine carries out a call and then tells of it, so what was done before the call comes before
 * what is done after reading the event. Here C is told so.
 */
void rv_after_calls(void)
{
	(void)load_acquire(&calls);
}

static struct rv_call *take_call(void)
{
	for (;;) {
		uint32_t first = __atomic_fetch_add(&calls, 1, __ATOMIC_ACQ_REL);

		for (uint32_t i = 0; i < RV_CALLS; i++) {
			struct rv_call *c = &rv_area->calls[(first + i) % RV_CALLS];
			uint32_t was = RV_CALL_FREE;

			if (__atomic_compare_exchange_n(&c->state, &was, RV_CALL_TAKEN, false,
							__ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
				return c;
		}
		syscall(SYS_nanosleep, &(struct timespec){ .tv_nsec = 1000000 }, NULL); /* so many are in calls */
	}
}

int rv_call(uint32_t op, struct rv_args *a)
{
	struct rv_call *c;
	uint32_t state;
	int error = ready(op);

	if (error)
		return error;
	if (a->size > RV_CALL_DATA)
		return EINVAL;
	c = take_call();
	c->op = op;
	c->size = a->size;
	memcpy(c->arg, a->arg, sizeof c->arg);
	if (a->size)
		memcpy(c->data, a->data, a->size);
	store_release(&c->state, RV_CALL_POSTED);
	wake(&rv_area->sleeping, rv_area->wake_fd);
	while ((state = load_acquire(&c->state)) != RV_CALL_DONE)
		futex(&c->state, FUTEX_WAIT, state); /* also after a signal: the call goes on */
	memcpy(a->arg, c->arg, sizeof a->arg);
	error = c->error;
	if (!error && a->ret) {
		a->ret_size = c->size < a->ret_size ? c->size : a->ret_size;
		memcpy(a->ret, c->data, a->ret_size);
	}
	store_release(&c->state, RV_CALL_FREE);
	return error;
}

int rv_call1(uint32_t op, uint64_t arg)
{
	struct rv_args a = { .arg = { arg } };

	return rv_call(op, &a);
}

/* Sets the bit, if it is not set: the engine takes it away before it looks. */
static void set_bit(uint64_t *word, uint64_t bit)
{
	if (!(load_relaxed(word) & bit))
		__atomic_fetch_or(word, bit, __ATOMIC_SEQ_CST);
}

/* Requests of this thread since its last Turn. */
static __thread uint32_t posted __attribute__((tls_model("initial-exec")));

/*
 * Turns of the engine on this thread, so many at most, until one finds work. Whether one has found
 * work.
 */
bool rv_turn(int most)
{
	posted = 0;
	return load_acquire(&rv_area->drives) && engine_turn(most);
}

/* The thread begins to wait: from now on the engine looks for what comes. */
void rv_attend(void)
{
	if (load_relaxed(&rv_area->drives)) {
		__atomic_store_n(&rv_area->waits, 1, __ATOMIC_RELAXED);
		wake(&rv_area->resting, rv_area->bell_fd);
	}
}

__thread bool rv_posted;
__thread uint32_t rv_elsewhere;

/*
 * To wake the engine costs more than to do what it would do. So a thread's first post after it has
 * polled makes a Turn where the engine sleeps. What it posts more before it polls would leave one
 * by one that way, in segments and system calls of its own: the engine is woken for that, and the
 * thread's next poll finds it, too. batch: many have been posted, so they leave now (RV_BATCH_MIN).
 */
static void ring(uint32_t bit, bool batch)
{
	uint64_t *word = &rv_area->doorbells[bit / 64];

	rv_elsewhere = 0;
	atomic_thread_fence(memory_order_seq_cst); /* the entry, then the look at the bit */
	set_bit(word, 1ull << bit % 64);
	set_bit(&rv_area->summary,
		1ull << bit / 64); /* a thread that has set the first may not be here yet */
	if (load_relaxed(&rv_area->drives) &&
	    (batch || (load_relaxed(&rv_area->dozing) && !rv_posted))) {
		rv_posted = true;
		rv_turn(1);
		if (!(load_relaxed(word) & 1ull << bit % 64))
			return;
	}
	wake(&rv_area->dozing, rv_area->bell_fd);
}

void rv_ring(uint32_t bit)
{
	ring(bit, false);
}

/* For so many requests; the completion of one waits for the peer, if waits is set. */
void rv_ring_batch(uint32_t bit, uint32_t requests, bool waits)
{
	posted += requests;
	ring(bit, waits && posted >= RV_BATCH_MIN);
}

/* For how long, says rnicd_ring.h; a test may say something else. */
#ifndef AWAIT_NS
#define AWAIT_NS RV_AWAIT_NS
#endif

/*
 * The engine completes, counts, and then looks at waiting; we say that we wait, then look at the
 * slot, and then wait for the count to change.
 */
void rv_await_progress(uint32_t seen, const uint32_t *slot, uint32_t want, uint32_t *doublings)
{
	uint32_t n = load_relaxed(doublings);
	uint64_t ns = (uint64_t)AWAIT_NS << n;
	struct timespec bound = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
	bool over = false;
	int before = errno;

	__atomic_fetch_add(&rv_area->waiting, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(slot, __ATOMIC_SEQ_CST) != want)
		over = syscall(SYS_futex, &rv_area->progress, FUTEX_WAIT_PRIVATE, seen, &bound,
			       NULL, 0) &&
		       errno == ETIMEDOUT;
	__atomic_fetch_sub(&rv_area->waiting, 1, __ATOMIC_SEQ_CST);
	/* What nobody was told of has come all the same. */
	if (load_relaxed(&rv_area->progress) != seen || load_acquire(slot) == want)
		n -= n > 0;
	else if (over)
		n += n < RV_AWAIT_DOUBLINGS;
	__atomic_store_n(doublings, n, __ATOMIC_RELAXED);
	errno = before;
}

/* The program ends, by exit or from main. */
__attribute__((destructor)) static void leave(void)
{
	if (load_acquire(&loaded) == 1 && rv_process())
		rv_call1(RV_LEAVE, 0);
}
