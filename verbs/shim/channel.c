/* Completion channels and asynchronous events: sockets that the engine writes to. */
#include "shim.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * A thread that waits for an event while another destroys the channel stays here, as in the kernel's
 * read, until the process ends or somebody cancels it: programs rely on that. So does one that comes
 * only then, as rping's after it has acknowledged its last event. The descriptor is closed when nobody
 * reads from it, so that no thread reads from another file that has its number by now.
 */
static void hold_thread(void)
{
	for (;;)
		pause();
}

/* False: it is closed. */
static bool begin_reading(struct rv_socket *s)
{
	uint32_t n = load_acquire(&s->users);

	while (n && !__atomic_compare_exchange_n(&s->users, &n, n + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		;
	return n;
}

/* The last one closes it. */
static void end_reading(void *socket)
{
	struct rv_socket *s = socket;

	if (__atomic_sub_fetch(&s->users, 1, __ATOMIC_ACQ_REL) == 0)
		close(s->fd);
}

int rv_open_socket(struct rv_socket *s)
{
	int error = rv_socketpair(&s->fd, &s->engine_fd);

	s->users = !error;
	return error;
}

/* The engine has closed its end: who reads finds the end of the file. */
void rv_close_socket(struct rv_socket *s)
{
	end_reading(s);
}

/* The next event, of size octets. */
ssize_t rv_receive(struct rv_socket *s, void *event, size_t size)
{
	ssize_t n;
	int error;

	if (!begin_reading(s))
		hold_thread();
	pthread_cleanup_push(end_reading, s); /* recv is a point of cancellation */
	n = recv(s->fd, event, size, 0);
	pthread_cleanup_pop(0);
	if (n == 0) {
		end_reading(s);
		hold_thread();
	}
	if (n > 0 && (size_t)n != size) {
		n = -1;
		errno = EIO;
	}
	error = errno;
	end_reading(s);
	errno = error;
	return n;
}

/* Memory that such a late thread may look at is freed when so many more have been destroyed. */
#define LATE_MAX 64

void rv_free_late(void *p)
{
	static struct rv_lock lock;
	static void *late[LATE_MAX];
	static uint32_t next;
	void *old;

	rv_lock(&lock);
	old = late[next];
	late[next++ % LATE_MAX] = p;
	next %= LATE_MAX;
	rv_unlock(&lock);
	free(old);
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct rv_channel *ch = calloc(1, sizeof *ch);
	int error = ch ? rv_open_socket(&ch->socket) : ENOMEM;

	if (error) {
		free(ch);
		errno = error;
		return NULL;
	}
	ch->channel.fd = ch->socket.fd;
	ch->channel.context = context;
	return &ch->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct rv_channel *ch = container(channel, struct rv_channel, channel);

	if (load_acquire(&channel->refcnt))
		return EBUSY;
	rv_call1(RV_CLOSE_CHANNEL, (uint64_t)ch->socket.engine_fd);
	rv_close_socket(&ch->socket);
	rv_free_late(ch);
	return 0;
}

/* An event of a completion queue that is gone is skipped. */
int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	for (;;) {
		struct rv_completions *q;
		uint64_t cookie;

		if (rv_receive(&container(channel, struct rv_channel, channel)->socket, &cookie, sizeof cookie) < 0)
			return -1;
		q = rv_table_find(cookie);
		if (!q)
			continue;
		__atomic_fetch_add(&q->acks.given, 1, __ATOMIC_ACQ_REL);
		*cq = ibv_cq_ex_to_cq(&q->cq);
		*cq_context = q->cq.cq_context;
		return 0;
	}
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	rv_acked(&to_cq(cq)->acks, n);
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	for (;;) {
		struct rv_async_event e;
		struct rv_acks *acks;
		void *object;

		if (rv_receive(&to_context(context)->events, &e, sizeof e) < 0)
			return -1;
		object = rv_table_find(e.cookie);
		if (!object)
			continue;
		event->event_type = e.type;
		switch (e.type) {
		case IBV_EVENT_CQ_ERR:
			event->element.cq = object;
			acks = &to_cq(object)->async_acks;
			break;
		case IBV_EVENT_SRQ_ERR:
		case IBV_EVENT_SRQ_LIMIT_REACHED:
			event->element.srq = object;
			acks = &to_srq(object)->acks;
			break;
		default:
			event->element.qp = object;
			acks = &to_qp(object)->acks;
		}
		__atomic_fetch_add(&acks->given, 1, __ATOMIC_ACQ_REL);
		return 0;
	}
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		rv_acked(&to_cq(event->element.cq)->async_acks, 1);
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		rv_acked(&to_srq(event->element.srq)->acks, 1);
		break;
	default:
		rv_acked(&to_qp(event->element.qp)->acks, 1);
	}
}
