/* Ids and channels of the connection manager. */
#include "walk.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

static struct rdma_event_channel *waited_for;
static struct ibv_comp_channel *waited_for_too;
static pid_t waiter;
static int back;

static void *wait_for_event(void *unused)
{
	struct rdma_cm_event *e;

	(void)unused;
	__atomic_store_n(&waiter, gettid(), __ATOMIC_RELEASE);
	rdma_get_cm_event(waited_for, &e);
	__atomic_store_n(&back, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void *wait_for_completion(void *unused)
{
	struct ibv_cq *cq;
	void *context;

	(void)unused;
	__atomic_store_n(&waiter, gettid(), __ATOMIC_RELEASE);
	ibv_get_cq_event(waited_for_too, &cq, &context);
	__atomic_store_n(&back, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* Waits until the thread sleeps in a system call, or is back. */
static void until_asleep(void)
{
	char path[64], state;
	pid_t of;

	while (!(of = __atomic_load_n(&waiter, __ATOMIC_ACQUIRE)))
		sched_yield();
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", of);
	do {
		FILE *f = fopen(path, "r");

		state = 0;
		if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
			state = 'X';
		if (f)
			fclose(f);
		sched_yield();
	} while (state != 'S' && state != 'X' && !__atomic_load_n(&back, __ATOMIC_ACQUIRE));
}

static void stays(void *(*wait)(void *), bool early, void (*destroy)(void))
{
	sigset_t all, before;
	pthread_t t;
	void *result;

	waiter = back = 0;
	if (!early)
		destroy();
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* the walk's alarm is not for it */
	CHECK(!pthread_create(&t, NULL, wait, NULL));
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	until_asleep();
	if (early)
		destroy();
	until_asleep();
	CHECK(!__atomic_load_n(&back, __ATOMIC_ACQUIRE));
	CHECK(!pthread_cancel(t) && !pthread_join(t, &result) && result == PTHREAD_CANCELED);
}

static void destroy_events(void)
{
	rdma_destroy_event_channel(waited_for);
}

static void destroy_completions(void)
{
	CHECK(!ibv_destroy_comp_channel(waited_for_too));
}

/* A thread that waits on a channel stays when another destroys that, and also when it comes after that:
 * rping's may. Its descriptor is closed all the same. */
void late(void)
{
	int n, lowest = dup(0);
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *c = ibv_open_device(list[0]);

	ibv_free_device_list(list);
	for (int early = 0; early < 2; early++) {
		CHECK(waited_for = rdma_create_event_channel());
		stays(wait_for_event, early, destroy_events);
		CHECK(waited_for_too = ibv_create_comp_channel(c));
		stays(wait_for_completion, early, destroy_completions);
	}
	CHECK(!ibv_close_device(c) && !close(lowest));
	CHECK(waited_for = rdma_create_event_channel());
	CHECK(waited_for->fd == lowest); /* nothing was left open */
	rdma_destroy_event_channel(waited_for);
}
