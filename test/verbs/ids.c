/* Ids and channels of the connection manager. */
#include "walk.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

static struct rdma_event_channel *waited_for;
static struct ibv_comp_channel *waited_for_too;
static pid_t waiter;
static int back;

static void *wait_for_event(void *channel)
{
	struct rdma_cm_event *e;

	__atomic_store_n(&waiter, gettid(), __ATOMIC_RELEASE);
	rdma_get_cm_event(channel, &e);
	__atomic_store_n(&back, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void *wait_for_completion(void *channel)
{
	struct ibv_cq *cq;
	void *context;

	__atomic_store_n(&waiter, gettid(), __ATOMIC_RELEASE);
	ibv_get_cq_event(channel, &cq, &context);
	__atomic_store_n(&back, 1, __ATOMIC_RELEASE);
	return NULL;
}

void until_asleep(const pid_t *thread, const int *over)
{
	char path[64], state;
	pid_t of;

	while (!(of = __atomic_load_n(thread, __ATOMIC_ACQUIRE)))
		sched_yield();
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", of);
	do {
		FILE *f = fopen(path, "r");

		state = 0;
		if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
			state = 'X';
		if (f)
			fclose(f);
		sched_yield();
	} while (state != 'S' && state != 'X' && !__atomic_load_n(over, __ATOMIC_ACQUIRE));
}

static void stays(void *(*wait)(void *), void *on, bool early, void (*destroy)(void))
{
	sigset_t all, before;
	pthread_t t;

	__atomic_store_n(&waiter, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&back, 0, __ATOMIC_RELEASE);
	if (!early)
		destroy();
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* the walk's alarm is not for it */
	CHECK(!pthread_create(&t, NULL, wait, on));
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	until_asleep(&waiter, &back);
	if (early)
		destroy();
	until_asleep(&waiter, &back);
	CHECK(!__atomic_load_n(&back, __ATOMIC_ACQUIRE));
	CHECK(!pthread_detach(t)); /* until the process ends */
}

static void destroy_events(void)
{
	rdma_destroy_event_channel(waited_for);
}

static void destroy_completions(void)
{
	CHECK(!ibv_destroy_comp_channel(waited_for_too));
}

/* A thread that waits on a channel stays when another destroys that, and also when it comes after
 * that: rping's may. Its descriptor is closed all the same. */
void late(void)
{
	int n, lowest = dup(0);
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *c = ibv_open_device(list[0]);

	ibv_free_device_list(list);
	for (int early = 0; early < 2; early++) {
		CHECK(waited_for = rdma_create_event_channel());
		stays(wait_for_event, waited_for, early, destroy_events);
		CHECK(waited_for_too = ibv_create_comp_channel(c));
		stays(wait_for_completion, waited_for_too, early, destroy_completions);
	}
	CHECK(!ibv_close_device(c) && !close(lowest));
	CHECK(waited_for = rdma_create_event_channel());
	CHECK(waited_for->fd == lowest); /* nothing was left open */
	rdma_destroy_event_channel(waited_for);
}

/* rdma_get_request: of a synchronous listener only; the request's event is the new id's until that
 * is rejected, accepted or destroyed. */
void requests(void)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP }, *info;
	struct rdma_conn_param param = { .private_data = "hello", .private_data_len = 5 };
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct ibv_qp_init_attr attr = { .cap = { 4, 4, 1, 1, 0 } },
				plain = { .cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *listener, *id, *made, *other;

	CHECK(!rdma_create_id(ch, &other, NULL, RDMA_PS_TCP) && !rdma_listen(other, 1));
	FAILS(rdma_get_request(other, &made), EINVAL); /* its events come by ch */
	CHECK(!rdma_destroy_id(other));
	CHECK(!rdma_getaddrinfo("127.0.0.1", "0", &hints, &info));
	CHECK(!rdma_create_ep(&listener, info, NULL, &attr));
	rdma_freeaddrinfo(info);
	FAILS(rdma_get_request(listener, &made), EINVAL); /* it does not listen */
	CHECK(!rdma_listen(listener, 4));
	to.sin_port = rdma_get_src_port(listener);
	for (int reject = 1; reject >= 0; reject--) {
		CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) &&
		      !rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000));
		rdma_ack_cm_event(event_of(ch, RDMA_CM_EVENT_ADDR_RESOLVED));
		CHECK(!rdma_create_qp(id, NULL, &plain) && !rdma_connect(id, &param));
		CHECK(!rdma_get_request(listener, &made) && made->qp && made->verbs &&
		      made->channel != listener->channel);
		CHECK(made->event && made->event->event == RDMA_CM_EVENT_CONNECT_REQUEST &&
		      made->event->listen_id == listener);
		CHECK(!memcmp(made->event->param.conn.private_data, "hello", 5) && !listener->event);
		if (reject) {
			CHECK(!rdma_reject(made, "no", 2) && !made->event);
			rdma_ack_cm_event(event_of(ch, RDMA_CM_EVENT_REJECTED));
		} else {
			CHECK(!rdma_accept(made, NULL) && made->event->event == RDMA_CM_EVENT_ESTABLISHED);
			rdma_ack_cm_event(event_of(ch, RDMA_CM_EVENT_ESTABLISHED));
			rdma_destroy_ep(listener); /* nothing of it waits to be acknowledged */
			CHECK(!rdma_disconnect(id));
			rdma_ack_cm_event(event_of(ch, RDMA_CM_EVENT_DISCONNECTED));
		}
		rdma_destroy_ep(made);
		rdma_destroy_qp(id);
		CHECK(!rdma_destroy_id(id));
	}
	rdma_destroy_event_channel(ch);
}

static void has_depths(struct ibv_qp *qp, int own, int peers)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC, &init));
	CHECK(attr.max_rd_atomic == own && attr.max_dest_rd_atomic == peers);
}

/* ibv_query_qp tells the depths of Reads that the two ends have agreed to: what one asks for is no
 * more than what the other serves. */
void depths(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct ibv_qp_init_attr attr = { .cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct rdma_conn_param ask = { .responder_resources = 3, .initiator_depth = 9 },
			       answer = { .responder_resources = 2, .initiator_depth = 7 };
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *listener, *client, *server;
	struct rdma_cm_event *e;
	struct ibv_qp_attr now;
	struct ibv_qp_init_attr init;

	CHECK(!rdma_create_id(ch, &listener, NULL, RDMA_PS_TCP) &&
	      !rdma_bind_addr(listener, (struct sockaddr *)&to) && !rdma_listen(listener, 1));
	to.sin_port = rdma_get_src_port(listener);
	CHECK(!rdma_create_id(ch, &client, NULL, RDMA_PS_TCP) &&
	      !rdma_resolve_addr(client, NULL, (struct sockaddr *)&to, 1000));
	rdma_ack_cm_event(event_of(ch, RDMA_CM_EVENT_ADDR_RESOLVED));
	CHECK(!rdma_create_qp(client, NULL, &attr));
	has_depths(client->qp, 0, 0);
	CHECK(!rdma_connect(client, &ask));
	e = event_of(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(e->param.conn.responder_resources == 9 && e->param.conn.initiator_depth == 3);
	server = e->id;
	rdma_ack_cm_event(e);
	CHECK(!rdma_create_qp(server, NULL, &attr) && !rdma_accept(server, &answer));
	rdma_ack_cm_event(event_of(ch, RDMA_CM_EVENT_ESTABLISHED));
	rdma_ack_cm_event(event_of(ch, RDMA_CM_EVENT_ESTABLISHED));
	FAILS(rdma_establish(client), EINVAL); /* of an id without a queue pair only */
	CHECK(!ibv_query_qp(client->qp, &now, IBV_QP_STATE, &init) && now.qp_state == IBV_QPS_RTS);
	now.qp_state = IBV_QPS_INIT;
	FAILS(ibv_modify_qp(client->qp, &now, IBV_QP_STATE), EINVAL);
	has_depths(client->qp, 2, 3);
	has_depths(server->qp, 3, 2);
	rdma_destroy_qp(client);
	rdma_destroy_qp(server);
	CHECK(!rdma_destroy_id(client) && !rdma_destroy_id(server) && !rdma_destroy_id(listener));
	rdma_destroy_event_channel(ch);
}
