//go:build dpdk

// Arenas made known to the EAL, and to the IOMMU in front of a device.

#include <errno.h>
#include <stdlib.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_memory.h>

#include "internal.h"

// rnic_memory_register makes an arena external memory of the EAL (Programmer's Guide, "Support for
// Externally Allocated Memory"). base and len must be multiples of page.
struct rnic_memory *
rnic_memory_register(uintptr_t base, uint64_t len, uint64_t page, int *err)
{
	uint64_t i, n = len / page;
	struct rnic_memory *m = calloc(1, sizeof(*m));

	if (m == NULL || (m->iova = calloc(n, sizeof(*m->iova))) == NULL) {
		free(m);
		*err = -ENOMEM;
		return NULL;
	}
	m->base = (uint8_t *)base;
	m->len = len;
	m->page = page;
	m->page_shift = __builtin_ctzll(page);
	m->pa = rte_eal_iova_mode() == RTE_IOVA_PA;
	for (i = 0; i < n; i++) {
		uint8_t *first = m->base + i * page;

		// A page that was never touched has no physical address. Others may be writing to it.
		(void)__atomic_fetch_or(first, 0, __ATOMIC_RELAXED);
		m->iova[i] = m->pa ? rte_mem_virt2iova(first) : (rte_iova_t)(uintptr_t)first;
		if (m->iova[i] == RTE_BAD_IOVA) {
			*err = -EFAULT;
			goto fail;
		}
	}
	if (rte_extmem_register(m->base, len, m->iova, n, page) < 0) {
		*err = -rte_errno;
		goto fail;
	}
	*err = 0;
	return m;
fail:
	free(m->iova);
	free(m);
	return NULL;
}

void
rnic_memory_unregister(struct rnic_memory *m)
{
	rte_extmem_unregister(m->base, m->len);
	free(m->iova);
	free(m);
}

uint64_t
rnic_memory_iova(const struct rnic_memory *m, uint64_t off)
{
	return memory_iova(m, m->base + off);
}

// rnic_memory_known says whether the EAL lists all of m as external memory, at the addresses we
// give to devices.
int
rnic_memory_known(const struct rnic_memory *m)
{
	uint64_t i, n = m->len >> m->page_shift;

	for (i = 0; i < n; i++) {
		const uint8_t *first = m->base + i * m->page;
		struct rte_memseg_list *list = rte_mem_virt2memseg_list(first);
		struct rte_memseg *seg = rte_mem_virt2memseg(first, list);

		if (list == NULL || !list->external || seg == NULL || seg->iova != m->iova[i])
			return 0;
	}
	return 1;
}

// dma_each maps or unmaps all of m, in as few pieces as its IOVAs allow.
static int
dma_each(const struct rnic_memory *m, struct rte_device *dev,
	int (*op)(struct rte_device *, void *, uint64_t, size_t))
{
	uint64_t from, to, n = m->len >> m->page_shift;

	for (from = 0; from < n; from = to) {
		for (to = from + 1; to < n && m->iova[to] == m->iova[to - 1] + m->page; to++)
			;
		if (op(dev, m->base + (from << m->page_shift), m->iova[from], (to - from) << m->page_shift) < 0)
			return -rte_errno;
	}
	return 0;
}

// rnic_memory_dma_map lets the port's device reach m. A device that needs no mapping (a virtual
// one, or one without an IOMMU) says ENOTSUP, which is success here.
int
rnic_memory_dma_map(const struct rnic_memory *m, uint16_t port)
{
	struct rte_eth_dev_info info;
	int err = rte_eth_dev_info_get(port, &info);

	if (err < 0)
		return err;
	if (info.device == NULL)
		return 0;
	err = dma_each(m, info.device, rte_dev_dma_map);
	return err == -ENOTSUP ? 0 : err;
}

void
rnic_memory_dma_unmap(const struct rnic_memory *m, uint16_t port)
{
	struct rte_eth_dev_info info;

	if (rte_eth_dev_info_get(port, &info) == 0 && info.device != NULL)
		(void)dma_each(m, info.device, rte_dev_dma_unmap);
}
