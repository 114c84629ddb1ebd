package config

import (
	"net/netip"
	"os"

	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/rnic"
)

// Config is a configuration that can be started. Tags: default is a key's value when it is not in
// the file; of names the drivers or types of service that a key is for; want says what may stand
// there; doc is for the reference.
type Config struct {
	File string `toml:"-"`

	Log      Log       `toml:"log" doc:"What the daemon writes to standard error."`
	Limits   Limits    `toml:"limits" doc:"Bounds of the daemon."`
	Control  Control   `toml:"control" doc:"The Unix socket on which rnicd status, top and ss ask the daemon."`
	Metrics  Metrics   `toml:"metrics" doc:"Counters for Prometheus."`
	TCP      TCP       `toml:"tcp" doc:"Our TCP on all ports. A port's own table, [port.tcp], goes before."`
	MPA      MPA       `toml:"mpa" doc:"How connections of services over RDMA start. Keys of a service go before."`
	Ports    []Port    `toml:"port" doc:"A device with its Pollers and addresses; [[port]] for each."`
	Services []Service `toml:"service" doc:"What is served, on which ports; [[service]] for each."`

	// Sockets are further ones of memif that are made.
	Sockets []string `toml:"-"`

	index *index
}

// Log is [log].
type Log struct {
	Level  string `toml:"level" default:"info" want:"debug, info, warn or error" doc:"the least level that is written; SIGHUP changes it"`
	Format string `toml:"format" default:"text" want:"text or json" doc:"a line of key=value pairs, or a JSON object a line"`
}

// Limits is [limits].
type Limits struct {
	Drain       Duration `toml:"drain" default:"10s" doc:"after SIGTERM, and after a service was taken out, so long connections may go on; then they are reset"`
	PollerStall Duration `toml:"poller_stall" default:"100ms" want:"50ms or more" doc:"a Poller that has not turned for so long is reported with its stack"`
}

// Control is [control].
type Control struct {
	Socket string `toml:"socket" want:"a path, or off" doc:"without it control.sock in /run/rnicd, of a switch in /run/rnicd-switch; for a user that may not write there, in that folder of XDG_RUNTIME_DIR. Its last directory is made where it is missing"`
	Mode   string `toml:"mode" default:"0600" want:"permissions" doc:"of the socket: every process that can connect sees everything"`

	Path string      `toml:"-"` // empty: there is none
	Perm os.FileMode `toml:"-"`
}

// Metrics is [metrics].
type Metrics struct {
	Listen string `toml:"listen" want:"host:port" doc:"where GET /metrics is answered, over the kernel's TCP, as 127.0.0.1:9174; without it nowhere. No password: let others in by a proxy that asks for one"`
}

// TCP is [tcp] and [port.tcp].
type TCP struct {
	Congestion string   `toml:"congestion" default:"cubic" doc:"congestion control: cubic, dctcp or reno"`
	RTOMin     Duration `toml:"rto_min" default:"200ms" want:"10us to 1m" doc:"least retransmission timeout beyond the round trip; a few ms within a data centre"`
	PTOMin     Duration `toml:"pto_min" default:"1ms" want:"10us to 1s" doc:"least time before a tail loss probe; 100us where both ends poll"`
	Pacing     bool     `toml:"pacing" default:"false" doc:"spread segments over the round trip instead of sending bursts"`
	ECN        bool     `toml:"ecn" default:"false" doc:"ask for ECN, and accept it (RFC 3168)"`
}

// MPA is [mpa].
type MPA struct {
	Markers    bool     `toml:"markers" default:"true" doc:"ask clients for MPA markers: what comes ahead of a gap is placed at once. For services of type region, file and perf; others ask only with a key of their own, for Linux siw has none"`
	CRC        bool     `toml:"crc" default:"true" doc:"with false go without CRC32C where the client agrees; only for paths with an integrity check of their own"`
	DropBadCRC bool     `toml:"drop_bad_crc" default:"false" doc:"of region and file: drop a segment with a bad CRC so that it is sent again, instead of ending the connection"`
	Dialects   []string `toml:"dialects" want:"rddp-01, rfc5044, rtr, rfc6581" doc:"MPA dialects that are served; none: all of them"`
}

// Port is a [[port]].
type Port struct {
	Name        string            `toml:"name" want:"a to z, 0 to 9, - and _, 32 at most" doc:"by which services and logs call it; required"`
	Driver      string            `toml:"driver" default:"tap" doc:"poll-mode driver: tap, dpdk, memif, kernel (no device: the kernel's sockets), or a driver that this program adds"`
	Device      string            `toml:"device" of:"tap,dpdk" doc:"tap: the device; dpdk: the TAP that net_tap makes, or a whole vdev as net_af_packet0,iface=eth1. Without it, the port's name"`
	PCI         string            `toml:"pci" of:"dpdk" doc:"PCI address of a NIC"`
	EAL         []string          `toml:"eal" of:"dpdk" doc:"further arguments of DPDK's environment"`
	FlowControl string            `toml:"flow_control" of:"dpdk" want:"none, rx, tx or full" doc:"pause frames: heed (rx), send (tx), both; without it as the device has it"`
	Promiscuous bool              `toml:"promiscuous" of:"dpdk" default:"false" doc:"take in frames to other addresses too"`
	Socket      string            `toml:"socket" of:"memif" doc:"Unix socket of the server: a path, or @ and a name in the abstract namespace"`
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
	DAD         string   `toml:"dad" default:"auto" want:"auto, quick, full or off" doc:"how our addresses are probed: quick, a third of a second; full, the 4 to 7 s of RFC 5227 and 1 to 2 s of RFC 4862; auto: quick on a TAP, full on a NIC; off: not"`

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

// Types of service.
const (
	Region = "region"
	File   = "file"
	Perf   = "perf"
	Rping  = "rping"
	Stream = "stream"
)

// Types are all of them, each with its TCP port.
var Types = []struct {
	Name   string
	Listen uint16
	Doc    string
}{
	{Region, 7174, "hugepage memory that peers write into, and with keep read; `rnicd put`, `rnicd " +
		"get --name`"},
	{File, 7174, "a copy of a file in memory, made when the service starts, that peers read; " +
		"`rnicd get`"},
	{Perf, 7175, "bandwidth and latency; `rnicd perf`"},
	{Rping, 7174, "`rping` of rdma-core and of rnicd"},
	{Stream, 5201, "TCP: an iperf3 server, or a sink, source or echo"},
}

// Service is a [[service]].
type Service struct {
	Name            string   `toml:"name" want:"a to z, 0 to 9, - and _, 32 at most" doc:"in logs; a reload knows a service by it; required"`
	Type            string   `toml:"type" want:"region, file, perf, rping or stream" doc:"required"`
	Ports           []string `toml:"ports" doc:"names of the ports that it is served on; without it all"`
	Listen          uint16   `toml:"listen" want:"1 to 65535" doc:"TCP port; without it the usual one of the type"`
	Allow           []string `toml:"allow" doc:"networks that are served, as 10.9.0.0/24 or fd09::/64; without it every one"`
	Connections     int      `toml:"connections" default:"64" want:"1 or more" doc:"clients at a time, over all ports; further ones are refused"`
	PeerConnections int      `toml:"peer_connections" default:"0" doc:"of them from one address (of IPv6, one /64); 0: no limit"`
	IdleTimeout     Duration `toml:"idle_timeout" default:"30s" doc:"end a connection on which nothing moves for so long, an eighth of it more at most"`
	Markers         *bool    `toml:"markers" of:"region,file,perf,rping" doc:"as in [mpa]"`
	CRC             *bool    `toml:"crc" of:"region,file,perf,rping" doc:"as in [mpa]"`

	Size    Size     `toml:"size" of:"region" doc:"of the memory; required"`
	Page    string   `toml:"page" of:"region,file" default:"auto" want:"auto, 2M, 1G or normal" doc:"pages of the memory"`
	Node    int      `toml:"numa_node" of:"region,file" default:"-1" doc:"of the memory; -1: any"`
	Quota   Size     `toml:"quota" of:"region" default:"0" doc:"octets of the region that one address (of IPv6, one /64) may hold at a time; 0: all"`
	Keep    bool     `toml:"keep" of:"region" default:"false" doc:"keep what is put under a name (rnicd put --name), for every client that is allowed to read (rnicd get --name)"`
	Path    string   `toml:"path" of:"file" doc:"the file, as it is when the service starts or is reloaded; required"`
	SizeMax Size     `toml:"size_max" of:"perf,rping" doc:"longest message that is served; without it 64MiB for perf, 65535 for rping"`
	Mode    string   `toml:"mode" of:"stream" default:"iperf3" want:"iperf3, sink, source or echo" doc:"what is served"`
	Length  Size     `toml:"length" of:"stream" default:"128KiB" want:"1 to 1MiB" doc:"sink, source, echo: of a Read or Write"`
	Bytes   Size     `toml:"bytes" of:"stream" default:"0" doc:"source: how much to send; 0: for the time"`
	Time    Duration `toml:"time" of:"stream" default:"10s" doc:"source: how long to send"`

	// What validation has made of the above.
	Networks   []netip.Prefix `toml:"-"`
	On         []int          `toml:"-"` // numbers of its ports
	Dialects   []rnic.Dialect `toml:"-"`
	NoMarkers  bool           `toml:"-"`
	NoCRC      bool           `toml:"-"`
	DropBadCRC bool           `toml:"-"`
}
