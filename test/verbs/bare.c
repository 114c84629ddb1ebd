/*
 * Connections of librdmacm that are for no queue pair of theirs, as RoCE: their private data and
 * their end are what UCX wants, whose queue pairs connect by number.
 */
#include "party.h"

#include <arpa/inet.h>
#include <poll.h>

static struct rdma_event_channel *ch;
static struct rdma_cm_id *listener, *client, *server;
static struct sockaddr_in at = { .sin_family = AF_INET };

static void acked(enum rdma_cm_event_type type)
{
	rdma_ack_cm_event(event_of(ch, type));
}

/* An event with private data of so many octets. */
static void brings(enum rdma_cm_event_type type, const char *data, size_t n)
{
	struct rdma_cm_event *e = event_of(ch, type);

	CHECK(e->param.conn.private_data_len >= n && !memcmp(e->param.conn.private_data, data, n));
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		server = e->id;
	else
		CHECK(e->id == client);
	rdma_ack_cm_event(e);
}

static void resolve(void)
{
	CHECK(!rdma_create_id(ch, &client, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(client, NULL, (struct sockaddr *)&at, 1000));
	acked(RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(client, 1000));
	acked(RDMA_CM_EVENT_ROUTE_RESOLVED);
}

static struct rdma_conn_param saying(const char *text, uint32_t number)
{
	return (struct rdma_conn_param){ .private_data = text, .private_data_len = (uint8_t)strlen(text),
		.qp_num = number, .retry_count = 7 };
}

/* The way to the peer, as RTR would have it. */
static void knows_peer(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	struct ibv_gid_entry own;
	int mask;

	CHECK(!rdma_init_qp_attr(id, &attr, &mask));
	CHECK(attr.ah_attr.is_global && attr.ah_attr.port_num == 1 && attr.path_mtu >= IBV_MTU_256);
	CHECK(!memcmp(&attr.ah_attr.grh.dgid, &gid, sizeof gid));
	CHECK(!ibv_query_gid_ex(context, 1, attr.ah_attr.grh.sgid_index, &own, 0));
	CHECK(!memcmp(&own.gid, &gid, sizeof gid)); /* both are here */
}

/* Until both know of the connection. The numbers are those that the ends name. */
static void connect_bare(uint32_t first, uint32_t second)
{
	struct rdma_conn_param hello = saying("hello", first), welcome = saying("welcome", second);
	struct pollfd p = { .fd = ch->fd, .events = POLLIN };

	resolve();
	CHECK(!rdma_connect(client, &hello));
	brings(RDMA_CM_EVENT_CONNECT_REQUEST, "hello", 5);
	CHECK(!rdma_accept(server, &welcome));
	brings(RDMA_CM_EVENT_CONNECT_RESPONSE, "welcome", 7);
	CHECK(!poll(&p, 1, 50)); /* the server hears when the client establishes it */
	CHECK(!rdma_establish(client));
	acked(RDMA_CM_EVENT_ESTABLISHED);
	FAILS(rdma_establish(client), EINVAL); /* once */
	knows_peer(client);
	knows_peer(server);
}

static void send_between(struct party *a, struct party *b)
{
	CHECK(!receive(b, 1, 0, 64));
	strcpy(a->memory + 64, "by number");
	CHECK(!ask(a, (struct ibv_send_wr){ .wr_id = 2, .opcode = IBV_WR_SEND }, 64, 10));
	expect(a, 2, IBV_WC_SUCCESS, IBV_WC_SEND);
	expect(b, 1, IBV_WC_SUCCESS, IBV_WC_RECV);
	CHECK(!strcmp(b->memory, "by number"));
}

/* An end without a queue pair has no buffer, and no memory; the program hears nothing of the queue
 * pair that it has not made. */
static void mixed(enum ibv_wr_opcode op)
{
	struct ibv_qp_init_attr attr = { .cap = { 4, 4, 1, 1, 16 }, .qp_type = IBV_QPT_RC };
	struct rdma_conn_param hello = saying("hello", 0), once = saying("welcome", 0);
	struct ibv_sge one = { .addr = (uintptr_t)&hello, .length = 1 };
	struct ibv_send_wr wr = { .opcode = op, .sg_list = &one, .num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE, .wr.rdma.rkey = 0x12345678 }, *bad;
	struct pollfd p = { .events = POLLIN };
	struct ibv_async_event e;

	resolve();
	CHECK(!rdma_create_qp(client, NULL, &attr) && !rdma_connect(client, &hello));
	brings(RDMA_CM_EVENT_CONNECT_REQUEST, "hello", 5);
	CHECK(!rdma_accept(server, &once));
	acked(RDMA_CM_EVENT_ESTABLISHED);
	acked(RDMA_CM_EVENT_ESTABLISHED);
	FAILS(rdma_establish(server), EINVAL); /* is the client's to say */
	CHECK(!ibv_post_send(client->qp, &wr, &bad));
	CHECK(await_on(client->send_cq).status ==
	      (op == IBV_WR_SEND ? IBV_WC_RNR_RETRY_EXC_ERR : IBV_WC_REM_ACCESS_ERR));
	acked(RDMA_CM_EVENT_DISCONNECTED);
	acked(RDMA_CM_EVENT_DISCONNECTED);
	p.fd = client->verbs->async_fd;
	while (poll(&p, 1, 50) > 0) {
		CHECK(!ibv_get_async_event(client->verbs, &e) && e.element.qp == client->qp);
		ibv_ack_async_event(&e);
	}
	rdma_destroy_qp(client);
}

static void move_by(struct rdma_cm_id *id, struct ibv_qp *qp)
{
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++) {
		struct ibv_qp_attr attr = { .qp_state = state };
		int mask;

		CHECK(!rdma_init_qp_attr(id, &attr, &mask) && !ibv_modify_qp(qp, &attr, mask));
	}
}

/* Queue pairs that ids know by their numbers alone are connected, moved before or afterwards. */
static void external(void)
{
	struct party a = make(false), b = make(false);
	struct rdma_conn_param hello = saying("hello", a.qp->qp_num), welcome;

	resolve();
	CHECK(!rdma_connect(client, &hello));
	brings(RDMA_CM_EVENT_CONNECT_REQUEST, "hello", 5);
	move_by(server, b.qp);
	welcome = saying("welcome", b.qp->qp_num);
	CHECK(!rdma_accept(server, &welcome));
	for (int got = 0; got < 2; got++) {
		struct rdma_cm_event *e;

		CHECK(!rdma_get_cm_event(ch, &e));
		CHECK(e->event == (e->id == client ? RDMA_CM_EVENT_CONNECT_RESPONSE :
						     RDMA_CM_EVENT_ESTABLISHED));
		rdma_ack_cm_event(e);
	}
	move_by(client, a.qp);
	CHECK(!rdma_establish(client));
	send_between(&a, &b);
	send_between(&b, &a);
	CHECK(!rdma_disconnect(client));
	acked(RDMA_CM_EVENT_DISCONNECTED);
	acked(RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_destroy_id(client) && !rdma_destroy_id(server));
	destroy(&a);
	destroy(&b);
}

int main(void)
{
	struct party a, b;
	struct ibv_qp_init_attr ud = { .cap = { 2, 2, 1, 1, 0 }, .qp_type = IBV_QPT_UD };
	struct rdma_conn_param hello = saying("hello", 0);
	struct ibv_qp *dummy;

	begin();
	a = make(false);
	b = make(false);
	memcpy(&at.sin_addr, gid.raw + 12, 4);
	CHECK(ch = rdma_create_event_channel());
	CHECK(!rdma_create_id(ch, &listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&at) && !rdma_listen(listener, 8));
	at.sin_port = rdma_get_src_port(listener);
	ud.send_cq = ud.recv_cq = ibv_cq_ex_to_cq(a.cq);
	CHECK(dummy = ibv_create_qp(pd, &ud));

	/* with the number of one for datagrams, of nobody, and of one that is connected otherwise */
	connect_bare(dummy->qp_num, 0);
	join(&a, &b);
	send_between(&a, &b);
	CHECK(!rdma_disconnect(client));
	acked(RDMA_CM_EVENT_DISCONNECTED);
	acked(RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_destroy_id(client) && !rdma_destroy_id(server));
	send_between(&b, &a); /* it lives on */
	connect_bare(0xabcdef, b.qp->qp_num);
	send_between(&a, &b);
	CHECK(!rdma_destroy_id(client)); /* which the peer hears of */
	acked(RDMA_CM_EVENT_DISCONNECTED);
	CHECK(!rdma_destroy_id(server));

	/* a client that is gone before it has established it */
	resolve();
	CHECK(!rdma_connect(client, &hello));
	brings(RDMA_CM_EVENT_CONNECT_REQUEST, "hello", 5);
	CHECK(!rdma_accept(server, &hello));
	brings(RDMA_CM_EVENT_CONNECT_RESPONSE, "hello", 5);
	CHECK(!rdma_destroy_id(client));
	acked(RDMA_CM_EVENT_CONNECT_ERROR);
	CHECK(!rdma_destroy_id(server));

	resolve();
	CHECK(!rdma_connect(client, &hello));
	FAILS(rdma_establish(client), EINVAL); /* too early */
	brings(RDMA_CM_EVENT_CONNECT_REQUEST, "hello", 5);
	CHECK(!rdma_reject(server, "no", 2) && !rdma_destroy_id(server));
	brings(RDMA_CM_EVENT_REJECTED, "no", 2);
	CHECK(!rdma_destroy_id(client));
	mixed(IBV_WR_SEND);
	CHECK(!rdma_destroy_id(client) && !rdma_destroy_id(server));
	mixed(IBV_WR_RDMA_WRITE);
	CHECK(!rdma_destroy_id(client) && !rdma_destroy_id(server));
	external();
	CHECK(!rdma_destroy_id(listener));
	rdma_destroy_event_channel(ch);
	CHECK(!ibv_destroy_qp(dummy));
	destroy(&a);
	destroy(&b);
	CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("all well");
	return 0;
}
