package config

import (
	"net/netip"
	"os"

	"github.com/rnicd/rnicd/internal/conf"
	"github.com/rnicd/rnicd/internal/port/portfile"
	"github.com/rnicd/rnicd/rnic"
)

// Config is a configuration that can be started. Tags: default is a key's value when it is not in
// the file; of names the drivers or types of service that a key is for; want says what may stand
// there; doc is for the reference.
type Config struct {
	File string `toml:"-"`

	Log      Log             `toml:"log" doc:"What the daemon writes to standard error."`
	Limits   Limits          `toml:"limits" doc:"Bounds of the daemon."`
	Control  Control         `toml:"control" doc:"The Unix socket on which rnicd status, top and ss ask the daemon."`
	Metrics  Metrics         `toml:"metrics" doc:"Counters for Prometheus."`
	TCP      portfile.TCP    `toml:"tcp" doc:"Our TCP on all ports. A port's own table, [port.tcp], goes before."`
	MPA      MPA             `toml:"mpa" doc:"How connections of services over RDMA start. Keys of a service go before."`
	Ports    []portfile.Port `toml:"port" doc:"A device with its Pollers and addresses; [[port]] for each."`
	Services []Service       `toml:"service" doc:"What is served, on which ports; [[service]] for each."`

	// Sockets are further ones of memif that are made.
	Sockets []string `toml:"-"`
}

// Log is [log].
type Log struct {
	Level  string `toml:"level" default:"info" want:"debug, info, warn or error" doc:"the least level that is written; SIGHUP changes it"`
	Format string `toml:"format" default:"text" want:"text or json" doc:"a line of key=value pairs, or a JSON object a line"`
}

// Limits is [limits].
type Limits struct {
	Drain       conf.Duration `toml:"drain" default:"10s" doc:"after SIGTERM, and after a service was taken out, so long connections may go on; then they are reset"`
	PollerStall conf.Duration `toml:"poller_stall" default:"100ms" want:"50ms or more" doc:"a Poller that has not turned for so long is reported with its stack"`
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

// MPA is [mpa].
type MPA struct {
	Markers    bool     `toml:"markers" default:"true" doc:"ask clients for MPA markers: what comes ahead of a gap is placed at once"`
	CRC        bool     `toml:"crc" default:"true" doc:"with false go without CRC32C where the client agrees; only for paths with an integrity check of their own"`
	DropBadCRC bool     `toml:"drop_bad_crc" default:"false" doc:"of region and file: drop a segment with a bad CRC so that it is sent again, instead of ending the connection"`
	Dialects   []string `toml:"dialects" want:"rddp-01, rfc5044, rtr, rfc6581" doc:"MPA dialects that are served; none: all of them"`
}

// Types of service.
const (
	Region = "region"
	File   = "file"
	Perf   = "perf"
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
	{Stream, 5201, "TCP: a sink, source or echo; `rnicd stream`"},
}

// Service is a [[service]].
type Service struct {
	Name            string        `toml:"name" want:"a to z, 0 to 9, - and _, 32 at most" doc:"in logs; a reload knows a service by it; required"`
	Type            string        `toml:"type" want:"region, file, perf or stream" doc:"required"`
	Ports           []string      `toml:"ports" doc:"names of the ports that it is served on; without it all"`
	Listen          uint16        `toml:"listen" want:"1 to 65535" doc:"TCP port; without it the usual one of the type"`
	Allow           []string      `toml:"allow" doc:"networks that are served, as 10.9.0.0/24 or fd09::/64; without it every one"`
	Connections     int           `toml:"connections" default:"64" want:"1 or more" doc:"clients at a time, over all ports; further ones are refused"`
	PeerConnections int           `toml:"peer_connections" default:"0" doc:"of them from one address (of IPv6, one /64); 0: no limit"`
	IdleTimeout     conf.Duration `toml:"idle_timeout" default:"30s" doc:"end a connection on which nothing moves for so long, an eighth of it more at most"`
	Markers         *bool         `toml:"markers" of:"region,file,perf" doc:"as in [mpa]"`
	CRC             *bool         `toml:"crc" of:"region,file,perf" doc:"as in [mpa]"`

	Size    conf.Size     `toml:"size" of:"region" doc:"of the memory; required"`
	Page    string        `toml:"page" of:"region,file" default:"auto" want:"auto, 2M, 1G or normal" doc:"pages of the memory"`
	Node    int           `toml:"numa_node" of:"region,file" default:"-1" doc:"of the memory; -1: any"`
	Quota   conf.Size     `toml:"quota" of:"region" default:"0" doc:"octets of the region that one address (of IPv6, one /64) may hold at a time; 0: all"`
	Keep    bool          `toml:"keep" of:"region" default:"false" doc:"keep what is put under a name (rnicd put --name), for every client that is allowed to read (rnicd get --name)"`
	Path    string        `toml:"path" of:"file" doc:"the file, as it is when the service starts or is reloaded; required"`
	SizeMax conf.Size     `toml:"size_max" of:"perf" default:"64MiB" doc:"longest message that is served"`
	Mode    string        `toml:"mode" of:"stream" want:"sink, source or echo" doc:"what is served; required"`
	Length  conf.Size     `toml:"length" of:"stream" default:"128KiB" want:"1 to 1MiB" doc:"of a Read or Write"`
	Bytes   conf.Size     `toml:"bytes" of:"stream" default:"0" doc:"source: how much to send; 0: for the time"`
	Time    conf.Duration `toml:"time" of:"stream" default:"10s" doc:"source: how long to send"`

	// What validation has made of the above.
	Networks   []netip.Prefix `toml:"-"`
	On         []int          `toml:"-"` // numbers of its ports
	Dialects   []rnic.Dialect `toml:"-"`
	NoMarkers  bool           `toml:"-"`
	NoCRC      bool           `toml:"-"`
	DropBadCRC bool           `toml:"-"`
}
