/*
 * Fork. The library's own locks are held while a process forks, so that a child finds what they
 * guard whole, and them free. A child of vfork runs nothing of this, and calls nothing.
 */
#include "shim.h"

static void before(void)
{
	rv_lock_device();
	rv_lock_load();
	rv_lock_table();
	rv_lock_qps();
	rv_lock_places();
	rv_lock_sockets();
	rv_lock_gids();
	rv_lock_signals(); /* last: no handler runs from here */
}

static void after(void)
{
	rv_unlock_signals();
	rv_unlock_gids();
	rv_unlock_sockets();
	rv_unlock_places();
	rv_unlock_qps();
	rv_unlock_table();
	rv_unlock_load();
	rv_unlock_device();
}

static void in_child(void)
{
	rv_own_signals();
	rv_forget_qps(); /* the parent's: their numbers may be the child's */
	after();
}

__attribute__((constructor)) static void look_at_forks(void)
{
	pthread_atfork(before, after, in_child);
}
