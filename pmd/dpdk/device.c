//go:build dpdk

// What a port is asked and told besides frames: link, statistics, addresses, flow control,
// interrupts, its end.

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>

#include "internal.h"

int
rnic_port_link(uint16_t port, struct rnic_port_link *link)
{
	struct rte_eth_link l;
	int err = rte_eth_link_get_nowait(port, &l);

	if (err < 0)
		return err;
	link->up = l.link_status == RTE_ETH_LINK_UP;
	link->full_duplex = l.link_duplex == RTE_ETH_LINK_FULL_DUPLEX;
	link->mbps = l.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN ? 0 : l.link_speed;
	return 0;
}

// rnic_port_xstats returns how many there are; none is filled in if they are more than n.
int
rnic_port_xstats(uint16_t port, struct rnic_xstat *x, unsigned n)
{
	struct rte_eth_xstat_name *names;
	struct rte_eth_xstat *values;
	int i, have = rte_eth_xstats_get(port, NULL, 0);

	if (have <= 0 || (unsigned)have > n)
		return have;
	names = calloc(have, sizeof(*names));
	values = calloc(have, sizeof(*values));
	if (names == NULL || values == NULL)
		have = -ENOMEM;
	if (have > 0 && (rte_eth_xstats_get_names(port, names, have) != have ||
			 rte_eth_xstats_get(port, values, have) != have))
		have = -EAGAIN;
	for (i = 0; i < have; i++) {
		snprintf(x[i].name, sizeof(x[i].name), "%s", names[values[i].id].name);
		x[i].value = values[i].value;
	}
	free(names);
	free(values);
	return have;
}

int
rnic_port_set_mac(uint16_t port, const uint8_t mac[6])
{
	struct rte_ether_addr a;

	memcpy(a.addr_bytes, mac, sizeof(a.addr_bytes));
	return rte_eth_dev_default_mac_addr_set(port, &a);
}

// rnic_port_filter_mac adds an address that the device lets through, or takes it away.
int
rnic_port_filter_mac(uint16_t port, const uint8_t mac[6], int add)
{
	struct rte_ether_addr a;

	memcpy(a.addr_bytes, mac, sizeof(a.addr_bytes));
	return add ? rte_eth_dev_mac_addr_add(port, &a, 0) : rte_eth_dev_mac_addr_remove(port, &a);
}

// rnic_port_flow_control sets the mode (enum rte_eth_fc_mode), and leaves the rest as it was.
int
rnic_port_flow_control(uint16_t port, int mode)
{
	struct rte_eth_fc_conf fc;
	int err;

	memset(&fc, 0, sizeof(fc));
	err = rte_eth_dev_flow_ctrl_get(port, &fc);
	if (err < 0)
		return err;
	fc.mode = (enum rte_eth_fc_mode)mode;
	return rte_eth_dev_flow_ctrl_set(port, &fc);
}

int
rnic_port_flow_control_mode(uint16_t port)
{
	struct rte_eth_fc_conf fc;
	int err;

	memset(&fc, 0, sizeof(fc));
	err = rte_eth_dev_flow_ctrl_get(port, &fc);
	return err < 0 ? err : (int)fc.mode;
}

int
rnic_port_removed(uint16_t port)
{
	return rte_eth_dev_is_removed(port);
}

// rnic_port_offloads writes the names of what is switched on, separated by spaces.
int
rnic_port_offloads(uint16_t port, char *text, size_t size)
{
	struct rte_eth_conf conf;
	int bit, err = rte_eth_dev_conf_get(port, &conf);
	size_t at = 0;

	text[0] = 0;
	for (bit = 0; err == 0 && bit < 64; bit++)
		if ((conf.rxmode.offloads & RTE_BIT64(bit)) && at < size)
			at += snprintf(text + at, size - at, "rx:%s ", rte_eth_dev_rx_offload_name(RTE_BIT64(bit)));
	for (bit = 0; err == 0 && bit < 64; bit++)
		if ((conf.txmode.offloads & RTE_BIT64(bit)) && at < size)
			at += snprintf(text + at, size - at, "tx:%s ", rte_eth_dev_tx_offload_name(RTE_BIT64(bit)));
	return err;
}

// rnic_queue_refused may be called on any thread.
uint32_t
rnic_queue_refused(const struct rnic_queue *q)
{
	return __atomic_load_n(&q->refused, __ATOMIC_RELAXED);
}

int
rnic_queue_interrupt_fd(const struct rnic_queue *q)
{
	int fd = rte_eth_dev_rx_intr_ctl_q_get_fd(q->port, q->queue);

	return fd >= 0 ? fd : -ENOTSUP;
}

// rnic_queue_interrupt arms or disarms the queue's interrupt. A driver that has nothing to arm has
// a descriptor that is readable while frames wait.
int
rnic_queue_interrupt(const struct rnic_queue *q, int arm)
{
	int err = arm ? rte_eth_dev_rx_intr_enable(q->port, q->queue)
		      : rte_eth_dev_rx_intr_disable(q->port, q->queue);

	return err == -ENOTSUP ? 0 : err;
}
