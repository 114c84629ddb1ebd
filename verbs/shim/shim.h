/*
 * librnicd_verbs.so: libibverbs and librdmacm over the engine of package verbs/internal/engine.
 *
 *	engine.c    loading the engine, calls to it, doorbells
 *	signals.c   the program's signals beside the engine's threads
 *	table.c     objects by number, for events that come late
 *	device.c    the one device, its attributes
 *	gid.c       its GIDs, from the addresses in use
 *	ah.c        address handles
 *	paths.c     its files in /sys and /dev, as a table
 *	files.c     the C library's functions that find them; directories.c, libc.h
 *	context.c   an opened device: its operations
 *	memory.c    domains, regions, windows
 *	advise.c    pages of regions
 *	channel.c   completion channels and asynchronous events
 *	cq.c        completion queues
 *	poll.c      completions: ibv_poll_cq, ibv_cq_ex
 *	qp.c        queue pairs
 *	modify.c    their moves: ibv_modify_qp
 *	moves.c     which there are
 *	post.c      work requests: ibv_post_send, ibv_post_recv
 *	wr.c        work requests: ibv_wr_*
 *	ud.c        queue pairs for datagrams
 *	mcast.c     their groups
 *	srq.c       shared receive queues
 *	cm.c        rdma_cm_id: create, resolve, connect, accept
 *	cmevent.c   events of the connection manager
 *	ep.c        rdma_create_ep and its like
 *	addrinfo.c  rdma_getaddrinfo
 *	strings.c   names of statuses and events
 *	rates.c     rates as numbers
 *	refused.c   what iWARP has not
 *	fork.c      children of the process
 *	unmapped.c  regions whose memory the program unmaps
 *	forward.c   what the distribution's libraries have besides
 *	shim.map    the symbols and their versions
 *
 * The program's threads run this C only: entries and completions go through rings in memory, all
 * else through calls (struct rv_call) that the engine's threads carry out.
 */
#ifndef RNICD_SHIM_H
#define RNICD_SHIM_H

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <rdma/rdma_cma.h>

#include "../internal/ring/rnicd_ring.h"

/* The header has these names as macros over functions, which are what a library defines. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_port
#undef ibv_get_device_list

/* Limits of the device besides those of rnicd_ring.h. */
#define RV_READS_MAX 128
#define RV_GIDS 64 /* as RoCE */
#define RV_AHS_MAX 65536
#define RV_PORT_CAPS IBV_PORT_CM_SUP

/* Of a function that stands in front of the C library's: sanitizers call it before they are ready.
 */
#define RV_EARLY __attribute__((no_sanitize("thread")))

#define load_acquire(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define load_relaxed(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define store_release(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)
#define container(p, type, member) ((type *)((char *)(p) - offsetof(type, member)))

/*
 * A lock for a few instructions, or for a call to the engine. Its holder is not cancelled, here or
 * anywhere in this library: there is no point of cancellation, except where a thread waits for an
 * event.
 */
struct rv_lock {
	uint32_t held;
};
void rv_lock_slow(struct rv_lock *l);
static inline void rv_lock(struct rv_lock *l)
{
	if (__atomic_exchange_n(&l->held, 1, __ATOMIC_ACQUIRE))
		rv_lock_slow(l);
}
static inline void rv_unlock(struct rv_lock *l)
{
	store_release(&l->held, 0);
}

/* Events that were handed to the program and that it has not acknowledged. */
struct rv_acks {
	uint32_t given;
	uint32_t acked; /* twice their number; odd: a thread may wait */
};
void rv_acked(struct rv_acks *a, uint32_t n);
void rv_wait_acked(struct rv_acks *a); /* until all are that were given so far */

/* engine.c. A call's arguments and answer; calls return 0 or an errno. */
struct rv_args {
	uint64_t arg[RV_CALL_ARGS];
	const void *data;
	size_t size;
	void *ret; /* where data that comes back goes, and how much may */
	size_t ret_size;
};
int rv_call(uint32_t op, struct rv_args *a);
int rv_call1(uint32_t op, uint64_t arg);
void rv_after_calls(
	void); /* after reading an event: what was done before the calls that led to it is seen */
void rv_ring(uint32_t bit); /* a doorbell, after the entry was published */
void rv_ring_batch(uint32_t bit, uint32_t requests, bool waits);
bool rv_turn(int most);
void rv_attend(void);
/* A post of this thread's has made a Turn since it polled last. */
extern __thread bool rv_posted __attribute__((tls_model("initial-exec")));
/* How many of this thread's polls in vain make no Turn yet (poll.c); 0 after a post. */
extern __thread uint32_t rv_elsewhere __attribute__((tls_model("initial-exec")));
/* Until *slot is want, or the engine has completed something since seen, or for a moment, which is
 * doubled *doublings times. */
void rv_await_progress(uint32_t seen, const uint32_t *slot, uint32_t want, uint32_t *doublings);
extern struct rv_area *rv_area;
const char *rv_setting(const char *variable); /* of the environment, where that decides */

/* device.c */
bool rv_roce(void);
struct ibv_device *rv_device(void);
const char *rv_rate(void); /* as sysfs has it */

/* gid.c */
struct rv_gid {
	union ibv_gid gid;
	char interface[IF_NAMESIZE]; /* empty: none of the kernel's */
};
struct rv_link { /* of the first entry */
	char interface[IF_NAMESIZE];
	uint32_t mtu;
	int mbps; /* -1: not known */
	uint8_t mac[6];
};
uint32_t rv_gids(void); /* the table's length */
bool rv_gid(uint32_t index, struct rv_gid *g);
bool rv_gid_is_set(const struct rv_gid *g);
void rv_gid_of(union ibv_gid *gid, const struct sockaddr *a);
int rv_gid_index(const union ibv_gid *gid); /* -1: not ours */
void rv_gids_look(bool opened);             /* again: what has come and what has gone */
void rv_link(struct rv_link *l);
bool rv_own_tcp(void);
bool rv_port_down(void);
__be64 rv_guid(void);
__be16 rv_pkey(void);

/* signals.c. The actions of all signals before the engine is loaded; Go's are taken back after. */
struct rv_signals {
	struct sigaction act[NSIG];
};
enum rv_thread { RV_THREAD_PROGRAMS, RV_THREAD_ENGINES, RV_THREAD_IN_TURN };
void rv_signals_before(struct rv_signals *s);
void rv_signals_after(const struct rv_signals *s, enum rv_thread (*on_engine_thread)(void));
void rv_lock_signals(void); /* over a fork: the thread's signals wait, too */
void rv_unlock_signals(void);
void rv_own_signals(void); /* of a child of fork: its actions are its parent's */

/*
 * Fork. A child has its parent's objects in memory and none of the engine's threads. What a process
 * creates has its number; in another, a call about it is EPERM. The engine finds that by the
 * handle. Calls that change something, take a lock or wait before they ask it look first: a thread
 * of the parent's may have held the lock, and acknowledges no event here.
 */
extern const uint32_t *rv_process_page;
static inline uint32_t rv_process(void) /* 0: no engine yet */
{
	return load_relaxed(load_relaxed(&rv_process_page));
}
static inline bool rv_foreign(uint32_t process)
{
	return process != rv_process();
}
/* For fork.c. */
void rv_lock_device(void);
void rv_unlock_device(void);
void rv_lock_load(void);
void rv_unlock_load(void);
void rv_lock_table(void);
void rv_unlock_table(void);
void rv_lock_qps(void);
void rv_unlock_qps(void);
void rv_forget_qps(void);
void rv_lock_places(void);
void rv_unlock_places(void);
void rv_lock_sockets(void);
void rv_unlock_sockets(void);
void rv_lock_gids(void);
void rv_unlock_gids(void);

/* unmapped.c. Where regions are, by number; one that has lost pages is lost. */
uint32_t rv_place_add(uint64_t handle, const void *addr, size_t length);
void rv_place_remove(uint32_t number);
bool rv_place_lost(uint32_t number);

/* table.c. Objects by cookie; a cookie of an object that was removed finds nothing. */
uint64_t rv_table_add(void *object);
void *rv_table_find(uint64_t cookie);
void rv_table_remove(uint64_t cookie);

/* A socket on which the engine tells events; the program's end and the engine's. */
int rv_socketpair(int *mine, int *engines);
void rv_close(int fd); /* no point of cancellation, as close(2) is one */

/*
 * channel.c. Where the program reads events. It is the first member of the program's object, whose
 * memory is never freed: a thread may come to it late. rv_sockets keeps those of a kind that are
 * closed and that no thread reads from, and reuses the oldest of more than RV_CLOSED_MIN.
 */
#define RV_CLOSED_MIN 64

struct rv_sockets {
	size_t size; /* of the object */
	uint32_t count;
	struct rv_socket *first, *last;
};

struct rv_socket {
	int fd, engine_fd;
	uint32_t users; /* threads that read, and one until it is closed */
	uint32_t process;
	struct rv_waits waits; /* of a completion channel, for the engine */
	pthread_mutex_t reading; /* events are taken out, and counted with their objects, one at a time */
	struct rv_sockets *kind;
	struct rv_socket *next; /* that is closed */
};
void *rv_open_socket(struct rv_sockets *kind); /* an object with it, else zero; NULL: see errno */
void rv_close_socket(struct rv_socket *s);
typedef struct rv_acks *rv_acks_of(void *object, const void *event);
/* Reads the next event. Returns the object that it names, which stays until the event is
 * acknowledged, or NULL and errno. */
void *rv_receive(struct rv_socket *s, void *event, size_t size, rv_acks_of *acks);
struct rv_completions;
void rv_tell(struct ibv_comp_channel *channel, struct rv_completions *q); /* of its events */
void rv_tell_no_more(struct ibv_comp_channel *channel, struct rv_completions *q);
/* Events about an object that the program destroys, and of which no more are told, are taken away.
 * Those that were read are counted. */
void rv_forget(struct rv_socket *s, uint64_t cookie);

struct rv_context {
	struct rv_socket events; /* first */
	uint64_t handle, cookie;
	struct rv_acks acks; /* of events about no object, which need none */
	struct verbs_context verbs; /* last, and with it the public ibv_context */
};
struct ibv_context *rv_open(void);

struct rv_pd {
	struct ibv_pd pd;
	uint64_t handle;
	uint32_t users;
};

/* ah.c */
struct rv_ah {
	struct ibv_ah ah;
	struct ibv_ah_attr attr; /* as the program has it */
	union ibv_gid source;    /* that attr.grh.sgid_index was when it was made */
};
#define to_ah(a) ((struct rv_ah *)(a))
void rv_keep_source(uint32_t index, const union ibv_gid *gid); /* ud.c, for the engine */

/* paths.c */
#define RV_PATH 320
#define RV_TEXT 128
#define RV_NAME 64
struct rv_path {
	enum { RV_ABSENT, RV_DIRECTORY, RV_FILE, RV_ELSEWHERE } kind;
	int node;
	uint32_t index;
	char at[RV_PATH]; /* the path as it should be written, or where it is in truth */
};
bool rv_path_may_be(const char *path);
int rv_path_find(const char *path, struct rv_path *p);
void rv_path_enter(const char *directory); /* empty: one of the kernel's */
const char *rv_path_here(void);
int rv_path_text(const struct rv_path *p, char *text, size_t size);
bool rv_path_child(int directory, int nth, char name[RV_NAME], unsigned char *type);
const char *rv_path_of(int directory);

/* files.c */
bool rv_is_ours(const char *path, bool failed);
bool rv_would_be_ours(const char *path);
bool rv_path_of_descriptor(int fd, char path[RV_PATH]);
int rv_open_directory(const char *path, int flags);

struct rv_mr {
	struct ibv_mr mr;
	uint64_t handle;
	uint64_t iova;
	unsigned int access;
	uint32_t windows; /* bound to it */
	uint32_t place;   /* unmapped.c */
};

struct rv_mw {
	struct ibv_mw mw;
	uint64_t handle;
	struct rv_mr *mr; /* that it is bound to */
};

struct rv_channel {
	struct rv_socket socket; /* first */
	struct rv_completions *queues; /* that tell it; socket.reading is their lock */
	struct ibv_comp_channel channel;
};

struct rv_completions {
	struct ibv_cq_ex cq; /* as ibv_cq too */
	uint64_t handle, cookie;
	uint32_t process;
	struct rv_cq *ring;
	struct rv_cqe *entries;
	uint32_t mask, head;
	struct rv_lock lock;
	uint32_t vain; /* polls without a completion, one after the other */
	bool rearmed;  /* since the last of these */
	uint32_t seen; /* of rv_area->progress, before the last of these */
	uint32_t waits; /* how often the next wait for progress is doubled */
	uint32_t shared; /* yields one after the other in which another thread ran, or the engine
			    was short of a processor */
	uint64_t yield_from; /* no yield before */
	struct rv_acks acks, async_acks;
	struct rv_completions *next_told; /* of the channel's */
	uint32_t users;          /* queue pairs */
	struct rv_qp *last;      /* of the completion before */
	struct ibv_wc wc;        /* ibv_cq_ex: the current one */
	uint64_t time;           /* when it was published, by rv_now_ns's clock */
	uint64_t wall_ahead;     /* of that clock: CLOCK_REALTIME, when wc was polled */
	bool walled;             /* its readers want to know */
	bool polling;
};

/* What a send queue remembers of a request. */
struct rv_sent {
	uint64_t wr_id;
	uint8_t opcode; /* enum ibv_wc_opcode */
	uint32_t ahead; /* of a Read, octets in the ranges before its last, which completes */
};

struct rv_qp {
	struct ibv_qp_ex qp; /* as ibv_qp too */
	uint64_t handle, cookie;
	uint32_t process;
	uint32_t bit;
	struct ibv_qp_cap cap;
	bool signal_all;
	bool in_cm;     /* a connection has it, which moves it by itself */
	bool by_number; /* of an id that knows only its number */
	enum ibv_qp_state sends_from, recvs_from; /* when it takes requests */
	/* attributes that change nothing here, as the program has set them; and its peer's access */
	struct ibv_qp_attr kept;
	struct rv_qp *next; /* in the table of numbers */

	struct rv_lock send_lock;
	struct rv_queue *sq;
	struct rv_wqe *sq_entries;
	uint32_t sq_mask, sq_tail; /* in entries */
	uint32_t sent, retired;    /* in requests; retired is the poller's */
	uint32_t sent_mask;
	struct rv_sent *sents;

	struct rv_lock recv_lock;
	struct rv_queue *rq;
	struct rv_wqe *rq_entries;
	uint32_t rq_mask, rq_tail;
	uint32_t received, recv_retired, recv_mask;
	uint64_t *recvs;

	struct rv_acks acks;

	/* ibv_wr_*: what wr_start began. */
	uint32_t wr_sent, wr_tail, wr_entry;
	int wr_error;
	unsigned int wr_send_flags; /* of all of its requests */
	struct rv_wqe *wr_now;
};

struct rv_srq {
	struct ibv_srq srq;
	uint64_t handle, cookie;
	uint32_t process;
	struct rv_lock lock;
	struct rv_queue *ring;
	struct rv_wqe *entries;
	uint32_t mask, tail, depth, users;
	uint64_t *wr_ids;
	uint32_t *free; /* indices that are not posted */
	uint32_t free_count;
	uint64_t *returned; /* the engine's: bits of indices that will not complete */
	struct rv_acks acks;
};

struct rv_event_channel {
	struct rv_socket socket; /* first */
	struct rdma_event_channel channel;
};

struct rv_id {
	struct rdma_cm_id id; /* first: id->qp and the like are the program's to read */
	/* What the rsockets of librdmacm 44 read of it, where they do: see limits in cm.c. */
	const uint32_t *limits;
	uint64_t unused[3];
	int sync; /* its calls wait for their events */

	uint64_t handle, cookie;
	uint32_t process;
	bool own_pd, v6_only, reuse, bound, listening, connected, own_cqs;
	bool answered, established; /* CONNECT_RESPONSE was read; rdma_establish was called */
	bool responds;       /* without a queue pair of its own: RDMA_CM_EVENT_CONNECT_RESPONSE comes */
	uint8_t ack_timeout; /* RDMA_OPTION_ID_ACK_TIMEOUT */
	uint32_t backlog_events;
	uint8_t responder_resources, initiator_depth; /* of the request */
	struct ibv_qp *bare; /* of a connection that is for no queue pair of the program's */
	struct rv_acks acks;
	struct ibv_sa_path_rec path; /* id.route.path_rec, as RoCE */
	/* rdma_create_ep at the responder: what each new id gets */
	struct ibv_qp_init_attr *qp_attr;
	struct ibv_pd *qp_pd;
};

_Static_assert(offsetof(struct rv_id, sync) == sizeof(struct rdma_cm_id) + 32,
	       "as rsockets have it");

#define to_context(c) container(c, struct rv_context, verbs.context)
/* Of an opened device, and what was made of it. */
static inline bool rv_foreign_device(struct ibv_context *c)
{
	return rv_foreign(to_context(c)->events.process);
}

#define to_pd(p) ((struct rv_pd *)(p))
#define to_cq(c) ((struct rv_completions *)(c))
#define to_qp(q) ((struct rv_qp *)(q))
#define to_srq(s) ((struct rv_srq *)(s))
#define to_id(i) ((struct rv_id *)(i))

/* Operations that struct ibv_context and struct verbs_context point to. */
int rv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int rv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int rv_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int rv_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int rv_req_notify_cq(struct ibv_cq *cq, int solicited_only);
struct ibv_mw *rv_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int rv_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
int rv_dealloc_mw(struct ibv_mw *mw);
struct ibv_cq_ex *rv_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
struct ibv_qp *rv_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
struct ibv_srq *rv_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
int rv_get_srq_num(struct ibv_srq *srq, uint32_t *num);
int rv_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
		       struct ibv_device_attr_ex *attr, size_t size);
int rv_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		 struct ibv_sge *list, uint32_t n);
int rv_query_rt_values(struct ibv_context *context, struct ibv_values_ex *values);
int rv_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		  size_t size);

/* poll.c: the clock of completions. */
uint64_t rv_now_ns(void);
/* Discards completions of a queue pair that is destroyed. The queue is locked. */
void rv_discard(struct rv_completions *c, struct rv_qp *q);

/* Whether it may have Sends with Immediate: iWARP has none. A connection by librdmacm to such a peer
 * ends with the first. */
static inline bool rv_sends_immediate(const struct rv_qp *q)
{
	(void)q;
	return rv_roce();
}

/* device_attr.max_sge_rd: as RoCE, a Read into several ranges becomes several, of which the program
 * hears as of one. */
static inline uint32_t rv_read_ranges(void)
{
	return rv_roce() ? RV_SGE_MAX : 1;
}

/* qp.c, modify.c */
enum ibv_qp_state rv_state_of(struct rv_qp *q);
int rv_reset_qp(struct rv_qp *q);
void rv_cm_moves(void); /* the program asks the connection manager how to move a queue pair */

/* moves.c. Errors are told of. */
int rv_check_move(struct rv_qp *q, enum ibv_qp_state from, enum ibv_qp_state to, int mask);
int rv_wrong_value(struct rv_qp *q, enum ibv_qp_state from, enum ibv_qp_state to, int attribute,
		   int error);
int rv_refuse(struct rv_qp *q, enum ibv_qp_state to, int attributes);

/* ud.c */
static inline bool rv_is_ud(const struct rv_qp *q)
{
	return q->qp.qp_base.qp_type == IBV_QPT_UD;
}

/* Whether a completion waits for the peer's answer, where the flags of requests ask for one. */
static inline bool rv_waits_for_peer(const struct rv_qp *q, unsigned int flags)
{
	return (q->signal_all || flags & IBV_SEND_SIGNALED) && rv_roce() && !rv_is_ud(q);
}

int rv_modify_ud(struct rv_qp *q, const struct ibv_qp_attr *attr, int mask);
void rv_put_destination(struct rv_qp *q, struct rv_wqe *w, const struct rv_ah *ah, uint32_t number,
			uint32_t qkey);

/* Queue pairs by number, for completions. Held locks: of both of its completion queues. */
struct rv_qp *rv_qp_find(uint32_t number);

/* post.c, for wr.c too. */
int rv_post_bind(struct ibv_qp *qp, uint64_t wr_id, unsigned int flags, struct rv_args *bind);
uint32_t rv_entries_after(const struct rv_wqe *w);
void rv_put_inline(struct rv_qp *q, uint32_t at, size_t offset, const void *data, size_t n);
#define RV_SHORT 128 /* octets of a short datagram: UCX's requests to connect have some 70 */
static inline bool rv_is_short(const struct ibv_sge *s)
{
	return s->addr && s->length <= RV_SHORT;
}
uint32_t rv_octets_in(const struct ibv_sge *list, size_t n);
void rv_put_short(struct rv_qp *q, uint32_t at, struct rv_wqe *w, const struct ibv_sge *s);
int rv_put_bind(struct rv_qp *q, struct rv_wqe *w, struct ibv_mw *mw, uint32_t rkey,
		const struct ibv_mw_bind_info *b); /* memory.c */
void rv_start_wr(struct rv_qp *q); /* makes ibv_wr_* work */

/* Of ids of RDMA_PS_UDP: as librdmacm's RDMA_UDP_QKEY. */
#define RV_CM_QKEY 0x01234567
static inline bool rv_is_ud_id(const struct rv_id *i)
{
	return i->id.ps == RDMA_PS_UDP;
}

/* cm.c */
struct rv_id *rv_new_id(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps);
void rv_attach(struct rv_id *id);        /* it has a local address, and so the device */
bool rv_is_of_ids(const struct ibv_pd *pd); /* it is what ids have that were given none */
int rv_event_of(struct rv_id *id, int err); /* synchronous: the event that ends a call */

/* cmevent.c: an address handle from the id's address to another, as RoCE. */
void rv_ah_to(struct ibv_ah_attr *attr, const struct rv_id *id, const struct sockaddr *peer);

/*
 * ep.c: the queue pair that a connection is for; NULL, with errno. As RoCE that may be none of ours
 * to connect: UCX wants the private data and the end of the connection alone, names a queue pair for
 * datagrams, and connects others by number.
 */
struct rv_qp *rv_qp_of(struct rv_id *id, const struct rdma_conn_param *param);
void rv_destroy_bare_qp(struct rv_id *id);

static inline int rv_fail(int error)
{
	if (!error)
		return 0;
	errno = error;
	return -1;
}

#endif
