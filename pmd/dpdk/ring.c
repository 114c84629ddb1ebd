//go:build dpdk

// Two ports joined back to back by software rings, inside one process.

#include <errno.h>
#include <stdio.h>

#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_lcore.h>

#include "internal.h"

// rnic_ring_pair makes ports net_ring_<a> and net_ring_<b>. The rings have many consumers although each has
// one reader, because a port that closes empties what its peer has not read.
int
rnic_ring_pair(const char *a, const char *b, unsigned entries, void *rings[2])
{
	struct rte_ring **r = (struct rte_ring **)rings;
	char name[RTE_RING_NAMESIZE];
	int err;

	snprintf(name, sizeof(name), "rnic_%s", a);
	r[0] = rte_ring_create(name, entries, SOCKET_ID_ANY, 0);
	if (r[0] == NULL)
		return -rte_errno;
	snprintf(name, sizeof(name), "rnic_%s", b);
	r[1] = rte_ring_create(name, entries, SOCKET_ID_ANY, 0);
	if (r[1] == NULL) {
		err = -rte_errno;
		rte_ring_free(r[0]);
		return err;
	}
	if (rte_eth_from_rings(a, &r[0], 1, &r[1], 1, 0) >= 0) {
		if (rte_eth_from_rings(b, &r[1], 1, &r[0], 1, 0) >= 0)
			return 0;
		err = rte_errno ? -rte_errno : -EIO;
		snprintf(name, sizeof(name), "net_ring_%s", a);
		(void)rte_eal_hotplug_remove("vdev", name);
	} else {
		err = rte_errno ? -rte_errno : -EIO;
	}
	rnic_ring_free(rings);
	return err;
}

// rnic_ring_drain frees the mbufs that wait in the pair.
void
rnic_ring_drain(void *rings[2])
{
	struct rte_mbuf *m;
	int i;

	for (i = 0; i < 2; i++)
		while (rte_ring_dequeue(rings[i], (void **)&m) == 0)
			rte_pktmbuf_free(m);
}

void
rnic_ring_free(void *rings[2])
{
	rte_ring_free(rings[0]);
	rte_ring_free(rings[1]);
}
