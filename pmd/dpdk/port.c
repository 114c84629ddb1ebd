//go:build dpdk

// Ports: found or probed by name, configured, started, closed.

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#include <rte_alarm.h>
#include <rte_dev.h>
#include <rte_errno.h>

#include "internal.h"

#define RX_CHECKSUM (RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_TCP_CKSUM)
#define TX_SEGMENT \
	(RTE_ETH_TX_OFFLOAD_TCP_TSO | RTE_ETH_TX_OFFLOAD_TCP_CKSUM | RTE_ETH_TX_OFFLOAD_IPV4_CKSUM)
#define RSS_TYPES (RTE_ETH_RSS_NONFRAG_IPV4_TCP | RTE_ETH_RSS_NONFRAG_IPV6_TCP)

int
rnic_port_find(const char *name, uint16_t *port)
{
	return rte_eth_dev_get_port_by_name(name, port);
}

int
rnic_port_probe(const char *bus, const char *name, const char *args)
{
	return rte_eal_hotplug_add(bus, name, args);
}

// mtu_max is the largest MTU rte_eth_dev_configure accepts: a driver may bound the frame instead of
// the packet.
static uint16_t
mtu_max(const struct rte_eth_dev_info *di)
{
	uint32_t overhead = RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;

	if (di->max_mtu != UINT16_MAX)
		return di->max_mtu;
	if (di->max_rx_pktlen <= overhead)
		return 0;
	return RTE_MIN(di->max_rx_pktlen - overhead, (uint32_t)UINT16_MAX);
}

int
rnic_port_info(uint16_t port, struct rnic_port_info *info)
{
	struct rte_eth_dev_info di;
	struct rte_ether_addr mac;
	int err;

	memset(info, 0, sizeof(*info));
	if ((err = rte_eth_dev_info_get(port, &di)) < 0)
		return err;
	if ((err = rte_eth_macaddr_get(port, &mac)) < 0)
		return err;
	memcpy(info->mac, mac.addr_bytes, sizeof(info->mac));
	snprintf(info->driver, sizeof(info->driver), "%s", di.driver_name);
	info->min_mtu = di.min_mtu;
	info->max_mtu = mtu_max(&di);
	info->queues_max = RTE_MIN(di.max_rx_queues, di.max_tx_queues);
	info->rx_desc = di.default_rxportconf.ring_size;
	info->tx_desc = di.default_txportconf.ring_size;
	info->reta_size = di.reta_size;
	info->rx_buf_min = di.min_rx_bufsize;
	info->socket = rte_eth_dev_socket_id(port);
	info->key_size = di.hash_key_size;
	info->rx_checksum = (di.rx_offload_capa & RX_CHECKSUM) == RX_CHECKSUM;
	info->tx_checksum = (di.tx_offload_capa & RTE_ETH_TX_OFFLOAD_TCP_CKSUM) != 0;
	info->tx_segment = (di.tx_offload_capa & TX_SEGMENT) == TX_SEGMENT;
	info->chains = (di.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0;
	info->chain_max =
		RTE_MIN(di.tx_desc_lim.nb_seg_max != 0 ? di.tx_desc_lim.nb_seg_max : UINT16_MAX,
			UINT16_MAX);
	info->vlan = (di.rx_offload_capa & RTE_ETH_RX_OFFLOAD_VLAN_STRIP) &&
		     (di.tx_offload_capa & RTE_ETH_TX_OFFLOAD_VLAN_INSERT);
	info->if_index = di.if_index;
	info->rss = (di.flow_type_rss_offloads & RSS_TYPES) != 0;
	return 0;
}

int
rnic_port_configure(uint16_t port, struct rnic_port_conf *conf)
{
	struct rte_eth_dev_info di;
	struct rte_eth_conf ec;
	int err;

	if ((err = rte_eth_dev_info_get(port, &di)) < 0)
		return err;
	memset(&ec, 0, sizeof(ec));
	ec.rxmode.mtu = conf->mtu;
	if (conf->rx_checksum)
		ec.rxmode.offloads |= RX_CHECKSUM | (di.rx_offload_capa & RTE_ETH_RX_OFFLOAD_UDP_CKSUM);
	if (conf->tx_checksum)
		ec.txmode.offloads |= RTE_ETH_TX_OFFLOAD_TCP_CKSUM |
			(di.tx_offload_capa & RTE_ETH_TX_OFFLOAD_UDP_CKSUM);
	if (conf->tx_segment)
		ec.txmode.offloads |= TX_SEGMENT;
	// Never RTE_ETH_RX_OFFLOAD_TCP_LRO: which segments there were, and when, is TCP's and MPA's
	// to see.
	ec.rxmode.offloads |= di.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
	if (conf->chains)
		ec.txmode.offloads |= RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	if (conf->vlan_strip)
		ec.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_VLAN_STRIP;
	if (conf->vlan_insert)
		ec.txmode.offloads |= RTE_ETH_TX_OFFLOAD_VLAN_INSERT;
	ec.intr_conf.rxq = conf->interrupts;
	if (conf->rss) {
		ec.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		ec.rx_adv_conf.rss_conf.rss_key = conf->key;
		ec.rx_adv_conf.rss_conf.rss_key_len = conf->key_size;
		ec.rx_adv_conf.rss_conf.rss_hf = di.flow_type_rss_offloads & RSS_TYPES;
	}
	if ((err = rte_eth_dev_configure(port, conf->queues, conf->queues, &ec)) < 0)
		return err;
	// A device with an MTU of its own (a tap's interface) is told; for the others configure was
	// enough.
	err = rte_eth_dev_set_mtu(port, conf->mtu);
	return err == -ENOTSUP ? 0 : err;
}

int
rnic_port_adjust(uint16_t port, uint16_t *rx_desc, uint16_t *tx_desc)
{
	return rte_eth_dev_adjust_nb_rx_tx_desc(port, rx_desc, tx_desc);
}

// read_table reads the redirection table back into conf->table.
static int
read_table(uint16_t port, struct rnic_port_conf *conf, uint16_t size)
{
	struct rte_eth_rss_reta_entry64 reta[RTE_DIM(conf->table) / RTE_ETH_RETA_GROUP_SIZE];
	unsigned i;
	int err;

	memset(reta, 0, sizeof(reta));
	for (i = 0; i < size; i++)
		reta[i / RTE_ETH_RETA_GROUP_SIZE].mask |= RTE_BIT64(i % RTE_ETH_RETA_GROUP_SIZE);
	if ((err = rte_eth_dev_rss_reta_query(port, reta, size)) < 0)
		return err == -ENOTSUP ? 0 : err;
	for (i = 0; i < size; i++)
		conf->table[i] = reta[i / RTE_ETH_RETA_GROUP_SIZE].reta[i % RTE_ETH_RETA_GROUP_SIZE];
	conf->table_size = size;
	return 0;
}

// spread gives each queue an equal run of the redirection table, and reads table and key back: what
// a Poller that chooses its local port must know. Runs, and not every n-th entry: the symmetric key
// makes multiples of 3 of neighbouring ports (of 24 in a row none came to the second of three
// queues).
static int
spread(uint16_t port, struct rnic_port_conf *conf)
{
	struct rte_eth_rss_reta_entry64 reta[RTE_DIM(conf->table) / RTE_ETH_RETA_GROUP_SIZE];
	struct rte_eth_rss_conf rc;
	struct rte_eth_dev_info di;
	uint8_t key[sizeof(conf->key)];
	unsigned i;
	int err;

	if ((err = rte_eth_dev_info_get(port, &di)) < 0)
		return err;
	if (di.reta_size > RTE_DIM(conf->table))
		return -E2BIG;
	if (di.reta_size == 0)
		return 0;
	memset(reta, 0, sizeof(reta));
	for (i = 0; i < di.reta_size; i++) {
		reta[i / RTE_ETH_RETA_GROUP_SIZE].mask |= RTE_BIT64(i % RTE_ETH_RETA_GROUP_SIZE);
		reta[i / RTE_ETH_RETA_GROUP_SIZE].reta[i % RTE_ETH_RETA_GROUP_SIZE] =
			i * conf->queues / di.reta_size;
	}
	if ((err = rte_eth_dev_rss_reta_update(port, reta, di.reta_size)) < 0)
		return err == -ENOTSUP ? 0 : err;
	// Some drivers take no notice of the key that rte_eth_dev_configure was given (net_null).
	memset(&rc, 0, sizeof(rc));
	rc.rss_key = conf->key;
	rc.rss_key_len = conf->key_size;
	rc.rss_hf = di.flow_type_rss_offloads & RSS_TYPES;
	err = rte_eth_dev_rss_hash_update(port, &rc);
	if (err < 0 && err != -ENOTSUP)
		return err;
	memset(&rc, 0, sizeof(rc));
	rc.rss_key = key;
	rc.rss_key_len = sizeof(key);
	err = rte_eth_dev_rss_hash_conf_get(port, &rc);
	if (err < 0)
		return err == -ENOTSUP ? 0 : err;
	memcpy(conf->key, key, conf->key_size);
	return read_table(port, conf, di.reta_size);
}

static int
after_start(uint16_t port, struct rnic_port_conf *conf, int promiscuous)
{
	int err;

	if (conf->rss && (err = spread(port, conf)) < 0)
		return err;
	// A device that has no such switch shows us everything anyway.
	if (promiscuous && (err = rte_eth_promiscuous_enable(port)) < 0 && err != -ENOTSUP)
		return err;
	// IPv6 neighbour discovery arrives by multicast (RFC 4861 section 2.3).
	if ((err = rte_eth_allmulticast_enable(port)) < 0 && err != -ENOTSUP)
		return err;
	return 0;
}

int
rnic_port_start(uint16_t port, struct rnic_port_conf *conf, int promiscuous)
{
	int err = rte_eth_dev_start(port);

	if (err < 0)
		return err;
	err = after_start(port, conf, promiscuous);
	if (err < 0)
		(void)rte_eth_dev_stop(port);
	return err;
}

int
rnic_port_stats(uint16_t port, struct rnic_port_stats *stats)
{
	struct rte_eth_stats s;
	int err = rte_eth_stats_get(port, &s);

	if (err < 0)
		return err;
	stats->missed = s.imissed;
	stats->no_mbuf = s.rx_nombuf;
	stats->rx_errors = s.ierrors;
	stats->tx_errors = s.oerrors;
	return 0;
}

// struct ending is a stop or a close of a port, and where to say that it is done.
struct ending {
	int (*op)(uint16_t port, const char *vdev);
	uint16_t port;
	const char *vdev;
	int err;
	sem_t done;
};

static void
end_in_alarm(void *arg)
{
	struct ending *e = arg;

	e->err = e->op(e->port, e->vdev);
	sem_post(&e->done);
}

// in_turn runs op on the caller's thread, except for net_memif, on the EAL's interrupt thread. That
// driver takes a lost peer down there, without a lock against us: if both ends go at the same
// moment, its regions are freed twice (seen with 22.11).
static int
in_turn(int (*op)(uint16_t, const char *), uint16_t port, const char *vdev)
{
	struct ending e = { .op = op, .port = port, .vdev = vdev };
	struct rte_eth_dev_info info;
	int err = rte_eth_dev_info_get(port, &info);

	if (err < 0)
		return err;
	if (strcmp(info.driver_name, "net_memif") != 0)
		return op(port, vdev);
	sem_init(&e.done, 0, 0);
	err = rte_eal_alarm_set(1, end_in_alarm, &e);
	if (err < 0) {
		sem_destroy(&e.done);
		return err;
	}
	while (sem_wait(&e.done) < 0 && errno == EINTR)
		;
	sem_destroy(&e.done);
	return e.err;
}

static int
stop(uint16_t port, const char *unused)
{
	(void)unused;
	return rte_eth_dev_stop(port);
}

static int
close_and_unplug(uint16_t port, const char *vdev)
{
	int err = rte_eth_dev_close(port);

	if (vdev[0] != 0) {
		int gone = rte_eal_hotplug_remove("vdev", vdev);

		if (err == 0 && gone != -ENOENT)
			err = gone;
	}
	return err;
}

int
rnic_port_stop(uint16_t port)
{
	return in_turn(stop, port, "");
}

// rnic_port_close gives the device's queues and their mbufs back; a virtual device, named in vdev,
// then vanishes.
int
rnic_port_close(uint16_t port, const char *vdev)
{
	return in_turn(close_and_unplug, port, vdev);
}
