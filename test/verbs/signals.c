/*
 * The program's signals are its own: no handler runs on a thread of the engine, nothing that the
 * program waits for is lost, and its actions are those that it has set, before the engine is
 * loaded ("before") and after ("after").
 */
#include "walk.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

static pid_t self;
static volatile sig_atomic_t taken[NSIG], elsewhere;
static sigjmp_buf back;

static bool can_be_caught(int sig)
{
	return sig != SIGKILL && sig != SIGSTOP && sig != 32 && sig != 33;
}

static void on_signal(int sig)
{
	taken[sig]++;
	if (syscall(SYS_gettid) != self)
		elsewhere++;
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	(void)context;
	on_signal(sig);
	siglongjmp(back, info->si_code > 0 ? 1 : 2);
}

/* Every handler of the program, without SA_ONSTACK; with some of the flags that it may have. */
static void handlers(void)
{
	for (int sig = 1; sig < NSIG; sig++) {
		struct sigaction act = { .sa_handler = on_signal, .sa_flags = sig % 2 ? SA_RESTART : 0 };

		if (can_be_caught(sig))
			CHECK(!sigaction(sig, &act, NULL));
	}
}

static void handlers_kept(void)
{
	for (int sig = 1; sig < NSIG; sig++) {
		struct sigaction act;

		if (!can_be_caught(sig))
			continue;
		CHECK(!sigaction(sig, NULL, &act));
		CHECK(act.sa_handler == on_signal && !(act.sa_flags & SA_ONSTACK));
		CHECK(!(act.sa_flags & SA_RESTART) == !(sig % 2));
	}
}

/* All but those for faults and for the C library's own use (32, 33), which a program cannot catch.
 */
static void masks(void)
{
	DIR *tasks = opendir("/proc/self/task");
	int others = 0;

	CHECK(tasks);
	for (struct dirent *d; (d = readdir(tasks));) {
		unsigned long long blocked = 0;
		char path[64], line[256];
		FILE *f;

		if (d->d_name[0] == '.' || atoi(d->d_name) == self)
			continue;
		snprintf(path, sizeof path, "/proc/self/task/%.16s/status", d->d_name);
		if (!(f = fopen(path, "r")))
			continue; /* it has ended */
		while (fgets(line, sizeof line, f))
			sscanf(line, "SigBlk: %llx", &blocked);
		fclose(f);
		for (int sig = 1; sig < NSIG; sig++)
			CHECK(!can_be_caught(sig) || sig == SIGSEGV || sig == SIGBUS || blocked >> (sig - 1) & 1);
		others++;
	}
	closedir(tasks);
	CHECK(others > 0);
}

/* The order of all signals, drawn. */
static void draw(int order[NSIG - 1])
{
	for (int i = 0; i < NSIG - 1; i++) {
		int j = rand() % (i + 1);

		order[i] = order[j];
		order[j] = i + 1;
	}
}

/* One that the program has blocked waits for it, whoever else could take it. */
static void sent(void)
{
	int order[NSIG - 1];
	sigset_t all, none;

	sigfillset(&all);
	sigemptyset(&none);
	draw(order);
	CHECK(!sigprocmask(SIG_SETMASK, &all, NULL));
	for (int i = 0; i < NSIG - 1; i++) {
		union sigval value = { .sival_int = i };
		siginfo_t info;
		sigset_t one;
		int sig = order[i], before = taken[sig];

		if (!can_be_caught(sig))
			continue;
		CHECK(!sigqueue(self, sig, value));
		usleep(100);
		CHECK(taken[sig] == before);
		sigemptyset(&one);
		sigaddset(&one, sig);
		CHECK(sigwaitinfo(&one, &info) == sig && info.si_value.sival_int == i);
		CHECK(!kill(self, sig));
		while (taken[sig] == before)
			sigsuspend(&none);
		CHECK(taken[sig] == before + 1);
	}
	CHECK(!sigprocmask(SIG_SETMASK, &none, NULL));
	CHECK(!elsewhere);
}

static void work(struct pair *p, int n)
{
	for (int i = 0; i < n; i++) {
		struct ibv_sge sge;
		struct ibv_send_wr wr = request(&p->client, &sge, IBV_WR_RDMA_WRITE, 4096);

		wr.wr.rdma.remote_addr = (uintptr_t)p->server.memory;
		wr.wr.rdma.rkey = p->server.mr->rkey;
		CHECK(!post(&p->client, &wr));
		CHECK(await(&p->client).status == IBV_WC_SUCCESS);
	}
}

/* Profilers and timers of every kind, by a timer of SIGRTMIN as well, while the engine works. */
static void timers(struct pair *p)
{
	struct itimerval often = { { 0, 1000 }, { 0, 1000 } }, never = { 0 };
	struct itimerspec ms = { { 0, 1000000 }, { 0, 1000000 } };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
	static const int kinds[] = { ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF };
	int before = taken[SIGPROF];
	timer_t timer;

	for (int i = 0; i < 3; i++)
		CHECK(!setitimer(kinds[i], &often, NULL));
	CHECK(!timer_create(CLOCK_MONOTONIC, &event, &timer));
	CHECK(!timer_settime(timer, 0, &ms, NULL));
	for (int i = 0; taken[SIGPROF] < before + 50 || taken[SIGALRM] < 50; i++)
		work(p, 10);
	for (int i = 0; i < 3; i++)
		CHECK(!setitimer(kinds[i], &never, NULL));
	CHECK(!timer_delete(timer));
	CHECK(!elsewhere);
}

/* SIGCHLD, blocked except in pselect; read from a descriptor; and by default. */
static void children(struct pair *p)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL }, before;
	sigset_t chld, none;
	int fd;

	sigemptyset(&none);
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	CHECK(!sigprocmask(SIG_BLOCK, &chld, NULL));
	for (int i = 0; i < 20; i++) {
		int count = taken[SIGCHLD];
		pid_t child = fork();

		if (!child)
			_exit(0);
		work(p, 5);
		CHECK(taken[SIGCHLD] == count);
		while (taken[SIGCHLD] == count) /* by its signal alone: else it waits for ever */
			CHECK(pselect(0, NULL, NULL, NULL, NULL, &none) == -1 && errno == EINTR);
		CHECK(waitpid(child, NULL, 0) == child);
	}
	CHECK(!sigaction(SIGCHLD, &dfl, &before));
	CHECK((fd = signalfd(-1, &chld, SFD_CLOEXEC)) >= 0);
	for (int i = 0; i < 20; i++) {
		struct signalfd_siginfo info;
		pid_t child = fork();

		if (!child)
			_exit(0);
		work(p, 5);
		CHECK(read(fd, &info, sizeof info) == sizeof info && info.ssi_signo == SIGCHLD);
		CHECK(waitpid(child, NULL, 0) == child);
	}
	close(fd);
	CHECK(!sigaction(SIGCHLD, &before, NULL));
	CHECK(!sigprocmask(SIG_UNBLOCK, &chld, NULL));
	CHECK(!elsewhere);
}

static int over;

static void *set_actions(void *arg)
{
	struct sigaction act;

	(void)arg;
	CHECK(!sigaction(SIGSEGV, NULL, &act));
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
		CHECK(!sigaction(SIGSEGV, &act, NULL));
	return NULL;
}

/* A child that comes while another thread sets an action can set and ask for its own. */
static void forks(void)
{
	sigset_t all, before;
	pthread_t thread;

	sigfillset(&all);
	CHECK(!pthread_sigmask(SIG_SETMASK, &all, &before));
	CHECK(!pthread_create(&thread, NULL, set_actions, NULL));
	CHECK(!pthread_sigmask(SIG_SETMASK, &before, NULL));
	for (int i = 0; i < 100; i++) {
		pid_t child = fork();
		int status;

		if (!child) {
			struct sigaction act;

			CHECK(signal(SIGSEGV, SIG_IGN) == on_signal);
			CHECK(!sigaction(SIGSEGV, NULL, &act) && act.sa_handler == SIG_IGN);
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	__atomic_store_n(&over, 1, __ATOMIC_RELAXED);
	CHECK(!pthread_join(thread, NULL));
}

/* How a child that does so ends. */
static int ending(void (*run)(int), int sig)
{
	struct rlimit no_core = { 0 };
	pid_t child = fork();
	int status;

	if (!child) {
		CHECK(!setrlimit(RLIMIT_CORE, &no_core));
		run(sig);
		_exit(17);
	}
	CHECK(waitpid(child, &status, 0) == child);
	return status;
}

static char *volatile gone; /* a page without access */

static void touch(int sig)
{
	(void)sig;
	*gone = 1;
}

static void touch_ignoring(int sig)
{
	signal(sig, SIG_IGN);
	*gone = 1;
}

static void send_ignoring(int sig)
{
	signal(sig, SIG_IGN);
	kill(getpid(), sig);
}

static void send_by_default(int sig)
{
	signal(sig, SIG_DFL);
	kill(getpid(), sig);
}

/* Faults of the program's own are its own. */
static void faults(void)
{
	struct sigaction act = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO }, was, before;

	sigaddset(&act.sa_mask, SIGUSR1);
	CHECK((gone = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED);
	for (int i = 0; i < 2; i++) {
		int sig = i ? SIGBUS : SIGSEGV;

		CHECK(!sigaction(sig, &act, &before) && before.sa_handler == on_signal);
		CHECK(!sigaction(sig, NULL, &was));
		CHECK(was.sa_sigaction == on_fault && was.sa_flags & SA_SIGINFO && !(was.sa_flags & SA_ONSTACK));
		CHECK(sigismember(&was.sa_mask, SIGUSR1) && !sigismember(&was.sa_mask, SIGUSR2));
		switch (sigsetjmp(back, 1)) {
		case 0:
			if (sig == SIGSEGV)
				*gone = 1;
			else
				kill(self, sig);
			for (;;)
				sched_yield();
		default:
			break;
		}
		/* once, and then as by default; of signal(3) with the value from before */
		act.sa_flags |= SA_RESETHAND;
		CHECK(!sigaction(sig, &act, NULL));
		act.sa_flags &= ~SA_RESETHAND;
		if (!sigsetjmp(back, 1)) {
			kill(self, sig);
			for (;;)
				sched_yield();
		}
		CHECK(!sigaction(sig, NULL, &was) && was.sa_handler == SIG_DFL);
		CHECK(signal(sig, on_signal) == SIG_DFL && signal(sig, on_signal) == on_signal);
		CHECK(!sigaction(sig, NULL, &was) && was.sa_flags & SA_RESTART);
		CHECK(sysv_signal(sig, on_signal) == on_signal);
		CHECK(!sigaction(sig, NULL, &was) && was.sa_flags & SA_RESETHAND);
		CHECK(WIFSIGNALED(ending(send_by_default, sig)) && WTERMSIG(ending(send_by_default, sig)) == sig);
		CHECK(WEXITSTATUS(ending(send_ignoring, sig)) == 17);
		CHECK(!sigaction(sig, &before, NULL));
	}
	CHECK(signal(SIGSEGV, SIG_DFL) == on_signal);
	CHECK(WTERMSIG(ending(touch, SIGSEGV)) == SIGSEGV);
	CHECK(WTERMSIG(ending(touch_ignoring, SIGSEGV)) == SIGSEGV);
	CHECK(!sigaction(SIGSEGV, &before, NULL));
	CHECK(!elsewhere);
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

/* The older forms set what they say, and return what was there, whichever signal it is. */
static void older_forms(void)
{
	for (int sig = 1; sig < NSIG; sig++) {
		struct sigaction before, now;
		sigset_t set;

		if (!can_be_caught(sig))
			continue;
		CHECK(!sigaction(sig, NULL, &before));
		CHECK(signal(sig, SIG_DFL) == on_signal && signal(sig, on_signal) == SIG_DFL);
		CHECK(!sigaction(sig, NULL, &now) && now.sa_flags & SA_RESTART);
		CHECK(sigismember(&now.sa_mask, sig) && now.sa_handler == on_signal);
		CHECK(!siginterrupt(sig, 1));
		CHECK(!sigaction(sig, NULL, &now) && !(now.sa_flags & SA_RESTART));
		CHECK(signal(sig, SIG_IGN) == on_signal && signal(sig, on_signal) == SIG_IGN);
		CHECK(!sigaction(sig, NULL, &now) && !(now.sa_flags & SA_RESTART));
		CHECK(!siginterrupt(sig, 0));
		CHECK(!sigaction(sig, NULL, &now) && now.sa_flags & SA_RESTART);
		CHECK(sigset(sig, SIG_HOLD) == on_signal && sigset(sig, SIG_HOLD) == SIG_HOLD);
		CHECK(sigset(sig, on_signal) == SIG_HOLD && sigset(sig, on_signal) == on_signal);
		CHECK(!sigprocmask(SIG_SETMASK, NULL, &set) && !sigismember(&set, sig));
		CHECK(!sigignore(sig) && sysv_signal(sig, on_signal) == SIG_IGN);
		CHECK(!sigaction(sig, NULL, &now) && now.sa_flags & SA_RESETHAND && now.sa_flags & SA_NODEFER);
		taken[sig] = 0;
		CHECK(!raise(sig) && taken[sig] == 1);
		CHECK(!sigaction(sig, NULL, &now) && now.sa_handler == SIG_DFL);
		CHECK(!sigaction(sig, &before, NULL));
	}
	CHECK(signal(SIGKILL, on_signal) == SIG_ERR && signal(NSIG, on_signal) == SIG_ERR);
	CHECK(sigaction(SIGSTOP, &(struct sigaction){ .sa_handler = on_signal }, NULL) && errno == EINVAL);
	CHECK(sigaction(-1, NULL, &(struct sigaction){ 0 }) && errno == EINVAL);
}

/* The C library asks every thread, the engine's too, by a signal of its own. */
static void identity(void)
{
	CHECK(!setgid(getgid()) && !setuid(getuid()));
}

int main(int argc, char **argv)
{
	unsigned int seed = (unsigned int)time(NULL) ^ (unsigned int)getpid();
	struct pair p;

	fprintf(stderr, "seed %u\n", seed);
	srand(seed);
	self = getpid();
	CHECK(argc == 2);
	if (!strcmp(argv[1], "before"))
		handlers();
	connect_pair(&p, 0); /* the engine is loaded */
	if (!strcmp(argv[1], "after"))
		handlers();
	handlers_kept();
	masks();
	sent();
	timers(&p);
	children(&p);
	forks();
	faults();
	older_forms();
	identity();
	sent();
	masks(); /* also of threads that have come since */
	handlers_kept();
	close_pair(&p);
	CHECK(!elsewhere);
	puts("all well");
	return 0;
}
