/* Completion channels and asynchronous events: sockets that the engine writes to. */
#include "shim.h"

#include <sys/socket.h>
#include <unistd.h>

/*
 * The next event, of size octets. A thread that is in here when another destroys the channel stays,
 * as in the kernel's read, until the process ends or somebody cancels it: programs rely on that.
 */
ssize_t rv_receive(int fd, void *event, size_t size)
{
	ssize_t n = recv(fd, event, size, 0);

	while (n == 0)
		pause();
	if (n < 0 || (size_t)n == size)
		return n;
	errno = EIO;
	return -1;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct rv_channel *ch = calloc(1, sizeof *ch);
	int error = ch ? rv_socketpair(&ch->channel.fd, &ch->engine_fd) : ENOMEM;

	if (error) {
		free(ch);
		errno = error;
		return NULL;
	}
	ch->channel.context = context;
	return &ch->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct rv_channel *ch = container(channel, struct rv_channel, channel);

	if (load_acquire(&channel->refcnt))
		return EBUSY;
	rv_call1(RV_CLOSE_CHANNEL, (uint64_t)ch->engine_fd);
	close(channel->fd);
	free(ch);
	return 0;
}

/* An event of a completion queue that is gone is skipped. */
int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	for (;;) {
		struct rv_completions *q;
		uint64_t cookie;

		if (rv_receive(channel->fd, &cookie, sizeof cookie) < 0)
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

		if (rv_receive(context->async_fd, &e, sizeof e) < 0)
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
