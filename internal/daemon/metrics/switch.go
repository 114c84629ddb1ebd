package metrics

import (
	"context"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rnicd/rnicd/internal/status"
	"github.com/rnicd/rnicd/internal/vswitch"
	"github.com/rnicd/rnicd/pmd"
)

type switchPort = status.SwitchPort

// switchPorts have the labels port, kind (uplink or program) and queue (0 of a program).
var switchPorts = []metric[switchPort]{
	one("rnicd_switch_attached", "1: a program is attached; an uplink always is.",
		func(p *switchPort) float64 { return truth(p.Attached) }),
	some("rnicd_switch_attachments_total", "Times a program has attached.",
		func(p *switchPort, yield func(float64, ...string)) {
			if p.Program != nil {
				yield(float64(p.Attaches))
			}
		}),
	count("rnicd_switch_received_frames_total",
		"Frames that came from the port, dropped ones among them.", func(p *switchPort) uint64 {
			return p.Received
		}),
	count("rnicd_switch_received_bytes_total", "Octets of these frames, with their Ethernet headers.",
		func(p *switchPort) uint64 { return p.ReceivedB }),
	count("rnicd_switch_sent_frames_total", "Frames that the port took.", func(p *switchPort) uint64 {
		return p.Sent
	}),
	count("rnicd_switch_sent_bytes_total", "Octets of these frames, with their Ethernet headers.",
		func(p *switchPort) uint64 { return p.SentB }),
	reasons("rnicd_switch_drops_total",
		"Frames from the port, or for it, that were dropped, by reason (docs/reference/switch.md).",
		"reason",
		func(p *switchPort, yield func(float64, ...string)) { switchDrops(p.Drops, yield) }),
	reasons("rnicd_switch_ring_errors_total",
		"What was wrong in the rings that a program has in its memory.", "error",
		func(p *switchPort, yield func(float64, ...string)) {
			if p.Program != nil {
				each(p.Rings, status.RingErrors, yield)
			}
		}),
	reasons("rnicd_switch_device_drops_total",
		"Frames that the device of an uplink, or its driver, lost or refused, by reason; rx other vlan "+
			"is normal on a trunk.", "reason",
		func(p *switchPort, yield func(float64, ...string)) {
			if p.Program == nil {
				each(p.Device, status.DeviceDrops, yield)
			}
		}),
	reasons("rnicd_switch_device_trouble", deviceTroubleHelp, "trouble",
		func(p *switchPort, yield func(float64, ...string)) {
			if p.Program == nil {
				troubles(p.Trouble, yield)
			}
		}),
	some("rnicd_switch_peer_offences_total", peerOffencesHelp,
		func(p *switchPort, yield func(float64, ...string)) {
			if p.Program == nil {
				yield(float64(p.Offences))
			}
		}),
	count("rnicd_switch_throttled_turns_total",
		"Turns in which frames of a program had to wait, for its send_rate or send_frames, or with its "+
			"share of a full uplink.", func(p *switchPort) uint64 { return p.Throttled }),
	one("rnicd_switch_waiting_frames", "Frames that wait for room in the port.",
		func(p *switchPort) float64 { return float64(p.Waiting) }),
	one("rnicd_switch_waiting_frames_limit", "Frames that may wait for it; more are dropped as full.",
		func(p *switchPort) float64 { return float64(p.WaitMax) }),
	reasons("rnicd_switch_rate_limit_bytes",
		"Octets a second that a program may send, or is given; absent: any number.", "direction",
		func(p *switchPort, yield func(float64, ...string)) {
			if q := p.Program; q != nil {
				limits(q.SendRate, q.ReceiveRate, yield)
			}
		}),
	reasons("rnicd_switch_rate_limit_frames",
		"Frames a second that a program may send, or is given; absent: any number.", "direction",
		func(p *switchPort, yield func(float64, ...string)) {
			if q := p.Program; q != nil {
				limits(q.SendFrames, q.ReceiveFrames, yield)
			}
		}),
}

// switchThreads have the label thread.
var switchThreads = []metric[status.SwitchThread]{
	count("rnicd_switch_turns_total", "Passes of the thread's loop.",
		func(t *status.SwitchThread) uint64 { return t.Turns }),
	count("rnicd_switch_busy_turns_total", "Of these, passes that found frames.",
		func(t *status.SwitchThread) uint64 { return t.BusyTurns }),
	count("rnicd_switch_frames_total", "Frames that the thread steered.",
		func(t *status.SwitchThread) uint64 { return t.Frames }),
	count("rnicd_switch_lookups_total",
		"Times it looked for where a frame goes; frames of a flow that follow each other need one.",
		func(t *status.SwitchThread) uint64 { return t.Lookups }),
	count("rnicd_switch_copies_total", "Copies of frames to groups.",
		func(t *status.SwitchThread) uint64 { return t.Copies }),
	count("rnicd_switch_answers_total", "Answers to questions for shared addresses.",
		func(t *status.SwitchThread) uint64 { return t.Answers }),
	one("rnicd_switch_packet_buffers_available", "Free packet buffers of the thread.",
		func(t *status.SwitchThread) float64 { return float64(t.BufsFree) }),
	one("rnicd_switch_packet_buffers_limit", "Packet buffers of the thread.",
		func(t *status.SwitchThread) float64 { return float64(t.Bufs) }),
	reasons("rnicd_switch_thread_drops_total", "Frames dropped on the account of no port, by reason.",
		"reason",
		func(t *status.SwitchThread, yield func(float64, ...string)) { switchDrops(t.Drops, yield) }),
}

// switches have no labels.
var switches = []metric[status.Switch]{
	one("rnicd_switch_healthy", "1: all threads turn, and answered this scrape.",
		func(s *status.Switch) float64 { return truth(s.Healthy && s.Error == "") }),
	count("rnicd_switch_refused_total",
		"Clients of the switch's sockets that may not attach, or cannot; the log says why.",
		func(s *status.Switch) uint64 { return s.Refused }),
	count("rnicd_log_lines_lost_total", logLostHelp, func(s *status.Switch) uint64 {
		return s.LogLost
	}),
	count("rnicd_cpu_throttled_periods_total", throttledHelp, func(s *status.Switch) uint64 {
		return s.CPU.Throttled
	}),
	one("rnicd_config_last_reload_successful", reloadedHelp,
		func(s *status.Switch) float64 { return truth(s.ReloadError == "") }),
	one("rnicd_config_last_reload_success_timestamp_seconds", loadedHelp,
		func(s *status.Switch) float64 { return float64(s.Loaded.UnixMilli()) / 1000 }),
	{name: "rnicd_build_info", help: buildInfo, labels: []string{"version"},
		of: func(s *status.Switch, yield func(float64, ...string)) { yield(1, s.Version) }},
}

// each yields all of names, so that one is there before it is counted for the first time.
func each(counted map[string]uint64, names []string, yield func(float64, ...string)) {
	for _, name := range names {
		yield(float64(counted[name]), name)
	}
}

// troubles yields 1 for the kind of is, and 0 for all others.
func troubles(is *status.Trouble, yield func(float64, ...string)) {
	for _, kind := range pmd.Troubles {
		yield(truth(is != nil && is.Kind == kind), kind)
	}
}

func switchDrops(counted map[string]uint64, yield func(float64, ...string)) {
	for r := vswitch.Passed + 1; r < vswitch.Reasons; r++ {
		yield(float64(counted[r.String()]), r.String())
	}
}

func limits(send, receive int64, yield func(float64, ...string)) {
	if send > 0 {
		yield(float64(send), "send")
	}
	if receive > 0 {
		yield(float64(receive), "receive")
	}
}

// SwitchCollector is a prometheus.Collector of what Status says.
type SwitchCollector struct {
	Status func(context.Context) *status.Switch
}

var switchPortLabels = []string{"port", "kind", "queue"}

// Describe implements prometheus.Collector.
func (c SwitchCollector) Describe(to chan<- *prometheus.Desc) {
	describe(to, switchPorts, switchPortLabels...)
	describe(to, switchThreads, "thread")
	describe(to, switches)
}

// Collect implements prometheus.Collector.
func (c SwitchCollector) Collect(to chan<- prometheus.Metric) {
	s := c.Status(context.Background())
	collect(to, switches, s, nil)
	for i := range s.Threads {
		collect(to, switchThreads, &s.Threads[i], []string{"thread"}, strconv.Itoa(s.Threads[i].Thread))
	}
	for kind, all := range map[string][]switchPort{"uplink": s.Uplinks, "program": s.Programs} {
		for i := range all {
			collect(to, switchPorts, &all[i], switchPortLabels, all[i].Name, kind,
				strconv.Itoa(all[i].Queue))
		}
	}
}
