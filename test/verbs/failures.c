/* What a request that fails completes with, at either end, and which asynchronous events come. */
#include "walk.h"

struct ibv_send_wr towards(struct end *from, struct end *to, struct ibv_sge *sge,
	enum ibv_wr_opcode op)
{
	struct ibv_send_wr wr = request(from, sge, op, 8);

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = (uintptr_t)to->memory;
		wr.wr.atomic.rkey = to->mr->rkey;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)to->memory;
		wr.wr.rdma.rkey = to->mr->rkey;
	}
	return wr;
}

/* Takes an event of an end, if it has one of this kind to come. */
static bool taken(const struct ibv_async_event *event, struct end *e, int *want)
{
	if (event->element.qp != e->id->qp || (int)event->event_type != *want)
		return false;
	*want = NO_EVENT;
	return true;
}

/*
 * Events come in any order, and for an end with an SRQ the last one that its queue pair took is
 * told of besides. The event of another SRQ, which comes after those that are there, says that this
 * is all.
 */
void events_are(struct pair *p, int client, int server)
{
	int last = p->server.srq ? IBV_EVENT_QP_LAST_WQE_REACHED : NO_EVENT,
	    limit = IBV_EVENT_SRQ_LIMIT_REACHED;
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_srq_attr arm = { .srq_limit = 1 };
	struct ibv_srq *srq = NULL;

	rdma_ack_cm_event(event_of(p->events, RDMA_CM_EVENT_DISCONNECTED));
	rdma_ack_cm_event(event_of(p->events, RDMA_CM_EVENT_DISCONNECTED));
	while (client != NO_EVENT || server != NO_EVENT || last != NO_EVENT || limit != NO_EVENT) {
		struct ibv_async_event event;

		if (client == NO_EVENT && server == NO_EVENT && last == NO_EVENT && !srq) {
			CHECK(srq = ibv_create_srq(p->server.id->pd, &attr));
			CHECK(!ibv_modify_srq(srq, &arm, IBV_SRQ_LIMIT));
		}
		CHECK(!ibv_get_async_event(p->server.id->verbs, &event));
		if (event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && srq && event.element.srq == srq) {
			limit = NO_EVENT;
		} else if (!taken(&event, &p->client, &client) && !taken(&event, &p->server, &server) &&
			   !taken(&event, &p->server, &last)) {
			fprintf(stderr, "%s of the %s\n", ibv_event_type_str(event.event_type),
				event.element.qp == p->client.id->qp ? "client" : "server");
			exit(1);
		}
		ibv_ack_async_event(&event);
	}
	CHECK(!ibv_query_srq(srq, &arm) && arm.srq_limit == 0); /* it is armed once */
	CHECK(!ibv_destroy_srq(srq));
}

void close_ended(struct pair *p)
{
	close_end(&p->client);
	close_end(&p->server);
	CHECK(!rdma_destroy_id(p->listener));
	rdma_destroy_event_channel(p->events);
}

/* A request of the client's that fails, between one that does not and one that is flushed. */
static void fails_with(struct pair *p, struct ibv_send_wr *wr, enum ibv_wc_status want, int client,
	int server)
{
	struct end *c = &p->client;
	struct ibv_sge sge;
	struct ibv_send_wr before = towards(c, &p->server, &sge, IBV_WR_RDMA_WRITE), after = before;
	struct ibv_wc wc;

	before.wr_id = 1;
	before.next = wr;
	wr->wr_id = 2;
	wr->next = &after;
	after.wr_id = 3;
	CHECK(!post(c, &before));
	wc = await(c);
	CHECK(wc.wr_id == 1 && wc.status == IBV_WC_SUCCESS);
	wc = await(c);
	if (wc.wr_id != 2 || wc.status != want) {
		fprintf(stderr, "request %d: %s, %s expected\n", (int)wc.wr_id,
			ibv_wc_status_str(wc.status), ibv_wc_status_str(want));
		exit(1);
	}
	wc = await(c);
	CHECK(wc.wr_id == 3 && wc.status == IBV_WC_WR_FLUSH_ERR);
	events_are(p, client, server);
	close_ended(p);
}

static void requests_that_fail(int how)
{
	struct pair p;
	struct end *c = &p.client, *s = &p.server;
	struct ibv_sge sge, list[4];
	struct ibv_send_wr wr;

	/* this end's own fault: the completion tells it */
	connect_pair(&p, how);
	wr = towards(c, s, &sge, IBV_WR_RDMA_WRITE);
	sge.lkey ^= 0x5a5a;
	fails_with(&p, &wr, IBV_WC_LOC_PROT_ERR, NO_EVENT, NO_EVENT);
	/* longer than max_msg_sz */
	for (enum ibv_wr_opcode op = IBV_WR_RDMA_WRITE; op <= IBV_WR_RDMA_READ; op++) {
		if (op == IBV_WR_SEND_WITH_IMM)
			continue;
		connect_pair(&p, how);
		wr = towards(c, s, &sge, op);
		sge.length = 1u << 31;
		if (op != IBV_WR_RDMA_READ) {
			for (int i = 0; i < 4; i++)
				list[i] = (struct ibv_sge){ .addr = (uintptr_t)c->memory, .length = 1u << 29,
					.lkey = c->mr->lkey };
			wr.sg_list = list;
			wr.num_sge = 4;
		}
		fails_with(&p, &wr, IBV_WC_LOC_LEN_ERR, NO_EVENT, NO_EVENT);
	}

	/* what the peer refuses */
	connect_pair(&p, how);
	wr = towards(c, s, &sge, IBV_WR_RDMA_READ);
	wr.wr.rdma.rkey ^= 0x5a5a;
	fails_with(&p, &wr, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_ACCESS_ERR);
	for (enum ibv_wr_opcode op = IBV_WR_ATOMIC_CMP_AND_SWP; op <= IBV_WR_ATOMIC_FETCH_AND_ADD; op++) {
		connect_pair(&p, how);
		wr = towards(c, s, &sge, op);
		wr.wr.atomic.remote_addr += 4;
		fails_with(&p, &wr, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR);
	}
}

/* What this end finds in the peer's Sends and Writes, which have completed there. */
static void messages_that_fail(int how)
{
	struct pair p;
	struct end *c = &p.client, *s = &p.server;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_wc wc;
	uint32_t key;

	connect_pair(&p, how);
	post_recv(s, 7, 0, 7);
	wr = towards(c, s, &sge, IBV_WR_SEND);
	CHECK(!post(c, &wr));
	wc = await(s);
	CHECK(wc.wr_id == 7 && wc.status == IBV_WC_LOC_LEN_ERR);
	events_are(&p, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR);
	close_ended(&p);

	connect_pair(&p, how); /* a receive into what is not registered: this end's own fault */
	key = s->mr->lkey;
	s->mr->lkey ^= 0x5a5a;
	post_recv(s, 8, 0, 100);
	s->mr->lkey = key;
	wr = towards(c, s, &sge, IBV_WR_SEND);
	CHECK(!post(c, &wr));
	wc = await(s);
	CHECK(wc.wr_id == 8 && wc.status == IBV_WC_LOC_PROT_ERR);
	events_are(&p, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_FATAL);
	close_ended(&p);

	connect_pair(&p, how); /* no buffer: TCP has no "receiver not ready" */
	wr = towards(c, s, &sge, IBV_WR_SEND);
	CHECK(!post(c, &wr));
	events_are(&p, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR);
	close_ended(&p);

	connect_pair(&p, how);
	wr = towards(c, s, &sge, IBV_WR_RDMA_WRITE);
	wr.wr.rdma.remote_addr += MEMORY - 4;
	CHECK(!post(c, &wr));
	events_are(&p, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_ACCESS_ERR);
	close_ended(&p);
}

/*
 * The peer's own move to ERR, as the peer's death, is an end, and no fault of the queue pair here.
 * What is posted is flushed.
 */
static void peer_in_error(int how)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	for (int server = 0; server < 2; server++) {
		struct pair p;
		struct ibv_wc wc;

		connect_pair(&p, how);
		post_recv(&p.client, 5, 0, 8);
		CHECK(!ibv_modify_qp(server ? p.server.id->qp : p.client.id->qp, &attr, IBV_QP_STATE));
		wc = await(&p.client);
		CHECK(wc.wr_id == 5 && wc.status == IBV_WC_WR_FLUSH_ERR);
		events_are(&p, NO_EVENT, NO_EVENT);
		close_ended(&p);
	}
}

/*
 * When a queue pair has left an SRQ for good its program is told, once, after its completions:
 * connected or not.
 */
static void last_of_srq(void)
{
	struct pair p;
	struct ibv_qp_init_attr init = { .cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_async_event event;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_qp *qp;

	connect_pair(&p, WITH_SRQ);
	for (int i = 0; i < 3; i++)
		post_recv(&p.server, (uint64_t)i, 0, 8);
	wr = request(&p.client, &sge, IBV_WR_SEND, 8);
	CHECK(!post(&p.client, &wr) && await(&p.client).status == IBV_WC_SUCCESS);
	CHECK(!rdma_disconnect(p.client.id));
	events_are(&p, NO_EVENT, NO_EVENT);
	CHECK(await(&p.server).wr_id == 0);
	init.srq = p.server.srq;
	init.send_cq = init.recv_cq = p.server.cq;
	CHECK((qp = ibv_create_qp(p.server.id->pd, &init)) && !ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	CHECK(!ibv_get_async_event(qp->context, &event) &&
		event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && event.element.qp == qp);
	ibv_ack_async_event(&event);
	CHECK(!ibv_destroy_qp(qp));
	close_ended(&p);
}

void failures(void)
{
	for (int how = 0; how <= WITH_SRQ; how += WITH_SRQ) {
		requests_that_fail(how);
		messages_that_fail(how);
		peer_in_error(how);
	}
	last_of_srq();
}
