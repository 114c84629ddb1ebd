/*
 * The wait of a poll for completions (rv_await_progress), with threads that are the engine: each
 * tells as verbs/internal/engine does. Compiled with -DFOR_EVER it has no bound, and a wake-up that
 * is lost is the last.
 */
#ifdef FOR_EVER
#define AWAIT_NS 500000000000000
#endif
#include "../../verbs/shim/engine.c"

/* Nothing here loads the engine. */
bool rv_roce(void)
{
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

#define PAIRS 8
#define TIMES 5000

struct pair_of {
	uint32_t slot __attribute__((aligned(64))); /* a completion's seq */
	uint32_t taken __attribute__((aligned(64)));
	uint32_t times;
};

/* As cq.put and Engine.tellProgress: the completion, the count, and then who waits. */
static void *engine(void *arg)
{
	struct pair_of *p = arg;

	for (uint32_t i = 1; i <= p->times; i++) {
		__atomic_store_n(&p->slot, i, __ATOMIC_SEQ_CST);
		__atomic_fetch_add(&rv_area->progress, 1, __ATOMIC_SEQ_CST);
		if (__atomic_load_n(&rv_area->waiting, __ATOMIC_SEQ_CST))
			futex(&rv_area->progress, FUTEX_WAKE, INT_MAX);
		while (load_acquire(&p->taken) != i)
			sched_yield();
	}
	return NULL;
}

/* As rv_poll_cq and give_way: the count, then the slot once more, then the wait. */
static void *program(void *arg)
{
	struct pair_of *p = arg;
	uint32_t doublings = 0;

	for (uint32_t i = 1; i <= p->times; i++) {
		while (load_acquire(&p->slot) != i) {
			uint32_t seen;

			if (i % 3 == 1)
				sched_yield(); /* much may come in between */
			seen = load_acquire(&rv_area->progress);
			if (i % 3 == 2)
				sched_yield();
			rv_await_progress(seen, &p->slot, i, &doublings);
		}
		store_release(&p->taken, i);
	}
	return NULL;
}

static void run(struct pair_of *pairs, int n, uint32_t times)
{
	pthread_t threads[2 * PAIRS];

	for (int i = 0; i < n; i++) {
		pairs[i] = (struct pair_of){ .times = times };
		if (pthread_create(&threads[2 * i], NULL, program, &pairs[i]) ||
		    pthread_create(&threads[2 * i + 1], NULL, engine, &pairs[i]))
			abort();
	}
	for (int i = 0; i < 2 * n; i++)
		pthread_join(threads[i], NULL);
}

int main(void)
{
	static struct rv_area area;
	static struct pair_of pairs[PAIRS];

	rv_area = &area;
	area.doorbells[2] = 1 << 7; /* another thread's, which is about to set the summary */
	rv_ring(2 * 64 + 7);
	if (area.summary != 1 << 2) {
		fprintf(stderr, "a doorbell waits for another thread: the summary is %lx\n", (long)area.summary);
		return 1;
	}
	run(pairs, 1, TIMES); /* nobody else's progress wakes it */
	run(pairs, PAIRS, TIMES / PAIRS);
#ifndef FOR_EVER
	uint32_t doublings = 0;

	for (uint32_t i = 1; i <= RV_AWAIT_DOUBLINGS + 2; i++) {
		rv_await_progress(area.progress, &pairs[0].slot, UINT32_MAX,
				  &doublings); /* nothing comes: it has a bound */
		if (doublings != (i < RV_AWAIT_DOUBLINGS ? i : RV_AWAIT_DOUBLINGS)) {
			fprintf(stderr, "after %u waits in vain the next is doubled %u times\n", i, doublings);
			return 1;
		}
	}
	for (uint32_t i = 1; i <= RV_AWAIT_DOUBLINGS + 2; i++) {
		area.progress++;
		rv_await_progress(area.progress - 1, &pairs[0].slot, UINT32_MAX, &doublings);
		if (doublings != (i < RV_AWAIT_DOUBLINGS ? RV_AWAIT_DOUBLINGS - i : 0)) {
			fprintf(stderr,
				"progress has come %u times, and the next wait is doubled %u "
				"times\n",
				i, doublings);
			return 1;
		}
	}
	doublings = 2;
	pairs[0].slot = 7;
	rv_await_progress(area.progress, &pairs[0].slot, 7, &doublings);
	if (doublings != 1) {
		fprintf(stderr, "it was there, untold, and the next wait is doubled %u times\n", doublings);
		return 1;
	}
#endif
	if (area.waiting)
		abort();
	printf("all well\n");
	return 0;
}
