/* Events that nobody has read when what they name is destroyed, or moved. */
#include "walk.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>

static struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = 9 };

static bool readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int n;

	do
		n = poll(&p, 1, 0);
	while (n < 0 && errno == EINTR);
	CHECK(n >= 0);
	return n > 0;
}

static void until_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	while (poll(&p, 1, -1) != 1)
		CHECK(errno == EINTR);
}

/* An id with an event that nobody has read. */
static struct rdma_cm_id *resolved(struct rdma_event_channel *ch)
{
	struct rdma_cm_id *id;

	here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&here, 1000));
	return id;
}

static void next_is(struct rdma_event_channel *ch, struct rdma_cm_id *id,
		    enum rdma_cm_event_type type)
{
	struct rdma_cm_event *e = event_of(ch, type);

	CHECK(e->id == id);
	rdma_ack_cm_event(e);
}

static void nothing_in(struct rdma_event_channel *ch)
{
	struct rdma_cm_event *e;
	int flags = fcntl(ch->fd, F_GETFL);

	CHECK(!readable(ch->fd));
	fcntl(ch->fd, F_SETFL, O_NONBLOCK);
	FAILS(rdma_get_cm_event(ch, &e), EAGAIN);
	fcntl(ch->fd, F_SETFL, flags);
}

/* More than the kernel keeps in a socket: the others stay, in their order. */
enum { MANY = 600 };

static void ids(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	static struct rdma_cm_id *id[MANY];

	id[0] = resolved(ch);
	CHECK(readable(ch->fd) && !rdma_destroy_id(id[0]));
	nothing_in(ch);
	for (int i = 0; i < MANY; i++)
		id[i] = resolved(ch);
	for (int i = 0; i < MANY; i++)
		if (i % 3)
			CHECK(!rdma_destroy_id(id[i]));
	for (int i = 0; i < MANY; i += 3)
		next_is(ch, id[i], RDMA_CM_EVENT_ADDR_RESOLVED);
	nothing_in(ch);
	for (int i = 0; i < MANY; i += 3)
		CHECK(!rdma_destroy_id(id[i]));
	rdma_destroy_event_channel(ch);
}

/* rdma_migrate_id(3): what is pending is moved, in its order; other ids' events stay. */
static void moved(void)
{
	struct rdma_event_channel *from = rdma_create_event_channel(), *to = rdma_create_event_channel();
	static struct rdma_cm_id *id[MANY];
	struct rdma_cm_id *sync;

	for (int i = 0; i < MANY; i++)
		id[i] = resolved(from);
	for (int i = 0; i < MANY; i += 2)
		CHECK(!rdma_resolve_route(id[i], 1000));
	for (int i = 0; i < MANY; i += 2)
		CHECK(!rdma_migrate_id(id[i], to) && id[i]->channel == to);
	for (int i = 0; i < MANY; i += 2) {
		next_is(to, id[i], RDMA_CM_EVENT_ADDR_RESOLVED);
		next_is(to, id[i], RDMA_CM_EVENT_ROUTE_RESOLVED);
		next_is(from, id[i + 1], RDMA_CM_EVENT_ADDR_RESOLVED);
	}
	nothing_in(from);
	nothing_in(to);
	CHECK(!rdma_resolve_route(id[0], 1000) && !rdma_migrate_id(id[0], to)); /* where it is already */
	next_is(to, id[0], RDMA_CM_EVENT_ROUTE_RESOLVED);
	nothing_in(to);
	for (int i = 0; i < MANY; i++)
		CHECK(!rdma_destroy_id(id[i]));

	/* to a channel of the id's own, and back */
	sync = resolved(from);
	CHECK(!rdma_migrate_id(sync, NULL) && sync->channel != from);
	nothing_in(from);
	next_is(sync->channel, sync, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(sync, 1000) && sync->event->event == RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(!rdma_migrate_id(sync, from) && sync->channel == from && !sync->event);
	CHECK(!rdma_destroy_id(sync));
	rdma_destroy_event_channel(from);
	rdma_destroy_event_channel(to);
}

/* A listener's requests come by its new channel. */
static void listener_moved(void)
{
	struct rdma_event_channel *from = rdma_create_event_channel(), *to = rdma_create_event_channel();
	struct rdma_event_channel *far = rdma_create_event_channel();
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct ibv_qp_init_attr attr = { .cap = { 1, 1, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct rdma_conn_param param = { 0 };
	struct rdma_cm_id *listener, *client[2];

	CHECK(!rdma_create_id(from, &listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&at) && !rdma_listen(listener, 4));
	at.sin_port = rdma_get_src_port(listener);
	for (int i = 0; i < 2; i++) {
		struct rdma_cm_event *e;

		CHECK(!rdma_create_id(far, &client[i], NULL, RDMA_PS_TCP));
		CHECK(!rdma_resolve_addr(client[i], NULL, (struct sockaddr *)&at, 1000));
		next_is(far, client[i], RDMA_CM_EVENT_ADDR_RESOLVED);
		CHECK(!rdma_create_qp(client[i], NULL, &attr) && !rdma_connect(client[i], &param));
		if (i == 0) {
			until_readable(from->fd);
			CHECK(!rdma_migrate_id(listener, to));
			nothing_in(from);
		}
		e = event_of(to, RDMA_CM_EVENT_CONNECT_REQUEST);
		CHECK(e->listen_id == listener && e->id->channel == to && !rdma_reject(e->id, NULL, 0));
		CHECK(!rdma_destroy_id(e->id));
		rdma_ack_cm_event(e);
		next_is(far, client[i], RDMA_CM_EVENT_REJECTED);
		rdma_destroy_qp(client[i]);
		CHECK(!rdma_destroy_id(client[i]));
	}
	CHECK(!rdma_destroy_id(listener));
	rdma_destroy_event_channel(from);
	rdma_destroy_event_channel(to);
	rdma_destroy_event_channel(far);
}

/* Three queues tell one channel of a completion each: the event of the one that stays is left. */
static void completions(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id = resolved(ch);
	struct ibv_qp_init_attr attr = { .cap = { 1, 1, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr over = { .qp_state = IBV_QPS_ERR };
	struct ibv_recv_wr wr = { .wr_id = 5 }, *bad;
	struct ibv_comp_channel *told_of;
	struct ibv_cq *cq[3], *got;
	struct ibv_qp *qp[3];
	void *context;

	next_is(ch, id, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(told_of = ibv_create_comp_channel(id->verbs));
	for (int i = 0; i < 3; i++) {
		CHECK(cq[i] = ibv_create_cq(id->verbs, 4, &cq[i], told_of, 0));
		attr.send_cq = attr.recv_cq = cq[i];
		CHECK(qp[i] = ibv_create_qp(id->pd, &attr));
		CHECK(!ibv_req_notify_cq(cq[i], 0) && !ibv_modify_qp(qp[i], &over, IBV_QP_STATE));
		CHECK(!ibv_post_recv(qp[i], &wr, &bad));
		until_readable(told_of->fd);
	}
	CHECK(!ibv_destroy_qp(qp[0]) && !ibv_destroy_cq(cq[0]));
	CHECK(!ibv_destroy_qp(qp[2]) && !ibv_destroy_cq(cq[2]));
	CHECK(!ibv_get_cq_event(told_of, &got, &context) && got == cq[1] && context == &cq[1]);
	CHECK(!readable(told_of->fd));
	fcntl(told_of->fd, F_SETFL, O_NONBLOCK);
	FAILS(ibv_get_cq_event(told_of, &got, &context), EAGAIN);
	ibv_ack_cq_events(cq[1], 1);
	CHECK(!ibv_destroy_qp(qp[1]) && !ibv_destroy_cq(cq[1]) && !ibv_destroy_comp_channel(told_of));
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

/* Of completion queues that were too small, and of a shared receive queue that runs low. */
static void asynchronous(struct ibv_context *c)
{
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_srq_init_attr low = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq_attr limit = { .srq_limit = 2 };
	struct ibv_qp_attr over = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp_init_attr attr = { .cap = { 8, 8, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct ibv_recv_wr wr = { .wr_id = 5 }, *bad;
	struct ibv_async_event e;
	struct ibv_cq *small, *other;
	struct ibv_srq *srq;
	struct ibv_qp *qp;

	CHECK(small = ibv_create_cq(c, 1, NULL, NULL, 0));
	CHECK(other = ibv_create_cq(c, 1, NULL, NULL, 0));
	for (int i = 0; i < 2; i++) {
		attr.send_cq = attr.recv_cq = i ? other : small;
		CHECK((qp = ibv_create_qp(pd, &attr)) && !ibv_modify_qp(qp, &over, IBV_QP_STATE));
		for (int n = 0; n < 8; n++)
			CHECK(!ibv_post_recv(qp, &wr, &bad));
		until_readable(c->async_fd);
		CHECK(!ibv_destroy_qp(qp));
		if (i == 0)
			CHECK(!ibv_destroy_cq(small) && !readable(c->async_fd));
	}
	CHECK(srq = ibv_create_srq(pd, &low));
	CHECK(!ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT)); /* fewer are there: told at once */
	CHECK(!ibv_get_async_event(c, &e) && e.event_type == IBV_EVENT_CQ_ERR);
	CHECK(e.element.cq == other);
	ibv_ack_async_event(&e);
	CHECK(!ibv_destroy_cq(other));
	until_readable(c->async_fd);
	CHECK(!ibv_destroy_srq(srq) && !readable(c->async_fd));
	fcntl(c->async_fd, F_SETFL, O_NONBLOCK);
	FAILS(ibv_get_async_event(c, &e), EAGAIN);
	CHECK(!ibv_dealloc_pd(pd));
}

/* Of a connection that failed: DISCONNECTED and QP_FATAL. */
static void failed(void)
{
	struct pair p;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_context *c;

	connect_pair(&p, SPLIT);
	c = p.client.id->verbs;
	wr = request(&p.client, &sge, IBV_WR_RDMA_READ, 8);
	wr.wr.rdma.remote_addr = (uintptr_t)p.server.memory;
	wr.wr.rdma.rkey = p.server.mr->rkey ^ 0x5a5a;
	CHECK(!post(&p.client, &wr) && await_on(p.client.send_cq).status == IBV_WC_REM_ACCESS_ERR);
	until_readable(c->async_fd);
	until_readable(p.events->fd);
	close_end(&p.client);
	close_end(&p.server);
	CHECK(!readable(c->async_fd) && !readable(p.events->fd));
	CHECK(!rdma_destroy_id(p.listener));
	nothing_in(p.events);
	rdma_destroy_event_channel(p.events);
}

void unread(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *c = ibv_open_device(list[0]);

	ibv_free_device_list(list);
	ids();
	moved();
	listener_moved();
	completions();
	asynchronous(c);
	failed();
	CHECK(!ibv_close_device(c));
}
