/* Completion queues: their events, and how deep they are. */
#include "walk.h"

static void acknowledged(struct ibv_comp_channel *channel, struct ibv_cq *want)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(!ibv_get_cq_event(channel, &cq, &context) && cq == want);
	ibv_ack_cq_events(cq, 1);
}

/*
 * Credit by the peer's Write, as ib_send_bw -e has it: this end waits for an event of its send queue
 * while nothing of its own is left to complete. The Write gives it one, without a completion; not a
 * queue that is not armed, or for solicited completions only, or that receives complete into.
 */
void credit(void)
{
	struct pair p;
	struct end *c = &p.client, *s = &p.server;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_wc wc;

	connect_pair(&p, SPLIT);
	post_recv(s, 1, 0, 100);
	wr = request(c, &sge, IBV_WR_SEND, 8); /* the first message is the Initiator's */
	CHECK(!post(c, &wr) && await_on(c->send_cq).status == IBV_WC_SUCCESS && await(s).wr_id == 1);
	CHECK(!ibv_req_notify_cq(c->send_cq, 0) && !ibv_req_notify_cq(c->cq, 0));
	strcpy(s->memory, "credit");
	wr = request(s, &sge, IBV_WR_RDMA_WRITE, 7);
	wr.wr.rdma.remote_addr = (uintptr_t)c->memory + 1000;
	wr.wr.rdma.rkey = c->mr->rkey;
	CHECK(!post(s, &wr) && await_on(s->send_cq).status == IBV_WC_SUCCESS);
	acknowledged(c->send_channel, c->send_cq);
	CHECK(!strcmp(c->memory + 1000, "credit") && !ibv_poll_cq(c->send_cq, 1, &wc) && !told(c->channel));

	post_recv(c, 2, 0, 100);
	CHECK(!post(s, &wr) && await_on(s->send_cq).status == IBV_WC_SUCCESS); /* armed no longer */
	wr.opcode = IBV_WR_SEND;
	CHECK(!post(s, &wr) && await_on(s->send_cq).status == IBV_WC_SUCCESS && await(c).wr_id == 2);
	CHECK(!told(c->send_channel));
	acknowledged(c->channel, c->cq);

	CHECK(!ibv_req_notify_cq(c->send_cq, 1));
	post_recv(c, 3, 0, 100);
	wr.opcode = IBV_WR_RDMA_WRITE;
	CHECK(!post(s, &wr) && await_on(s->send_cq).status == IBV_WC_SUCCESS);
	wr.opcode = IBV_WR_SEND;
	CHECK(!post(s, &wr) && await_on(s->send_cq).status == IBV_WC_SUCCESS && await(c).wr_id == 3);
	CHECK(!told(c->send_channel));
	close_pair(&p);
}
