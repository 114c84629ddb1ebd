/*
 * Who carries out what a thread posts while the engine sleeps (rv_ring, ibv_get_cq_event): the
 * thread, or the engine, which is woken. Who tells the engine that a thread waits (rv_attend). And
 * who wakes a thread that waits for acknowledgements.
 */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>

static long futexes;
#define syscall(number, ...) (futexes += (number) == SYS_futex, syscall(number, __VA_ARGS__))
#include "../../verbs/shim/engine.c"
#include "../../verbs/shim/channel.c"
#include "../../verbs/shim/post.c"
#define begin begin_request
#include "../../verbs/shim/wr.c"

static bool looks_like_roce;

bool rv_roce(void)
{
	return looks_like_roce;
}

/* Nothing here posts datagrams or binds windows, or loads the engine. */
void rv_put_destination(struct rv_qp *q, struct rv_wqe *w, const struct rv_ah *ah, uint32_t number,
			uint32_t qkey)
{
	(void)q, (void)w, (void)ah, (void)number, (void)qkey;
	abort();
}

int rv_put_bind(struct rv_qp *q, struct rv_wqe *w, struct ibv_mw *mw, uint32_t rkey,
		const struct ibv_mw_bind_info *bind)
{
	(void)q, (void)w, (void)mw, (void)rkey, (void)bind;
	abort();
}

void rv_signals_before(struct rv_signals *s)
{
	(void)s;
	abort();
}

void rv_signals_after(const struct rv_signals *s, enum rv_thread (*on_engine_thread)(void))
{
	(void)s, (void)on_engine_thread;
	abort();
}

static int turns;
static bool held; /* another thread is in a Turn */
static struct ibv_comp_channel *channel;
static struct rv_completions queue;

void *rv_table_find(uint64_t cookie)
{
	(void)cookie;
	return &queue;
}

static int turn(int most)
{
	static const uint64_t event = 1;

	turns += most;
	if (held)
		return 0;
	if (channel)
		send(container(channel, struct rv_channel, channel)->socket.engine_fd, &event,
		     sizeof event, 0);
	rv_area->doorbells[0] = rv_area->summary = 0;
	return 1;
}

/* Whether posts have made so many Turns and written to the bell so often since it was called. */
static bool since(int want_turns, uint64_t want_rung, const char *why)
{
	uint64_t rung = 0;

	if (read(rv_area->bell_fd, &rung, sizeof rung) < 0)
		rung = 0;
	if (turns != want_turns || rung != want_rung)
		fprintf(stderr, "%s: %d Turns, rung %lu times; want %d, %lu\n", why, turns,
			(long)rung, want_turns, (long)want_rung);
	want_turns -= turns;
	turns = 0;
	return !want_turns && rung == want_rung;
}

static struct rv_context device;
static struct rv_qp pair;

/* A queue pair with room for 64 requests, which takes them. */
static void create_pair(void)
{
	static struct rv_queue ring;
	static struct rv_wqe entries[64];
	static struct rv_sent sents[64];

	device.verbs.context.ops.post_send = rv_post_send;
	pair = (struct rv_qp){ .sq = &ring, .sq_entries = entries, .sq_mask = 63, .sents = sents,
			       .sent_mask = 63, .cap = { .max_send_wr = 64, .max_send_sge = 1 },
			       .sends_from = IBV_QPS_RTS };
	pair.qp.qp_base.context = &device.verbs.context;
	pair.qp.qp_base.qp_type = IBV_QPT_RC;
	pair.qp.qp_base.state = IBV_QPS_RTS;
	rv_start_wr(&pair);
}

enum way { CALLS, CHAIN, WR };

/* Posts n Writes, of which the one at index signaled, if any, is. All have left after that. */
static bool post(enum way way, int n, int signaled)
{
	struct ibv_send_wr wr[RV_BATCH_MIN + 1] = { 0 }, *bad;

	if (way == WR)
		ibv_wr_start(&pair.qp);
	for (int i = 0; i < n; i++) {
		wr[i].opcode = IBV_WR_RDMA_WRITE;
		wr[i].send_flags = i == signaled ? IBV_SEND_SIGNALED : 0;
		wr[i].next = way == CHAIN && i + 1 < n ? &wr[i + 1] : NULL;
		pair.qp.wr_flags = wr[i].send_flags;
		if (way == WR)
			ibv_wr_rdma_write(&pair.qp, 1, 2);
		else if (way == CALLS && ibv_post_send(&pair.qp.qp_base, &wr[i], &bad))
			return false;
	}
	if ((way == WR && ibv_wr_complete(&pair.qp)) ||
	    (way == CHAIN && ibv_post_send(&pair.qp.qp_base, wr, &bad)))
		return false;
	store_release(&pair.retired, pair.sent);
	return true;
}

/* Whether posting so many makes so many Turns, however they are posted. */
static bool posts_make(int want_turns, int n, int signaled, const char *why)
{
	static const char *const names[] = { "one by one", "a chain", "ibv_wr" };

	for (enum way way = CALLS; way <= WR; way++) {
		char text[100];

		snprintf(text, sizeof text, "%s: %s", names[way], why);
		posted = 0;
		if (!post(way, n, signaled) || !since(want_turns, 0, text))
			return false;
	}
	return true;
}

static void *waits(void *acks)
{
	rv_wait_acked(acks);
	return NULL;
}

int main(void)
{
	static struct rv_area area = { .dozing = 1 };
	static struct rv_context context;
	struct ibv_cq *cq;
	void *cq_context;
	pthread_t thread;

	rv_area = &area;
	area.bell_fd = eventfd(0, EFD_NONBLOCK);
	engine_turn = turn;
	rv_ring(0);
	if (!since(0, 1, "over our TCP"))
		return 1;
	area.drives = area.dozing = 1;
	rv_ring(0);
	if (!since(1, 0, "the first"))
		return 1;
	rv_ring(0);
	if (!since(0, 1, "another one before the thread polls"))
		return 1;
	for (int i = 0; i < 10; i++)
		rv_ring(0);
	if (!since(0, 0, "and more of them: the engine is awake"))
		return 1;
	rv_posted = false;
	rv_ring(0);
	if (!since(0, 0, "the first, while the engine is awake"))
		return 1;
	area.dozing = 1;
	rv_ring(0);
	if (!since(1, 0, "it has gone to sleep"))
		return 1;
	rv_posted = false;
	held = true;
	rv_ring(0);
	if (!since(1, 1, "another thread may have looked already"))
		return 1;
	held = false;
	for (uint32_t i = 1; i < RV_BATCH_MIN; i++)
		rv_ring_batch(0, 1, true);
	if (!since(0, 0, "few that wait for the peer"))
		return 1;
	rv_ring_batch(0, 1, false);
	if (!since(0, 0, "many, the last of which does not wait"))
		return 1;
	rv_ring_batch(0, 1, true);
	if (!since(1, 0, "many, the last of which waits"))
		return 1;
	rv_ring_batch(0, RV_BATCH_MIN - 1, true);
	rv_turn(1);
	rv_ring_batch(0, 1, true);
	if (!since(1, 0, "many, a Turn among them"))
		return 1;

	create_pair();
	if (!posts_make(0, RV_BATCH_MIN + 1, RV_BATCH_MIN, "as an RNIC, no completion waits"))
		return 1;
	looks_like_roce = true;
	if (!posts_make(1, RV_BATCH_MIN + 1, RV_BATCH_MIN, "many, the last of which is signaled") ||
	    !posts_make(0, RV_BATCH_MIN + 1, -1, "many, none of which is") ||
	    !posts_make(0, RV_BATCH_MIN - 1, RV_BATCH_MIN - 2, "few, the last of which is"))
		return 1;
	posted = 0;
	if (!post(CHAIN, RV_BATCH_MIN, 0) || !since(1, 0, "a chain, the first of which is") ||
	    !post(WR, RV_BATCH_MIN, 0) || !since(1, 0, "by ibv_wr, the first of which is"))
		return 1;
	pair.signal_all = true;
	if (!posts_make(1, RV_BATCH_MIN, -1, "many, where all are"))
		return 1;

	/* One that waits for an event of what it has posted. */
	rv_posted = true;
	area.dozing = 1;
	channel = ibv_create_comp_channel(&context.verbs.context);
	rv_ring(0);
	if (!since(0, 1, "another one, of which an event is to come"))
		return 1;
	if (ibv_get_cq_event(channel, &cq, &cq_context) || !since(1, 0, "it waits"))
		return 1;

	/* The engine is told of one that waits where it leaves looking to others. */
	rv_attend();
	if (!since(0, 0, "the engine looks anyway") || area.waits != 1)
		return 1;
	area.waits = 0;
	area.resting = 1;
	rv_attend();
	if (!since(0, 1, "the engine rests") || area.waits != 1 || area.resting)
		return 1;

	/* To acknowledge events is a system call only where a thread waits for that. */
	queue.acks.given += 5;
	ibv_ack_cq_events(cq, 4);
	if (futexes)
		return 1;
	if (pthread_create(&thread, NULL, waits, &queue.acks))
		return 1;
	while (!(load_acquire(&queue.acks.acked) & 1))
		sched_yield();
	ibv_ack_cq_events(cq, 2);
	if (pthread_join(thread, NULL))
		return 1;
	printf("all well\n");
	return 0;
}
