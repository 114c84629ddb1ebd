/*
 * No descriptors: a synchronous listener's requests for which there are too few are rejected, more
 * of them than its backlog. rdma_get_request says EMFILE each time, and then takes the next
 * request.
 */
#include "walk.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>

#define FIRST 3 /* of ours: those below are open */
#define NEEDED 6 /* the channels of an id, and of its two completion queues */
#define ROUNDS (NEEDED + 1)

/* Numbers that only the program has, lowest of all: what others close is above the limit. */
static void reserve(void)
{
	for (int fd = FIRST; fd < FIRST + ROUNDS * NEEDED; fd++)
		CHECK(dup2(0, fd) == fd);
}

static struct rdma_cm_id *listens(void)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE | RAI_NUMERICHOST }, *found;
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	struct rdma_cm_id *id;

	CHECK(!rdma_getaddrinfo("127.0.0.1", "0", &hints, &found));
	CHECK(!rdma_create_ep(&id, found, NULL, &attr) && !rdma_listen(id, 1));
	rdma_freeaddrinfo(found);
	fcntl(id->channel->fd, F_SETFL, O_NONBLOCK);
	return id;
}

static struct rdma_cm_id *asks(struct rdma_event_channel *ch, struct rdma_cm_id *listener)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = rdma_get_src_port(listener) };
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	struct pollfd readable = { .fd = listener->channel->fd, .events = POLLIN };
	struct rdma_conn_param param = { 0 };
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000));
	rdma_ack_cm_event(event_of(ch, RDMA_CM_EVENT_ADDR_RESOLVED));
	CHECK(!rdma_resolve_route(id, 1000));
	rdma_ack_cm_event(event_of(ch, RDMA_CM_EVENT_ROUTE_RESOLVED));
	CHECK(!rdma_create_qp(id, NULL, &attr));
	CHECK(!rdma_connect(id, &param));
	CHECK(poll(&readable, 1, -1) == 1);
	return id;
}

/* The next request, with so many descriptors. Each round has a block of numbers, below the last's.
 */
static int take(struct rdma_cm_id *listener, int spare, struct rdma_cm_id **id)
{
	int begin = FIRST + (ROUNDS - 1 - spare) * NEEDED, result, error;
	struct rlimit all, few;

	CHECK(!getrlimit(RLIMIT_NOFILE, &all));
	few = all;
	few.rlim_cur = (rlim_t)(begin + NEEDED);
	for (int i = 0; i < spare; i++)
		close(begin + i);
	CHECK(!setrlimit(RLIMIT_NOFILE, &few));
	result = rdma_get_request(listener, id);
	error = errno;
	CHECK(!setrlimit(RLIMIT_NOFILE, &all));
	errno = error;
	return result;
}

int main(void)
{
	struct rdma_event_channel *ch;
	struct rdma_cm_id *listener, *client, *id;

	reserve();
	CHECK(ch = rdma_create_event_channel());
	listener = listens();
	for (int spare = 0; spare <= NEEDED; spare++) {
		client = asks(ch, listener);
		if (spare < NEEDED) {
			FAILS(take(listener, spare, &id), EMFILE);
		} else {
			CHECK(!take(listener, spare, &id));
			CHECK(!rdma_reject(id, NULL, 0));
			rdma_destroy_ep(id);
		}
		rdma_ack_cm_event(event_of(ch, RDMA_CM_EVENT_REJECTED));
		rdma_destroy_ep(client);
	}
	rdma_destroy_ep(listener);
	rdma_destroy_event_channel(ch);
	printf("all well\n");
	return 0;
}
