/*
 * No memory: each allocation of the library's fails once. The call says ENOMEM, the program lives,
 * and the next call succeeds.
 */
#include "walk.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);

static void *library; /* where the library begins */
static __thread int until; /* the allocation of this thread that fails; 0: none */

static bool fails(const void *caller)
{
	Dl_info info;

	if (!until || !dladdr(caller, &info) || info.dli_fbase != library || --until)
		return false;
	errno = ENOMEM;
	return true;
}

/* In place of the C library's, for all libraries. */
void *malloc(size_t size)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *old, size_t size)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(old, size);
}

/* The call fails with each of its allocations, and then has all of them. */
#define EACH(call)                                                                                 \
	do {                                                                                       \
		for (int n = 1;; n++) {                                                            \
			errno = 0;                                                                 \
			until = n;                                                                 \
			bool done = (call);                                                        \
			bool failed = !until;                                                      \
			until = 0;                                                                 \
			if (done && failed)                                                        \
				fprintf(stderr, "without allocation %d: ", n);                     \
			CHECK(done == !failed);                                                    \
			if (done)                                                                  \
				break;                                                             \
			CHECK(errno == ENOMEM);                                                    \
			refused++;                                                                 \
		}                                                                                  \
	} while (0)

static int refused;
static struct sockaddr_in here = { .sin_family = AF_INET };
static const struct ibv_qp_init_attr queue_pair = { .qp_type = IBV_QPT_RC,
	.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };

static void devices(void)
{
	struct ibv_device **list;
	struct ibv_context **opened, *device;

	EACH(list = ibv_get_device_list(NULL));
	EACH(device = ibv_open_device(list[0]));
	EACH(opened = rdma_get_devices(NULL));
	rdma_free_devices(opened);
	CHECK(!ibv_close_device(device));
	ibv_free_device_list(list);
}

static void objects(struct ibv_context *device)
{
	struct ibv_cq_init_attr_ex extended = { .cqe = 4 };
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_qp_init_attr attr = queue_pair;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq, *other;
	struct ibv_cq_ex *ex;
	struct ibv_srq *srq;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_qp *qp;
	char octets[64];

	EACH(pd = ibv_alloc_pd(device));
	EACH(mr = ibv_reg_mr(pd, octets, sizeof octets, IBV_ACCESS_LOCAL_WRITE));
	EACH(mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	EACH(channel = ibv_create_comp_channel(device));
	EACH(cq = ibv_create_cq(device, 4, NULL, channel, 0));
	EACH(other = ibv_create_cq(device, 4, NULL, NULL, 0));
	EACH(ex = ibv_create_cq_ex(device, &extended));
	EACH(srq = ibv_create_srq(pd, &shared));
	attr.send_cq = attr.recv_cq = cq;
	EACH(qp = ibv_create_qp(pd, &attr));
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_srq(srq) && !ibv_destroy_cq(ibv_cq_ex_to_cq(ex)));
	CHECK(!ibv_destroy_cq(other) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel));
	CHECK(!ibv_dealloc_mw(mw) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
}

/* Ids, and addresses: none is missing where the call says that it found them. */
static void ids(struct rdma_event_channel *ch)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST, .ai_src_len = sizeof here,
		.ai_src_addr = (struct sockaddr *)&here };
	struct rdma_addrinfo both = { .ai_src_len = sizeof here, .ai_dst_len = sizeof here,
		.ai_src_addr = (struct sockaddr *)&here, .ai_dst_addr = (struct sockaddr *)&here };
	struct ibv_qp_init_attr attr = queue_pair;
	struct rdma_addrinfo *found;
	struct rdma_cm_id *id;

	EACH(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_destroy_id(id));
	EACH(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_destroy_id(id));
	EACH(!rdma_getaddrinfo("127.0.0.1", "9", &hints, &found));
	CHECK(found->ai_src_addr && found->ai_dst_addr);
	rdma_freeaddrinfo(found);
	EACH(!rdma_getaddrinfo(NULL, NULL, &both, &found));
	CHECK(found->ai_src_addr && found->ai_dst_addr);
	rdma_freeaddrinfo(found);
	hints.ai_flags |= RAI_PASSIVE;
	hints.ai_src_addr = NULL;
	EACH(!rdma_getaddrinfo("127.0.0.1", "0", &hints, &found));
	CHECK(found->ai_src_addr && !found->ai_dst_addr);
	EACH(!rdma_create_ep(&id, found, NULL, &attr));
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(found);
}

static struct rdma_cm_id *asks(struct rdma_event_channel *ch, const struct rdma_cm_id *listener)
{
	struct ibv_qp_init_attr attr = queue_pair;
	struct sockaddr_in to = here;
	struct rdma_conn_param param = { 0 };
	struct rdma_cm_id *id;

	to.sin_port = rdma_get_src_port((struct rdma_cm_id *)listener);
	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000));
	rdma_ack_cm_event(event_of(ch, RDMA_CM_EVENT_ADDR_RESOLVED));
	CHECK(!rdma_resolve_route(id, 1000));
	rdma_ack_cm_event(event_of(ch, RDMA_CM_EVENT_ROUTE_RESOLVED));
	CHECK(!rdma_create_qp(id, NULL, &attr));
	CHECK(!rdma_connect(id, &param));
	return id;
}

static void leave(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	CHECK(!rdma_destroy_id(id));
}

/* An event without memory stays; a request without memory for its id is rejected. */
static void events(struct rdma_event_channel *ch)
{
	struct rdma_event_channel *theirs = rdma_create_event_channel();
	struct pollfd readable = { .fd = ch->fd, .events = POLLIN };
	struct rdma_cm_id *listener, *client;
	struct rdma_cm_event *e;

	CHECK(theirs && !rdma_create_id(ch, &listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&here) && !rdma_listen(listener, 1));
	fcntl(ch->fd, F_SETFL, O_NONBLOCK);
	for (int i = 0; i < 3; i++) { /* more than the backlog */
		client = asks(theirs, listener);
		CHECK(poll(&readable, 1, -1) == 1);
		until = 1;
		FAILS(rdma_get_cm_event(ch, &e), ENOMEM);
		until = 2;
		FAILS(rdma_get_cm_event(ch, &e), ENOMEM);
		CHECK(!until);
		rdma_ack_cm_event(event_of(theirs, RDMA_CM_EVENT_REJECTED));
		leave(client);
	}
	client = asks(theirs, listener);
	CHECK(poll(&readable, 1, -1) == 1);
	e = event_of(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(!rdma_reject(e->id, NULL, 0));
	rdma_ack_cm_event(event_of(theirs, RDMA_CM_EVENT_REJECTED));
	listener = e->listen_id;
	struct rdma_cm_id *request = e->id;

	rdma_ack_cm_event(e);
	CHECK(!rdma_destroy_id(request) && !rdma_destroy_id(listener));
	leave(client);
	rdma_destroy_event_channel(theirs);
}

int main(void)
{
	struct rdma_event_channel *ch;
	struct ibv_context **opened;
	Dl_info info;

	here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(dladdr(dlsym(RTLD_DEFAULT, "ibv_get_device_list"), &info));
	library = info.dli_fbase;
	devices();
	EACH(ch = rdma_create_event_channel());
	CHECK(opened = rdma_get_devices(NULL));
	objects(opened[0]);
	ids(ch);
	events(ch);
	rdma_destroy_event_channel(ch);
	rdma_free_devices(opened);
	CHECK(refused >= 20);
	printf("all well\n");
	return 0;
}
