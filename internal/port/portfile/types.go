// Package portfile has the ports of a configuration: the tables [[port]] and [tcp] of a daemon's
// file, and the environment variables of a program that has no file of its own.
//
//	types.go      the tables: each key with its default and description
//	check.go      what it takes to read them
//	ports.go      the checks of one port, and of all together
//	together.go   keys that are right by themselves only
//	environ.go    a port from environment variables
package portfile

import (
	"github.com/rnicd/rnicd/internal/conf"
	"github.com/rnicd/rnicd/internal/port"
)

// Port is a [[port]].
type Port struct {
	Name        string            `toml:"name" want:"a to z, 0 to 9, - and _, 32 at most" doc:"by which services and logs call it; required"`
	Driver      string            `toml:"driver" default:"tap" doc:"poll-mode driver: tap, dpdk, memif, kernel (no device: the kernel's sockets), or a driver that this program adds"`
	Device      string            `toml:"device" of:"tap,dpdk" doc:"tap: the device; dpdk: the TAP that net_tap makes, or a whole vdev as net_af_packet0,iface=eth1. Without it, the port's name"`
	PCI         string            `toml:"pci" of:"dpdk" doc:"PCI address of a NIC"`
	EAL         []string          `toml:"eal" of:"dpdk" doc:"further arguments of DPDK's environment"`
	FlowControl string            `toml:"flow_control" of:"dpdk" want:"none, rx, tx or full" doc:"pause frames: heed (rx), send (tx), both; without it as the device has it"`
	Promiscuous bool              `toml:"promiscuous" of:"dpdk" default:"false" doc:"take in frames to other addresses too"`
	Socket      string            `toml:"socket" of:"memif" doc:"Unix socket of the server: a path, or @ and a name in the abstract namespace. A server makes its last directory where it is missing"`
	ID          uint32            `toml:"id" of:"memif" default:"0" doc:"number of the interface on that socket"`
	Role        string            `toml:"role" of:"memif" default:"client" want:"client or server" doc:"attach to a server, or be it for one client at a time"`
	Secret      string            `toml:"secret" of:"memif" want:"24 octets at most" doc:"what the server wants to hear from its clients"`
	Options     map[string]string `toml:"options" doc:"further ones of the driver; [port.options]. dpdk: devargs, further arguments of the device, as qpairs=2; rx_descriptors and tx_descriptors of a queue; rx_buffers that it keeps to receive into. Drivers that this program adds have their own"`

	Addresses   []string `toml:"addresses" doc:"ours, as 10.9.0.1/24 or fd09::1/64; required. kernel: one of this host's without a length, or none for all"`
	HostAddress string   `toml:"host_address" of:"tap" doc:"address of the kernel's side, as 10.9.0.254/24; without it that side is left alone"`
	Gateways    []string `toml:"gateways" doc:"routers for what is not on the link, of either family"`
	VLAN        uint16   `toml:"vlan" default:"0" want:"1 to 4094, or 0" doc:"802.1Q tag of all frames; 0: untagged"`
	MTU         int      `toml:"mtu" default:"1500" want:"576 to what the driver takes" doc:"largest IP packet, octets"`
	MAC         string   `toml:"mac" doc:"of our side; without it a TAP has one that is the same from start to start, a memif client one of this boot and its first address, a NIC its own"`
	DAD         string   `toml:"dad" default:"auto" want:"auto, quick, full or off" doc:"how our addresses are probed: quick, a third of a second; full, the 4 to 7 s of RFC 5227 and 1 to 2 s of RFC 4862; auto: quick on a TAP or memif, full on a NIC; off: not"`

	Queues          int    `toml:"queues" want:"1 to 64" doc:"queues of the device, each with a Poller; without it one for each of cores, or 1"`
	Cores           string `toml:"cores" want:"as 2-5,8" doc:"CPUs that the Pollers are pinned to, one for each queue; without it where the scheduler puts them"`
	Idle            string `toml:"idle" default:"adaptive" want:"adaptive, spin, pause, sleep or interrupt" doc:"what a Poller does without work"`
	Offload         bool   `toml:"offload" default:"true" doc:"leave checksums and segmentation to the device"`
	Page            string `toml:"page" default:"auto" want:"auto, 2M, 1G or normal" doc:"pages of packet memory"`
	Node            int    `toml:"numa_node" default:"-1" doc:"NUMA node of the memory; -1: the device's where it is known, or any"`
	Connections     int    `toml:"connections" default:"256" want:"1 to 1048576" doc:"that a Poller has at a time, half-closed ones among them"`
	PeerConnections int    `toml:"peer_connections" default:"192" doc:"that one address (of IPv6, one /64) may open at a time; at the limit those that have said nothing yet give way; 0: no limit"`
	DialPorts       string `toml:"dial_ports" want:"as 50000-50999" doc:"TCP ports that connections are dialled from, for an address that other programs have, too (rnicd switch); without it 49152-65535"`
	Fault           string `toml:"fault" doc:"a bad network, for tests, as drop=1%,reorder=1%,seed=7"`
	Capture         string `toml:"capture" doc:"write every frame to this pcapng file"`
	TCP             TCP    `toml:"tcp" doc:"as [tcp], for this port"`

	// Open is what internal/port makes it of; Region is not in it.
	Open port.Config `toml:"-"`
}

// TCP is [tcp] and [port.tcp].
type TCP struct {
	Congestion string        `toml:"congestion" default:"cubic" doc:"congestion control: cubic, dctcp or reno"`
	RTOMin     conf.Duration `toml:"rto_min" default:"200ms" want:"10us to 1m" doc:"least retransmission timeout beyond the round trip; a few ms within a data centre"`
	PTOMin     conf.Duration `toml:"pto_min" default:"1ms" want:"10us to 1s" doc:"least time before a tail loss probe; 100us where both ends poll"`
	Pacing     bool          `toml:"pacing" default:"false" doc:"spread segments over the round trip instead of sending bursts"`
	ECN        bool          `toml:"ecn" default:"false" doc:"ask for ECN, and accept it (RFC 3168)"`
}
