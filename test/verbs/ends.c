/*
 * A connection that the peer ends with a Terminate, and programs that end as soon as they see it:
 *
 *	ends server         takes 4 octets at port 7000; the client sends more
 *	ends client HOST HOW	sends 8, waits for its receive buffer to be flushed, and ends: exit, _exit,
 *			abort, or a signal's number
 *
 * Both print the status and vendor_err of the receive buffer.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define CHECK(condition)                                           \
	do {                                                       \
		if (!(condition)) {                                \
			perror("ends: " #condition);               \
			exit(1);                                   \
		}                                                  \
	} while (0)

#include "endpoint.h"

static char memory[64];

static void ends(const char *how)
{
	fflush(stdout);
	if (!strcmp(how, "exit"))
		exit(0);
	if (!strcmp(how, "_exit"))
		_exit(0);
	if (!strcmp(how, "abort"))
		abort();
	raise(atoi(how));
}

int main(int argc, char **argv)
{
	bool serves = argc > 1 && !strcmp(argv[1], "server");
	struct rdma_cm_id *id, *listener;
	struct ibv_mr *mr;
	struct ibv_wc wc;

	if (serves) {
		listener = endpoint(NULL, RAI_PASSIVE);
		CHECK(!rdma_listen(listener, 1) && !rdma_get_request(listener, &id));
	} else {
		CHECK(argc > 3);
		id = endpoint(argv[2], 0);
	}
	CHECK(mr = rdma_reg_msgs(id, memory, sizeof memory));
	CHECK(!rdma_post_recv(id, NULL, memory, serves ? 4 : 8, mr));
	CHECK(serves ? !rdma_accept(id, NULL) : !rdma_connect(id, NULL));
	CHECK(serves || !rdma_post_send(id, NULL, memory, 8, mr, 0));
	CHECK(rdma_get_recv_comp(id, &wc) == 1);
	printf("%s: %s, vendor_err 0x%x\n", argv[1], ibv_wc_status_str(wc.status), wc.vendor_err);
	ends(serves ? "exit" : argv[3]);
}
