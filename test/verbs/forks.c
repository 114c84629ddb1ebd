/*
 * Fork, in all its forms: in a child every call about an object of the parent's fails and changes
 * nothing there, and a child that opens the device has an engine of its own.
 */
#include "walk.h"
#include "../../verbs/shim/shim.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <rdma/rdma_verbs.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

static void messages(struct pair *p)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(&p->client, &sge, IBV_WR_SEND, 100);

	post_recv(&p->server, 1, 0, 100);
	CHECK(!post(&p->client, &wr));
	CHECK(await(&p->client).status == IBV_WC_SUCCESS);
	CHECK(await(&p->server).status == IBV_WC_SUCCESS);
}

/* A connection of this process's own. */
static void connected(int how)
{
	struct pair p;

	connect_pair(&p, how);
	if (!(how & WITH_SRQ))
		messages(&p);
	close_pair(&p);
}

/* The child ends well. */
static void ends(pid_t child)
{
	int status;

	CHECK(child > 0);
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* What a call about a parent's object says. */
#define REFUSED(call)                                                                              \
	do {                                                                                       \
		errno = 0;                                                                         \
		int said = (call);                                                                 \
		CHECK(said == EPERM || (said == -1 && errno == EPERM));                            \
	} while (0)
#define MAKES_NONE(call)                                                                           \
	do {                                                                                       \
		errno = 0;                                                                         \
		CHECK(!(call) && errno == EPERM);                                                  \
	} while (0)

/* A parent's objects. */
struct objects {
	struct ibv_pd *pd;
	struct ibv_mw *mw;
	struct ibv_cq_ex *cq_ex;
	struct ibv_cq *cq;
	struct rdma_cm_id *waits; /* synchronous */
};

static void make(struct objects *o, struct pair *p)
{
	struct ibv_cq_init_attr_ex extended = { .cqe = 4 };

	CHECK(o->pd = ibv_alloc_pd(p->client.id->verbs));
	CHECK(o->mw = ibv_alloc_mw(p->client.id->pd, IBV_MW_TYPE_1));
	CHECK(o->cq_ex = ibv_create_cq_ex(p->client.id->verbs, &extended));
	CHECK(o->cq = ibv_create_cq(p->client.id->verbs, 4, NULL, p->client.channel, 0));
	CHECK(!rdma_create_id(NULL, &o->waits, NULL, RDMA_PS_TCP));
}

static void unmake(struct objects *o)
{
	CHECK(!rdma_destroy_id(o->waits) && !ibv_destroy_cq(o->cq));
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(o->cq_ex)) && !ibv_dealloc_mw(o->mw));
	CHECK(!ibv_dealloc_pd(o->pd));
}

static void take(pthread_mutex_t *lock, bool held)
{
	CHECK(!(held ? pthread_mutex_lock(lock) : pthread_mutex_unlock(lock)));
}

static void spin(struct rv_lock *lock, bool held)
{
	__atomic_store_n(&lock->held, held, __ATOMIC_SEQ_CST);
}

/*
 * The process forks while other threads of its are in calls about each object, and while an event
 * about each is not acknowledged: in the child that stays so.
 */
static void busy(struct pair *p, struct objects *o, bool is)
{
	struct rdma_cm_id *ids[] = { p->client.id, p->server.id, p->listener, o->waits };
	struct ibv_cq *queues[] = { p->client.cq, p->server.cq, o->cq, ibv_cq_ex_to_cq(o->cq_ex) };
	struct rv_srq *srq = to_srq(p->server.srq);
	uint32_t n = is ? 1 : (uint32_t)-1;

	take(&container(p->client.channel, struct rv_channel, channel)->socket.reading, is);
	take(&container(p->events, struct rv_event_channel, channel)->socket.reading, is);
	take(&container(o->waits->channel, struct rv_event_channel, channel)->socket.reading, is);
	take(&to_context(p->client.id->verbs)->events.reading, is);
	for (int i = 0; i < 4; i++)
		to_id(ids[i])->acks.given += n;
	for (int i = 0; i < 4; i++) {
		struct rv_completions *q = to_cq(queues[i]);

		spin(&q->lock, is);
		q->acks.given += n;
		q->async_acks.given += n;
	}
	for (int i = 0; i < 2; i++) {
		struct rv_qp *q = to_qp(ids[i]->qp);

		spin(&q->send_lock, is);
		spin(&q->recv_lock, is);
		q->acks.given += n;
	}
	spin(&srq->lock, is);
	srq->acks.given += n;
}

/* Calls of a child about its parent's objects, those that ask the engine and those that do not. */
static void events_refused(struct pair *p)
{
	struct rdma_cm_event *cm;
	struct ibv_async_event async;
	struct ibv_cq *cq;
	void *x;

	REFUSED(ibv_get_cq_event(p->client.channel, &cq, &x));
	REFUSED(rdma_get_cm_event(p->events, &cm));
	REFUSED(ibv_get_async_event(p->client.id->verbs, &async));
}

static void queues_refused(struct pair *p, struct objects *o)
{
	struct ibv_qp *qp = p->client.id->qp;
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	struct ibv_sge sge;
	struct ibv_send_wr send = request(&p->client, &sge, IBV_WR_SEND, 8), *bad_send;
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_mw_bind bind = { .bind_info = { .mr = p->client.mr } };
	struct ibv_poll_cq_attr none = { 0 };
	struct ibv_wc wc;

	REFUSED(ibv_post_send(qp, &send, &bad_send));
	CHECK(bad_send == &send);
	REFUSED(ibv_post_recv(qp, &recv, &bad));
	CHECK(bad == &recv);
	REFUSED(ibv_post_srq_recv(p->server.srq, &recv, &bad));
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	REFUSED(ibv_wr_complete(ex));
	REFUSED(ibv_bind_mw(qp, o->mw, &bind));
	REFUSED(ibv_req_notify_cq(p->client.cq, 0));
	CHECK(ibv_poll_cq(p->client.cq, 1, &wc) == -EPERM);
	REFUSED(ibv_start_poll(o->cq_ex, &none));
	REFUSED(ibv_next_poll(o->cq_ex));
}

static void makes_refused(struct pair *p)
{
	struct ibv_context *context = p->client.id->verbs;
	struct ibv_pd *pd = p->client.id->pd;
	struct ibv_qp_init_attr init = {
		.send_cq = p->client.cq, .recv_cq = p->client.cq, .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 },
	};
	struct ibv_qp_init_attr_ex init_ex = { .qp_type = IBV_QPT_RC, .send_cq = p->client.cq,
		.recv_cq = p->client.cq, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd };
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq_init_attr_ex srq_ex = { .attr = { .max_wr = 4, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_PD, .pd = pd };
	struct ibv_cq_init_attr_ex cq_ex = { .cqe = 4 };
	struct rdma_cm_id *id;
	char *m = p->client.memory;

	MAKES_NONE(ibv_alloc_pd(context));
	MAKES_NONE(ibv_create_comp_channel(context));
	MAKES_NONE(ibv_create_cq(context, 4, NULL, p->client.channel, 0));
	MAKES_NONE(ibv_create_cq_ex(context, &cq_ex));
	MAKES_NONE(ibv_create_qp(pd, &init));
	MAKES_NONE(ibv_create_qp_ex(context, &init_ex));
	MAKES_NONE(ibv_create_srq(pd, &srq));
	MAKES_NONE(ibv_create_srq_ex(context, &srq_ex));
	MAKES_NONE(ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	MAKES_NONE(ibv_reg_mr(pd, m, 4096, 0));
	MAKES_NONE(ibv_reg_mr_iova(pd, m, 4096, 0, 0));
	MAKES_NONE(ibv_reg_mr_iova2(pd, m, 4096, 0, 0));
	REFUSED(rdma_create_id(p->events, &id, NULL, RDMA_PS_TCP));
	REFUSED(rdma_create_qp(p->client.id, NULL, &init));
	REFUSED(rdma_create_qp_ex(p->client.id, &init_ex));
	REFUSED(rdma_create_srq(p->client.id, NULL, &srq));
	REFUSED(rdma_create_srq_ex(p->client.id, &srq_ex));
}

static void changes_refused(struct pair *p, struct objects *o)
{
	struct ibv_qp *qp = p->client.id->qp;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp_init_attr init;
	struct ibv_srq_attr limit = { .srq_limit = 1 };

	REFUSED(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	REFUSED(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	REFUSED(ibv_query_qp(qp, &attr, IBV_QP_MAX_QP_RD_ATOMIC, &init));
	REFUSED(ibv_modify_srq(p->server.srq, &limit, IBV_SRQ_LIMIT));
	REFUSED(ibv_query_srq(p->server.srq, &limit));
	REFUSED(ibv_resize_cq(p->client.cq, 128));
	REFUSED(ibv_rereg_mr(p->client.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0));
	REFUSED(ibv_dereg_mr(p->client.mr));
	REFUSED(ibv_dealloc_mw(o->mw));
	REFUSED(ibv_dealloc_pd(o->pd));
	REFUSED(ibv_dealloc_pd(p->client.id->pd));
	REFUSED(ibv_destroy_cq(o->cq));
	REFUSED(ibv_destroy_cq(p->client.cq));
	REFUSED(ibv_destroy_cq(ibv_cq_ex_to_cq(o->cq_ex)));
	REFUSED(ibv_destroy_srq(p->server.srq));
	REFUSED(ibv_destroy_qp(qp));
}

static void ids_refused(struct pair *p, struct objects *o)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr *at = (struct sockaddr *)&any;
	struct rdma_conn_param param = { 0 };
	struct rdma_cm_id *id = p->client.id, *made;
	int yes = 1;

	REFUSED(rdma_bind_addr(o->waits, at));
	REFUSED(rdma_resolve_addr(o->waits, NULL, at, 1000));
	REFUSED(rdma_resolve_route(o->waits, 1000));
	REFUSED(rdma_listen(p->listener, 1));
	REFUSED(rdma_listen(o->waits, 1));
	REFUSED(rdma_get_request(o->waits, &made));
	REFUSED(rdma_connect(id, &param));
	REFUSED(rdma_connect(o->waits, &param));
	REFUSED(rdma_accept(p->server.id, &param));
	REFUSED(rdma_reject(p->server.id, NULL, 0));
	REFUSED(rdma_reject_ece(p->server.id, NULL, 0));
	REFUSED(rdma_establish(id));
	REFUSED(rdma_notify(id, IBV_EVENT_COMM_EST));
	REFUSED(rdma_disconnect(id));
	REFUSED(rdma_migrate_id(id, NULL));
	REFUSED(rdma_set_option(o->waits, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes));
	rdma_destroy_qp(id);
	rdma_destroy_srq(p->server.id);
	rdma_destroy_ep(id);
	CHECK(id->qp);
	REFUSED(rdma_destroy_id(id));
	REFUSED(rdma_destroy_id(p->listener));
	REFUSED(rdma_destroy_id(o->waits));
}

static void refused(struct pair *p, struct objects *o)
{
	events_refused(p);
	queues_refused(p, o);
	makes_refused(p);
	changes_refused(p, o);
	ids_refused(p, o);
}

/* What a child makes of its own takes nothing of its parent's. */
static void mixed(struct pair *p, struct pair *own)
{
	struct ibv_qp_init_attr init = {
		.send_cq = p->client.cq, .recv_cq = p->client.cq, .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 },
	};

	MAKES_NONE(ibv_create_cq(own->client.id->verbs, 4, NULL, p->client.channel, 0));
	MAKES_NONE(ibv_create_qp(own->client.id->pd, &init));
	REFUSED(rdma_migrate_id(own->listener, p->events));
}

/* A child closes its copies of its parent's descriptors, and opens its own after that. */
static void copies(struct pair *p, struct ibv_context *own)
{
	struct ibv_context *context = p->client.id->verbs;
	int fds[] = { p->client.channel->fd, p->events->fd, context->async_fd };
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;

	CHECK(!ibv_destroy_comp_channel(p->client.channel) && !ibv_close_device(context));
	rdma_destroy_event_channel(p->events);
	for (int i = 0; i < 3; i++)
		CHECK(fcntl(fds[i], F_GETFD) == -1);
	for (int i = 0; i < 2 * RV_CLOSED_MIN; i++) {
		CHECK(ch = ibv_create_comp_channel(own));
		CHECK(cq = ibv_create_cq(own, 4, NULL, ch, 0));
		CHECK(!ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(ch));
	}
}

/* A child, and its child, of a process with a connection. */
static void descend(struct pair *p, int generations)
{
	struct objects o;
	pid_t child;

	make(&o, p);
	busy(p, &o, true);
	child = fork();
	if (child == 0) {
		struct pair own;

		refused(p, &o);
		connect_pair(&own, WITH_SRQ);
		refused(p, &o);
		mixed(p, &own);
		copies(p, own.client.id->verbs);
		if (generations > 1)
			descend(&own, generations - 1);
		close_pair(&own);
		connected(0);
		exit(0); /* its own connections end in order; the parent's go on */
	}
	busy(p, &o, false);
	ends(child);
	unmake(&o);
}

static int over;

static void *calls(void *context)
{
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
		struct rdma_event_channel *ch = rdma_create_event_channel();
		struct ibv_pd *pd = ibv_alloc_pd(context);

		CHECK(ch && pd && !ibv_dealloc_pd(pd));
		rdma_destroy_event_channel(ch);
	}
	return NULL;
}

static void *forks(void *arg)
{
	pid_t child = fork();

	if (child == 0) {
		connected(0);
		_exit(0);
	}
	*(pid_t *)arg = child;
	return NULL;
}

/* Threads fork while others are in calls, at whichever moment. */
static void beside_threads(struct pair *p)
{
	pthread_t callers[3], forker;
	pid_t child;

	for (int i = 0; i < 3; i++)
		CHECK(!pthread_create(&callers[i], NULL, calls, p->client.id->verbs));
	for (int i = 0; i < 12; i++) {
		CHECK(!pthread_create(&forker, NULL, forks, &child) && !pthread_join(forker, NULL));
		ends(child);
	}
	__atomic_store_n(&over, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < 3; i++)
		CHECK(!pthread_join(callers[i], NULL));
}

/*
 * A child has copies of the sockets: a connection that is reset, and a listener that is destroyed,
 * end all the same.
 */
static void inherited(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct rdma_conn_param param = { 0 };
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;
	struct pair p;
	pid_t child;
	bool ended = false;

	connect_pair(&p, 0);
	child = fork();
	if (child == 0)
		for (;;)
			pause();
	to.sin_port = rdma_get_src_port(p.listener);
	CHECK(!ibv_modify_qp(p.server.id->qp, &attr, IBV_QP_STATE));
	while (!ended) {
		e = event_of(p.events, RDMA_CM_EVENT_DISCONNECTED);
		ended = e->id == p.client.id;
		rdma_ack_cm_event(e);
	}
	close_ended(&p);
	CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000) && !rdma_resolve_route(id, 1000));
	CHECK(!rdma_create_qp(
		id, NULL,
		&(struct ibv_qp_init_attr){ .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } }));
	FAILS(rdma_connect(id, &param), ECONNREFUSED);
	rdma_destroy_qp(id);
	CHECK(!rdma_destroy_id(id));
	CHECK(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
}

/* Children that run other programs. */
static void executes(void)
{
	char *args[] = { "true", NULL };
	pid_t child;

	CHECK(!system("true"));
	CHECK(!posix_spawnp(&child, "true", NULL, NULL, args, environ));
	ends(child);
	child = vfork();
	if (child == 0)
		execvp("true", args), _exit(1);
	ends(child);
}

int main(void)
{
	struct pair p;
	pid_t child;

	CHECK(!ibv_fork_init() && ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
	child = fork(); /* before the first call, as by daemon(3) */
	if (child == 0) {
		CHECK(setsid() > 0 && !chdir("/"));
		connected(0);
		exit(0);
	}
	ends(child);
	connect_pair(&p, WITH_SRQ);
	descend(&p, 3);
	executes();
	beside_threads(&p);
	inherited();
	close_pair(&p);
	connected(0);
	printf("all well\n");
	return 0;
}
