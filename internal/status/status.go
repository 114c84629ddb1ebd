package status

import (
	"net/netip"
	"time"

	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// Daemon is the answer of a daemon, or a program of rnicd run, to GET /v1/status: everything but
// connections.
type Daemon struct {
	Kind    string    `json:"kind"` // KindDaemon, KindProgram
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Config  string    `json:"config,omitempty"` // the file
	Started time.Time `json:"started"`
	At      time.Time `json:"at"`    // when this was so
	State   string    `json:"state"` // serving, draining; of a program: running
	Healthy bool      `json:"healthy"`
	LogLost uint64    `json:"log_lost"` // lines of the log that its reader did not take
	CPU     CPU       `json:"cpu"`
	Loaded  time.Time `json:"loaded,omitzero"` // when the configuration in force was read
	// why the last reload failed, until one succeeds
	ReloadError string        `json:"reload_error,omitempty"`
	Ports       List[Port]    `json:"ports"`
	Services    List[Service] `json:"services"`
	Program     *Program      `json:"program,omitempty"`
}

// States of a Daemon.
const (
	Serving  = "serving"
	Draining = "draining"
	Running  = "running"
)

// Program is what only a program of rnicd run has.
type Program struct {
	Command      string               `json:"command"`
	Looks        string               `json:"looks"`       // what its device looks like: iwarp, roce
	QueuePairs   int                  `json:"queue_pairs"` // without those for datagrams
	Datagrams    int                  `json:"datagram_queue_pairs"`
	Connections  int                  `json:"connections"` // of queue pairs
	Listeners    List[netip.AddrPort] `json:"listeners"`
	Regions      int                  `json:"regions"` // registered by the program
	RegionOctets uint64               `json:"region_octets"`
}

// CPU is what the control groups of the process leave it of the CPUs.
type CPU struct {
	Quota float64 `json:"quota,omitempty"` // CPUs; 0: all
	Limit string  `json:"limit,omitempty"` // the file that says so
	// periods in which the process was stopped because it had used its quota
	Throttled uint64  `json:"throttled"`
	Seconds   float64 `json:"throttled_seconds"`
}

// Trouble is why a device takes no frames, or soon will not.
type Trouble struct {
	Kind string `json:"kind"` // of pmd.Troubles
	Text string `json:"text"`
}

// TroubleOf is t; nil: there is none.
func TroubleOf(t pmd.Trouble) *Trouble {
	if t.Kind == "" {
		return nil
	}
	return &Trouble{t.Kind, t.Text}
}

// Port is a [[port]].
type Port struct {
	Name         string       `json:"name"`
	Driver       string       `json:"driver"`
	Device       string       `json:"device,omitempty"`
	MAC          string       `json:"mac,omitempty"`
	Addresses    List[string] `json:"addresses"`
	MTU          int          `json:"mtu,omitempty"`
	MemoryOctets int          `json:"memory_octets,omitempty"` // of packets and rings
	Pages        string       `json:"pages,omitempty"`
	Link         string       `json:"link,omitempty"`
	Trouble      *Trouble     `json:"trouble,omitempty"`
	Regions      int          `json:"regions"` // STags: of regions, windows and connections
	// connections over the kernel's sockets
	KernelConnections int                  `json:"kernel_connections,omitempty"`
	Startup           rnic.StartupCounters `json:"startup"`
	// start-ups, by cause, those that are not 0
	Refused map[string]uint64 `json:"refused,omitempty"`
	Queues  List[Queue]       `json:"queues"` // none over the kernel's sockets
	XStats  map[string]uint64 `json:"xstats,omitempty"`
	Capture *Capture          `json:"capture,omitempty"` // of the key capture
}

// Capture is the file to which all frames of a Port are written.
type Capture struct {
	File    string `json:"file"`
	Frames  uint64 `json:"frames"`          // in it, or about to be
	Missing uint64 `json:"missing"`         // that came too fast, or after Error
	Error   string `json:"error,omitempty"` // why it has ended early
}

// Queue is a queue of a Port with its Poller.
type Queue struct {
	Queue  int     `json:"queue"`
	Core   int     `json:"core"` // -1: not pinned
	Stalls uint64  `json:"stalls"`
	Still  float64 `json:"still_seconds,omitempty"` // it has not turned for so long
	// it did not answer: what follows is empty
	Error    string              `json:"error,omitempty"`
	Counters stack.Counters      `json:"counters"`
	RDMA     rnic.PollerCounters `json:"rdma"`
	Streams  stream.Counters     `json:"streams"`
	Drops    map[string]uint64   `json:"drops"` // those that are not 0, as tcp/no_conn
}

// Service is a [[service]].
type Service struct {
	Name           string       `json:"name"`
	Type           string       `json:"type"`
	Listen         int          `json:"listen"`
	Ports          List[string] `json:"ports"`
	Connections    int          `json:"connections"`
	ConnectionsMax int          `json:"connections_max"`
	Accepted       uint64       `json:"accepted"`
	Refused        uint64       `json:"refused"`
	Failed         uint64       `json:"failed"`
	// RefusedBy are the causes of Refused, those that are not 0, of ServiceRefusals.
	RefusedBy map[string]uint64 `json:"refused_by,omitempty"`
}

// StartupRefusals are the keys of Port.Refused.
var StartupRefusals = func() (causes []string) {
	(&rnic.StartupRefusals{}).Each(func(cause string, _ uint64) { causes = append(causes, cause) })
	return causes
}()

// ServiceRefusals are the keys of Service.RefusedBy: not among allow; as many as connections, or
// peer_connections, says; and what the service itself did not want of a client, as for the quota.
var ServiceRefusals = []string{"allow", "connections", "peer_connections", "request"}

// SumRefused makes Refused of a port of what its Adapter and its Pollers have counted: Pollers
// refuse at their limits before there is a start-up.
func (p *Port) SumRefused() {
	p.Refused = map[string]uint64{}
	add := func(cause string, n uint64) {
		if n > 0 {
			p.Refused[cause] += n
		}
	}
	p.Startup.Refused.Each(add)
	for i := range p.Queues {
		add("connections", p.Queues[i].Counters.Own[stack.DropConnMax])
		add("peer connections", p.Queues[i].Counters.Own[stack.DropPeerMax])
	}
}
