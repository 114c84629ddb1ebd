/* What the programs of test/verbs share: checks, and two ends of a connection in one process. */
#ifndef WALK_H
#define WALK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#define CHECK(condition)                                                                  \
	do {                                                                              \
		if (!(condition)) {                                                       \
			fprintf(stderr, "%s:%d: %s (errno %d, %s)\n", __FILE__, __LINE__, \
				#condition, errno, strerror(errno));                      \
			exit(1);                                                          \
		}                                                                         \
	} while (0)

/* The call fails with an errno, which it returns or leaves. */
#define FAILS(call, error)                                    \
	do {                                                  \
		errno = 0;                                    \
		CHECK((call) == (error) || errno == (error)); \
	} while (0)

#define MEMORY 65536

struct end {
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_cq *send_cq; /* with SPLIT; otherwise cq */
	struct ibv_comp_channel *send_channel;
	struct ibv_comp_channel *channel;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	char *memory;
};

struct pair {
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	struct end client, server;
};

/* The server's buffers are shared; sends complete into queues of their own; and these are armed; no
 * call waits for an event; a message without a buffer is sent again twice, not for ever. */
enum { WITH_SRQ = 1, SPLIT = 2, ARMED = 4, NEVER_WAIT = 8, TWICE = 16 };

void begin_pair(struct pair *p, int how); /* until the server's queue pair is made */
void end_pair(struct pair *p); /* accepts */
void connect_pair(struct pair *p, int how); /* both */
void close_pair(struct pair *p);
void close_end(struct end *e);
struct ibv_wc await(struct end *e); /* the next completion */
struct ibv_wc await_on(struct ibv_cq *cq);
bool told(struct ibv_comp_channel *channel); /* whether an event waits */
struct rdma_cm_event *event_of(struct rdma_event_channel *ch, enum rdma_cm_event_type type);
void post_recv(struct end *e, uint64_t wr_id, size_t offset, uint32_t length);
struct ibv_send_wr request(struct end *from, struct ibv_sge *sge, enum ibv_wr_opcode op,
			   uint32_t length);
int post(struct end *e, struct ibv_send_wr *wr);

/* failures.c */
#define NO_EVENT (-1)
void failures(void);
/* asynchronous ones, and no others until now */
void events_are(struct pair *p, int client, int server);
/* close_pair of a connection that has ended */
void close_ended(struct pair *p);
struct ibv_send_wr towards(struct end *from, struct end *to, struct ibv_sge *sge,
	enum ibv_wr_opcode op);

/* ids.c */
/* Waits until a thread that has stored its number sleeps in a system call, or has stored that it is
 * over. */
void until_asleep(const pid_t *thread, const int *over);
void late(void);
void requests(void);
void depths(void);

/* unread.c */
void unread(void);

/* queues.c */
void credit(void);
void grow(void);
void grow_under_way(void);
void places(void);
void startup(void);

#endif
