//go:build dpdk

// Two ports joined back to back by software rings, inside one process.

#include <errno.h>
#include <stdio.h>

#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_lcore.h>

#include "internal.h"

// rnic_ring_pair makes ports net_ring_<a> and net_ring_<b>, rings[0..queues) to a, the next to b.
// The rings have many consumers although each has one reader, because a port that closes empties
// what its peer has not read.
int
rnic_ring_pair(const char *a, const char *b, unsigned entries, unsigned queues, void **rings)
{
	struct rte_ring **r = (struct rte_ring **)rings;
	char name[RTE_RING_NAMESIZE];
	unsigned i;
	int err;

	for (i = 0; i < 2 * queues; i++) {
		snprintf(name, sizeof(name), "rnic_%s_%u", i < queues ? a : b, i % queues);
		r[i] = rte_ring_create(name, entries, SOCKET_ID_ANY, 0);
		if (r[i] == NULL) {
			err = -rte_errno;
			goto fail;
		}
	}
	if (rte_eth_from_rings(a, r, queues, r + queues, queues, 0) < 0) {
		err = rte_errno ? -rte_errno : -EIO;
		goto fail;
	}
	if (rte_eth_from_rings(b, r + queues, queues, r, queues, 0) >= 0)
		return 0;
	err = rte_errno ? -rte_errno : -EIO;
	snprintf(name, sizeof(name), "net_ring_%s", a);
	(void)rte_eal_hotplug_remove("vdev", name);
fail:
	rnic_ring_free(rings, queues);
	return err;
}

// rnic_ring_drain frees the mbufs that wait in the pair.
void
rnic_ring_drain(void **rings, unsigned queues)
{
	struct rte_mbuf *m;
	unsigned i;

	for (i = 0; i < 2 * queues; i++)
		while (rte_ring_dequeue(rings[i], (void **)&m) == 0)
			rte_pktmbuf_free(m);
}

void
rnic_ring_free(void **rings, unsigned queues)
{
	unsigned i;

	for (i = 0; i < 2 * queues; i++)
		rte_ring_free(rings[i]);
}
