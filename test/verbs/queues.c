/* Completion queues: their events, and how deep they are. */
#include "walk.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>

static void acknowledged(struct ibv_comp_channel *channel, struct ibv_cq *want)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(!ibv_get_cq_event(channel, &cq, &context) && cq == want);
	ibv_ack_cq_events(cq, 1);
}

static pid_t waiter;
static int back;

static void *wait_for_one(void *end)
{
	struct end *e = end;

	__atomic_store_n(&waiter, gettid(), __ATOMIC_RELEASE);
	acknowledged(e->send_channel, e->send_cq);
	__atomic_store_n(&back, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* A thread that waits for an event of the end's send queue. */
static pthread_t begin_wait(struct end *e)
{
	sigset_t all, before;
	pthread_t t;

	waiter = back = 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* the walk's alarm is not for it */
	CHECK(!pthread_create(&t, NULL, wait_for_one, e));
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	until_asleep(&waiter, &back);
	CHECK(!__atomic_load_n(&back, __ATOMIC_ACQUIRE));
	return t;
}

static struct ibv_send_wr to_peer(struct end *from, struct end *to, struct ibv_sge *sge,
				  enum ibv_wr_opcode op)
{
	struct ibv_send_wr wr = request(from, sge, op, 7);

	wr.wr.rdma.remote_addr = (uintptr_t)to->memory + 1000;
	wr.wr.rdma.rkey = to->mr->rkey;
	return wr;
}

/* What from has sent so far has arrived. */
static void arrived(struct end *from, struct end *to)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = to_peer(from, to, &sge, IBV_WR_RDMA_READ);

	sge.addr += 2000;
	CHECK(!post(from, &wr) && await_on(from->send_cq).opcode == IBV_WC_RDMA_READ);
}

static void write_to(struct end *from, struct end *to)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = to_peer(from, to, &sge, IBV_WR_RDMA_WRITE);

	CHECK(!post(from, &wr) && await_on(from->send_cq).status == IBV_WC_SUCCESS);
	arrived(from, to);
}

/*
 * Credit by the peer's Write, as ib_send_bw -e has it: a thread waits for an event of its send
 * queue while nothing of its own is left to complete. The Write gives it one, without a completion,
 * also if it comes between arming and waiting. Nobody else is told: not who polls the descriptor,
 * nor of a queue that is not armed, or for solicited completions only, or that receives complete
 * into.
 */
void credit(void)
{
	struct pair p;
	struct end *c = &p.client, *s = &p.server;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;
	pthread_t t;

	connect_pair(&p, SPLIT | ARMED);
	strcpy(s->memory, "credit");
	arrived(s, c); /* its own Read takes the event of arming, which the server has not read */
	CHECK(!ibv_req_notify_cq(c->send_cq, 0) && !ibv_req_notify_cq(c->cq, 0));
	write_to(s, c);
	CHECK(!told(c->send_channel) && !told(c->channel));
	fcntl(c->send_channel->fd, F_SETFL, O_NONBLOCK);
	FAILS(ibv_get_cq_event(c->send_channel, &cq, &context), EAGAIN);
	fcntl(c->send_channel->fd, F_SETFL, 0);
	acknowledged(c->send_channel, c->send_cq); /* as it waits only now */
	CHECK(!strcmp(c->memory + 1000, "credit") && !ibv_poll_cq(c->send_cq, 1, &wc));

	CHECK(!ibv_req_notify_cq(c->send_cq, 0));
	t = begin_wait(c); /* what came before it armed is no matter */
	write_to(s, c);
	CHECK(!pthread_join(t, NULL));

	CHECK(!ibv_req_notify_cq(c->send_cq, 1));
	t = begin_wait(c);
	write_to(s, c);
	until_asleep(&waiter, &back);
	CHECK(!__atomic_load_n(&back, __ATOMIC_ACQUIRE));
	CHECK(!ibv_req_notify_cq(c->send_cq, 0));
	write_to(s, c);
	CHECK(!pthread_join(t, NULL));
	CHECK(!told(c->channel));
	close_pair(&p);
}

/* Start-up's own message, an empty Write, wakes no thread that waits. The first Write does. */
void startup(void)
{
	struct pair p;
	pthread_t t;

	begin_pair(&p, SPLIT | ARMED);
	t = begin_wait(&p.server);
	end_pair(&p);
	arrived(&p.client, &p.server);
	until_asleep(&waiter, &back);
	CHECK(!__atomic_load_n(&back, __ATOMIC_ACQUIRE));
	write_to(&p.client, &p.server);
	CHECK(!pthread_join(t, NULL));
	close_pair(&p);
}

/* Completions that nobody polled when their queue pair goes take no place any more. */
static void shared_places(void)
{
	struct pair p;
	struct end *c = &p.client, *s = &p.server;
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;
	struct ibv_sge sge;
	struct ibv_send_wr send;
	struct ibv_wc wc;

	connect_pair(&p, WITH_SRQ);
	for (int i = 0; i < 16; i++) {
		post_recv(s, i, 0, 100);
		send = request(c, &sge, IBV_WR_SEND, 8);
		CHECK(!post(c, &send) && await(c).status == IBV_WC_SUCCESS);
	}
	arrived(c, s);
	FAILS(ibv_post_srq_recv(s->srq, &wr, &bad), ENOMEM);
	CHECK(await(s).wr_id == 0 && await(s).wr_id == 1);
	rdma_destroy_qp(s->id);
	CHECK(!ibv_poll_cq(s->cq, 1, &wc));
	for (int i = 0; i < 16; i++)
		CHECK(!ibv_post_srq_recv(s->srq, &wr, &bad));
	FAILS(ibv_post_srq_recv(s->srq, &wr, &bad), ENOMEM);
	rdma_ack_cm_event(event_of(p.events, RDMA_CM_EVENT_DISCONNECTED));
	rdma_ack_cm_event(event_of(p.events, RDMA_CM_EVENT_DISCONNECTED));
	close_end(c);
	close_end(s);
	CHECK(!rdma_destroy_id(p.listener));
	rdma_destroy_event_channel(p.events);
}

/* Nor in a completion queue, where those of another queue pair stay, in their order; also after it
 * has grown. */
static void queue_places(bool grown)
{
	enum { EACH = 8 };
	struct pair p;
	struct end *c = &p.client;
	struct ibv_qp_init_attr attr = { .cap = { 1, 4 * EACH, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr over = { .qp_state = IBV_QPS_ERR };
	struct ibv_recv_wr wr = { .wr_id = 0 }, *bad;
	struct ibv_qp *goes, *stays;
	struct ibv_cq *cq;
	struct ibv_wc wc;

	connect_pair(&p, 0);
	CHECK(cq = ibv_create_cq(c->id->verbs, 2 * EACH, NULL, NULL, 0));
	attr.send_cq = attr.recv_cq = cq;
	CHECK((goes = ibv_create_qp(c->id->pd, &attr)) && (stays = ibv_create_qp(c->id->pd, &attr)));
	CHECK(!ibv_modify_qp(goes, &over, IBV_QP_STATE) && !ibv_modify_qp(stays, &over, IBV_QP_STATE));
	for (int i = 0; i < 2 * EACH; i++) {
		wr.wr_id = i;
		CHECK(!ibv_post_recv(i % 2 ? stays : goes, &wr, &bad));
	}
	while (ibv_resize_cq(cq, 2 * EACH - 1) != EINVAL) /* until all are there */
		;
	CHECK(!grown || !ibv_resize_cq(cq, 4 * EACH));
	CHECK(!ibv_destroy_qp(goes));
	for (int i = 2 * EACH; i < 3 * EACH; i++) {
		wr.wr_id = 2 * i + 1;
		CHECK(!ibv_post_recv(stays, &wr, &bad));
	}
	while (ibv_resize_cq(cq, 2 * EACH - 1) != EINVAL)
		;
	for (int i = 0; i < 2 * EACH; i++)
		CHECK(ibv_poll_cq(cq, 1, &wc) == 1 &&
		      wc.wr_id == (uint64_t)(i < EACH ? 2 * i + 1 : 2 * (i + EACH) + 1));
	CHECK(!ibv_poll_cq(cq, 1, &wc) && !ibv_destroy_qp(stays) && !ibv_destroy_cq(cq));
	close_pair(&p);
}

void places(void)
{
	shared_places();
	queue_places(false);
	queue_places(true);
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
	CHECK(!ibv_resize_cq(c->send_cq, 13) && !ibv_resize_cq(c->send_cq, 1000) &&
	      c->send_cq->cqe >= 1000);
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

/* It grows again and again while one thread posts and another polls, and sometimes sleeps for want
 * of completions. */
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
