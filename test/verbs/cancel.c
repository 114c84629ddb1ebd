/*
 * Threads that are cancelled. A call that does not wait for an event is no point of cancellation,
 * from the first on, which loads the engine: it holds locks that others need. A wait for an event
 * is one, and leaves nothing behind.
 */
#include "walk.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>

/* Whether an event waits. Not poll(2), a point of cancellation. */
static bool told_raw(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return syscall(SYS_poll, &p, 1, 0) == 1;
}

/* Every call that changes something or asks the engine, with a cancellation that is due. */
static void calls(void)
{
	struct pair p;
	struct end *c = &p.client, *s = &p.server;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_mw_bind bind = { .wr_id = 77, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_device_attr attr;
	struct ibv_srq_attr limit = { .srq_limit = 1 };
	struct ibv_qp_attr qp = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp_init_attr init;
	struct rdma_event_channel *other;
	struct ibv_async_event async;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_cq *cq;
	void *context;

	connect_pair(&p, WITH_SRQ | SPLIT | NEVER_WAIT);
	CHECK(other = rdma_create_event_channel());
	CHECK(!ibv_query_device(c->id->verbs, &attr) && !ibv_modify_srq(s->srq, &limit, IBV_SRQ_LIMIT));
	CHECK(!ibv_query_qp(c->id->qp, &qp, IBV_QP_MAX_QP_RD_ATOMIC, &init));
	post_recv(s, 1, 0, 100);
	CHECK(!ibv_req_notify_cq(s->cq, 0));
	wr = request(c, &sge, IBV_WR_SEND, 8);
	CHECK(!post(c, &wr) && await_on(c->send_cq).status == IBV_WC_SUCCESS && await(s).wr_id == 1);
	while (!told_raw(s->channel->fd))
		sched_yield();
	CHECK(!ibv_get_cq_event(s->channel, &cq, &context) && cq == s->cq);
	ibv_ack_cq_events(cq, 1);
	CHECK(mr = ibv_reg_mr(s->id->pd, s->memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND));
	CHECK(mw = ibv_alloc_mw(s->id->pd, IBV_MW_TYPE_1));
	bind.bind_info.mr = mr;
	bind.bind_info.addr = (uintptr_t)mr->addr;
	bind.bind_info.length = 96;
	bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ;
	CHECK(!ibv_bind_mw(s->id->qp, mw, &bind) && await_on(s->send_cq).wr_id == 77);
	CHECK(!ibv_dealloc_mw(mw) && !ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0));
	CHECK(!ibv_dereg_mr(mr) && !ibv_resize_cq(s->cq, 1000));
	CHECK(!rdma_migrate_id(p.listener, other) && !rdma_migrate_id(p.listener, p.events));
	qp.qp_state = IBV_QPS_ERR;
	CHECK(!ibv_modify_qp(c->id->qp, &qp, IBV_QP_STATE));
	rdma_ack_cm_event(event_of(p.events, RDMA_CM_EVENT_DISCONNECTED));
	rdma_ack_cm_event(event_of(p.events, RDMA_CM_EVENT_DISCONNECTED));
	if (told_raw(s->id->verbs->async_fd)) { /* an event that is there is no wait */
		CHECK(!ibv_get_async_event(s->id->verbs, &async));
		ibv_ack_async_event(&async);
	}
	close_end(c);
	close_end(s);
	CHECK(!rdma_destroy_id(p.listener));
	rdma_destroy_event_channel(p.events);
	rdma_destroy_event_channel(other);
}

static void *due(void *all)
{
	CHECK(!pthread_cancel(pthread_self()));
	calls();
	*(int *)all = 1;
	pthread_testcancel();
	return NULL;
}

static pid_t waiter;
static int back;
static struct pair between;

static void *wait_for_event(void *channel)
{
	struct rdma_cm_event *e;

	__atomic_store_n(&waiter, gettid(), __ATOMIC_RELEASE);
	rdma_get_cm_event(channel, &e);
	return NULL;
}

static void *wait_for_completion(void *channel)
{
	struct ibv_cq *cq;
	void *context;

	__atomic_store_n(&waiter, gettid(), __ATOMIC_RELEASE);
	ibv_get_cq_event(channel, &cq, &context);
	return NULL;
}

static void *wait_for_async(void *context)
{
	struct ibv_async_event e;

	__atomic_store_n(&waiter, gettid(), __ATOMIC_RELEASE);
	ibv_get_async_event(context, &e);
	return NULL;
}

static void cancel_wait(void *(*wait)(void *), void *on)
{
	pthread_t t;
	void *result;

	waiter = 0;
	CHECK(!pthread_create(&t, NULL, wait, on));
	until_asleep(&waiter, &back);
	CHECK(!pthread_cancel(t) && !pthread_join(t, &result) && result == PTHREAD_CANCELED);
}

/* The channels work as before; of the peer's Write, which wakes a thread that waits, nobody is
 * told; and destroying them closes their descriptors. */
static void waits(void)
{
	struct end *c = &between.client, *s = &between.server;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	int lowest;

	CHECK((lowest = dup(0)) >= 0 && !close(lowest));
	connect_pair(&between, SPLIT);
	cancel_wait(wait_for_event, between.events);
	cancel_wait(wait_for_async, c->id->verbs);
	CHECK(!ibv_req_notify_cq(c->send_cq, 0));
	cancel_wait(wait_for_completion, c->send_channel);
	wr = request(s, &sge, IBV_WR_RDMA_WRITE, 8);
	wr.wr.rdma.remote_addr = (uintptr_t)c->memory;
	wr.wr.rdma.rkey = c->mr->rkey;
	CHECK(!post(s, &wr) && await_on(s->send_cq).status == IBV_WC_SUCCESS);
	wr.opcode = IBV_WR_RDMA_READ;
	CHECK(!post(s, &wr) && await_on(s->send_cq).status == IBV_WC_SUCCESS);
	CHECK(!told(c->send_channel));
	close_pair(&between);
	CHECK(dup(0) == lowest);
}

int main(void)
{
	int all = 0;
	pthread_t t;
	void *result;

	CHECK(!pthread_create(&t, NULL, due, &all) && !pthread_join(t, &result));
	CHECK(result == PTHREAD_CANCELED && all);
	waits();
	printf("all well\n");
	return 0;
}
