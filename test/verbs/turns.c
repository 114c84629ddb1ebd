/*
 * Threads of the program make Turns of the engine when they poll in vain (verbs/cshared/turn.c).
 * Their signals and stacks stay as they are: nothing of it is the engine's to change.
 */
#include "walk.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

static struct pair p;

/* Polls in vain: each makes a Turn, unless another thread is in one. */
static void polls(int n)
{
	struct ibv_wc wc;

	while (n-- > 0)
		CHECK(!ibv_poll_cq(p.server.cq, 1, &wc));
}

static void on_thread(void *(*run)(void *), size_t stack)
{
	pthread_attr_t attr;
	pthread_t thread;

	CHECK(!pthread_attr_init(&attr));
	if (stack)
		CHECK(!pthread_attr_setstacksize(&attr, stack));
	CHECK(!pthread_create(&thread, &attr, run, NULL));
	CHECK(!pthread_join(thread, NULL));
	pthread_attr_destroy(&attr);
}

/* Signals that a thread blocks wait for it, although Go would unblock some, which would end the
 * process. */
static void *blocking(void *arg)
{
	sigset_t set, now;
	int n = 0;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGPROF);
	sigaddset(&set, SIGRTMIN);
	CHECK(!pthread_sigmask(SIG_BLOCK, &set, NULL));
	for (int sig = 1; sig < NSIG; sig++)
		if (sigismember(&set, sig) == 1) {
			CHECK(!pthread_kill(pthread_self(), sig));
			n++;
		}
	polls(3);
	CHECK(!pthread_sigmask(SIG_SETMASK, NULL, &now));
	for (; n > 0; n--)
		CHECK(sigtimedwait(&set, NULL, &(struct timespec){ 0 }) > 0);
	for (int sig = 1; sig < NSIG; sig++)
		if (sig != 32 && sig != 33)
			CHECK(sigismember(&set, sig) == sigismember(&now, sig));
	polls(3);
	return arg;
}

/* A thread without a stack for signals still has none, one with one that. */
static void *alternate(void *arg)
{
	stack_t was, own = { .ss_sp = malloc(1 << 16), .ss_size = 1 << 16 };

	for (int i = 0; i < 2; i++) {
		polls(3);
		CHECK(!sigaltstack(NULL, &was) && was.ss_flags & SS_DISABLE);
	}
	CHECK(!sigaltstack(&own, NULL));
	polls(3);
	CHECK(!sigaltstack(NULL, &was) && was.ss_sp == own.ss_sp && was.ss_size == own.ss_size);
	own.ss_flags = SS_DISABLE;
	CHECK(!sigaltstack(&own, NULL));
	free(own.ss_sp);
	polls(3);
	return arg;
}

static volatile sig_atomic_t handled, deep;

static void on_alarm(int sig)
{
	char much[512 << 10]; /* of the thread's stack: more than Go's has */

	memset(much, sig, sizeof much);
	deep += much[sig] == sig;
	handled++;
}

/* Handlers that use much stack, at all times, and from a thread's first poll on. */
static void *storm(void *arg)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	sigaddset(&set, SIGPROF);
	CHECK(!pthread_sigmask(SIG_UNBLOCK, &set, NULL)); /* here alone */
	for (int before = handled; handled < before + 5;)
		polls(10);
	return arg;
}

static void storms(void)
{
	struct sigaction act = { .sa_handler = on_alarm, .sa_flags = SA_ONSTACK };
	struct itimerval often = { { 0, 200 }, { 0, 200 } }, never = { 0 };
	sigset_t set, before;

	sigfillset(&act.sa_mask);
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	sigaddset(&set, SIGPROF);
	CHECK(!pthread_sigmask(SIG_BLOCK, &set, &before));
	CHECK(!sigaction(SIGALRM, &act, NULL) && !sigaction(SIGPROF, &act, NULL));
	CHECK(!setitimer(ITIMER_REAL, &often, NULL) && !setitimer(ITIMER_PROF, &often, NULL));
	for (int i = 0; i < 100; i++)
		on_thread(storm, 0);
	CHECK(!setitimer(ITIMER_REAL, &never, NULL) && !setitimer(ITIMER_PROF, &never, NULL));
	CHECK(deep == handled);
	CHECK(signal(SIGALRM, SIG_IGN) != SIG_ERR && signal(SIGPROF, SIG_IGN) != SIG_ERR);
	CHECK(!pthread_sigmask(SIG_SETMASK, &before, NULL));
}

/* Runs body at 5 kHz of SIGALRM, by act, on this thread alone. */
static void at_alarms(struct sigaction act, void (*body)(void))
{
	struct itimerval often = { { 0, 200 }, { 0, 200 } }, never = { 0 };

	CHECK(!sigaction(SIGALRM, &act, NULL));
	CHECK(!setitimer(ITIMER_REAL, &often, NULL));
	body();
	CHECK(!setitimer(ITIMER_REAL, &never, NULL));
	CHECK(signal(SIGALRM, SIG_IGN) != SIG_ERR);
}

static sigjmp_buf back;

static void jump(int sig)
{
	(void)sig;
	siglongjmp(back, 1);
}

enum { JUMPS = 200 };
static struct ibv_cq *each[JUMPS];

static void until_all_jumped(void)
{
	volatile int jumped = 0;
	struct ibv_wc wc;

	if (sigsetjmp(back, 1))
		jumped++;
	while (jumped < JUMPS)
		CHECK(!ibv_poll_cq(each[jumped], 1, &wc));
}

/*
 * A handler that does not return leaves no Turn behind, nor a signal blocked. It may leave a queue
 * locked, as any library's, so each is for one.
 */
static void jumps(void)
{
	for (int i = 0; i < JUMPS; i++)
		CHECK(each[i] = ibv_create_cq(p.client.id->verbs, 1, NULL, NULL, 0));
	at_alarms((struct sigaction){ .sa_handler = jump }, until_all_jumped);
}

static char *own_stack;
static struct ibv_cq *handlers_queue;
static int polled_there;

/* On a small stack of the program's, which a Turn must not use. */
static void poll_there(int sig)
{
	struct ibv_wc wc;

	(void)sig;
	CHECK((char *)&wc >= own_stack && (char *)&wc < own_stack + SIGSTKSZ);
	for (int i = 0; i < 100; i++)
		CHECK(!ibv_poll_cq(handlers_queue, 1, &wc));
	polled_there++;
}

static void until_polled_there(void)
{
	while (polled_there < 200)
		polls(1);
}

static void small_stack(void)
{
	stack_t own = { .ss_size = SIGSTKSZ }, none = { .ss_flags = SS_DISABLE };

	CHECK(handlers_queue = ibv_create_cq(p.client.id->verbs, 1, NULL, NULL, 0));
	CHECK(own.ss_sp = own_stack = malloc(SIGSTKSZ));
	CHECK(!sigaltstack(&own, NULL));
	at_alarms((struct sigaction){ .sa_handler = poll_there, .sa_flags = SA_ONSTACK },
		  until_polled_there);
	CHECK(!sigaltstack(&none, NULL));
	free(own_stack);
	CHECK(!ibv_destroy_cq(handlers_queue));
}

enum { QUEUED = 3000 };
static volatile int queued, wrong;

static void on_queued(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)context;
	wrong += info->si_value.sival_int != queued || info->si_code != SI_QUEUE;
	queued++;
}

static int queue(pthread_t *thread, int sig, union sigval value)
{
	return thread ? pthread_sigqueue(*thread, sig, value) : sigqueue(getpid(), sig, value);
}

/* To a thread, or to the process. */
static void *queues(void *thread)
{
	for (int i = 0; i < QUEUED; i++) {
		while (queue(thread, SIGRTMIN + 1, (union sigval){ .sival_int = i }))
			sched_yield();
		if (i % 3 == 0)
			sched_yield();
	}
	return NULL;
}

/* Signals that have a value come once each, in their order. */
static void all_queued(pthread_t *to)
{
	struct sigaction act = { .sa_sigaction = on_queued, .sa_flags = SA_SIGINFO };
	sigset_t set, before;
	pthread_t thread;

	queued = 0;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 1);
	CHECK(!sigaction(SIGRTMIN + 1, &act, NULL));
	CHECK(!pthread_sigmask(SIG_BLOCK, &set, &before));
	CHECK(!pthread_create(&thread, NULL, queues, to));
	CHECK(!pthread_sigmask(SIG_SETMASK, &before, NULL));
	while (queued < QUEUED)
		polls(1);
	CHECK(!wrong && !pthread_join(thread, NULL));
}

static volatile int at_once;

static void on_one_of_all(int sig)
{
	(void)sig;
	__atomic_fetch_add(&at_once, 1, __ATOMIC_RELAXED); /* they interrupt each other */
}

/* Signals of all kinds that come at the same moment all find room. */
static void all_at_once(void)
{
	struct sigaction act = { .sa_handler = on_one_of_all }, before[NSIG];
	int kinds = SIGRTMAX - SIGRTMIN + 1, status;
	pid_t child, self = getpid();

	for (int sig = SIGRTMIN; sig <= SIGRTMAX; sig++)
		CHECK(!sigaction(sig, &act, &before[sig]));
	CHECK((child = fork()) >= 0);
	for (int i = 0; !child && i < 100; i++) {
		kill(self, SIGSTOP);
		usleep(1000);
		for (int sig = SIGRTMIN; sig <= SIGRTMAX; sig++)
			kill(self, sig);
		kill(self, SIGCONT);
		usleep(1000);
	}
	if (!child)
		_exit(0);
	while (at_once < 100 * kinds)
		polls(1);
	CHECK(waitpid(child, &status, 0) == child && status == 0 && at_once == 100 * kinds);
	for (int sig = SIGRTMIN; sig <= SIGRTMAX; sig++)
		CHECK(!sigaction(sig, &before[sig], NULL));
}

static volatile int sent_faults;

static void on_sent(int sig)
{
	(void)sig;
	sent_faults++;
}

static void *sends(void *main_thread)
{
	for (int before = 0; before < 1000; before = sent_faults) {
		CHECK(!pthread_kill(*(pthread_t *)main_thread, before % 2 ? SIGSEGV : SIGBUS));
		while (sent_faults == before)
			sched_yield();
		CHECK(!setuid(getuid())); /* by a signal of the C library's to each thread */
	}
	return NULL;
}

/* Somebody sends the signals of faults to a thread that polls: they are the program's. */
static void all_sent(int flags)
{
	struct sigaction act = { .sa_handler = on_sent, .sa_flags = flags };
	pthread_t self = pthread_self(), thread;

	sent_faults = 0;
	CHECK(!sigaction(SIGSEGV, &act, NULL) && !sigaction(SIGBUS, &act, NULL));
	CHECK(!pthread_create(&thread, NULL, sends, &self));
	while (sent_faults < 1000)
		polls(1);
	CHECK(!pthread_join(thread, NULL));
	CHECK(signal(SIGSEGV, SIG_DFL) == on_sent && signal(SIGBUS, SIG_DFL) == on_sent);
}

static void *little(void *arg)
{
	polls(200);
	return arg;
}

static void *briefly(void *arg)
{
	polls(1);
	return arg;
}

static void *until_cancelled(void *arg)
{
	struct ibv_cq *cq;
	struct ibv_wc wc;

	CHECK(cq = ibv_create_cq(p.client.id->verbs, 1, NULL, NULL, 0));
	CHECK(!pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL));
	ibv_poll_cq(cq, 1, &wc);
	__atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
	for (;;)
		ibv_poll_cq(cq, 1, &wc);
}

static void cancelled(void)
{
	int begun = 0;
	pthread_t thread;
	void *result;

	CHECK(!pthread_create(&thread, NULL, until_cancelled, &begun));
	while (!__atomic_load_n(&begun, __ATOMIC_ACQUIRE))
		polls(1);
	polls(1000);
	CHECK(!pthread_cancel(thread));
	CHECK(!pthread_join(thread, &result));
	CHECK(result == PTHREAD_CANCELED);
}

static void *for_ever(void *stop)
{
	while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED))
		polls(1);
	return NULL;
}

/* A child of one that has polled, while another thread is in a Turn, ends as any thread does. */
static void *forks(void *arg)
{
	for (int i = 0; i < 50; i++) {
		int status;
		pid_t child;

		polls(1);
		child = fork();
		if (!child) {
			if (i % 2)
				pthread_exit(NULL);
			exit(0);
		}
		CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	}
	return arg;
}

/* SIGURG is the program's: Go has another way of ending a goroutine's turn. */
static volatile sig_atomic_t urgent;

static void on_urgent(int sig)
{
	(void)sig;
	urgent++;
}

static void message(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(&p.client, &sge, IBV_WR_SEND, 100);

	post_recv(&p.server, 1, 0, 100);
	CHECK(!post(&p.client, &wr));
	CHECK(await(&p.client).status == IBV_WC_SUCCESS);
	CHECK(await(&p.server).status == IBV_WC_SUCCESS);
}

int main(void)
{
	pthread_t thread = pthread_self();
	int stop = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	CHECK(!sigaction(SIGURG, &(struct sigaction){ .sa_handler = on_urgent }, NULL));
	connect_pair(&p, 0);
	on_thread(blocking, 0);
	puts("blocking");
	on_thread(alternate, 0);
	puts("alternate");
	for (int i = 0; i < 100; i++)
		on_thread(little, 16 << 10);
	puts("little");
	for (int i = 0; i < 3000; i++)
		on_thread(briefly, 0);
	puts("briefly");
	storms();
	puts("storm");
	jumps();
	small_stack();
	all_queued(NULL);
	all_queued(&thread);
	all_at_once();
	all_sent(0);
	all_sent(SA_NODEFER);
	puts("sent");
	for (int i = 0; i < 50; i++)
		cancelled();
	puts("cancelled");
	CHECK(!pthread_create(&thread, NULL, for_ever, &stop));
	on_thread(forks, 0);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	CHECK(!pthread_join(thread, NULL));
	puts("forks");
	for (int i = 0; i < 20000; i++)
		message();
	printf("messages, %d urgent\n", urgent);
	CHECK(!urgent);
	close_pair(&p);
	puts("all well");
	return 0;
}
