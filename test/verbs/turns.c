/*
 * Threads of the program make Turns of the engine when they poll in vain (verbs/cshared/turn.c).
 * Their signals and stacks stay as they are: nothing of it is the engine's to change.
 */
#include "walk.h"

#include <pthread.h>
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
	pthread_t thread;
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
