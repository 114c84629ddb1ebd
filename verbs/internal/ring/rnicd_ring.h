/* Generated from Go, packages wq, ring and waiting, by their TestHeader. Do not edit. */
#ifndef RNICD_RING_H
#define RNICD_RING_H

#include <stdint.h>

enum {
	/*
	 * OpSend sends Local and List, or Inline, into the peer's next receive buffer; Solicited asks
	 * for an event there.
	 */
	RV_OP_SEND = 1,
	/*
	 * OpWrite writes Local and List, or Inline, to RemoteSTag at RemoteOffset: one run of octets
	 * there.
	 */
	RV_OP_WRITE = 2,
	/* OpRecv is a receive buffer, Local and List, that was filled. */
	RV_OP_RECV = 3,
	/*
	 * OpSendInvalidate is OpSend that also gives the peer's STag RemoteSTag back: when the peer has
	 * received it nothing can be placed or read through that any more, and the peer's Completion
	 * says so. The peer must have granted it to this QueuePair alone; otherwise its Terminate ends
	 * the connection. A Read or an atomic through the STag that was posted before is not waited
	 * for, and ends the connection if it is too late: set Fence.
	 */
	RV_OP_SEND_INVALIDATE = 4,
	/*
	 * OpRead reads Local.Length octets from RemoteSTag at RemoteOffset into Local, which needs
	 * LocalWrite and no remote right; it has one sink, and no List. No more than ORD Reads and
	 * atomics are under way at a time; the others, and what was posted after them, wait. The octets
	 * are there, and stay, when the Completion was polled; before that and after a failure they are
	 * indeterminate.
	 */
	RV_OP_READ = 5,
	/*
	 * OpFetchAdd adds Add to the 64-bit word at RemoteOffset of RemoteSTag, which must be aligned
	 * there; the peer must have granted RemoteRead and RemoteWrite. The word's value before comes
	 * in Completion.Original, and in Local if that has octets: 8 of them, with LocalWrite, in this
	 * host's byte order. ORD counts it as it does Reads.
	 */
	RV_OP_FETCH_ADD = 6,
	/*
	 * OpCompareSwap is OpFetchAdd for the operands in CompareSwap; Original tells whether the word
	 * was swapped. With masks that leave bits out, an SGEMax of 1 and NoInline it counts as two of
	 * SendDepth.
	 */
	RV_OP_COMPARE_SWAP = 7,
	/*
	 * OpImmediate sends the 8 octets of Immediate, which the peer finds in its Completion. It uses
	 * up a receive buffer there, whose ranges are neither looked at nor written: a buffer without
	 * any will do. Local is not used.
	 */
	RV_OP_IMMEDIATE = 8,
	/*
	 * OpLocalInvalidate takes LocalSTag, a region or a bound window of this end, away from the
	 * peer; nothing is sent. When all that was posted before has been sent, and before anything
	 * posted after it is, the peer cannot reach anything through the STag any more. It may name
	 * what a peer's Send with Invalidate may (RFC 5040 section 8.1.1): an STag with remote rights
	 * that was made For this QueuePair. Those of several QueuePairs are ended by
	 * MemoryRegion.Revoke and Window.Unbind.
	 *
	 * Sends and Writes posted before from the STag are not harmed: their octets have been copied by
	 * then. A Read into it that is under way is, unless the request has Fence: its Response finds
	 * no sink and ends the connection. So does anything that still needs the STag: a Read of the
	 * peer's, a receive buffer, a later request that sends from it. A region stays registered, for
	 * Revalidate or Deregister; windows onto it end with it; a window can be bound again.
	 *
	 * It completes with Success, or with LocalOperation for an STag that it may not name or that is
	 * not valid (any more): like other local errors that ends the connection.
	 */
	RV_OP_LOCAL_INVALIDATE = 9,
	/*
	 * OpSendImmediate is OpSend with the first 4 octets of Immediate beside the message, which the
	 * peer finds in its Completion. It exists in acknowledged mode only (ConnParam.Acknowledged):
	 * iWARP has no such message.
	 */
	RV_OP_SEND_IMMEDIATE = 10,
	/*
	 * OpWriteImmediate is OpWrite, and then OpImmediate of imm_data and the length that was written.
	 * It stands in rings of C programs only; the engine carries out the two.
	 */
	RV_OP_WRITE_IMMEDIATE = 11,
	/*
	 * OpBindWindow binds a window of type 2 to a region and this queue pair, when all that was posted
	 * before was begun. It stands in rings of C programs only; the engine carries it out.
	 */
	RV_OP_BIND_WINDOW = 12,
};

enum {
	RV_SUCCESS = 0, /* (success) */
	/*
	 * LocalProtection: a range was not registered, was revoked, or lacks the right (local
	 * protection error).
	 */
	RV_LOCAL_PROTECTION = 1,
	/*
	 * LocalLength: receive: the message was longer than the buffer; of a WorkSource, a request that
	 * it refused for that (local length error).
	 */
	RV_LOCAL_LENGTH = 2,
	/*
	 * Flushed: the QueuePair left service before the request was carried out, or before that could
	 * be told (flushed).
	 */
	RV_FLUSHED = 3,
	RV_REMOTE_ACCESS = 4, /* Read or atomic: the peer did not grant it (remote access error) */
	/*
	 * RemoteInvalidRequest: of a Read or atomic: the peer does not serve it, or not so many, or the
	 * word is not aligned (remote invalid request error).
	 */
	RV_REMOTE_INVALID_REQUEST = 5,
	/* RemoteOperation: Read or atomic: the peer could not carry it out (remote operation error). */
	RV_REMOTE_OPERATION = 6,
	RV_BAD_RESPONSE = 7, /* Read or atomic: what came back is no Response to it (bad response error) */
	/*
	 * LocalOperation: Local Invalidate: the STag is not one that this queue pair may invalidate; of
	 * a WorkSource, what it refused for that (local queue pair operation error).
	 */
	RV_LOCAL_OPERATION = 8,
	/*
	 * RNRRetryExceeded: in acknowledged mode: the peer had no receive buffer for the message as often
	 * as it was sent (receiver not ready retry counter exceeded).
	 */
	RV_RNR_RETRY_EXCEEDED = 9,
	/*
	 * RetryExceeded: in acknowledged mode: the peer has not acknowledged the request in time, or the
	 * connection ended before that (transport retry counter exceeded).
	 */
	RV_RETRY_EXCEEDED = 10,
	/*
	 * WindowBind: of a C program's request to bind a window: it is bound, or may not be like that
	 * (memory window bind error).
	 */
	RV_WINDOW_BIND = 11,
};

/* SGE is a range of registered local memory, laid out as ibv_sge. MemoryRegion.Slice makes one. */
struct rv_sge {
	uint64_t offset; /* tagged offset (TO): Base of the region counts */
	uint32_t length;
	uint32_t stag;
};
_Static_assert(sizeof(struct rv_sge) == 16, "");

/*
 * WQE is a work request as rings hold it: 64 octets, fixed, free of pointers. Ranges and inline
 * octets that do not fit are in the entries that follow:
 *
 * 	WQE | ranges after Local: 4 an entry ...
 * 	WQE | inline octets: 64 an entry ...
 */
struct rv_wqe {
	uint64_t id; /* comes back in the completion */
	struct rv_sge local; /* first range; inline: its Length; atomics: where the word before goes */
	uint64_t remote_offset;
	uint32_t remote_stag; /* the peer's; Local Invalidate: ours */
	uint8_t op;
	uint8_t flags;
	uint8_t more; /* ranges after Local */
	uint8_t pad0;
	uint64_t operands[3]; /* by Op, see below */
};
_Static_assert(sizeof(struct rv_wqe) == 64, "");

/*
 * A Send of a queue pair for datagrams has its destination in the same place: the GID's octets in
 * Operands[0] and [1], and the immediate data, as C has it, in [2]; the Q_Key in RemoteSTag; and in
 * RemoteOffset
 *
 * 	bits 0 to 23   the number
 * 	bits 24 to 31  the index of the own GID
 * 	bits 32 to 39  the traffic class
 * 	bit 40         there is immediate data
 */
enum {
	RV_DATAGRAM_SOURCE_SHIFT = 24,
	RV_DATAGRAM_CLASS_SHIFT = 32,
};
#define RV_DATAGRAM_IMMEDIATE 1099511627776ull
#define RV_DATAGRAM_FROM_V4 4294967296ull

enum {
	RV_FLAG_SIGNALED = 1,
	RV_FLAG_SOLICITED = 2,
	RV_FLAG_FENCE = 4,
	RV_FLAG_INLINE = 8,
	RV_FLAG_REFUSED = 16, /* by the engine's own hand: not to be carried out */
};

enum {
	RV_ENTRY_LEN = 64, /* octets of an entry */
	RV_RANGES_PER_ENTRY = 4, /* ranges in one that follows a WQE */
};

/* CQE is a completion, as the application and rings have it: 64 octets, fixed, free of pointers. */
struct rv_cqe {
	uint64_t id;
	uint32_t qp; /* QueuePair.Number */
	uint32_t len; /* octets of the message */
	uint8_t op;
	uint8_t status;
	/* Solicited: the peer asked for an event with this message. */
	uint8_t solicited;
	/* WithImmediate: the message was immediate data, which Immediate has, or BesideSend. */
	uint8_t with_immediate;
	/*
	 * Invalidated is the STag of ours that the peer's message invalidated, or 0. Nothing is placed
	 * through it any more: the memory can be read without Revoke.
	 */
	uint32_t invalidated;
	/*
	 * Original, of an atomic: the value of the peer's word before. Of a datagram: the number of the
	 * queue pair that has sent it, and perhaps DatagramFromV4
	 */
	uint64_t original;
	uint8_t immediate[8];
	/*
	 * Written, of immediate data, bounds what the peer may say that it has written: the octets of
	 * its last Write, and 0 where none came since the immediate data before. While octets arrive
	 * out of order, later Writes may be counted, too.
	 */
	uint32_t written;
	uint32_t seq; /* Publish */
	/*
	 * Terminate, of a request that failed, is that which ended the stream (RFC 5040 section 4.8), as
	 * TerminateOf puts it; 0: none did
	 */
	uint32_t terminate;
	/*
	 * BesideSend: the immediate data is the first 4 octets of Immediate, and came with a Send, whose
	 * octets are in the buffer.
	 */
	uint8_t beside_send;
	uint8_t pad0[3];
	uint64_t time; /* Stamp */
};
_Static_assert(sizeof(struct rv_cqe) == 64, "");

/* Which end has sent a Terminate, in CQE.Terminate. */
enum {
	RV_TERMINATE_PEER = 65536,
	RV_TERMINATE_OWN = 131072,
};

/* Limits of a process. */
enum {
	RV_QPS_MAX = 4096, /* queue pairs: one doorbell bit each. Their rings: vm.max_map_count */
	RV_CQS_MAX = 16384,
	RV_PDS_MAX = 65536,
	RV_MRS_MAX = 32768,
	RV_OWNED_MAX = 65536, /* descriptors in a table of the engine's */
	RV_MWS_MAX = 28672, /* a queue pair has a region of its own */
	RV_SRQS_MAX = 4096,
	RV_MESSAGE_MAX = 2147483647,
};
#define RV_MR_SIZE_MAX 4398046511104ull

/* Why a datagram is dropped. */
enum {
	RV_DROP_MALFORMED = 0, /* no datagram of ours, or its sender's port is not that of its number */
	RV_DROP_NUMBER = 1, /* no queue pair has the number, or it does not receive yet */
	RV_DROP_Q_KEY = 2,
	RV_DROP_NO_BUFFER = 3, /* none was posted */
	RV_DROP_TOO_LONG = 4, /* for the next buffer */
	RV_DROP_UNSENT = 5, /* of our own, which the kernel did not take */
	RV_DROP_STRANGER = 6, /* from an address that is not allowed */
	RV_DROPS = 7,
};

/* Limits of a queue pair and a completion queue. */
enum {
	RV_WR_MAX = 16384, /* requests, or receive buffers */
	RV_SGE_MAX = 16,
	RV_SRQ_RANGES_MAX = 4,
	RV_INLINE_MAX = 512,
	RV_CQE_MAX = 1048576,
	RV_DATAGRAM_MAX = 4096, /* octets of a message of UD */
	RV_GROUPS_MAX = 64, /* of multicast, of a process */
	RV_GIDS_MAX = 64,
};

/* Sizes. */
enum {
	RV_CALLS = 64, /* control calls under way at a time */
	RV_CALL_ARGS = 16,
	RV_CALL_DATA = 1024, /* octets that go along with a call, either way */
	RV_PRIVATE_MAX = 512,
};

/*
 * Queue is the head of a ring of wq.WQE, a power of two of them, that C fills. The producer writes
 * entries and then Tail, which counts them and wraps. Completions tell it what was taken.
 */
struct rv_queue {
	uint32_t tail;
	uint32_t pad0[15];
	uint32_t over; /* the connection is over: what is posted from now on needs a doorbell */
	/* 1: of requests, after PauseQP: those that were begun have completed */
	uint32_t drained;
	uint32_t pad1[14];
};
_Static_assert(sizeof(struct rv_queue) == 128, "");

/*
 * CQ is the head of a ring of wq.CQE that C empties. An entry is there when its seq is its position
 * plus 1.
 */
struct rv_cq {
	uint32_t head; /* the consumer's: what it has taken */
	uint32_t pad0[15];
	uint32_t armed;
	uint32_t written; /* 1: a peer has written to memory while Armed was ArmedAny */
	uint32_t pad1[14];
};
_Static_assert(sizeof(struct rv_cq) == 128, "");

/* Waits are what the engine knows of threads that wait on a channel for completions. */
struct rv_waits {
	uint32_t waiting; /* threads that wait for an event. One that begins to looks at Written then */
	uint32_t written; /* 1: a queue has its Written set */
};
_Static_assert(sizeof(struct rv_waits) == 8, "");

/* What CQ.Armed asks for. */
enum {
	RV_DISARMED = 0,
	RV_ARMED_SOLICITED = 1, /* an event for a solicited completion or an error */
	RV_ARMED_ANY = 2,
};

/* States of a Call. */
enum {
	RV_CALL_FREE = 0,
	RV_CALL_TAKEN = 1,
	RV_CALL_POSTED = 2,
	RV_CALL_DONE = 3,
};

/* Call is a control call: a slot that one thread uses at a time. */
struct rv_call {
	uint32_t state; /* a futex */
	uint32_t op;
	int32_t error; /* an errno, or 0 */
	uint32_t size; /* octets of data */
	uint64_t arg[16];
	uint8_t data[1024];
};
_Static_assert(sizeof(struct rv_call) == 1168, "");

/*
 * Control calls, with what they take. "->" is what comes back in Arg, from 0 on. Handles are the
 * engine's numbers; channels are file descriptors of sockets that the engine writes events to and
 * closes when told.
 */
enum {
	RV_OPEN = 1, /* async channel, cookie -> context */
	RV_CLOSE = 2, /* context */
	RV_ALLOC_PD = 3, /* -> pd */
	RV_FREE_PD = 4, /* pd */
	RV_REG_MR = 5, /* pd, address, length, iova, access -> mr, key */
	RV_PERMIT_MR = 6, /* mr, access: with the same key */
	RV_DEREG_MR = 7, /* mr */
	/*
	 * depth, channel or -1, cookie, context, address of its Waits or 0, which stays, 1: completions
	 * say when they were published, by CLOCK_MONOTONIC -> cq, address of its CQ, entries
	 */
	RV_CREATE_CQ = 8,
	RV_DESTROY_CQ = 9, /* cq */
	/*
	 * pd, depth, ranges, cookie, context -> srq, address of its Queue, entries, address of a bit
	 * for each id: the buffer is free again, and no completion says so
	 */
	RV_CREATE_SRQ = 10,
	RV_ARM_SRQ = 11, /* srq, limit */
	RV_QUERY_SRQ = 12, /* srq -> limit, 0 after its event */
	RV_DESTROY_SRQ = 13, /* srq */
	/*
	 * pd, send cq, receive cq, srq or 0, send depth, receive depth, ranges, inline, cookie,
	 * context -> qp, number, doorbell bit, address of the send queue, entries, of the receive
	 * queue, entries
	 */
	RV_CREATE_QP = 14,
	RV_PERMIT_QP = 15, /* qp, access: what the peer may do */
	RV_ABORT_QP = 16, /* qp */
	RV_DESTROY_QP = 17, /* qp */
	RV_CM_CREATE = 18, /* channel, cookie, 1: of RDMA_PS_UDP -> id */
	/* id, channel, the program's end of the old one: nobody reads there meanwhile */
	RV_CM_MIGRATE = 19,
	RV_CM_DESTROY = 20, /* id */
	/* id, IPv6 only, shared; data: address -> ; data: address. No data: so from now on */
	RV_CM_BIND = 21,
	/* id, octets of the source's address, shared; data: source, destination -> ; data: source */
	RV_CM_RESOLVE = 22,
	RV_CM_ROUTE = 23, /* id */
	RV_CM_LISTEN = 24, /* id, backlog */
	/*
	 * id, qp, responder resources, initiator depth, rnr_retry_count + 1; data: private data. Of
	 * RDMA_PS_UDP: id, the number of the queue pair, its Q_Key
	 */
	RV_CM_CONNECT = 25,
	RV_CM_ACCEPT = 26, /* the same */
	RV_CM_REJECT = 27, /* id; data: private data */
	RV_CM_DISCONNECT = 28, /* id */
	RV_ALLOC_MW = 29, /* pd -> mw, key */
	RV_BIND_MW = 30, /* mw, mr, address, length, access -> key */
	RV_FREE_MW = 31, /* mw */
	RV_CLOSE_CHANNEL = 32, /* channel */
	/* id of a connection request, channel, cookie: events about it go there from now on */
	RV_ADOPT = 33,
	RV_LEAVE = 34, /* the program ends: what still goes on has a moment to end in order */
	/*
	 * qp -> Reads and atomics of its own that may be outstanding, of the peer's; 0 before it is
	 * connected
	 */
	RV_QUERY_QP = 35,
	/*
	 * cq, entries; nobody polls meanwhile -> address of the first entry from now on, entries. The
	 * head stays
	 */
	RV_RESIZE_CQ = 36,
	/*
	 * channel, the program's end of it, cookie of an object that is gone: takes events about it
	 * away. Nobody reads there meanwhile
	 */
	RV_FORGET = 37,
	RV_REVOKE_MR = 38, /* mr: nothing is reached by its key any more */
	/*
	 * -> MTU, MAC (its first octet first in memory), 0 over the kernel's sockets; data: addresses,
	 * of 16 octets each, that connections are bound to. None: all of the host's
	 */
	RV_ADDRESSES = 39,
	/*
	 * qp, the peer's number, Reads and atomics of the peer's that may be outstanding; data: GID of
	 * this end, of the peer. It begins to connect, by number
	 */
	RV_CONNECT_QP = 40,
	/* qp, timeout, retry_cnt, rnr_retry, min_rnr_timer, 1: it is in RTS */
	RV_TIME_QP = 41,
	RV_RESET_QP = 42, /* qp: what was posted is forgotten, nobody posts or polls meanwhile */
	RV_CREATE_UD = 43, /* as CreateQP, for datagrams */
	/*
	 * qp, enum ibv_qp_state, Q_Key, 1: to SQD, with an event when it is drained. To RESET: its rings
	 * are empty, and nothing of it completes any more
	 */
	RV_MODIFY_UD = 44,
	RV_DESTROY_UD = 45, /* qp */
	/* qp, 1: attach, 0: detach; data: the group's GID, that of the interface it is joined at */
	RV_ATTACH_UD = 46,
	/*
	 * id of RDMA_PS_UDP, qp or 0, what comes back in CMEvent.Request, Q_Key; data: address of the
	 * group. It attaches the queue pair, and tells
	 */
	RV_CM_JOIN = 47,
	/*
	 * Data: the name of the interface that the device is at, or nothing. From now on PortDown and
	 * Changes are right, and events tell of it
	 */
	RV_WATCH_PORT = 48,
	/*
	 * qp, 1: requests that were begun complete, and no more are begun; 0: they are again, 1: with an
	 * event when they have
	 */
	RV_PAUSE_QP = 49,
	RV_TELL = 50, /* data: a line for an operator who looks at what the program does */
	/*
	 * key, address within a region, as its peers have it, length -> address; EFAULT: it has none, or
	 * not for access flags of the fourth
	 */
	RV_FIND_MR = 51,
};

/* CMEvent is an event of the connection manager, one datagram. */
struct rv_cm_event {
	uint64_t cookie; /* of the id that it is about; of a request the listener's */
	uint64_t request; /* of a request: the new id; of a group: CMJoin's */
	uint32_t type; /* enum rdma_cm_event_type */
	int32_t status;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint16_t private_size;
	uint32_t number; /* of RDMA_PS_UDP: where datagrams go */
	uint32_t q_key; /* of RDMA_PS_UDP: where datagrams go */
	uint32_t pad0;
	uint8_t local[28]; /* sockaddr_in or sockaddr_in6 */
	uint8_t peer[28]; /* sockaddr_in or sockaddr_in6 */
	uint8_t private[512];
};
_Static_assert(sizeof(struct rv_cm_event) == 608, "");

/* AsyncEvent is an asynchronous event, one datagram. */
struct rv_async_event {
	uint64_t cookie; /* of the queue pair, completion queue or shared receive queue */
	uint32_t type; /* enum ibv_event_type */
	uint32_t pad0;
};
_Static_assert(sizeof(struct rv_async_event) == 16, "");

/* Area is what a process and its engine share beside the rings. */
struct rv_area {
	uint32_t sleeping; /* who serves calls waits for WakeFD to be written */
	int32_t wake_fd; /* an eventfd */
	uint32_t pad0[14];
	uint32_t dozing; /* who looks at doorbells does: swap it for 0, then write BellFD */
	int32_t bell_fd; /* an eventfd, there before the first queue pair */
	uint32_t pad1[14];
	uint32_t crowded; /* 1: who looks at doorbells shares its processor with threads that run */
	/* 1: a thread that finds nothing, or has posted something, may carry on the engine by itself */
	uint32_t drives;
	uint32_t pad2[14];
	/*
	 * Who looks at doorbells leaves the rest to threads that do: swap it for 0, then write BellFD,
	 * for one that begins to wait, once Waits is 1.
	 */
	uint32_t resting;
	uint32_t waits;
	/*
	 * polls that found work for the engine, but nothing for the program, as the poll before: about as
	 * many, for threads count them without a lock
	 */
	uint64_t polls;
	uint32_t pad3[12];
	uint32_t progress; /* a futex: counted for completions, somewhere; woken if Waiting is not 0 */
	uint32_t waiting; /* threads of the program that wait for it */
	uint32_t process; /* the number of this process: the upper 24 bits of its handles */
	uint32_t looks; /* 1: the device looks like one of RoCE (Host.RoCE); there before the engine is */
	/*
	 * address of a table with a bit for each descriptor below OwnedMax: it is the engine's, and not
	 * the program's to close; 0: there is none yet
	 */
	uint64_t owned;
	/* how often the addresses in use have changed, perhaps; and 1: the port is down (WatchPort) */
	uint32_t changes;
	uint32_t port_down;
	uint32_t pad4[8];
	/* GIDs of address handles, by the index in the table: two words each, as C has the octets */
	uint64_t sources[128];
	/* datagrams that were dropped, by DropMalformed and those after it. The engine writes them */
	uint64_t drops[7];
	uint64_t pad5[1];
	uint64_t summary; /* one bit for each word of Doorbells */
	uint64_t pad6[7];
	uint64_t doorbells[64];
	struct rv_call calls[64];
};
_Static_assert(sizeof(struct rv_area) == 76736, "");

/*
 * A program that polls in vain keeps the engine from a processor that the two share. After VainMax
 * polls without a completion each gives way once.
 *
 * A yield costs half a microsecond where no other thread wants the processor. Where others run in
 * each of many yields, and nothing completes, the program waits for completions instead, and looks
 * with a yield in between whether that is still so: two programs that yield in turn keep a
 * processor from both engines. So does one that has a processor for itself while its engine has to
 * share one. A thread that computes keeps it until the tick, milliseconds, and for a hundred times
 * as long the program only waits.
 */
enum {
	RV_VAIN_MAX = 64,
	RV_YIELD_LONG_NS = 1000000,
	RV_YIELD_SHARE = 100,
	RV_YIELD_SHARED_NS = 1500,
	RV_SHARED_MAX = 256,
};

/*
 * A program that may be waiting for something else looks again after AwaitNs: twice as long where
 * nothing has come, AwaitDoublings times, and half where something has, so that waits last about as
 * long as the engine takes. One that ends by its bound takes 16 us of a core that the engine may
 * need.
 */
enum {
	RV_AWAIT_NS = 50000,
	RV_AWAIT_DOUBLINGS = 4,
};

/*
 * A completion that waits for the peer's answer (ADR 0046) cannot come before its request has left.
 * So the post of a signaled request makes a Turn where BatchMin requests or more have been posted
 * since the last Turn: the peer takes them while the program posts more. Fewer wait for the next
 * poll, for a Turn takes as long as some tens of posts.
 */
enum {
	RV_BATCH_MIN = 32,
};

#endif
