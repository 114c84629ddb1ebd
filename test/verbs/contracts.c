/* What the manual pages promise beyond the plain way, call by call. */
#include "walk.h"

#include <arpa/inet.h>

/*
 * A Write with immediate data uses up a receive and leaves its ranges alone: too short, none, of
 * the SRQ or not.
 */
static void immediate(void)
{
	for (int how = 0; how <= WITH_SRQ; how += WITH_SRQ) {
		struct pair p;
		struct end *c = &p.client, *s = &p.server;
		struct ibv_sge sge;
		struct ibv_recv_wr none = { .wr_id = 2 }, *bad;
		struct ibv_send_wr wr;
		struct ibv_wc wc;

		connect_pair(&p, how);
		memset(s->memory, '.', 100);
		strcpy(c->memory, "written");
		post_recv(s, 0, 0, 3);
		post_recv(s, 1, 0, 100);
		CHECK(!(how ? ibv_post_srq_recv(s->srq, &none, &bad) :
			      ibv_post_recv(s->id->qp, &none, &bad)));
		for (uint32_t i = 0; i < 3; i++) {
			wr = request(c, &sge, IBV_WR_RDMA_WRITE_WITH_IMM, 8 * (i % 2));
			wr.imm_data = htonl(i);
			wr.wr.rdma.remote_addr = (uintptr_t)s->memory + 1000;
			wr.wr.rdma.rkey = s->mr->rkey;
			CHECK(!post(c, &wr) && await(c).status == IBV_WC_SUCCESS);
			wc = await(s);
			CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM &&
				wc.wr_id == i);
			CHECK(wc.imm_data == htonl(i) && wc.byte_len == 8 * (i % 2));
		}
		for (int i = 0; i < 100; i++)
			CHECK(s->memory[i] == '.');
		CHECK(!strcmp(s->memory + 1000, "written"));
		close_pair(&p);
	}
}

/*
 * With an SRQ what is about receives is ignored, in what the id makes for the queue pair as well.
 */
static void ignored(void)
{
	struct pair p;
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 300, .max_sge = 1,
		.srq_limit = 1 << 30 } };
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = ~0u, .max_send_sge = 1, .max_recv_sge = ~0u },
		.qp_type = IBV_QPT_RC,
	};
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct rdma_cm_id *id;
	struct ibv_qp *qp;

	connect_pair(&p, 0);
	CHECK(!rdma_create_id(p.events, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(id, (struct sockaddr *)&at));
	CHECK(attr.srq = ibv_create_srq(id->pd, &srq));
	CHECK(!rdma_create_qp(id, NULL, &attr) && attr.cap.max_recv_wr == 0 &&
		attr.cap.max_recv_sge == 0);
	CHECK(id->recv_cq->cqe >= 300);
	rdma_destroy_qp(id);
	attr.cap.max_recv_wr = attr.cap.max_recv_sge = ~0u;
	attr.send_cq = attr.recv_cq = p.client.cq;
	CHECK(qp = ibv_create_qp(id->pd, &attr));
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_srq(attr.srq));
	attr.srq = NULL;
	attr.cap.max_recv_wr = ~0u;
	FAILS(!ibv_create_qp(id->pd, &attr) - 1, EINVAL);
	CHECK(!rdma_destroy_id(id));
	close_pair(&p);
}

/*
 * A queue pair is moved by its program as far as goes without an address or a number, and keeps
 * what it was told.
 */
static void moves(void)
{
	struct pair p;
	struct ibv_qp_init_attr init = { .cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	const int all = IBV_QP_STATE | IBV_QP_CAP | IBV_QP_ACCESS_FLAGS | IBV_QP_TIMEOUT;
	const int foreign[] = { IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_ALT_PATH, IBV_QP_CAP };
	struct ibv_qp *qp;
	int mask;

	connect_pair(&p, 0);
	init.send_cq = init.recv_cq = p.client.cq;
	CHECK((qp = ibv_create_qp(p.client.id->pd, &init)) && qp->state == IBV_QPS_RESET);
	CHECK(!ibv_query_qp(qp, &attr, all, &init) && attr.qp_state == IBV_QPS_INIT &&
		qp->state == IBV_QPS_INIT);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .port_num = 1 };
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL); /* not from INIT */
	attr.qp_state = IBV_QPS_INIT;
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | 1 << 30), EINVAL);
	attr.port_num = 2;
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), EINVAL);
	attr.port_num = 1;
	attr.pkey_index = 1;
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX), EINVAL);
	CHECK(!rdma_init_qp_attr(p.client.id, &attr, &mask) && mask & IBV_QP_ACCESS_FLAGS &&
		!ibv_modify_qp(qp, &attr, mask));
	attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
	attr.timeout = 14;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_ACCESS_FLAGS | IBV_QP_TIMEOUT));
	attr.qp_state = IBV_QPS_RTR;
	for (unsigned i = 0; i < sizeof foreign / sizeof *foreign; i++)
		FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | foreign[i]), EOPNOTSUPP);
	attr.max_dest_rd_atomic = 255;
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_MAX_DEST_RD_ATOMIC), EINVAL);
	attr.cur_qp_state = IBV_QPS_RTS;
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL);
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_RQ_PSN) &&
		qp->state == IBV_QPS_RTR);
	CHECK(!ibv_query_qp(qp, &attr, all, &init) && attr.qp_state == IBV_QPS_RTR);
	CHECK(attr.qp_access_flags == IBV_ACCESS_REMOTE_READ && attr.timeout == 14);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!rdma_init_qp_attr(p.client.id, &attr, &mask) && !ibv_modify_qp(qp, &attr, mask) &&
		qp->state == IBV_QPS_RTS);
	attr.qp_state = IBV_QPS_RESET;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE) && qp->state == IBV_QPS_RESET);
	FAILS(rdma_init_qp_attr(p.client.id, &attr, &mask), EINVAL);
	CHECK(!ibv_destroy_qp(qp));
	close_pair(&p);
}

/*
 * What the queue pair does not grant its peer the peer may not do, whatever the region's rights
 * are: that is an error of the peer's access here, and of its request there.
 */
static void peer_access(void)
{
	static const struct {
		enum ibv_wr_opcode op;
		unsigned int but;
	} cases[] = {
		{ IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE },
		{ IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC },
	};

	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct pair p;
		struct end *c = &p.client, *s = &p.server;
		struct ibv_qp_attr attr;
		struct ibv_sge sge;
		struct ibv_send_wr wr;

		connect_pair(&p, 0);
		attr.qp_access_flags = (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
			IBV_ACCESS_REMOTE_ATOMIC) & ~cases[i].but;
		CHECK(!ibv_modify_qp(s->id->qp, &attr, IBV_QP_ACCESS_FLAGS));
		strcpy(s->memory, "as it was");
		for (unsigned j = 0; j < sizeof cases / sizeof *cases; j++) {
			/* what is granted, and then what is not */
			wr = towards(c, s, &sge, cases[(i + 1 + j) % 3].op);
			if (wr.opcode != IBV_WR_RDMA_READ)
				wr.wr.rdma.remote_addr += j < 2 ? 4096 : 0;
			CHECK(!post(c, &wr));
			if (j < 2)
				CHECK(await(c).status == IBV_WC_SUCCESS);
			else if (wr.opcode != IBV_WR_RDMA_WRITE) /* a Write completes when TCP has it */
				CHECK(await(c).status == IBV_WC_REM_ACCESS_ERR);
		}
		events_are(&p, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_ACCESS_ERR);
		CHECK(!strcmp(s->memory, "as it was"));
		close_ended(&p);
	}
}

/* A program with queue pairs of its own, which the connection manager knows by number alone. */
static struct ibv_qp *own_qp(struct rdma_cm_id *id, struct ibv_cq *cq, bool moved)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .cap = { 4, 4, 1, 1, 0 },
		.qp_type = IBV_QPT_RC };
	struct ibv_qp *qp = ibv_create_qp(id->pd, &init);

	CHECK(qp);
	for (int state = IBV_QPS_INIT; moved && state <= IBV_QPS_RTS; state++) {
		struct ibv_qp_attr attr = { .qp_state = state };
		int mask;

		CHECK(!rdma_init_qp_attr(id, &attr, &mask) && !ibv_modify_qp(qp, &attr, mask));
	}
	return qp;
}

static void own_queue_pairs(bool before)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	struct rdma_event_channel *ch = rdma_create_event_channel();
	static char memory[2][64];
	struct ibv_qp *qps[2];
	struct ibv_cq *cqs[2];
	struct ibv_mr *mrs[2];
	struct rdma_cm_id *listener, *ids[2];
	struct rdma_cm_event *e;

	CHECK(ch && !rdma_create_id(ch, &listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&at) && !rdma_listen(listener, 1));
	at.sin_port = rdma_get_src_port(listener);
	CHECK(!rdma_create_id(ch, &ids[0], NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(ids[0], NULL, (struct sockaddr *)&at, 1000));
	rdma_ack_cm_event(event_of(ch, RDMA_CM_EVENT_ADDR_RESOLVED));
	CHECK(!rdma_resolve_route(ids[0], 1000));
	rdma_ack_cm_event(event_of(ch, RDMA_CM_EVENT_ROUTE_RESOLVED));
	CHECK(cqs[0] = ibv_create_cq(ids[0]->verbs, 8, NULL, NULL, 0));
	qps[0] = own_qp(ids[0], cqs[0], before);
	FAILS(rdma_connect(ids[0], &param), EINVAL); /* qp_num is nobody's */
	param.qp_num = qps[0]->qp_num;
	param.initiator_depth = 129; /* beyond max_qp_rd_atom */
	FAILS(rdma_connect(ids[0], &param), EINVAL);
	param.initiator_depth = 1;
	CHECK(!rdma_connect(ids[0], &param));
	e = event_of(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	ids[1] = e->id;
	rdma_ack_cm_event(e);
	CHECK(cqs[1] = ibv_create_cq(ids[1]->verbs, 8, NULL, NULL, 0));
	qps[1] = own_qp(ids[1], cqs[1], before);
	for (int i = 0; i < 2; i++) {
		struct ibv_sge sge = { .addr = (uintptr_t)memory[i], .length = 64 };
		struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

		CHECK(mrs[i] = ibv_reg_mr(ids[i]->pd, memory[i], 64, IBV_ACCESS_LOCAL_WRITE));
		sge.lkey = mrs[i]->lkey;
		CHECK(!ibv_post_recv(qps[i], &wr, &bad));
	}
	param.qp_num = qps[1]->qp_num;
	CHECK(!rdma_accept(ids[1], &param));
	/* the active side establishes, rdma_get_cm_event(3) */
	for (int got = 0; got != 3; rdma_ack_cm_event(e)) {
		CHECK(!rdma_get_cm_event(ch, &e) && !e->status);
		CHECK(e->event == (e->id == ids[0] ? RDMA_CM_EVENT_CONNECT_RESPONSE : RDMA_CM_EVENT_ESTABLISHED));
		got |= e->id == ids[0] ? 1 : 2;
	}
	CHECK(!rdma_establish(ids[0]));
	for (int i = 0; i < 2; i++) { /* there and back */
		struct ibv_sge sge = { .addr = (uintptr_t)memory[i], .length = 6, .lkey = mrs[i]->lkey };
		struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED }, *bad;
		struct ibv_wc wc;

		/* a connection has made these moves */
		for (int state = IBV_QPS_INIT; !before && state <= IBV_QPS_RTS; state++) {
			struct ibv_qp_attr attr = { .qp_state = state };
			int mask;

			CHECK(!rdma_init_qp_attr(ids[i], &attr, &mask) && !ibv_modify_qp(qps[i], &attr, mask));
		}
		strcpy(memory[i], i ? "back" : "there");
		CHECK(!ibv_post_send(qps[i], &wr, &bad));
		wc = await_on(cqs[i]);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND);
		wc = await_on(cqs[!i]);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV);
		CHECK(!strcmp(memory[!i], memory[i]));
	}
	CHECK(!rdma_disconnect(ids[0]));
	rdma_ack_cm_event(event_of(ch, RDMA_CM_EVENT_DISCONNECTED));
	rdma_ack_cm_event(event_of(ch, RDMA_CM_EVENT_DISCONNECTED));
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(qps[i]) && !ibv_destroy_cq(cqs[i]) && !ibv_dereg_mr(mrs[i]) &&
			!rdma_destroy_id(ids[i]));
	CHECK(!rdma_destroy_id(listener));
	rdma_destroy_event_channel(ch);
}

/* What a device tells of itself is of one piece. */
static void device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *c = ibv_open_device(list[0]);
	struct ibv_device_attr_ex ex;
	struct ibv_device_attr attr;
	struct ibv_gid_entry entry;
	struct ibv_srq_init_attr_ex srq = { .comp_mask = IBV_SRQ_INIT_ATTR_RESERVED };
	union ibv_gid gid;
	uint8_t tos[2] = { 0 };
	struct rdma_cm_id *id;

	ibv_free_device_list(list);
	CHECK(c && !ibv_query_device(c, &attr) && !ibv_query_device_ex(c, NULL, &ex));
	CHECK(!memcmp(&attr, &ex.orig_attr, sizeof attr) &&
		ex.device_cap_flags_ex == attr.device_cap_flags);
	CHECK(!ibv_query_gid(c, 1, 0, &gid) && gid.global.interface_id == attr.node_guid);
	CHECK(ibv_query_gid_table(c, &entry, 0, 0) == -EINVAL);
	CHECK(ibv_query_gid_table(c, &entry, 1, 0) == 1);
	CHECK(!memcmp(&entry.gid, &gid, sizeof gid));
	CHECK(!ibv_create_srq_ex(c, &srq) && errno == EOPNOTSUPP);
	CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, tos, 1));
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, tos, 2), EINVAL);
	FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, tos, 2), EINVAL);
	CHECK(!rdma_destroy_id(id) && !ibv_close_device(c));
}

/* The rights of a region and of a window. */
static void rights(void)
{
	struct pair p;
	struct end *c = &p.client, *s = &p.server;
	struct ibv_mw_bind bind = { .send_flags = IBV_SEND_SIGNALED };
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	uint32_t key;

	connect_pair(&p, 0);
	CHECK(mr = ibv_reg_mr(s->id->pd, s->memory, 4096, IBV_ACCESS_LOCAL_WRITE));
	key = mr->rkey;
	FAILS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE) + 1,
		EINVAL);
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND));
	CHECK(mr->rkey == key && mr->lkey == key);
	wr = towards(c, s, &sge, IBV_WR_RDMA_READ);
	wr.wr.rdma.rkey = key;
	CHECK(!post(c, &wr) && await(c).status == IBV_WC_SUCCESS);
	CHECK(mw = ibv_alloc_mw(s->id->pd, IBV_MW_TYPE_1));
	bind.bind_info = (struct ibv_mw_bind_info){ .mr = mr, .addr = (uintptr_t)s->memory,
		.length = 64, .mw_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ };
	CHECK(!ibv_bind_mw(s->id->qp, mw, &bind) && await(s).status == IBV_WC_SUCCESS);
	wr.wr.rdma.rkey = mw->rkey;
	CHECK(!post(c, &wr) && await(c).status == IBV_WC_SUCCESS);
	CHECK(!ibv_dealloc_mw(mw));
	CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) && mr->rkey == key);
	wr.wr.rdma.rkey = key;
	CHECK(!post(c, &wr) && await(c).status == IBV_WC_REM_ACCESS_ERR);
	events_are(&p, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_ACCESS_ERR);
	CHECK(!ibv_dereg_mr(mr));
	close_ended(&p);
}

int main(void)
{
	device();
	rights();
	immediate();
	ignored();
	moves();
	peer_access();
	own_queue_pairs(true);
	own_queue_pairs(false);
	failures();
	puts("all well");
	return 0;
}
