/*
 * What the C library and the Go engine share: layout only. ring.go says the same in Go, and
 * verbs/cshared compares the two when it is compiled.
 *
 * All words that both sides use while the program runs are atomic. The engine takes nothing here
 * on trust: it copies an entry before it looks at it.
 */
#ifndef RNICD_RING_H
#define RNICD_RING_H

#include <stdint.h>

#define RV_QPS_MAX 4096   /* queue pairs of a process: one doorbell bit each */
#define RV_CQS_MAX 16384
#define RV_PDS_MAX 65536
#define RV_MRS_MAX 32768
#define RV_MWS_MAX 28672
#define RV_SRQS_MAX 4096
#define RV_MR_SIZE_MAX (1ull << 42)
#define RV_MESSAGE_MAX 0x7fffffffu
#define RV_CALLS 64       /* control calls under way at a time */
#define RV_CALL_ARGS 16
#define RV_CALL_DATA 1024 /* octets that go along with a call, either way */
#define RV_PRIVATE_MAX 512

/* A range of registered memory; laid out as struct ibv_sge. */
struct rv_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

enum rv_op {
	RV_OP_SEND = 1,
	RV_OP_WRITE,
	RV_OP_RECV,
	RV_OP_SEND_INVALIDATE,
	RV_OP_READ,
	RV_OP_FETCH_ADD,
	RV_OP_COMPARE_SWAP,
	RV_OP_IMMEDIATE, /* completions only: the peer's message was immediate data */
	RV_OP_LOCAL_INVALIDATE,
	RV_OP_WRITE_IMMEDIATE, /* a Write, then immediate data */
};

enum rv_flag { RV_SIGNALED = 1, RV_SOLICITED = 2, RV_FENCE = 4, RV_INLINE = 8 };

/*
 * A work request. What does not fit stands in the entries right after it:
 *
 *	entry | ranges after the first, 4 an entry ...
 *	entry | inline octets, 64 an entry ...
 */
struct rv_wqe {
	uint64_t id;         /* comes back in the completion */
	struct rv_sge local; /* the first range; of inline data its length only */
	uint64_t remote_addr;
	uint32_t rkey; /* of the peer's; of Local Invalidate ours */
	uint8_t op, flags;
	uint8_t more; /* ranges after the first */
	uint8_t pad;
	uint64_t operand[3]; /* Fetch and Add: what; Compare and Swap: compare, swap; immediate data */
};

/*
 * Entries of one kind, in a circle of a power of two. The producer writes entries and then tail,
 * the consumer takes them and then writes head; both count entries and wrap.
 */
struct rv_queue {
	uint32_t tail;
	uint32_t pad0[15];
	uint32_t head;
	uint32_t over; /* of a queue pair's: the connection is over. What is posted from now on needs a doorbell */
	uint32_t pad1[14];
};

/* A completion. */
struct rv_cqe {
	uint64_t id;
	uint32_t qp_num;
	uint32_t length;    /* of a Write with immediate data: what was written */
	uint8_t op, status; /* as package rnic numbers them: op is enum rv_op */
	uint8_t flags;      /* enum rv_cqe_flag */
	uint8_t pad0;
	uint32_t invalidated;
	uint8_t immediate[8]; /* the first 4 are imm_data */
	uint32_t seq; /* 1 + the entry's position, written last: the entry is there */
	uint32_t pad1[7];
};

enum rv_cqe_flag { RV_CQE_SOLICITED = 1, RV_CQE_IMMEDIATE = 2 };

/* The head of a ring of completions. */
struct rv_cq {
	uint32_t head; /* the consumer's: what it has taken */
	uint32_t pad0[15];
	uint32_t armed; /* 0; 1: an event for a solicited completion or an error is wanted; 2: for any */
	uint32_t written; /* 1: a peer has written to memory while armed was 2 */
	uint32_t pad1[14];
};

/* Of a completion channel. */
struct rv_waits {
	uint32_t waiting; /* threads that wait for an event. One that begins to looks at written then */
	uint32_t written; /* 1: a queue has its written set */
};

/* A control call: slots of a fixed number, each used by one thread at a time. */
enum rv_call_state { RV_CALL_FREE, RV_CALL_TAKEN, RV_CALL_POSTED, RV_CALL_DONE };

struct rv_call {
	uint32_t state; /* a futex */
	uint32_t op;    /* enum rv_call_op */
	int32_t error;  /* an errno, or 0 */
	uint32_t size;  /* octets of data */
	uint64_t arg[RV_CALL_ARGS];
	uint8_t data[RV_CALL_DATA];
};

/*
 * Calls. "->" is what comes back in arg, from 0 on. Handles are the engine's numbers; channels are
 * file descriptors of sockets that the engine writes events to and closes when told.
 */
enum rv_call_op {
	RV_OPEN = 1,     /* async channel -> context */
	RV_CLOSE,        /* context */
	RV_ALLOC_PD,     /* -> pd */
	RV_FREE_PD,      /* pd */
	RV_REG_MR,       /* pd, address, length, iova, access -> mr, key */
	RV_PERMIT_MR,    /* mr, access: with the same key */
	RV_DEREG_MR,     /* mr */
	RV_CREATE_CQ,    /* depth, channel or -1, cookie, context, address of its struct rv_waits or 0, which stays
			    -> cq, address of struct rv_cq, entries */
	RV_DESTROY_CQ,   /* cq */
	RV_CREATE_SRQ,   /* pd, depth, ranges, cookie, context -> srq, address of struct rv_queue, entries,
			    address of a bit for each id: the buffer is free again, and no completion says so */
	RV_ARM_SRQ,      /* srq, limit */
	RV_QUERY_SRQ,    /* srq -> limit, 0 after its event */
	RV_DESTROY_SRQ,  /* srq */
	RV_CREATE_QP,    /* pd, send cq, receive cq, srq or 0, send depth, receive depth, ranges, inline, cookie, context ->
			    qp, number, doorbell bit, address of the send queue, entries, of the receive queue, entries */
	RV_PERMIT_QP,    /* qp, access: what the peer may do */
	RV_ABORT_QP,     /* qp */
	RV_DESTROY_QP,   /* qp */
	RV_CM_CREATE,    /* channel, cookie -> id */
	RV_CM_MIGRATE,   /* id, channel, the program's end of the old one: nobody reads there meanwhile */
	RV_CM_DESTROY,   /* id */
	RV_CM_BIND,      /* id, IPv6 only, shared; data: address -> ; data: address. No data: so from now on */
	RV_CM_RESOLVE,   /* id, octets of the source's address, shared; data: source, destination -> ; data: source */
	RV_CM_ROUTE,     /* id */
	RV_CM_LISTEN,    /* id, backlog */
	RV_CM_CONNECT,   /* id, qp, responder resources, initiator depth; data: private data */
	RV_CM_ACCEPT,    /* id, qp, responder resources, initiator depth; data: private data */
	RV_CM_REJECT,    /* id; data: private data */
	RV_CM_DISCONNECT, /* id */
	RV_ALLOC_MW,     /* pd -> mw, key */
	RV_BIND_MW,      /* mw, mr, address, length, access -> key */
	RV_FREE_MW,      /* mw */
	RV_CLOSE_CHANNEL, /* channel */
	RV_ADOPT,        /* id of a connection request, channel, cookie: events about it go there from now on */
	RV_LEAVE,        /* the program ends: what still goes on has a moment to end in order */
	RV_QUERY_QP,     /* qp -> Reads and atomics of its own that may be outstanding, of the peer's; 0 before it is connected */
	RV_RESIZE_CQ,    /* cq, entries; nobody polls meanwhile -> address of the first entry from now on, entries. The head stays */
	RV_FORGET,       /* channel, the program's end of it, cookie of an object that is gone: takes
			    events about it away. Nobody reads there meanwhile */
	RV_REVOKE_MR,    /* mr: nothing is reached by its key any more */
};

/* An event of the connection manager, one datagram. */
struct rv_cm_event {
	uint64_t cookie; /* of the id that it is about; of a request the listener's */
	uint64_t request; /* of a request: the new id */
	uint32_t type;   /* enum rdma_cm_event_type */
	int32_t status;
	uint8_t responder_resources, initiator_depth;
	uint16_t private_size;
	uint32_t pad;
	uint8_t local[28], peer[28]; /* sockaddr_in or sockaddr_in6 */
	uint8_t private_data[RV_PRIVATE_MAX];
};

/* An asynchronous event, one datagram. */
struct rv_async_event {
	uint64_t cookie; /* of the queue pair, completion queue or shared receive queue */
	uint32_t type;   /* enum ibv_event_type */
	uint32_t pad;
};

/* One for each process. */
struct rv_area {
	uint32_t sleeping; /* who serves calls waits for wake_fd to be written */
	int32_t wake_fd;   /* an eventfd */
	uint32_t pad0[14];
	uint32_t dozing; /* who looks at doorbells does: swap it for 0, then write bell_fd */
	int32_t bell_fd; /* an eventfd, there before the first queue pair */
	uint32_t pad1[14];
	uint32_t crowded; /* 1: who looks at doorbells shares its processor with threads that run */
	uint32_t pad2[15];
	uint32_t progress; /* a futex: counted when there are completions, somewhere; woken if waiting is not 0 */
	uint32_t waiting;  /* threads of the program that wait for it */
	uint32_t process;  /* the number of this process: the upper 24 bits of its handles */
	uint32_t pad3[13];
	uint64_t summary; /* one bit for each word of doorbells */
	uint64_t pad4[7];
	uint64_t doorbells[RV_QPS_MAX / 64];
	struct rv_call calls[RV_CALLS];
};

#endif
