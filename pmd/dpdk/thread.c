//go:build dpdk

// The polling thread, as the EAL sees it.

#include <pthread.h>
#include <stdatomic.h>

#include <rte_lcore.h>

#include "internal.h"

__thread uint64_t rnic_thread;

static pthread_key_t registered;
static atomic_uint_fast64_t threads;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void
leave(void *unused)
{
	(void)unused;
	rte_thread_unregister();
}

static void
make_key(void)
{
	(void)pthread_key_create(&registered, leave);
}

// rnic_thread_enter runs when q is polled on another thread than before: once, for a Poller. A
// registered thread has an lcore id, and with it a cache in front of every mempool, which takes a
// fifth off the cost of a frame. It is registered until it ends. If the EAL has no id left, the
// queue works without caches.
//
// A goroutine that did not lock its thread may move. What its old thread's cache has of the receive
// mempool goes back then, so that it is not missing: only this queue uses that mempool.
void
rnic_thread_enter(struct rnic_queue *q)
{
	if (q->lcore != LCORE_ID_ANY)
		rte_mempool_cache_flush(rte_mempool_default_cache(q->rx_pool, q->lcore), q->rx_pool);
	(void)pthread_once(&once, make_key);
	if (rte_lcore_id() == LCORE_ID_ANY && rte_thread_register() == 0)
		(void)pthread_setspecific(registered, q);
	if (rnic_thread == 0)
		rnic_thread = atomic_fetch_add(&threads, 1) + 1;
	q->thread = rnic_thread;
	q->lcore = rte_lcore_id();
}
