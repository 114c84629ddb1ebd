/* Two ends of a connection in one process. */
#include "walk.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>

struct rdma_cm_event *event_of(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *e;

	while (rdma_get_cm_event(ch, &e)) { /* with NEVER_WAIT */
		CHECK(errno == EAGAIN);
		sched_yield();
	}
	if (e->event != type) {
		fprintf(stderr, "event %s, status %d; %s expected\n", rdma_event_str(e->event),
			e->status, rdma_event_str(type));
		exit(1);
	}
	return e;
}

static void make_end(struct end *e, struct rdma_cm_id *id, int how)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 16,
			 .max_recv_wr = 16,
			 .max_send_sge = 4,
			 .max_recv_sge = 4,
			 .max_inline_data = 128 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 16, .max_sge = 2 } };

	e->id = id;
	CHECK(e->channel = ibv_create_comp_channel(id->verbs));
	CHECK(e->cq = ibv_create_cq(id->verbs, 64, e, e->channel, 0));
	e->send_cq = e->cq;
	if (how & SPLIT) {
		CHECK(e->send_channel = ibv_create_comp_channel(id->verbs));
		CHECK(e->send_cq = ibv_create_cq(id->verbs, 64, e, e->send_channel, 0));
		CHECK(!(how & ARMED) || !ibv_req_notify_cq(e->send_cq, 0));
	}
	if (how & WITH_SRQ)
		CHECK(e->srq = ibv_create_srq(id->pd, &srq));
	attr.send_cq = e->send_cq;
	attr.recv_cq = e->cq;
	attr.srq = e->srq;
	CHECK(!rdma_create_qp(id, NULL, &attr));
	CHECK(e->memory = aligned_alloc(4096, MEMORY));
	memset(e->memory, 0, MEMORY);
	CHECK(e->mr = ibv_reg_mr(id->pd, e->memory, MEMORY,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
					 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC));
}

void begin_pair(struct pair *p, int how)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct rdma_conn_param param = { .private_data = "hello",
					 .private_data_len = 5,
					 .responder_resources = 4,
					 .initiator_depth = 4,
					 .rnr_retry_count = 7 };
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;

	memset(p, 0, sizeof *p);
	CHECK(p->events = rdma_create_event_channel());
	if (how & NEVER_WAIT)
		fcntl(p->events->fd, F_SETFL, O_NONBLOCK);
	CHECK(!rdma_create_id(p->events, &p->listener, p, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(p->listener, (struct sockaddr *)&any));
	CHECK(rdma_get_src_port(p->listener));
	CHECK(!rdma_listen(p->listener, 4));
	any.sin_port = rdma_get_src_port(p->listener);

	CHECK(!rdma_create_id(p->events, &id, &p->client, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&any, 1000));
	rdma_ack_cm_event(event_of(p->events, RDMA_CM_EVENT_ADDR_RESOLVED));
	CHECK(id->verbs && id->port_num == 1);
	CHECK(!rdma_resolve_route(id, 1000));
	rdma_ack_cm_event(event_of(p->events, RDMA_CM_EVENT_ROUTE_RESOLVED));
	make_end(&p->client, id, how & ~WITH_SRQ);
	if (how & TWICE)
		param.rnr_retry_count = 2;
	CHECK(!rdma_connect(id, &param));

	e = event_of(p->events, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(e->listen_id == p->listener && e->id->context == p);
	CHECK(e->param.conn.private_data_len >= 5 && !memcmp(e->param.conn.private_data, "hello", 5));
	CHECK(e->param.conn.responder_resources == 4 && e->param.conn.initiator_depth == 4);
	make_end(&p->server, e->id, how);
	rdma_ack_cm_event(e);
}

void end_pair(struct pair *p)
{
	struct rdma_conn_param param = {
		.private_data = "welcome", .private_data_len = 7, .responder_resources = 4, .initiator_depth = 4,
		.rnr_retry_count = 7,
	};
	struct rdma_cm_event *e;

	CHECK(!rdma_accept(p->server.id, &param));
	for (int i = 0; i < 2; i++) {
		e = event_of(p->events, RDMA_CM_EVENT_ESTABLISHED);
		if (e->id == p->client.id)
			CHECK(e->param.conn.private_data_len >= 7 && !memcmp(e->param.conn.private_data, "welcome", 7));
		rdma_ack_cm_event(e);
	}
}

void connect_pair(struct pair *p, int how)
{
	begin_pair(p, how);
	end_pair(p);
}

void close_end(struct end *e)
{
	rdma_destroy_qp(e->id);
	if (e->srq)
		CHECK(!ibv_destroy_srq(e->srq));
	CHECK(!ibv_dereg_mr(e->mr));
	CHECK(!ibv_destroy_cq(e->cq));
	CHECK(!ibv_destroy_comp_channel(e->channel));
	if (e->send_channel)
		CHECK(!ibv_destroy_cq(e->send_cq) && !ibv_destroy_comp_channel(e->send_channel));
	CHECK(!rdma_destroy_id(e->id));
	free(e->memory);
}

void close_pair(struct pair *p)
{
	CHECK(!rdma_disconnect(p->client.id));
	rdma_ack_cm_event(event_of(p->events, RDMA_CM_EVENT_DISCONNECTED));
	rdma_ack_cm_event(event_of(p->events, RDMA_CM_EVENT_DISCONNECTED));
	close_end(&p->client);
	close_end(&p->server);
	CHECK(!rdma_destroy_id(p->listener));
	rdma_destroy_event_channel(p->events);
}

struct ibv_wc await_on(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		sched_yield();
	CHECK(n == 1);
	return wc;
}

struct ibv_wc await(struct end *e)
{
	return await_on(e->cq);
}

/* The alarm of the walk interrupts poll(2), whatever SA_RESTART says. */
bool told(struct ibv_comp_channel *channel)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	int n;

	do
		n = poll(&fd, 1, 0);
	while (n < 0 && errno == EINTR);
	CHECK(n >= 0);
	return n > 0;
}

void post_recv(struct end *e, uint64_t wr_id, size_t offset, uint32_t length)
{
	struct ibv_sge sge = { .addr = (uintptr_t)e->memory + offset,
			       .length = length,
			       .lkey = e->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	if (e->srq)
		CHECK(!ibv_post_srq_recv(e->srq, &wr, &bad));
	else
		CHECK(!ibv_post_recv(e->id->qp, &wr, &bad));
}

struct ibv_send_wr request(struct end *from, struct ibv_sge *sge, enum ibv_wr_opcode op,
			   uint32_t length)
{
	*sge = (struct ibv_sge){ .addr = (uintptr_t)from->memory,
				 .length = length,
				 .lkey = from->mr->lkey };
	return (struct ibv_send_wr){ .wr_id = 99,
				     .sg_list = sge,
				     .num_sge = 1,
				     .opcode = op,
				     .send_flags = IBV_SEND_SIGNALED };
}

int post(struct end *e, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	int error = ibv_post_send(e->id->qp, wr, &bad);

	CHECK(!error || bad);
	return error;
}
