/* ibv_advise_mr: pages of registered memory, which is not pinned, fetched before they are used. */
#include "shim.h"

#include <sys/mman.h>
#include <unistd.h>

/* Linux 5.14 */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

/* Of an older kernel, which does not know the advice, the pages come when they are used. */
static int fetch(uint64_t addr, uint32_t length, bool write)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE) - 1, from = addr & ~page;
	int before = errno, error = 0;

	if (madvise((void *)from, ((addr + length + page) & ~page) - from,
		    write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) &&
	    errno != EINVAL)
		error = EFAULT;
	errno = before;
	return error;
}

/* Without IBV_ADVISE_MR_FLAG_FLUSH nothing is said of pages that are not there. */
int rv_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
		 struct ibv_sge *list, uint32_t n)
{
	bool write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;

	if (rv_foreign_device(pd->context))
		return EPERM;
	if (advice != IBV_ADVISE_MR_ADVICE_PREFETCH && !write &&
	    advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return EOPNOTSUPP;
	if (flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH || !n)
		return EINVAL;
	for (uint32_t i = 0; i < n; i++) {
		struct rv_args a = { .arg = { list[i].lkey, list[i].addr, list[i].length,
					      write ? IBV_ACCESS_LOCAL_WRITE : 0 } };
		int error = rv_call(RV_FIND_MR, &a);

		if (!error && list[i].length && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) {
			error = fetch(a.arg[0], list[i].length, write);
			if (!(flags & IBV_ADVISE_MR_FLAG_FLUSH))
				error = 0;
		}
		if (error)
			return error;
	}
	return 0;
}
