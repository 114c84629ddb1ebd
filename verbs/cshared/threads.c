/*
 * The engine's threads and the program's signals: none of them takes any.
 *
 * Go unblocks some signals on each thread that it starts (minitSignalMask), SIGCHLD, SIGPROF and
 * SIGRTMIN among them, by a system call of its own. A handler of the program would then run on a
 * goroutine's stack of 2 KiB; a signal that the program waits for by sigwait(3) or signalfd(2)
 * would be lost, or end the process. So a filter answers that one call, made from this library's
 * code, with success, and each thread begins with the mask of below. pthread_create is hidden: it
 * is this library's own, by which runtime/cgo starts every thread.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "the system calls of this architecture are not known here"
#endif

/* Where this library's code is: the linker says so. */
extern const char code_begin[] __asm__("__ehdr_start") __attribute__((visibility("hidden")));
extern const char code_end[] __asm__("etext") __attribute__((visibility("hidden")));

/* Read by handlers of signals: in memory that each thread has from its beginning. */
static __thread int engine_thread __attribute__((tls_model("initial-exec")));
__thread int in_turn __attribute__((tls_model("initial-exec"), visibility("hidden"))); /* turn.c */

__attribute__((visibility("default"))) int rnicd_engine_thread(void)
{
	return engine_thread ? 1 : in_turn ? 2 : 0; /* enum rv_thread (shim.h) */
}

#define LOW(member) \
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, member))
#define HIGH(member) \
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, member) + 4)
#define IF(op, k, yes, no) BPF_JUMP(BPF_JMP | op | BPF_K, (uint32_t)(k), yes, no)

/*
 * rt_sigprocmask(SIG_SETMASK, not NULL, ...) from an instruction of this library returns 0 and
 * does nothing. SIG_UNBLOCK, by which Go ends a process that has failed, is carried out.
 */
static int ignore_masks_of_go(void)
{
	uint64_t from = (uintptr_t)code_begin, to = (uintptr_t)code_end;
	struct sock_filter program[] = {
		LOW(arch),
		IF(BPF_JEQ, ARCH, 0, 15),
		LOW(nr),
		IF(BPF_JEQ, SYS_rt_sigprocmask, 0, 13),
		LOW(args[0]),
		IF(BPF_JEQ, SIG_SETMASK, 0, 11),
		LOW(args[1]),
		IF(BPF_JEQ, 0, 0, 2),
		HIGH(args[1]),
		IF(BPF_JEQ, 0, 7, 0),
		HIGH(instruction_pointer), /* the code may cross one border of 4 GiB */
		IF(BPF_JEQ, from >> 32, 1, 0),
		IF(BPF_JEQ, to >> 32, 0, 4),
		LOW(instruction_pointer),
		BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, (uint32_t)from),
		IF(BPF_JGE, to - from, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof program / sizeof program[0], program };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) /* of this thread, which executes no program */
		return errno;
	if (!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &filter) ||
	    !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter)) /* before Linux 4.17 */
		return 0;
	return errno;
}

struct start {
	void *(*run)(void *);
	void *arg;
	int filtered; /* by the thread that starts this one */
};

static void *begin(void *arg)
{
	struct start start = *(struct start *)arg;
	sigset_t mask;
	int error;

	free(arg);
	engine_thread = 1;
	sigfillset(&mask);
	sigdelset(&mask, SIGSEGV);
	sigdelset(&mask, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	if (!start.filtered && (error = ignore_masks_of_go()))
		fprintf(stderr,
			"rnicd: signal handlers may run on threads of the engine, and crash there: "
			"no seccomp filter can be installed: %s\n",
			strerror(error));
	return start.run(start.arg);
}

typedef int create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

__attribute__((visibility("hidden"))) int
pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	create *real = (create *)dlsym(RTLD_DEFAULT, "pthread_create");
	struct start *start = malloc(sizeof *start);
	int error;

	if (!real || !start) {
		free(start);
		return ENOMEM;
	}
	*start = (struct start){ run, arg, engine_thread };
	error = real(thread, attr, begin, start);
	if (error)
		free(start);
	return error;
}
