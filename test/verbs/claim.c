/*
 * A thread has taken an event out of its channel and has not counted it yet, when another destroys
 * the object (verbs/shim/channel.c): that waits until the event is acknowledged.
 */
#include "walk.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>

static void *found(uint64_t cookie);

#define rv_table_find found
#include "../../verbs/shim/channel.c"
#undef rv_table_find
#include "../../verbs/shim/table.c"

const uint32_t one_process, *rv_process_page = &one_process;
static struct rv_completions *queue;
static struct rv_channel *ch;
static pthread_t destroyer;
static pid_t destroyer_id;
static int gone;

/* The engine, which has nothing to say. */
int rv_call(uint32_t op, struct rv_args *a)
{
	(void)op, (void)a;
	return 0;
}

static struct rv_area area; /* nothing is posted */
struct rv_area *rv_area = &area;

bool rv_turn(int most)
{
	(void)most;
	abort();
}

int rv_call1(uint32_t op, uint64_t arg)
{
	(void)op, (void)arg;
	return 0;
}

void rv_after_calls(void)
{
}

void rv_close(int fd)
{
	close(fd);
}

int rv_socketpair(int *mine, int *engines)
{
	int fds[2];

	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds));
	*mine = fds[0];
	*engines = fds[1];
	return 0;
}

void rv_lock_slow(struct rv_lock *l)
{
	while (__atomic_exchange_n(&l->held, 1, __ATOMIC_ACQUIRE))
		sched_yield();
}

void rv_acked(struct rv_acks *a, uint32_t n)
{
	__atomic_fetch_add(&a->acked, n, __ATOMIC_ACQ_REL);
}

/* Sleeps, so that the other thread sees that this one waits. */
void rv_wait_acked(struct rv_acks *a)
{
	while (load_acquire(&a->acked) != load_acquire(&a->given))
		poll(NULL, 0, 1);
}

/* As ibv_destroy_cq does, after the engine has said that it tells nothing more. */
static void *destroy(void *unused)
{
	(void)unused;
	__atomic_store_n(&destroyer_id, gettid(), __ATOMIC_RELEASE);
	rv_forget(&ch->socket, queue->cookie);
	rv_table_remove(queue->cookie);
	rv_wait_acked(&queue->acks);
	__atomic_store_n(&gone, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* The reader looks for the object: another thread destroys it now, as far as it gets. */
static void *found(uint64_t cookie)
{
	void *object = rv_table_find(cookie);

	CHECK(object == queue && !pthread_create(&destroyer, NULL, destroy, NULL));
	until_asleep(&destroyer_id, &gone);
	return object;
}

int main(void)
{
	static struct rv_context context;
	struct ibv_cq *cq;
	void *cq_context;

	CHECK(ch = container(ibv_create_comp_channel(&context.verbs.context), struct rv_channel, channel));
	CHECK((queue = calloc(1, sizeof *queue)) && (queue->cookie = rv_table_add(queue)));
	CHECK(send(ch->socket.engine_fd, &queue->cookie, sizeof queue->cookie, 0) == sizeof queue->cookie);
	CHECK(!ibv_get_cq_event(&ch->channel, &cq, &cq_context) && cq == ibv_cq_ex_to_cq(&queue->cq));
	CHECK(!__atomic_load_n(&gone, __ATOMIC_ACQUIRE));
	ibv_ack_cq_events(cq, 1);
	CHECK(!pthread_join(destroyer, NULL) && gone);
	CHECK(!ibv_destroy_comp_channel(&ch->channel));
	printf("all well\n");
	return 0;
}
