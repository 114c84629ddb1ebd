/*
 * The program's signals beside the engine's threads.
 *
 * Those threads block every signal except SIGSEGV and SIGBUS (cshared/threads.c), so all others,
 * their handlers, and whatever waits for them by sigwait(3) or signalfd(2), are the program's
 * alone. The Go runtime turns these two into panics of the goroutine that touched memory that has
 * gone away. From the moment the engine is loaded the kernel therefore calls dispatch for both:
 *
 *	on a thread of the engine    a fault goes to Go's handler, a signal that somebody sent to
 *	                             the program's first thread
 *	in a Turn                    a fault goes to Go's handler, a signal that somebody sent waits
 *	                             for the Turn's end
 *	on any other thread          the program's action, with its flags and mask
 *
 * sigaction(3) and its older forms keep the program's action for them here. Not seen: a program
 * that makes the system call itself.
 */
#include "shim.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

extern int __sigaction(int sig, const struct sigaction *act, struct sigaction *old);

static const int kept_signals[] = { SIGSEGV, SIGBUS };
#define KEPT (sizeof kept_signals / sizeof kept_signals[0])

/*
 * What the program asked for, under a counter that is odd while it changes: dispatch, which may
 * interrupt any code except its writers, reads again until it had an even one throughout.
 */
static struct {
	uint32_t version;
	struct sigaction act;
} kept[KEPT];

static struct rv_lock lock; /* of writers, which have all signals blocked */
static struct sigaction gos[KEPT];
static enum rv_thread (*engine_thread)(void); /* set once dispatch is installed */
static pid_t owner;                /* the process whose actions kept has */

RV_EARLY static int index_of(int sig)
{
	for (size_t i = 0; i < KEPT; i++)
		if (kept_signals[i] == sig)
			return (int)i;
	return -1;
}

static struct sigaction read_kept(int i)
{
	struct sigaction act;
	uint32_t version;

	do {
		while ((version = load_acquire(&kept[i].version)) & 1)
			;
		act = kept[i].act;
		atomic_thread_fence(memory_order_acquire);
	} while (load_relaxed(&kept[i].version) != version);
	return act;
}

static void write_kept(int i, const struct sigaction *act)
{
	__atomic_fetch_add(&kept[i].version, 1, __ATOMIC_ACQ_REL);
	atomic_thread_fence(memory_order_release);
	kept[i].act = *act;
	__atomic_fetch_add(&kept[i].version, 1, __ATOMIC_RELEASE);
}

static void lock_kept(sigset_t *before)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, before);
	rv_lock(&lock);
}

static void unlock_kept(const sigset_t *before)
{
	rv_unlock(&lock);
	pthread_sigmask(SIG_SETMASK, before, NULL);
}

static bool has_handler(const struct sigaction *act)
{
	return act->sa_flags & SA_SIGINFO || (act->sa_handler != SIG_DFL && act->sa_handler != SIG_IGN);
}

/* Ends the process as the signal does by default, from where it came: a fault comes again. */
static void by_default(int sig, siginfo_t *info, bool fault)
{
	static const struct sigaction dfl = { .sa_handler = SIG_DFL };

	__sigaction(sig, &dfl, NULL);
	if (!fault)
		syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), sig, info);
}

/* To the program's first thread. The kernel lets no thread send others what kill(2) does. */
static void pass_on(int sig, const siginfo_t *info)
{
	siginfo_t copy = *info;

	if (copy.si_code >= 0 || copy.si_code == SI_TKILL)
		copy.si_code = SI_QUEUE;
	syscall(SYS_rt_tgsigqueueinfo, getpid(), getpid(), sig, &copy);
}

/* Blocks the signal on this thread until the end of its Turn, which restores the mask. */
static void defer(int sig, siginfo_t *info, ucontext_t *context)
{
	sigset_t one;

	sigemptyset(&one);
	sigaddset(&one, sig);
	pthread_sigmask(SIG_BLOCK, &one, NULL); /* SA_NODEFER */
	sigaddset(&context->uc_sigmask, sig);
	syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), sig, info);
}

static void dispatch(int sig, siginfo_t *info, void *context)
{
	bool fault = info->si_code > 0 && !(sig == SIGBUS && info->si_code == BUS_MCEERR_AO);
	int i = index_of(sig), before = errno;
	enum rv_thread on = engine_thread();
	struct sigaction act;

	if (on != RV_THREAD_PROGRAMS) {
		if (fault)
			gos[i].sa_sigaction(sig, info, context);
		else if (on == RV_THREAD_ENGINES)
			pass_on(sig, info);
		else
			defer(sig, info, context);
		errno = before;
		return;
	}
	act = read_kept(i);
	if (!has_handler(&act)) {
		if (fault || act.sa_handler == SIG_DFL)
			by_default(sig, info, fault);
		errno = before;
		return;
	}
	if (act.sa_flags & SA_RESETHAND) {
		struct sigaction dfl = { .sa_handler = SIG_DFL };
		sigset_t mask;

		lock_kept(&mask);
		write_kept(i, &dfl);
		unlock_kept(&mask);
	}
	if (act.sa_flags & SA_SIGINFO)
		act.sa_sigaction(sig, info, context);
	else
		act.sa_handler(sig);
}

/* Installs dispatch, with what the kernel itself has to do for the program's handler. */
static int install(int i, const struct sigaction *act)
{
	struct sigaction ours = { .sa_sigaction = dispatch, .sa_flags = SA_SIGINFO | SA_ONSTACK };

	if (has_handler(act)) {
		ours.sa_flags |= act->sa_flags & (SA_RESTART | SA_NODEFER);
		ours.sa_mask = act->sa_mask;
	}
	return __sigaction(kept_signals[i], &ours, NULL);
}

/* A child of vfork has its parent's memory, and actions of its own. */
RV_EARLY static bool are_kept(int i)
{
	return i >= 0 && load_acquire(&engine_thread) && load_relaxed(&owner) == getpid();
}

RV_EARLY static int set_action(int sig, const struct sigaction *act, struct sigaction *old)
{
	int i = index_of(sig), error;
	struct sigaction was;
	sigset_t before;

	if (!are_kept(i))
		return __sigaction(sig, act, old);
	lock_kept(&before);
	was = kept[i].act;
	error = 0;
	if (act) {
		struct sigaction now = *act;

		write_kept(i, &now);
		error = install(i, &now);
	}
	unlock_kept(&before);
	if (old)
		*old = was;
	return error;
}

RV_EARLY int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	return set_action(sig, act, old);
}

typedef void handler(int);

static handler *set_handler(int sig, handler *h, int flags, bool mask)
{
	struct sigaction act = { .sa_handler = h, .sa_flags = flags }, old;

	if (mask)
		sigaddset(&act.sa_mask, sig);
	return set_action(sig, &act, &old) ? SIG_ERR : old.sa_handler;
}

/*
 * The C library's own, for all other signals. Handlers call these, too, so they are looked up
 * early; a constructor that came before ours looks them up itself.
 */
enum { SIGNAL, SYSV_SIGNAL, SIGSET, SIGIGNORE, SIGINTERRUPT, OLDER_FORMS };
static const char *const names[OLDER_FORMS] = { "signal", "__sysv_signal", "sigset", "sigignore",
						"siginterrupt" };
static void *libc[OLDER_FORMS];

static void *next(int form)
{
	if (!load_relaxed(&libc[form]))
		__atomic_store_n(&libc[form], dlsym(RTLD_NEXT, names[form]), __ATOMIC_RELAXED);
	return libc[form];
}

__attribute__((constructor)) static void look_up(void)
{
	for (int i = 0; i < OLDER_FORMS; i++)
		next(i);
}

static handler *next_handler(int form, int sig, handler *h)
{
	return ((handler *(*)(int, handler *))next(form))(sig, h);
}

static bool interrupts[KEPT]; /* handlers that signal(3) sets end system calls */

int siginterrupt(int sig, int flag)
{
	int i = index_of(sig), error = ((int (*)(int, int))next(SIGINTERRUPT))(sig, flag);
	struct sigaction act;

	if (error || i < 0)
		return error;
	__atomic_store_n(&interrupts[i], flag != 0, __ATOMIC_RELAXED);
	if (!are_kept(i) || (error = sigaction(sig, NULL, &act)))
		return error;
	act.sa_flags = flag ? act.sa_flags & ~SA_RESTART : act.sa_flags | SA_RESTART;
	return sigaction(sig, &act, NULL);
}

handler *signal(int sig, handler *h)
{
	int i = index_of(sig);

	if (!are_kept(i))
		return next_handler(SIGNAL, sig, h);
	return set_handler(sig, h, load_relaxed(&interrupts[i]) ? 0 : SA_RESTART, true);
}

handler *ssignal(int sig, handler *h)
{
	return signal(sig, h);
}

handler *bsd_signal(int sig, handler *h)
{
	return signal(sig, h);
}

handler *__sysv_signal(int sig, handler *h)
{
	return are_kept(index_of(sig)) ? set_handler(sig, h, SA_RESETHAND | SA_NODEFER, false)
				       : next_handler(SYSV_SIGNAL, sig, h);
}

handler *sysv_signal(int sig, handler *h)
{
	return __sysv_signal(sig, h);
}

int sigignore(int sig)
{
	return are_kept(index_of(sig)) ? -(set_handler(sig, SIG_IGN, 0, false) == SIG_ERR)
				       : ((int (*)(int))next(SIGIGNORE))(sig);
}

handler *sigset(int sig, handler *h)
{
	struct sigaction act;
	sigset_t one, before;
	handler *old;

	if (!are_kept(index_of(sig)))
		return next_handler(SIGSET, sig, h);
	sigemptyset(&one);
	sigaddset(&one, sig);
	if (h == SIG_HOLD) {
		if (sigaction(sig, NULL, &act) || pthread_sigmask(SIG_BLOCK, &one, &before))
			return SIG_ERR;
		old = act.sa_handler;
	} else {
		old = set_handler(sig, h, 0, false);
		if (old == SIG_ERR || pthread_sigmask(SIG_UNBLOCK, &one, &before))
			return SIG_ERR;
	}
	return sigismember(&before, sig) ? SIG_HOLD : old;
}

static sigset_t before_fork; /* of the thread that forks, which holds the lock */

void rv_lock_signals(void)
{
	sigset_t before;

	lock_kept(&before);
	before_fork = before;
}

void rv_unlock_signals(void)
{
	sigset_t before = before_fork;

	unlock_kept(&before);
}

void rv_own_signals(void)
{
	if (owner)
		store_release(&owner, getpid());
}

void rv_signals_before(struct rv_signals *s)
{
	memset(s, 0, sizeof *s);
	for (int sig = 1; sig < NSIG; sig++)
		__sigaction(sig, NULL, &s->act[sig]);
}

/*
 * Go has taken SIGPIPE, SIGURG and SIGFPE, too, and set SA_ONSTACK for others: all get their
 * actions back, and the two that it needs get dispatch.
 */
void rv_signals_after(const struct rv_signals *s, enum rv_thread (*on_engine_thread)(void))
{
	sigset_t before;

	lock_kept(&before);
	for (size_t i = 0; i < KEPT; i++) {
		const struct sigaction *was = &s->act[kept_signals[i]];

		if (was->sa_sigaction != dispatch) /* as in a child of fork with an engine of its own */
			write_kept((int)i, was);
		__sigaction(kept_signals[i], NULL, &gos[i]);
	}
	store_release(&owner, getpid());
	store_release(&engine_thread, on_engine_thread);
	for (int sig = 1; sig < NSIG; sig++) {
		struct sigaction now;
		int i = index_of(sig);

		if (i >= 0)
			install(i, &kept[i].act);
		else if (!__sigaction(sig, NULL, &now) &&
			 (now.sa_handler != s->act[sig].sa_handler || now.sa_flags != s->act[sig].sa_flags))
			__sigaction(sig, &s->act[sig], NULL);
	}
	unlock_kept(&before);
}
