/* How the C library tells the engine where their area is. No Go is called. */
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic(void *) area;
static _Atomic uint32_t attached;

__attribute__((visibility("default"))) void rnicd_engine_attach(void *a)
{
	atomic_store(&area, a);
	atomic_store(&attached, 1);
	syscall(SYS_futex, &attached, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Waits for rnicd_engine_attach. A thread of the engine. */
void *rnicd_engine_area(void)
{
	while (!atomic_load(&attached))
		syscall(SYS_futex, &attached, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
	return atomic_load(&area);
}
