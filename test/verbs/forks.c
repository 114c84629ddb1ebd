/*
 * Fork, in all its forms: in a child every call about an object of the parent's fails and changes
 * nothing there, and a child that opens the device has an engine of its own.
 */
#include "walk.h"

#include <arpa/inet.h>
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

/* Calls of a child about its parent's objects, those that ask the engine and those that do not. */
static void refused(struct pair *p)
{
	struct ibv_context *context = p->client.id->verbs;
	struct ibv_qp *qp = p->client.id->qp;
	struct ibv_sge sge;
	struct ibv_send_wr send = request(&p->client, &sge, IBV_WR_SEND, 8), *bad_send;
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp_init_attr init = {
		.send_cq = p->client.cq, .recv_cq = p->client.cq, .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 },
	};
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct rdma_conn_param param = { 0 };
	struct rdma_cm_event *cm;
	struct ibv_async_event async;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *x;

	FAILS(ibv_post_send(qp, &send, &bad_send), EPERM);
	CHECK(bad_send == &send);
	FAILS(ibv_post_recv(qp, &recv, &bad), EPERM);
	CHECK(bad == &recv);
	FAILS(ibv_post_srq_recv(p->server.srq, &recv, &bad), EPERM);
	FAILS(ibv_req_notify_cq(p->client.cq, 0), EPERM);
	CHECK(ibv_poll_cq(p->client.cq, 1, &wc) == -EPERM);
	FAILS(ibv_get_cq_event(p->client.channel, &cq, &x), EPERM);
	FAILS(rdma_get_cm_event(p->events, &cm), EPERM);
	FAILS(ibv_get_async_event(context, &async), EPERM);
	FAILS(!ibv_alloc_pd(context) - 1, EPERM);
	FAILS(!ibv_create_comp_channel(context) - 1, EPERM);
	FAILS(!ibv_create_cq(context, 4, NULL, NULL, 0) - 1, EPERM);
	FAILS(!ibv_create_qp(p->client.id->pd, &init) - 1, EPERM);
	FAILS(!ibv_create_srq(p->client.id->pd, &srq) - 1, EPERM);
	FAILS(!ibv_reg_mr(p->client.id->pd, p->client.memory, 4096, 0) - 1, EPERM);
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EPERM);
	FAILS(ibv_dereg_mr(p->client.mr), EPERM);
	FAILS(rdma_create_id(p->events, &id, NULL, RDMA_PS_TCP), EPERM);
	FAILS(rdma_listen(p->listener, 1), EPERM);
	FAILS(rdma_connect(p->client.id, &param), EPERM);
	FAILS(rdma_disconnect(p->client.id), EPERM);
}

/* A child, and its child, of a process with a connection. */
static void descend(struct pair *p, int generations)
{
	pid_t child = fork();

	if (child == 0) {
		struct pair own;

		refused(p);
		connect_pair(&own, WITH_SRQ);
		refused(p);
		if (generations > 1)
			descend(&own, generations - 1);
		close_pair(&own);
		connected(0);
		exit(0); /* its own connections end in order; the parent's go on */
	}
	ends(child);
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
	CHECK(!rdma_create_qp(id, NULL, &(struct ibv_qp_init_attr){ .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } }));
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
