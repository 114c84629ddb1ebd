// The C side of package dpdk, as cgo sees it: no DPDK header is needed to read this one, and no
// mbuf pointer appears in it.
//
// All functions that return int give 0 (or a count) or a negated errno.

#ifndef RNIC_DPDK_SHIM_H
#define RNIC_DPDK_SHIM_H

#include <stddef.h>
#include <stdint.h>

#define RNIC_BURST 128  // frames in one call, each way
#define RNIC_RETURN 256 // freed receive Bufs in one call

// Equal to mem.DescFlags; cgo.go holds them together.
#define RNIC_RX_CHECKSUM_GOOD 1
#define RNIC_RX_CHECKSUM_BAD 2
#define RNIC_TX_CHECKSUM 4
#define RNIC_TX_SEGMENT 8

// --- environment (eal.c)

int rnic_eal_init(int argc, char **argv, char *log, size_t log_size);
const char *rnic_eal_runtime_dir(void);
int rnic_eal_iova_is_pa(void);
int rnic_eal_has_pci(void);
const char *rnic_strerror(int err);

// --- memory a device may reach (memory.c)

struct rnic_memory;

struct rnic_memory *rnic_memory_register(uintptr_t base, uint64_t len, uint64_t page, int *err);
void rnic_memory_unregister(struct rnic_memory *m);
uint64_t rnic_memory_iova(const struct rnic_memory *m, uint64_t off);
int rnic_memory_known(const struct rnic_memory *m);
int rnic_memory_dma_map(const struct rnic_memory *m, uint16_t port);
void rnic_memory_dma_unmap(const struct rnic_memory *m, uint16_t port);

// --- ports (port.c)

struct rnic_port_info {
	char driver[64];
	uint8_t mac[6];
	uint16_t min_mtu, max_mtu, queues_max;
	uint16_t rx_desc, tx_desc; // the driver's preference, 0 if it has none
	uint16_t reta_size;
	uint32_t rx_buf_min;
	int socket;
	uint8_t key_size;
	uint8_t rx_checksum, tx_checksum, tx_segment, rss, chains, vlan; // 1: the device can
	uint16_t chain_max;    // buffers of one frame to send
	uint32_t if_index;     // of the kernel's interface under it, 0: none
};

struct rnic_port_conf {
	uint16_t queues, mtu;
	uint8_t rx_checksum, tx_checksum, tx_segment;
	uint8_t chains; // send frames of several buffers
	uint8_t vlan_strip, vlan_insert;
	uint8_t interrupts;
	uint8_t rss;
	uint8_t key[64];
	uint8_t key_size;
	uint16_t table[512]; // out, of rnic_port_start: the queue of each entry of the redirection table
	uint16_t table_size; // 0: the device has none that it tells of
};

struct rnic_port_stats {
	uint64_t missed, no_mbuf, rx_errors, tx_errors;
};

// --- what else a port is asked and told (device.c)

struct rnic_port_link {
	uint8_t up, full_duplex;
	uint32_t mbps; // 0: unknown
};

struct rnic_xstat {
	char name[64];
	uint64_t value;
};

int rnic_port_link(uint16_t port, struct rnic_port_link *link);
int rnic_port_xstats(uint16_t port, struct rnic_xstat *x, unsigned n);
int rnic_port_set_mac(uint16_t port, const uint8_t mac[6]);
int rnic_port_filter_mac(uint16_t port, const uint8_t mac[6], int add);
int rnic_port_flow_control(uint16_t port, int mode);
int rnic_port_flow_control_mode(uint16_t port);
int rnic_port_removed(uint16_t port);
int rnic_port_offloads(uint16_t port, char *text, size_t size);

int rnic_port_find(const char *name, uint16_t *port);
int rnic_port_probe(const char *bus, const char *name, const char *args);
int rnic_port_info(uint16_t port, struct rnic_port_info *info);
int rnic_port_configure(uint16_t port, struct rnic_port_conf *conf);
int rnic_port_adjust(uint16_t port, uint16_t *rx_desc,
		     uint16_t *tx_desc); // to what the device accepts
int rnic_port_start(uint16_t port, struct rnic_port_conf *conf, int promiscuous);
int rnic_port_stats(uint16_t port, struct rnic_port_stats *stats);
int rnic_port_stop(uint16_t port);
int rnic_port_close(uint16_t port, const char *vdev);

// Two ports joined back to back (ring.c).
int rnic_ring_pair(const char *a, const char *b, unsigned entries, unsigned queues,
		   void **rings); // 2*queues rings
void rnic_ring_drain(void **rings, unsigned queues);
void rnic_ring_free(void **rings, unsigned queues);

// --- queues (queue.c, rx.c, tx.c)

struct rnic_rx_frame {
	uint32_t buf, off, len, flags;
	uint16_t csum_start, csum_offset; // of a frame whose sender, in this process, left the
					  // checksum out; else 0
};

struct rnic_tx_frame {
	uint32_t buf, off, len;
	uint16_t flags, csum_start, csum_offset, gso_size, hdr_len;
	uint16_t run;       // frames from this one on that leave as one for the device to cut; 0 as 1
	uint16_t run_flags; // TCP's flags of the last of them
	uint16_t reserved;
};

// What a call carries in and out. One struct per queue, in C memory, written by one side at a time.
struct rnic_io {
	uint32_t nreturned; // in: receive Bufs whose owner freed them
	uint32_t ndone;     // out: Bufs the device has finished with
	uint32_t *done;     // as many as the pool has Bufs: each Buf is in a device at most once
	uint64_t rx_frames, rx_octets, tx_frames, tx_octets;
	uint64_t rx_no_buf, rx_too_long, tx_full, tx_errors;
	uint64_t copied;  // received frames that were in foreign or chained mbufs
	uint64_t runs;        // frames for the device to cut that were made of several
	uint64_t other_vlan;  // received frames that are not of the port's VLAN
	uint64_t tags_put;    // tags that the device took off a received frame and we put back
	uint64_t bounced; // sent frames that were copied because the device cannot take them from
			  // their slot
	uint32_t returned[RNIC_RETURN];
	struct rnic_rx_frame rx[RNIC_BURST];
	struct rnic_tx_frame tx[RNIC_BURST];
};

struct rnic_queue_conf {
	uint16_t port, queue;
	int socket;
	struct rnic_memory *memory;
	uintptr_t slots; // address of Buf 0
	uint32_t stride, nbufs;
	uint32_t rx_first, rx_bufs; // the receive mempool's Bufs
	uint16_t rx_desc, tx_desc;
	uint8_t tx_checksum, tx_segment; // what the port was configured to do
	uint8_t software_gso;            // librte_gso cuts: no external buffers, no IPv6
	uint8_t chains;                  // frames of several buffers may be sent
	uint8_t copy_ethernet; // the driver puts VLAN tags into the frame, which must be its own to
			       // write
	uint16_t vlan;                   // the port's tag, 0: none
	uint32_t rx_room;                // octets of a Buf the device may fill, 0: all
	uint8_t copy_receive;            // the driver wants data rooms that are part of its mbufs
};

struct rnic_queue;

struct rnic_queue *rnic_queue_new(const struct rnic_queue_conf *conf, int *err, const char **step);
struct rnic_io *rnic_queue_io(struct rnic_queue *q);
uint32_t rnic_queue_rx_usable(const struct rnic_queue *q);
uint32_t rnic_queue_gathers(const struct rnic_queue *q); // can runs be sent?
uint32_t rnic_queue_refused(const struct rnic_queue *q);
int rnic_queue_interrupt_fd(const struct rnic_queue *q);
int rnic_queue_interrupt(const struct rnic_queue *q, int arm);
uint32_t rnic_queue_outstanding(const struct rnic_queue *q);
void rnic_queue_drain(
	struct rnic_queue *q); // before the device stops: throws away what was received
void rnic_queue_collect(struct rnic_queue *q);
void rnic_queue_free(struct rnic_queue *q);

uint32_t rnic_rx(struct rnic_queue *q, uint32_t want); // frames in io->rx
uint32_t rnic_tx(struct rnic_queue *q, uint32_t n); // length of the prefix of io->tx that was taken

#endif
