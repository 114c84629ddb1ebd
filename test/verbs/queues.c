/* Completion queues: their events, and how deep they are. */
#include "walk.h"

#include <pthread.h>
#include <signal.h>

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

static struct ibv_send_wr small_write(struct end *c, struct end *s, struct ibv_sge *sge)
{
	struct ibv_send_wr wr = request(c, sge, IBV_WR_RDMA_WRITE, 8);

	wr.wr.rdma.remote_addr = (uintptr_t)s->memory;
	wr.wr.rdma.rkey = s->mr->rkey;
	return wr;
}

/* A queue that grows keeps what is in it; it is not made smaller than that. */
void grow(void)
{
	struct pair p;
	struct end *c = &p.client;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_wc wc[200];
	int n = 0;

	connect_pair(&p, SPLIT);
	wr = small_write(c, &p.server, &sge);
	FAILS(ibv_resize_cq(c->send_cq, 0), EINVAL);
	FAILS(ibv_resize_cq(c->send_cq, 1 << 30), EINVAL);
	CHECK(c->send_cq->cqe == 64 && !ibv_resize_cq(c->send_cq, 10) && c->send_cq->cqe >= 10);
	for (int sent = 0; sent < 13; sent++) {
		wr.wr_id = sent;
		CHECK(!post(c, &wr));
	}
	while (ibv_resize_cq(c->send_cq, 12) != EINVAL) /* until 13 are there */
		;
	CHECK(!ibv_resize_cq(c->send_cq, 13) && !ibv_resize_cq(c->send_cq, 1000) && c->send_cq->cqe >= 1000);
	while (n < 13) {
		int got = ibv_poll_cq(c->send_cq, 200, wc);

		for (int i = 0; i < got; i++)
			CHECK(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id == (uint64_t)n++);
	}
	CHECK(!post(c, &wr) && await_on(c->send_cq).wr_id == 12);
	close_pair(&p);
}

enum { ROUNDS = 2000 };

static void *poll_all(void *queue)
{
	for (uint64_t i = 0; i < ROUNDS; i++)
		CHECK(await_on(queue).wr_id == i);
	return NULL;
}

/* It grows again and again while one thread posts and another polls, and sometimes sleeps for want of
 * completions. */
void grow_under_way(void)
{
	struct pair p;
	struct end *c = &p.client;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	sigset_t all, before;
	pthread_t poller;

	connect_pair(&p, SPLIT);
	wr = small_write(c, &p.server, &sge);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	CHECK(!pthread_create(&poller, NULL, poll_all, c->send_cq));
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	for (int i = 0, size = 64; i < ROUNDS; i++) {
		int error;

		wr.wr_id = i;
		while ((error = post(c, &wr))) { /* until one was polled */
			CHECK(error == ENOMEM);
			sched_yield();
		}
		if (i % (ROUNDS / 10) == ROUNDS / 20) {
			CHECK(!ibv_resize_cq(c->send_cq, size *= 2));
			CHECK(c->send_cq->cqe >= size);
		}
	}
	CHECK(!pthread_join(poller, NULL));
	close_pair(&p);
}
