/*
 * Events of every kind, read by several threads, while others destroy what they name or move it.
 * For the sanitizers: what a reader is given stays until it has acknowledged that, and nothing else
 * of the library's is used by two threads at once.
 */
#include "walk.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>

enum { ROUNDS = 150, DESTROYERS = 2, READERS = 6 };

static char last; /* the context of what a reader reads last */
static struct rdma_event_channel *ids[2];
static struct ibv_comp_channel *completions;
static struct ibv_context *device;

/* Of a channel that does not wait: the events may have gone, with their ids or to the other thread.
 */
static bool get_next(struct rdma_event_channel *ch, struct rdma_cm_event **e)
{
	struct pollfd p = { .fd = ch->fd, .events = POLLIN };

	if (ch == ids[1])
		CHECK(poll(&p, 1, -1) == 1);
	if (!rdma_get_cm_event(ch, e))
		return true;
	CHECK(ch == ids[1] && errno == EAGAIN);
	return false;
}

static void *read_ids(void *channel)
{
	struct rdma_cm_event *e;
	bool over = false;

	while (!over) {
		if (!get_next(channel, &e))
			continue;
		CHECK(e->id->ps == RDMA_PS_TCP);
		over = e->id->context == &last;
		rdma_ack_cm_event(e);
	}
	return NULL;
}

static void *read_completions(void *unused)
{
	struct ibv_cq *cq;
	void *context;

	(void)unused;
	do {
		CHECK(!ibv_get_cq_event(completions, &cq, &context) && cq->cq_context == context);
		ibv_ack_cq_events(cq, 1);
	} while (context != &last);
	return NULL;
}

static void *read_async(void *unused)
{
	struct ibv_async_event e;
	bool over = false;

	(void)unused;
	while (!over) {
		CHECK(!ibv_get_async_event(device, &e));
		if (e.event_type == IBV_EVENT_CQ_ERR)
			CHECK(e.element.cq->context == device);
		else if (e.event_type == IBV_EVENT_SRQ_LIMIT_REACHED)
			over = e.element.srq->srq_context == &last;
		else
			CHECK(e.element.qp->context == device);
		ibv_ack_async_event(&e);
	}
	return NULL;
}

static struct rdma_cm_id *resolved(struct rdma_event_channel *ch, void *context)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				  .sin_port = 9 };
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(ch, &id, context, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000));
	return id;
}

static struct ibv_srq *low(struct ibv_pd *pd, void *context)
{
	struct ibv_srq_init_attr attr = { .srq_context = context, .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq_attr limit = { .srq_limit = 2 };
	struct ibv_srq *srq = ibv_create_srq(pd, &attr);

	CHECK(srq && !ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
	return srq;
}

/* A queue pair that is over, whose completions are more than its queue has room for. */
static struct ibv_qp *overrun(struct ibv_pd *pd, void *context)
{
	struct ibv_cq *cq = ibv_create_cq(device, 1, context, completions, 0);
	struct ibv_qp_init_attr attr = {
		.cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq
	};
	struct ibv_qp_attr over = { .qp_state = IBV_QPS_ERR };
	struct ibv_recv_wr wr = { .wr_id = 5 }, *bad;
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	CHECK(qp && !ibv_req_notify_cq(cq, 0) && !ibv_modify_qp(qp, &over, IBV_QP_STATE));
	for (int n = 0; n < 4; n++)
		CHECK(!ibv_post_recv(qp, &wr, &bad));
	return qp;
}

/* Ends a connection with an error, and destroys both ends: the readers of ids read its events. */
static void fail(void)
{
	struct pair p;
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	connect_pair(&p, SPLIT);
	CHECK(!rdma_migrate_id(p.client.id, ids[0]) && !rdma_migrate_id(p.server.id, ids[1]));
	wr = request(&p.client, &sge, IBV_WR_RDMA_READ, 8);
	wr.wr.rdma.remote_addr = (uintptr_t)p.server.memory;
	wr.wr.rdma.rkey = p.server.mr->rkey ^ 0x5a5a;
	CHECK(!post(&p.client, &wr) && await_on(p.client.send_cq).status == IBV_WC_REM_ACCESS_ERR);
	close_end(&p.client);
	close_end(&p.server);
	CHECK(!rdma_destroy_id(p.listener));
	rdma_destroy_event_channel(p.events);
}

static void *destroy(void *unused)
{
	struct ibv_pd *pd = ibv_alloc_pd(device);

	(void)unused;
	for (int i = 0; i < ROUNDS; i++) {
		struct rdma_cm_id *id = resolved(ids[i % 2], NULL);
		struct ibv_qp *qp = overrun(pd, NULL);
		struct ibv_srq *srq = low(pd, NULL);
		struct ibv_cq *cq = qp->send_cq;

		if (i % 3 == 0)
			CHECK(!rdma_migrate_id(id, ids[1 - i % 2]) && !rdma_resolve_route(id, 1000));
		if (i % 4 == 1)
			sched_yield();
		CHECK(!rdma_destroy_id(id) && !ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) &&
		      !ibv_destroy_srq(srq));
		if (i % 30 == 7)
			fail();
	}
	CHECK(!ibv_dealloc_pd(pd));
	return NULL;
}

int main(void)
{
	pthread_t readers[READERS], destroyers[DESTROYERS];
	struct rdma_cm_id *id[3];
	struct ibv_qp *qp[2];
	struct ibv_srq *srq;
	struct ibv_pd *pd;
	struct ibv_context **devices;
	int n;

	CHECK(devices = rdma_get_devices(&n));
	device = devices[0]; /* of all ids: QP_FATAL comes there */
	rdma_free_devices(devices);
	CHECK((ids[0] = rdma_create_event_channel()) && (ids[1] = rdma_create_event_channel()));
	fcntl(ids[1]->fd, F_SETFL, O_NONBLOCK);
	CHECK((completions = ibv_create_comp_channel(device)) && (pd = ibv_alloc_pd(device)));
	CHECK(!pthread_create(&readers[0], NULL, read_ids, ids[0]));
	CHECK(!pthread_create(&readers[1], NULL, read_ids, ids[1]));
	CHECK(!pthread_create(&readers[2], NULL, read_ids, ids[1]));
	CHECK(!pthread_create(&readers[3], NULL, read_completions, NULL));
	CHECK(!pthread_create(&readers[4], NULL, read_completions, NULL));
	CHECK(!pthread_create(&readers[5], NULL, read_async, NULL));
	for (int i = 0; i < DESTROYERS; i++)
		CHECK(!pthread_create(&destroyers[i], NULL, destroy, NULL));
	for (int i = 0; i < DESTROYERS; i++)
		CHECK(!pthread_join(destroyers[i], NULL));
	id[0] = resolved(ids[0], &last);
	id[1] = resolved(ids[1], &last);
	id[2] = resolved(ids[1], &last);
	qp[0] = overrun(pd, &last);
	qp[1] = overrun(pd, &last);
	srq = low(pd, &last);
	for (int i = 0; i < READERS; i++)
		CHECK(!pthread_join(readers[i], NULL));
	for (int i = 0; i < 2; i++) {
		struct ibv_cq *cq = qp[i]->send_cq;

		CHECK(!ibv_destroy_qp(qp[i]) && !ibv_destroy_cq(cq));
	}
	for (int i = 0; i < 3; i++)
		CHECK(!rdma_destroy_id(id[i]));
	CHECK(!ibv_destroy_srq(srq) && !ibv_dealloc_pd(pd) && !ibv_destroy_comp_channel(completions));
	rdma_destroy_event_channel(ids[0]);
	rdma_destroy_event_channel(ids[1]);
	printf("all well\n");
	return 0;
}
