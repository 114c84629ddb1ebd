/*
 * Turns of the engine on a thread of the program's that polls.
 *
 * Nothing of the program's may run there meanwhile: a handler would have a goroutine's stack, and
 * might leave by siglongjmp(3) what it has interrupted. So signals wait, except faults, which are
 * the engine's then (verbs/shim/signals.c); and so does cancellation. The stack for signals is Go's
 * for the Turn, and the program's, or none, afterwards.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

int rnicdTurn(int most); /* main.go */
void rnicdEnter(void);

extern __thread int in_turn __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* The kernel's sets, whose size the system call wants to know. */
typedef uint64_t mask;

#define BIT(sig) ((mask)1 << ((sig)-1))

static const mask held = ~(BIT(SIGSEGV) | BIT(SIGBUS));

/* What Go unblocks when it meets a thread (runtime/sigtab_linux_generic.go, _SigUnblock). */
static const mask unblocked = BIT(SIGILL) | BIT(SIGTRAP) | BIT(SIGFPE) | BIT(SIGSTKFLT) |
			      BIT(SIGCHLD) | BIT(SIGPROF) | BIT(32) | BIT(33) | BIT(34);

static void set_mask(const mask *set, mask *before)
{
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, set, before, sizeof *set);
}

typedef int set_specific(pthread_key_t, const void *);

static set_specific *libc_set_specific;

static __thread int entered __attribute__((tls_model("initial-exec")));
static pthread_key_t bound; /* set by threads that Go has met */

/*
 * Go is told of the end of such a thread, but not in a child of fork: it would wait for what its
 * other threads, which the child does not have, were about to do to the thread's goroutine.
 */
static void in_child(void)
{
	if (entered)
		libc_set_specific(bound, NULL);
}

__attribute__((constructor)) static void look_up(void)
{
	libc_set_specific = (set_specific *)dlsym(RTLD_DEFAULT, "pthread_setspecific");
	pthread_atfork(NULL, NULL, in_child);
}

/*
 * This library's own, by which runtime/cgo binds a thread to Go, right after Go has unblocked those
 * signals and while the thread is still on the program's stack (runtime.needAndBindM).
 */
__attribute__((visibility("hidden"))) int pthread_setspecific(pthread_key_t key, const void *value)
{
	if (in_turn) {
		set_mask(&held, NULL);
		bound = key;
	}
	return libc_set_specific ? libc_set_specific(key, value) : ENOMEM;
}

static __thread stack_t gos __attribute__((tls_model("initial-exec"))); /* once it has entered */

/*
 * Has Go meet the thread; all signals are held. False: not now. A signal that waits would come out
 * when Go unblocks it, and be lost to one who waits for it, or end the process.
 */
static int enter(stack_t *programs)
{
	static const stack_t none = { .ss_flags = SS_DISABLE };
	mask waiting = 0;

	syscall(SYS_rt_sigpending, &waiting, sizeof waiting);
	if (waiting & unblocked || sigaltstack(&none, programs))
		return 0;
	rnicdEnter();
	sigaltstack(NULL, &gos);
	gos.ss_flags = 0;
	return entered = 1;
}

/*
 * Turns until one finds work, so many at most; none while another thread is in one, or where this
 * thread can make none now. Whether one has found work.
 */
__attribute__((visibility("default"))) int rnicd_engine_turn(int most)
{
	int error = errno, n = 0, first = !entered, cancel;
	stack_t programs;
	mask before;

	/*
	 * Points of cancellation are in the first call alone. Asynchronous cancellation is a signal, which
	 * waits: where it finds the state disabled, glibc 2.36 ends the thread without a result.
	 */
	if (first)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	set_mask(&held, &before);
	in_turn = 1;
	/* It fails on that stack: a handler polls. */
	if (entered ? !sigaltstack(&gos, &programs) : enter(&programs)) {
		n = rnicdTurn(most);
		sigaltstack(&programs, NULL);
	}
	in_turn = 0;
	set_mask(&before, NULL);
	if (first)
		pthread_setcancelstate(cancel, NULL);
	errno = error;
	return n;
}
