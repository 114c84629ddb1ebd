/*
 * Turns of the engine on a thread of the program's that polls.
 *
 * Nothing of the program's may run there meanwhile: a handler would have a goroutine's stack, and
 * might leave by siglongjmp(3) what it has interrupted. So signals wait, except faults, which are
 * the engine's then (verbs/shim/signals.c); and so does cancellation.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

int rnicdTurn(int stops); /* main.go */
void rnicdEnter(void);

extern __thread int in_turn __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* The kernel's sets, whose size the system call wants to know. */
typedef uint64_t mask;

#define HELD (~(mask)0 & ~((mask)1 << (SIGSEGV - 1)) & ~((mask)1 << (SIGBUS - 1)))

static void set_mask(const mask *set, mask *before)
{
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, set, before, sizeof *set);
}

/*
 * One Turn, unless another thread is in one. 1: it has found work, 0: none, -1: another thread is.
 * stops: the caller goes to sleep until something has completed.
 */
__attribute__((visibility("default"))) int rnicd_engine_turn(int stops)
{
	static const mask held = HELD;
	static __thread int entered __attribute__((tls_model("initial-exec")));
	mask before;
	int cancel, error = errno, n;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	set_mask(&held, &before);
	in_turn = 1;
	if (!entered) { /* Go unblocks some signals when it meets a thread */
		rnicdEnter();
		set_mask(&held, NULL);
		entered = 1;
	}
	n = rnicdTurn(stops);
	in_turn = 0;
	set_mask(&before, NULL);
	pthread_setcancelstate(cancel, NULL);
	errno = error;
	return n;
}
