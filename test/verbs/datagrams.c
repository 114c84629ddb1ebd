/*
 * Queue pairs for datagrams, of one process: with a shared receive queue, and what becomes of its
 * buffers when they leave; and by the connection manager.
 */
#include "walk.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sched.h>

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct ibv_mr *mr;
static struct ibv_ah *self;
static char *memory;

#define KEY 0x12345678
#define BUFFER 128 /* octets, with the GRH */
#define BUFFERS 8

static struct ibv_qp *make(struct ibv_srq *shared)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD, .send_cq = cq, .recv_cq = cq,
					 .srq = shared,
					 .cap = { 16, 16, 2, 2, 64 } };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = KEY };
	struct ibv_qp *qp;

	CHECK(qp = ibv_create_qp(pd, &init));
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	a.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
	return qp;
}

static void move(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = { .qp_state = state };

	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE));
}

/* A buffer in two ranges, the second of which begins with the message. */
static int give(uint64_t id)
{
	struct ibv_sge s[2] = { { (uintptr_t)memory + id * BUFFER, 40, mr->lkey },
				{ (uintptr_t)memory + id * BUFFER + 40, BUFFER - 40, mr->lkey } };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = s, .num_sge = 2 }, *bad;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

static struct ibv_wc poll_one(void)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(cq, 1, &wc))
		sched_yield();
	return wc;
}

/* Sends n octets of value, which have left when it returns. */
static void send_to(struct ibv_qp *from, struct ibv_qp *to, char value, uint32_t n)
{
	struct ibv_sge s = { (uintptr_t)memory + BUFFERS * BUFFER, n, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 99, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.ud = { self, to->qp_num, KEY } }, *bad;
	struct ibv_wc wc;

	memset(memory + BUFFERS * BUFFER, value, n);
	CHECK(!ibv_post_send(from, &wr, &bad));
	wc = poll_one();
	CHECK(wc.wr_id == 99 && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND);
}

static void group_send(struct ibv_qp *from, char value)
{
	struct ibv_sge s = { (uintptr_t)memory + BUFFERS * BUFFER, 8, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 99, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .wr.ud = { self, 0xffffff, KEY } }, *bad;

	memset(memory + BUFFERS * BUFFER, value, 8);
	CHECK(!ibv_post_send(from, &wr, &bad));
}

/* One that is dropped: and it is, as one that was sent after it has come. */
static void lose(struct ibv_qp *from, struct ibv_qp *to, uint32_t n)
{
	struct ibv_sge s = { (uintptr_t)memory + (BUFFERS + 2) * BUFFER, BUFFER, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 98, .sg_list = &s, .num_sge = 1 }, *bad;
	struct ibv_wc wc;

	send_to(from, to, 'x', n);
	CHECK(!ibv_post_recv(from, &wr, &bad));
	send_to(from, from, 'y', 8);
	wc = poll_one();
	CHECK(wc.wr_id == 98 && wc.status == IBV_WC_SUCCESS);
}

static void received(struct ibv_qp *at, char value, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc = poll_one();

	CHECK(wc.status == status && wc.qp_num == at->qp_num && wc.wr_id == id);
	if (status == IBV_WC_SUCCESS)
		CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == 40 + 8 && wc.wc_flags & IBV_WC_GRH &&
		      memory[id * BUFFER + 40] == value && memory[id * BUFFER + 47] == value);
}

static void event(enum ibv_event_type type)
{
	struct ibv_async_event e;

	CHECK(!ibv_get_async_event(context, &e) && e.event_type == type);
	ibv_ack_async_event(&e);
}

static void shares(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = BUFFERS, .max_sge = 2 } };
	struct ibv_srq_attr limit = { .srq_limit = 2 };
	struct ibv_qp *from, *a, *b;

	CHECK(srq = ibv_create_srq(pd, &init));
	from = make(NULL);
	a = make(srq);
	b = make(srq);
	FAILS(ibv_destroy_srq(srq), EBUSY);

	/* In turn, whoever needs one. */
	for (int i = 0; i < 4; i++)
		CHECK(!give(i));
	send_to(from, a, 'a', 8);
	received(a, 'a', 0, IBV_WC_SUCCESS);
	CHECK(!ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
	send_to(from, b, 'b', 8);
	received(b, 'b', 1, IBV_WC_SUCCESS);
	send_to(from, a, 'c', 8);
	received(a, 'c', 2, IBV_WC_SUCCESS);
	event(IBV_EVENT_SRQ_LIMIT_REACHED);
	send_to(a, b, 'd', 8);
	received(b, 'd', 3, IBV_WC_SUCCESS);

	/* None: dropped. Too long for the next one: dropped, and the buffer stays that queue pair's. */
	lose(from, a, 8);
	CHECK(!give(4));
	lose(from, a, BUFFER);
	CHECK(!give(5));
	send_to(from, b, 'g', 8);
	received(b, 'g', 5, IBV_WC_SUCCESS);
	send_to(from, a, 'h', 8);
	received(a, 'h', 4, IBV_WC_SUCCESS);

	/* What one holds is flushed when it fails, and is free again when it is reset or destroyed. */
	CHECK(!give(6));
	lose(from, a, BUFFER);
	move(a, IBV_QPS_ERR);
	received(a, 0, 6, IBV_WC_WR_FLUSH_ERR);
	event(IBV_EVENT_QP_LAST_WQE_REACHED);
	CHECK(!ibv_destroy_qp(a));
	for (int round = 0; round < 2; round++) {
		CHECK(!give(7));
		lose(from, b, BUFFER);
		move(b, IBV_QPS_RESET);
		for (int i = 0; i < BUFFERS; i++)
			CHECK(!give(i));
		FAILS(give(0), ENOMEM);
		CHECK(!ibv_destroy_qp(b));
		b = make(srq);
		for (int i = 0; i < BUFFERS; i++) {
			send_to(from, b, 'k', 8);
			received(b, 'k', i, IBV_WC_SUCCESS);
		}
	}
	CHECK(!ibv_destroy_qp(b) && !ibv_destroy_qp(from) && !ibv_destroy_srq(srq));
}

/*
 * What a short one says is taken when it is posted, though the engine sends it later. Its range is
 * checked all the same.
 */
static void at_once(void)
{
	struct ibv_qp *qp = make(NULL);
	char *to = memory, *from = memory + BUFFER;
	struct ibv_sge r = { (uintptr_t)to, BUFFER, mr->lkey };
	struct ibv_sge s = { (uintptr_t)from, 80, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &r, .num_sge = 1 }, *bad;
	struct ibv_send_wr w = { .wr_id = 99, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.ud = { self, qp->qp_num, KEY } }, *wrong;
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	struct ibv_wc wc;

	for (int i = 0; i < 300; i++) {
		CHECK(!ibv_post_recv(qp, &wr, &bad));
		memset(from, i, 80);
		if (i % 2) {
			CHECK(!ibv_post_send(qp, &w, &wrong));
		} else {
			ibv_wr_start(ex);
			ex->wr_id = 99;
			ex->wr_flags = IBV_SEND_SIGNALED;
			ibv_wr_send(ex);
			ibv_wr_set_ud_addr(ex, self, qp->qp_num, KEY);
			ibv_wr_set_sge(ex, s.lkey, s.addr, s.length);
			CHECK(!ibv_wr_complete(ex));
		}
		memset(from, ~i, 80);
		wc = poll_one();
		CHECK(wc.wr_id == 99 && wc.status == IBV_WC_SUCCESS);
		wc = poll_one();
		CHECK(!wc.wr_id && wc.status == IBV_WC_SUCCESS && wc.byte_len == 40 + 80);
		for (int k = 0; k < 80; k++)
			CHECK(to[40 + k] == (char)i);
	}
	s.lkey ^= 0x10000;
	CHECK(!ibv_post_send(qp, &w, &wrong));
	wc = poll_one();
	CHECK(wc.wr_id == 99 && wc.status == IBV_WC_LOC_PROT_ERR);
	CHECK(!poll(&(struct pollfd){ .fd = context->async_fd, .events = POLLIN }, 1, 0));
	CHECK(!ibv_destroy_qp(qp));
}

/* What is sent to a group comes to all that are attached, and have the Q_Key. */
static void groups(void)
{
	struct ibv_ah_attr attr = { .port_num = 1, .is_global = 1, .grh = { .hop_limit = 1 } };
	struct ibv_srq_init_attr init = { .attr = { .max_wr = BUFFERS, .max_sge = 2 } };
	struct ibv_qp_attr key = { .qkey = KEY + 1 };
	struct ibv_qp *from, *at[4];
	struct ibv_wc wc[2];
	union ibv_gid group = { 0 };

	memcpy(group.raw, (uint8_t[16]){ [10] = 0xff, 0xff, 239, 77, 3, 1 }, 16);
	CHECK(srq = ibv_create_srq(pd, &init));
	from = make(NULL);
	FAILS(ibv_attach_mcast(from, &attr.grh.dgid, 0), EINVAL); /* no group */
	FAILS(ibv_detach_mcast(from, &group, 0), EINVAL);
	for (int i = 0; i < 4; i++) {
		at[i] = make(srq);
		CHECK(!ibv_attach_mcast(at[i], &group, 0));
		CHECK(!ibv_attach_mcast(at[i], &group, 0)); /* it is already */
	}
	CHECK(!ibv_destroy_qp(at[0])); /* which detaches it */
	CHECK(!ibv_detach_mcast(at[1], &group, 0));
	FAILS(ibv_detach_mcast(at[1], &group, 0), EINVAL);
	attr.grh.dgid = group;
	CHECK(!ibv_destroy_ah(self) && (self = ibv_create_ah(pd, &attr)));
	for (int i = 0; i < BUFFERS; i++)
		CHECK(!give(i));
	group_send(from, 'm');
	for (int i = 0; i < 2; i++)
		wc[i] = poll_one();
	CHECK(wc[0].qp_num != wc[1].qp_num);
	for (int i = 0; i < 2; i++)
		CHECK((wc[i].qp_num == at[2]->qp_num || wc[i].qp_num == at[3]->qp_num) &&
		      wc[i].src_qp == from->qp_num && memory[wc[i].wr_id * BUFFER + 40] == 'm');
	CHECK(!ibv_modify_qp(at[3], &key, IBV_QP_QKEY));
	group_send(from, 'n');
	CHECK(poll_one().qp_num == at[2]->qp_num);
	CHECK(!ibv_detach_mcast(at[2], &group, 0) && !ibv_detach_mcast(at[3], &group, 0));
	for (int i = 1; i < 4; i++)
		CHECK(!ibv_destroy_qp(at[i]));
	CHECK(!ibv_destroy_qp(from) && !ibv_destroy_srq(srq));
}

static struct rdma_cm_event *next(struct rdma_event_channel *events, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *e;

	CHECK(!rdma_get_cm_event(events, &e));
	if (e->event != type) {
		fprintf(stderr, "%s, status %d, instead of %s\n", rdma_event_str(e->event), e->status,
			rdma_event_str(type));
		exit(1);
	}
	return e;
}

static struct rdma_cm_id *resolved(struct rdma_event_channel *events, struct sockaddr_in *at,
				   enum rdma_port_space ps)
{
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(events, &id, NULL, ps));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)at, 1000));
	CHECK(!rdma_ack_cm_event(next(events, RDMA_CM_EVENT_ADDR_RESOLVED)));
	CHECK(!rdma_resolve_route(id, 1000));
	CHECK(!rdma_ack_cm_event(next(events, RDMA_CM_EVENT_ROUTE_RESOLVED)));
	CHECK(id->route.num_paths == 1 && id->route.path_rec->hop_limit > 1);
	return id;
}

/* There is an event, which stays. */
static bool wait_for(struct rdma_event_channel *events)
{
	struct pollfd p = { .fd = events->fd, .events = POLLIN };

	return poll(&p, 1, -1) == 1;
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = { .qp_type = id->qp_type, .send_cq = cq, .recv_cq = cq,
					 .cap = { 4, 4, 1, 1, 0 } };

	CHECK(!rdma_create_qp(id, pd, &init));
}

/* The connection manager says where datagrams go, whether they are wanted, and what is said with
 * that; that there is nobody is a clear answer. Ports are not those of connections. */
static void services(struct sockaddr_in at, bool sockets)
{
	struct rdma_conn_param hello = { .private_data = "hello", .private_data_len = 5 };
	struct rdma_conn_param welcome = { .private_data = "welcome", .private_data_len = 7 };
	struct ibv_qp_init_attr init;
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct rdma_cm_id *listener, *other, *client, *server;
	struct rdma_cm_event *e;
	struct ibv_qp_attr attr;
	struct ibv_ah *ah;

	CHECK(events && !rdma_create_id(events, &listener, NULL, RDMA_PS_UDP));
	CHECK(listener->qp_type == IBV_QPT_UD);
	CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&at) && !rdma_listen(listener, 4));
	at.sin_port = rdma_get_src_port(listener);
	CHECK(!rdma_create_id(events, &client, NULL, RDMA_PS_UDP));
	FAILS(rdma_bind_addr(client, (struct sockaddr *)&at), EADDRINUSE);
	CHECK(!rdma_destroy_id(client));
	CHECK(!rdma_create_id(events, &other, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(other, (struct sockaddr *)&at) && !rdma_listen(other, 4));

	/* accepted */
	client = resolved(events, &at, RDMA_PS_UDP);
	pd = client->pd;
	CHECK(cq = ibv_create_cq(client->verbs, 8, NULL, NULL, 0));
	make_qp(client);
	CHECK(!ibv_query_qp(client->qp, &attr, IBV_QP_STATE | IBV_QP_QKEY, &init) &&
	      attr.qp_state == IBV_QPS_RTS && attr.qkey == 0x01234567);
	CHECK(!rdma_connect(client, &hello));
	e = next(events, RDMA_CM_EVENT_CONNECT_REQUEST);
	server = e->id;
	CHECK(e->listen_id == listener && server->qp_type == IBV_QPT_UD && server->ps == RDMA_PS_UDP &&
	      server->verbs && e->param.ud.private_data_len == 5 &&
	      !memcmp(e->param.ud.private_data, "hello", 5));
	CHECK(!rdma_ack_cm_event(e));
	make_qp(server);
	CHECK(!rdma_accept(server, &welcome));
	e = next(events, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(e->id == client && e->param.ud.qp_num == server->qp->qp_num &&
	      e->param.ud.qkey == 0x01234567 && e->param.ud.private_data_len == 7 &&
	      !memcmp(e->param.ud.private_data, "welcome", 7));
	CHECK((ah = ibv_create_ah(pd, &e->param.ud.ah_attr)) && !ibv_destroy_ah(ah));
	CHECK(!rdma_ack_cm_event(e));
	FAILS(rdma_connect(client, &hello), EINVAL); /* once */
	FAILS(rdma_accept(server, &welcome), EINVAL);
	FAILS(rdma_disconnect(client), EINVAL); /* it has no connection */
	rdma_destroy_qp(client);
	rdma_destroy_qp(server);
	CHECK(!rdma_destroy_id(client) && !rdma_destroy_id(server));

	/* refused, by a word and by none */
	for (int how = 0; how < 2; how++) {
		client = resolved(events, &at, RDMA_PS_UDP);
		CHECK(!rdma_connect(client, &hello));
		e = next(events, RDMA_CM_EVENT_CONNECT_REQUEST);
		server = e->id;
		CHECK(!rdma_ack_cm_event(e));
		CHECK(how || !rdma_reject(server, "no", 2));
		CHECK(!rdma_destroy_id(server));
		e = next(events, RDMA_CM_EVENT_UNREACHABLE);
		CHECK(e->id == client && e->status == 2);
		CHECK(how || (e->param.ud.private_data_len == 2 && !memcmp(e->param.ud.private_data, "no", 2)));
		CHECK(!rdma_ack_cm_event(e) && !rdma_destroy_id(client));
	}

	/* a connection to the same port is another's; our own TCP does not connect to itself */
	if (sockets) {
		client = resolved(events, &at, RDMA_PS_TCP);
		make_qp(client);
		CHECK(!rdma_connect(client, &hello));
		e = next(events, RDMA_CM_EVENT_CONNECT_REQUEST);
		server = e->id;
		CHECK(e->listen_id == other && server->ps == RDMA_PS_TCP);
		CHECK(!rdma_ack_cm_event(e) && !rdma_reject(server, NULL, 0));
		CHECK(!rdma_ack_cm_event(next(events, RDMA_CM_EVENT_REJECTED)));
		rdma_destroy_qp(client);
		CHECK(!rdma_destroy_id(client) && !rdma_destroy_id(server));
	}

	/* told, and not taken, when the listener goes */
	client = resolved(events, &at, RDMA_PS_UDP);
	CHECK(!rdma_connect(client, &hello));
	CHECK(wait_for(events));
	CHECK(!rdma_destroy_id(listener));
	e = next(events, RDMA_CM_EVENT_UNREACHABLE);
	CHECK(e->id == client && e->status == 2);
	CHECK(!rdma_ack_cm_event(e) && !rdma_destroy_id(client));

	/* nobody, and one that expects connections; then one that is bound and does not listen */
	for (int how = 0; how < 2; how++) {
		if (how)
			CHECK(!rdma_create_id(events, &listener, NULL, RDMA_PS_UDP) &&
			      !rdma_bind_addr(listener, (struct sockaddr *)&at));
		client = resolved(events, &at, RDMA_PS_UDP);
		CHECK(!rdma_connect(client, &hello));
		e = next(events, RDMA_CM_EVENT_UNREACHABLE);
		CHECK(e->status == 1);
		CHECK(!rdma_ack_cm_event(e) && !rdma_destroy_id(client));
	}
	CHECK(!rdma_destroy_id(other));
	CHECK(!rdma_destroy_id(listener) && !ibv_destroy_cq(cq));
	rdma_destroy_event_channel(events);
}

int main(int argc, char **argv)
{
	int n = setenv("RNICD_DEVICE", "roce", 1);
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_ah_attr attr = { .port_num = 1, .is_global = 1, .grh = { .hop_limit = 64 } };

	struct sockaddr_in at = { .sin_family = AF_INET };

	(void)argv; /* one is there over the kernel's sockets */
	CHECK(n == 1 && (context = ibv_open_device(list[0])) && (pd = ibv_alloc_pd(context)) &&
	      (cq = ibv_create_cq(context, 64, NULL, NULL, 0)));
	CHECK(memory = aligned_alloc(4096, MEMORY));
	CHECK(mr = ibv_reg_mr(pd, memory, MEMORY, IBV_ACCESS_LOCAL_WRITE));
	CHECK(!ibv_query_gid(context, 1, 0, &attr.grh.dgid));
	CHECK(self = ibv_create_ah(pd, &attr));
	memcpy(&at.sin_addr, &attr.grh.dgid.raw[12], 4);
	shares();
	at_once();
	groups();
	CHECK(!ibv_destroy_ah(self) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) &&
	      !ibv_close_device(context));
	ibv_free_device_list(list);
	services(at, argc > 1);
	puts("all well");
	return 0;
}
