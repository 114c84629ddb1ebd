/* Completion channels and asynchronous events: sockets that the engine writes to. */
#include "shim.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * A thread that waits for an event while another destroys the channel stays here, as in the
 * kernel's read, until the process ends or somebody cancels it: programs rely on that. So does one
 * that comes only then, as rping's after it has acknowledged its last event. The descriptor is
 * closed when nobody reads from it, so that no thread reads from another file that has its number
 * by now.
 */
static void hold_thread(void)
{
	for (;;)
		pause();
}

static struct rv_lock closed; /* of all kinds */

void rv_lock_sockets(void)
{
	rv_lock(&closed);
}

void rv_unlock_sockets(void)
{
	rv_unlock(&closed);
}

/* Memory of closed sockets is kept for the next: a late thread may look at it at any time. */
static void put_back(struct rv_sockets *kind, struct rv_socket *s)
{
	s->next = NULL;
	rv_lock(&closed);
	*(kind->first ? &kind->last->next : &kind->first) = s;
	kind->last = s;
	kind->count++;
	rv_unlock(&closed);
}

/* The one that was closed first, so that a late thread finds its own for long. */
static struct rv_socket *take_back(struct rv_sockets *kind)
{
	struct rv_socket *s = NULL;

	rv_lock(&closed);
	if (kind->count > RV_CLOSED_MIN) {
		s = kind->first;
		kind->first = s->next;
		kind->count--;
	}
	rv_unlock(&closed);
	return s;
}

void *rv_open_socket(struct rv_sockets *kind)
{
	struct rv_socket *s = take_back(kind);
	int error;

	if (s) {
		memset(s + 1, 0, kind->size - sizeof *s);
	} else {
		s = calloc(1, kind->size);
		if (!s) {
			errno = ENOMEM;
			return NULL;
		}
		pthread_mutex_init(&s->reading, NULL);
		s->kind = kind;
	}
	error = rv_socketpair(&s->fd, &s->engine_fd);
	if (error) {
		put_back(kind, s);
		errno = error;
		return NULL;
	}
	s->process = rv_process();
	store_release(&s->users, 1);
	return s;
}

/* False: it is closed. */
static bool begin_reading(struct rv_socket *s)
{
	uint32_t n = load_acquire(&s->users);

	while (n && !__atomic_compare_exchange_n(&s->users, &n, n + 1, false, __ATOMIC_ACQ_REL,
						 __ATOMIC_ACQUIRE))
		;
	return n;
}

/* The last one closes it. */
static void end_reading(void *socket)
{
	struct rv_socket *s = socket;

	if (__atomic_sub_fetch(&s->users, 1, __ATOMIC_ACQ_REL) == 0) {
		rv_close(s->fd);
		put_back(s->kind, s);
	}
}

/*
 * The engine has closed its end: a thread that reads finds the end of the file. Of another
 * process's socket only the descriptor is closed: no thread reads from it here. Its memory is not
 * used again, as a thread of the parent's may have held its lock.
 */
void rv_close_socket(struct rv_socket *s)
{
	if (!rv_foreign(s->process))
		end_reading(s);
	else if (__atomic_exchange_n(&s->users, 0, __ATOMIC_ACQ_REL))
		rv_close(s->fd);
}

/* A datagram, or an errno, at once. No point of cancellation, as recv(2) is one. */
static ssize_t receive(struct rv_socket *s, void *event, size_t size, int flags)
{
	return syscall(SYS_recvfrom, s->fd, event, size, MSG_DONTWAIT | flags, NULL, NULL);
}

/*
 * The next event that is there, of size octets, and the object that it names, which stays until the
 * event is acknowledged: it is counted under the lock that rv_forget takes before the object goes.
 */
static ssize_t take(struct rv_socket *s, void *event, size_t size, rv_acks_of *acks, void **object)
{
	ssize_t n;

	pthread_mutex_lock(&s->reading);
	n = receive(s, event, size, 0);
	if (n == (ssize_t)size) {
		rv_after_calls();
		*object = rv_table_find(*(const uint64_t *)event);
		if (*object)
			__atomic_fetch_add(&acks(*object, event)->given, 1, __ATOMIC_ACQ_REL);
	}
	pthread_mutex_unlock(&s->reading);
	return n;
}

/*
 * A queue of the channel's to whose memory a peer has written since it was armed for any
 * completion. The event that it gets has no completion (verbs/internal/engine/qp.go, Written). Only
 * a thread that waits looks: nobody else is told.
 */
static struct rv_completions *written(struct rv_channel *ch)
{
	struct rv_completions *q;
	uint32_t any = 2;

	if (!__atomic_load_n(&ch->socket.waits.written, __ATOMIC_SEQ_CST))
		return NULL;
	pthread_mutex_lock(&ch->socket.reading);
	__atomic_store_n(&ch->socket.waits.written, 0, __ATOMIC_SEQ_CST);
	for (q = ch->queues; q; q = q->next_told, any = 2) {
		if (__atomic_load_n(&q->ring->written, __ATOMIC_SEQ_CST) &&
		    __atomic_compare_exchange_n(&q->ring->armed, &any, 0, false, __ATOMIC_SEQ_CST,
						__ATOMIC_RELAXED)) {
			__atomic_fetch_add(&q->acks.given, 1, __ATOMIC_ACQ_REL);
			store_release(&ch->socket.waits.written, 1); /* there may be another */
			break;
		}
	}
	pthread_mutex_unlock(&ch->socket.reading);
	return q;
}

void rv_tell(struct ibv_comp_channel *channel, struct rv_completions *q)
{
	struct rv_channel *ch = container(channel, struct rv_channel, channel);

	pthread_mutex_lock(&ch->socket.reading);
	q->next_told = ch->queues;
	ch->queues = q;
	pthread_mutex_unlock(&ch->socket.reading);
}

void rv_tell_no_more(struct ibv_comp_channel *channel, struct rv_completions *q)
{
	struct rv_channel *ch = container(channel, struct rv_channel, channel);

	pthread_mutex_lock(&ch->socket.reading);
	for (struct rv_completions **at = &ch->queues; *at; at = &(*at)->next_told) {
		if (*at == q) {
			*at = q->next_told;
			break;
		}
	}
	pthread_mutex_unlock(&ch->socket.reading);
}

static void end_waiting(void *socket)
{
	struct rv_socket *s = socket;

	__atomic_fetch_sub(&s->waits.waiting, 1, __ATOMIC_SEQ_CST);
	end_reading(s);
}

/* Waits for an event. The only point of cancellation. Of a channel, what written finds ends the
 * wait. */
static ssize_t wait(struct rv_socket *s, struct rv_channel *ch, void **object)
{
	ssize_t n = 1;
	char octet;

	if (syscall(SYS_fcntl, s->fd, F_GETFL) & O_NONBLOCK) {
		errno = EAGAIN;
		return -1;
	}
	__atomic_fetch_add(&s->waits.waiting, 1, __ATOMIC_SEQ_CST);
	if (ch && load_relaxed(&rv_area->summary))
		rv_turn(1); /* for what was posted: to sleep, and be woken, costs more */
	if (!ch || !(*object = written(ch))) {
		pthread_cleanup_push(end_waiting, s);
		n = recv(s->fd, &octet, sizeof octet, MSG_PEEK);
		pthread_cleanup_pop(0);
	}
	__atomic_fetch_sub(&s->waits.waiting, 1, __ATOMIC_SEQ_CST);
	return n;
}

static void *receive_of(struct rv_socket *s, struct rv_channel *ch, void *event, size_t size,
			rv_acks_of *acks)
{
	void *object = NULL;
	ssize_t n;
	int error;

	if (rv_foreign(s->process)) {
		errno = EPERM; /* what is there is the parent's to read */
		return NULL;
	}
	if (!begin_reading(s))
		hold_thread();
	do {
		n = take(s, event, size, acks, &object);
		if (n < 0 && errno == EAGAIN)
			n = wait(s, ch, &object);
	} while (n > 0 && !object);
	error = errno;
	end_reading(s);
	if (n == 0)
		hold_thread();
	errno = error;
	return object;
}

void *rv_receive(struct rv_socket *s, void *event, size_t size, rv_acks_of *acks)
{
	return receive_of(s, NULL, event, size, acks);
}

void rv_forget(struct rv_socket *s, uint64_t cookie)
{
	char octet;

	if (!begin_reading(s))
		return;
	pthread_mutex_lock(&s->reading);
	if (receive(s, &octet, sizeof octet, MSG_PEEK) > 0) {
		struct rv_args a = { .arg = { (uint64_t)s->engine_fd, (uint64_t)s->fd, cookie } };

		rv_call(RV_FORGET, &a);
	}
	pthread_mutex_unlock(&s->reading);
	end_reading(s);
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	static struct rv_sockets kind = { .size = sizeof(struct rv_channel) };
	struct rv_channel *ch;

	if (rv_foreign_device(context)) {
		errno = EPERM;
		return NULL;
	}
	ch = rv_open_socket(&kind);
	if (!ch)
		return NULL;
	ch->channel.fd = ch->socket.fd;
	ch->channel.context = context;
	return &ch->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct rv_channel *ch = container(channel, struct rv_channel, channel);

	if (!rv_foreign(ch->socket.process)) {
		if (load_acquire(&channel->refcnt))
			return EBUSY;
		rv_call1(RV_CLOSE_CHANNEL, (uint64_t)ch->socket.engine_fd);
	}
	rv_close_socket(&ch->socket);
	return 0;
}

static struct rv_acks *completion_acks(void *object, const void *event)
{
	(void)event;
	return &to_cq(object)->acks;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct rv_channel *ch = container(channel, struct rv_channel, channel);
	uint64_t cookie;
	struct rv_completions *q = receive_of(&ch->socket, ch, &cookie, sizeof cookie, completion_acks);

	if (!q)
		return -1;
	*cq = ibv_cq_ex_to_cq(&q->cq);
	*cq_context = q->cq.cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	rv_acked(&to_cq(cq)->acks, n);
}

/* An event about the port, and no object of the program's. */
static bool about_port(enum ibv_event_type type)
{
	return type == IBV_EVENT_PORT_ACTIVE || type == IBV_EVENT_PORT_ERR ||
	       type == IBV_EVENT_GID_CHANGE;
}

/* Those of an asynchronous event about an object. */
static struct rv_acks *acks_of_type(void *object, enum ibv_event_type type)
{
	if (about_port(type))
		return &((struct rv_context *)object)->acks;
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return &to_cq(object)->async_acks;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return &to_srq(object)->acks;
	default:
		return &to_qp(object)->acks;
	}
}

static struct rv_acks *async_acks(void *object, const void *event)
{
	return acks_of_type(object, ((const struct rv_async_event *)event)->type);
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct rv_async_event e;
	void *object = rv_receive(&to_context(context)->events, &e, sizeof e, async_acks);

	if (!object)
		return -1;
	event->event_type = e.type;
	switch (event->event_type) {
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_GID_CHANGE:
		event->element.port_num = 1;
		break;
	case IBV_EVENT_CQ_ERR:
		event->element.cq = object;
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		event->element.srq = object;
		break;
	default:
		event->element.qp = object;
	}
	return 0;
}

/* The first member of each element is a pointer to the object. */
void ibv_ack_async_event(struct ibv_async_event *event)
{
	if (!about_port(event->event_type))
		rv_acked(acks_of_type(event->element.qp, event->event_type), 1);
}
