/*
 * How a poll in vain gives way (verbs/shim/poll.c), on a clock and a scheduler of the test's:
 * yields while they cost little, and waits where another thread computes, or runs each time.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long now, yield_ns; /* how long the next yields take */
static int yields, waits;

static int test_yield(void)
{
	now += yield_ns;
	yields++;
	return 0;
}

static int test_clock(clockid_t id, struct timespec *t)
{
	(void)id;
	t->tv_sec = now / 1000000000;
	t->tv_nsec = now % 1000000000;
	return 0;
}

#define sched_yield test_yield
#define clock_gettime test_clock
#include "../../verbs/shim/poll.c"

static struct rv_area area;
struct rv_area *rv_area = &area;
const uint32_t one_process, *rv_process_page = &one_process;

void rv_await_progress(uint32_t seen, const uint32_t *slot, uint32_t want, uint32_t *doublings)
{
	(void)seen, (void)slot, (void)want, (void)doublings;
	waits++;
}

__thread bool rv_posted;
__thread uint32_t rv_elsewhere;
static struct rv_cqe *completes; /* in the next Turn */
static bool works;		 /* Turns find work that completes nothing */
static int turns, attended;

void rv_attend(void)
{
	attended++;
}

bool rv_turn(int most)
{
	turns += most;
	if (!completes)
		return works;
	completes->seq = 1;
	completes = NULL;
	return true;
}

struct rv_qp *rv_qp_find(uint32_t number)
{
	(void)number;
	return NULL;
}

void rv_lock_slow(struct rv_lock *l)
{
	(void)l;
	abort();
}

static struct rv_completions queue;

/* So many polls in vain, each of which may give way, with yields that take so long. */
static void polls(int n, long ns)
{
	static const struct rv_cqe empty;

	yield_ns = ns;
	yields = waits = 0;
	for (int i = 0; i < n; i++) {
		give_way(&queue, &empty, 0);
		now += 100;
	}
}

/* A poll that is not in vain; of which queue pair does not matter here. */
static void complete(void)
{
	static struct rv_cq ring;
	static struct rv_cqe entry = { .seq = 1 };
	struct ibv_wc wc;

	queue.ring = &ring;
	queue.entries = &entry;
	rv_poll_cq((struct ibv_cq *)&queue.cq, 1, &wc);
	if (ring.head != 1)
		abort();
}

/* A poll that finds nothing has the engine make a Turn, and finds what that has completed. */
static int turned(void)
{
	static struct rv_cq ring;
	static struct rv_cqe entry;
	struct ibv_wc wc;

	memset(&queue, 0, sizeof queue);
	queue.ring = &ring;
	queue.entries = &entry;
	turns = 0;
	rv_posted = true;
	rv_poll_cq((struct ibv_cq *)&queue.cq, 1, &wc);
	if (turns != 1 || ring.head || rv_posted)
		return 0;
	if (attended)
		return 0;
	queue.rearmed = true; /* it is about to wait */
	rv_poll_cq((struct ibv_cq *)&queue.cq, 1, &wc);
	if (turns != 1 + TURNS || attended != 1)
		return 0;
	rv_poll_cq((struct ibv_cq *)&queue.cq, 1, &wc); /* it was not */
	if (attended != 1)
		return 0;
	completes = &entry;
	rv_poll_cq((struct ibv_cq *)&queue.cq, 1, &wc);
	return ring.head == 1;
}

/* Polls are counted from the second on whose Turn finds work, but nothing for the program. */
static int counted(void)
{
	static struct rv_cq ring;
	static struct rv_cqe entry;
	struct ibv_wc wc;

	memset(&queue, 0, sizeof queue);
	queue.ring = &ring;
	queue.entries = &entry;
	works = true;
	for (uint64_t i = 0; i < 5; i++) {
		rv_poll_cq((struct ibv_cq *)&queue.cq, 1, &wc);
		if (area.polls != i)
			return 0;
	}
	completes = &entry;
	rv_poll_cq((struct ibv_cq *)&queue.cq, 1, &wc);
	works = false;
	rv_poll_cq((struct ibv_cq *)&queue.cq, 1, &wc);
	return area.polls == 4;
}

/*
 * After a queue has given something, or a Turn has found something for another one, polls of other
 * queues in vain make no Turn: so many, until the thread posts, polls the same queue again, or is
 * about to wait.
 */
static int elsewhere_is_later(void)
{
	static struct rv_cq rings[2];
	static struct rv_cqe entries[2];
	static struct rv_completions queues[2];
	struct ibv_wc wc;

	for (int i = 0; i < 2; i++) {
		queues[i].ring = &rings[i];
		queues[i].entries = &entries[i];
	}
#define POLL(i) rv_poll_cq((struct ibv_cq *)&queues[i].cq, 1, &wc)
#define TURNS_OF(i) (turns = 0, POLL(i), turns)
	POLL(1); /* so that each poll of it makes TURNS */
	for (int post = 0; post < 2; post++) {
		entries[0].seq = queues[0].head + 1;
		POLL(0);
		for (int i = 0; i < ELSEWHERE_MAX; i++) {
			if (TURNS_OF(1))
				return 0;
			if (post) { /* by rv_ring */
				rv_elsewhere = 0;
				break;
			}
		}
		if (TURNS_OF(1) != TURNS)
			return 0;
	}
	entries[0].seq = queues[0].head + 1;
	POLL(0);
	if (TURNS_OF(1) || !TURNS_OF(0) || TURNS_OF(1) != TURNS)
		return 0;
	entries[0].seq = queues[0].head + 1;
	POLL(0);
	queues[1].rearmed = true;
	if (TURNS_OF(1) != TURNS)
		return 0;
	works = true;
	yields = 0;
	queues[1].vain = RV_VAIN_MAX;
	if (TURNS_OF(1) != TURNS || yields) /* nor does it give way: the work may be queue 0's */
		return 0;
	works = false;
	queues[0].vain = 0;
	return !TURNS_OF(0) && TURNS_OF(1) == TURNS;
}

#define EXPECT(want_yields, want_waits, why)                                                  \
	if (yields != (want_yields) || waits != (want_waits)) {                               \
		fprintf(stderr, "%s: %d yields, %d waits; want %d, %d\n", why, yields, waits, \
			want_yields, want_waits);                                             \
		return 1;                                                                     \
	}

int main(void)
{
	now = 1000000000;
	polls(100, RV_YIELD_SHARED_NS - 1);
	EXPECT(100, 0, "nobody else wants the processor");
	polls(RV_SHARED_MAX - 1, RV_YIELD_SHARED_NS);
	polls(1, 500);
	polls(RV_SHARED_MAX, RV_YIELD_SHARED_NS);
	EXPECT(RV_SHARED_MAX, 0, "another thread runs now and then");
	polls(100, RV_YIELD_SHARED_NS);
	EXPECT(50, 50,
	       "another thread runs in each yield: every other time it is looked whether that is "
	       "still so");
	polls(1, 500);
	polls(100, 500);
	EXPECT(100, 0, "it has gone");
	area.crowded = 1;
	polls(RV_SHARED_MAX + 2, 500);
	EXPECT(RV_SHARED_MAX + 1, 1, "the engine has no processor for itself");
	area.crowded = 0;
	polls(1, 500);
	polls(100, 500);
	EXPECT(100, 0, "it has");
	polls(1, RV_YIELD_LONG_NS + 1);
	EXPECT(1, 0, "one computes");
	polls(100, 500);
	EXPECT(0, 100, "and is not given the processor again soon");
	now += RV_YIELD_SHARE * (RV_YIELD_LONG_NS + 1L);
	polls(100, 500);
	EXPECT(100, 0, "long after");
	polls(1, 500);
	polls(RV_SHARED_MAX, RV_YIELD_SHARED_NS);
	complete();
	polls(RV_SHARED_MAX, RV_YIELD_SHARED_NS);
	EXPECT(RV_SHARED_MAX, 0, "a completion has come");
	area.drives = 1;
	polls(2 * RV_SHARED_MAX, RV_YIELD_SHARED_NS);
	EXPECT(2 * RV_SHARED_MAX, 0, "nobody else completes what it waits for");
	if (!turned() || !counted() || !elsewhere_is_later())
		return 1;
	printf("all well\n");
	return 0;
}
