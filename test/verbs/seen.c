/*
 * A program that somebody looks at from outside, and does what programs do meanwhile:
 *
 *	seen server	takes a connection at port 7000
 *	seen client HOST
 *
 * When it has one it says "ready", and then obeys lines: close (all numbers from 3 to 1023), child
 * (fork; the child opens the device), idle (fork; the child does nothing), root DIRECTORY (chroot),
 * exec (it becomes another that sleeps), send (for which the peer has no buffer), exit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define CHECK(condition)                                           \
	do {                                                       \
		if (!(condition)) {                                \
			perror("seen: " #condition);               \
			exit(1);                                   \
		}                                                  \
	} while (0)

#include "endpoint.h"

static char memory[4096];

static void say(const char *what)
{
	printf("%s %d\n", what, getpid());
	fflush(stdout);
}

/* The parent waits for nobody. */
static void child(int opens)
{
	int n;

	if (fork())
		return;
	if (opens)
		CHECK(ibv_open_device(ibv_get_device_list(&n)[0]));
	say(opens ? "child" : "idle");
	sleep(600);
	_exit(0);
}

int main(int argc, char **argv)
{
	struct rdma_cm_id *id, *listener;
	struct ibv_wc wc;
	struct ibv_mr *mr;
	char line[256];

	if (argc == 2) {
		listener = endpoint(NULL, RAI_PASSIVE);
		CHECK(!rdma_listen(listener, 1) && !rdma_get_request(listener, &id));
	} else {
		id = endpoint(argv[2], 0);
	}
	CHECK(mr = rdma_reg_msgs(id, memory, sizeof memory));
	CHECK(!rdma_post_recv(id, NULL, memory, 64, mr));
	CHECK(argc == 2 ? !rdma_accept(id, NULL) : !rdma_connect(id, NULL));
	CHECK(!rdma_post_send(id, NULL, memory, 64, mr, 0));
	CHECK(rdma_get_send_comp(id, &wc) == 1 && rdma_get_recv_comp(id, &wc) == 1);
	say("ready");
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (!strcmp(line, "close")) {
			for (int fd = 3; fd < 1024; fd++)
				close(fd);
			say("closed");
		} else if (!strcmp(line, "child") || !strcmp(line, "idle")) {
			child(line[0] == 'c');
		} else if (!strncmp(line, "root ", 5)) {
			CHECK(!chroot(line + 5) && !chdir("/"));
			say("rooted");
		} else if (!strcmp(line, "send")) {
			CHECK(!rdma_post_send(id, NULL, memory, 64, mr, 0));
		} else if (!strcmp(line, "exec")) {
			execl("/bin/sleep", "sleep", "600", NULL);
		} else {
			return 0;
		}
	}
	sleep(600);
}
