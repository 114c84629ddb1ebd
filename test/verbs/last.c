/*
 * last N: a program that ends as soon as it has a message has acknowledged it. So many times a
 * client sends one to a server, each a process of its own, which ends without another call.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define CHECK(condition)                             \
	do {                                         \
		if (!(condition)) {                  \
			perror("last: " #condition); \
			_exit(1);                    \
		}                                    \
	} while (0)

#include "endpoint.h"

static char memory[64];

static void completes(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	CHECK(n == 1);
	if (wc.status)
		printf("last: %s\n", ibv_wc_status_str(wc.status));
	fflush(stdout);
	exit(wc.status);
}

static void serve(int ready)
{
	struct rdma_cm_id *id, *listener = endpoint(NULL, RAI_PASSIVE);
	struct ibv_mr *mr;

	CHECK(!rdma_listen(listener, 1) && write(ready, "", 1) == 1);
	CHECK(!rdma_get_request(listener, &id) && (mr = rdma_reg_msgs(id, memory, sizeof memory)));
	CHECK(!rdma_post_recv(id, NULL, memory, sizeof memory, mr) && !rdma_accept(id, NULL));
	completes(id->recv_cq);
}

static void ask(int ready)
{
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	char octet;

	CHECK(read(ready, &octet, 1) == 1);
	id = endpoint("127.0.0.1", 0);
	CHECK((mr = rdma_reg_msgs(id, memory, sizeof memory)) && !rdma_connect(id, NULL));
	CHECK(!rdma_post_send(id, NULL, memory, sizeof memory, mr, 0));
	completes(id->send_cq);
}

int main(int argc, char **argv)
{
	int bad = 0, status;

	for (int i = argc > 1 ? atoi(argv[1]) : 1; i > 0; i--) {
		int ready[2];

		CHECK(!pipe(ready));
		for (int client = 0; client < 2; client++) {
			pid_t child = fork();

			CHECK(child >= 0);
			if (child)
				continue;
			if (client)
				ask(ready[0]);
			serve(ready[1]);
		}
		close(ready[0]);
		close(ready[1]);
		while (wait(&status) > 0)
			bad += status != 0;
	}
	if (bad)
		return 1;
	puts("all well");
	return 0;
}
