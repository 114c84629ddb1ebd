/* What programs about reliable connections by number share: two ends in one process, as RoCE. */
#ifndef PARTY_H
#define PARTY_H

#include "walk.h"

#include <endian.h>

extern struct ibv_context *context;
extern struct ibv_pd *pd;
enum { GID_INDEX = 0 };
extern union ibv_gid gid;

/* One end. All of memory is the peer's to use. */
struct party {
	struct ibv_cq_ex *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;
	char *memory;
	struct ibv_mr *mr;
};

#define ALL_ACCESS                                                                             \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |           \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)
void begin(void); /* opens the device */
struct party make(bool with_srq);
void destroy(struct party *p);
/* The moves: by way of INIT to RTR; to RTS; both of both; by way of RESET. */
void begin_way(struct party *p, uint32_t number);
void ready(struct party *p);
void join(struct party *a, struct party *b);
void join_again(struct party *a, struct party *b);
/* A receive buffer, and a request, signaled, with so many octets of p's memory. */
int receive(struct party *p, uint64_t id, size_t at, uint32_t length);
int ask(struct party *p, struct ibv_send_wr wr, size_t at, uint32_t length);
struct ibv_send_wr write_to(struct party *to, uint64_t id, uint32_t rkey, size_t at);
/* The next completion. */
struct ibv_wc next(struct party *p);
struct ibv_wc expect(struct party *p, uint64_t id, enum ibv_wc_status status,
		     enum ibv_wc_opcode opcode);
void expect_none(struct party *p);
void expect_event(struct ibv_qp *qp, enum ibv_event_type type); /* the next */

#endif
