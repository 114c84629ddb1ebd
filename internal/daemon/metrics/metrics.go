package metrics

import (
	"github.com/rnicd/rnicd/internal/status"
)

// metric is one name. A name that ends in _total only grows while the daemon runs; others are
// gauges.
type metric[T any] struct {
	name, help string
	labels     []string // in addition to those of the table
	of         func(*T, func(value float64, labels ...string))
}

func one[T any](name, help string, of func(*T) float64) metric[T] {
	return metric[T]{name: name, help: help,
		of: func(t *T, yield func(float64, ...string)) { yield(of(t)) }}
}

// reasons is a metric with one value a reason.
func reasons[T any](name, help, label string, of func(*T, func(float64, ...string))) metric[T] {
	return metric[T]{name: name, help: help, labels: []string{label}, of: of}
}

// some is a metric that not all have.
func some[T any](name, help string, of func(*T, func(float64, ...string))) metric[T] {
	return metric[T]{name: name, help: help, of: of}
}

func count[T any](name, help string, of func(*T) uint64) metric[T] {
	return one(name, help, func(t *T) float64 { return float64(of(t)) })
}

type queue = status.Queue

// queues have the labels port and queue.
var queues = []metric[queue]{
	count("rnicd_receive_frames_total", "Frames that the Poller took from its queue.",
		func(q *queue) uint64 { return q.Counters.RxFrames }),
	count("rnicd_receive_bytes_total", "Octets of these frames, with their Ethernet headers.",
		func(q *queue) uint64 { return q.Counters.RxOctets }),
	count("rnicd_transmit_frames_total", "Frames that the device took from the Poller.",
		func(q *queue) uint64 { return q.Counters.TxFrames }),
	count("rnicd_transmit_bytes_total", "Octets of these frames, with their Ethernet headers.",
		func(q *queue) uint64 { return q.Counters.TxOctets }),
	count("rnicd_coalesced_segments_total",
		"Segments received that were taken together with the one before them.", func(q *queue) uint64 {
			return q.Counters.Coalesced
		}),
	reasons("rnicd_drops_total", "Frames and segments that were not taken, by the reason that "+
		"docs/reference/limits.md has.", "reason",
		func(q *queue, yield func(float64, ...string)) {
			q.Counters.Each(func(layer, reason string, n uint64) { yield(float64(n), layer+"/"+reason) })
		}),
	reasons("rnicd_device_drops_total", deviceDropsHelp, "reason",
		func(q *queue, yield func(float64, ...string)) {
			c := &q.Counters.Queue
			yield(float64(c.RxNoBuf), "rx no buf")
			yield(float64(c.RxTooLong), "rx too long")
			yield(float64(c.RxErrors), "rx errors")
			yield(float64(c.RxOtherVLAN), "rx other vlan")
			yield(float64(c.TxErrors), "tx errors")
		}),
	count("rnicd_device_full_total",
		"Frames that the device did not take at once, because it was full; each once, however long "+
			"it waits.", func(q *queue) uint64 { return q.Counters.TxDeferred }),

	one("rnicd_connections", "Connections of the Poller, those in TIME-WAIT included.",
		func(q *queue) float64 { return float64(q.Counters.Conns) }),
	one("rnicd_time_wait_connections", "Of these, connections in TIME-WAIT.", func(q *queue) float64 {
		return float64(q.Counters.TimeWait)
	}),
	one("rnicd_half_open_connections", "Connections whose peer has not acknowledged our SYN,ACK yet.",
		func(q *queue) float64 { return float64(q.Counters.HalfOpen) }),
	count("rnicd_connections_accepted_total", "Connections that peers have opened.",
		func(q *queue) uint64 { return q.Counters.Accepted }),
	count("rnicd_connections_dialed_total", "Connections that this end has opened.",
		func(q *queue) uint64 { return q.Counters.Connected }),
	count("rnicd_connections_closed_total", "Connections that are over.", func(q *queue) uint64 {
		return q.Counters.Closed
	}),
	count("rnicd_connections_reclaimed_total",
		"Connections ended because their peers kept packet buffers that others waited for.",
		func(q *queue) uint64 { return q.Counters.Reclaimed }),
	count("rnicd_connections_gave_way_total",
		"Silent connections ended because one that came in had no place.", func(q *queue) uint64 {
			return q.Counters.GaveWay
		}),
	count("rnicd_syn_cookies_sent_total", "SYNs answered with a cookie.", func(q *queue) uint64 {
		return q.Counters.CookiesSent
	}),
	count("rnicd_resets_sent_total", "RSTs sent to segments without a connection.",
		func(q *queue) uint64 { return q.Counters.RSTSent }),

	count("rnicd_tcp_segments_sent_total",
		"TCP segments made by connections, retransmissions included.", func(q *queue) uint64 {
			return q.Counters.Segments
		}),
	count("rnicd_tcp_retransmissions_total", "TCP segments sent again.", func(q *queue) uint64 {
		return q.Counters.Memory.Totals.Retransmits
	}),
	reasons("rnicd_tcp_recoveries_total",
		"Times a loss was noticed, by how: fast recovery, the retransmission timer, a tail loss probe.",
		"kind",
		func(q *queue, yield func(float64, ...string)) {
			t := &q.Counters.Memory.Totals
			yield(float64(t.FastRetransmits), "fast")
			yield(float64(t.Timeouts), "timeout")
			yield(float64(t.LossProbes), "probe")
		}),
	count("rnicd_tcp_recoveries_undone_total", "Recoveries found to have been reordering, and undone.",
		func(q *queue) uint64 { return q.Counters.Memory.Totals.Undone }),
	count("rnicd_tcp_out_of_order_segments_total", "TCP segments received beyond a gap.",
		func(q *queue) uint64 { return q.Counters.Memory.Totals.OutOfOrder }),
	count("rnicd_tcp_window_probes_total", "Probes of a window that the peer keeps closed.",
		func(q *queue) uint64 { return q.Counters.Memory.Totals.WindowProbes }),
	count("rnicd_tcp_congestion_marked_segments_total", "TCP segments received with the ECN mark CE.",
		func(q *queue) uint64 { return q.Counters.Memory.Totals.CongestionMarked }),
	count("rnicd_tcp_black_holes_total", "Times a path was found to swallow large segments.",
		func(q *queue) uint64 { return q.Counters.Memory.Totals.BlackHoles }),

	count("rnicd_fpdus_received_total", "FPDUs received and accepted.", func(q *queue) uint64 {
		return q.RDMA.FPDUsIn
	}),
	count("rnicd_fpdus_sent_total", "FPDUs made.", func(q *queue) uint64 { return q.RDMA.FPDUsOut }),
	count("rnicd_fpdus_reassembled_total", "FPDUs received in several segments: the slow path.",
		func(q *queue) uint64 { return q.RDMA.Reassembled }),
	count("rnicd_fpdus_ahead_total", "FPDUs placed ahead of a gap.", func(q *queue) uint64 {
		return q.RDMA.OutOfOrder
	}),
	reasons("rnicd_placed_bytes_total",
		"Octets of payload placed into registered memory, directly or through reassembly.", "way",
		func(q *queue, yield func(float64, ...string)) {
			yield(float64(q.RDMA.Placed.Direct), "direct")
			yield(float64(q.RDMA.Placed.Reassembled), "reassembled")
		}),
	count("rnicd_placed_ahead_bytes_total", "Of these, octets placed ahead of a gap.",
		func(q *queue) uint64 { return q.RDMA.Placed.OutOfOrder }),
	count("rnicd_sent_payload_bytes_total", "Octets of DDP payload made into FPDUs.",
		func(q *queue) uint64 { return q.RDMA.PayloadOut }),
	reasons("rnicd_crc_errors_total",
		"FPDUs with a bad CRC32C, by what came of it: the connection was ended, or the segment dropped "+
			"(drop_bad_crc).", "outcome",
		func(q *queue, yield func(float64, ...string)) {
			yield(float64(q.RDMA.CRCErrors), "ended")
			yield(float64(q.RDMA.RefusedCRC), "dropped")
		}),
	reasons("rnicd_segments_refused_total",
		"Segments of RDMA connections left to be sent again, by reason.", "reason",
		func(q *queue, yield func(float64, ...string)) {
			r := &q.RDMA
			yield(float64(r.RefusedBudget), "budget")
			yield(float64(r.RefusedOutOfOrderRuns), "out of order runs")
			yield(float64(r.RefusedPending), "pending messages")
			yield(float64(r.RefusedSpare), "spare buffers")
			yield(float64(r.RefusedUnverified), "unverified")
		}),
	count("rnicd_terminates_received_total", "Terminate messages received.", func(q *queue) uint64 {
		return q.RDMA.TerminatesIn
	}),
	count("rnicd_streams_terminated_total",
		"RDMA connections ended here for an error in what the peer sent.", func(q *queue) uint64 {
			return q.RDMA.Terminated
		}),

	one("rnicd_packet_buffers_available", "Free packet buffers of the pool.", func(q *queue) float64 {
		return float64(q.Counters.BufsAvailable)
	}),
	count("rnicd_packet_buffers_exhausted_total", "Times the pool was found empty.",
		func(q *queue) uint64 { return q.Counters.BufsExhausted }),
	reasons("rnicd_waits_total", "Tries to send that were put off, by what was waited for; each "+
		"try counts.", "reason",
		func(q *queue, yield func(float64, ...string)) {
			yield(float64(q.Counters.TxWaits), "device")
			yield(float64(q.Counters.NoBufWaits), "packet buffers")
			yield(float64(q.Counters.MemoryWaits), "segment records")
			yield(float64(q.Counters.ShareWaits), "share of packet buffers")
		}),
	count("rnicd_mld_reports_sent_total",
		"Packets of multicast listener discovery sent: Reports, and Dones of MLDv1.",
		func(q *queue) uint64 { return q.Counters.Listener.Reports }),
	count("rnicd_mld_queries_received_total",
		"Queries of multicast listener discovery received and taken.", func(q *queue) uint64 {
			return q.Counters.Listener.Queries
		}),
	count("rnicd_mld_answers_suppressed_total",
		"Answers that another host's Report of MLDv1 made needless.", func(q *queue) uint64 {
			return q.Counters.Listener.Suppressed
		}),
	count("rnicd_mld_overflows_total",
		"Queries for more sources than are remembered, which were answered for all, and groups left "+
			"that gave way.", func(q *queue) uint64 { return q.Counters.Listener.Overflows }),
	one("rnicd_mld_older", "1: a router of the link speaks MLDv1 only, and so do we.",
		func(q *queue) float64 { return truth(q.Counters.Listener.Older) }),
	count("rnicd_address_conflicts_total", "Packets of other hosts that claim an address of ours.",
		func(q *queue) uint64 { return q.Counters.AddrConflicts }),

	count("rnicd_poller_turns_total", "Passes of the Poller's loop.", func(q *queue) uint64 {
		return q.Counters.Turns
	}),
	count("rnicd_poller_empty_turns_total", "Of these, passes that found no work.",
		func(q *queue) uint64 { return q.Counters.EmptyTurns }),
	count("rnicd_poller_sleeps_total", "Times the Poller waited without polling.",
		func(q *queue) uint64 { return q.Counters.Sleeps }),
}

// pollers have the same labels, and are there also when the Poller does not answer.
var pollers = []metric[queue]{
	one("rnicd_poller_up", "1: the Poller answered this scrape.", func(q *queue) float64 {
		return truth(q.Error == "")
	}),
	count("rnicd_poller_stalls_total",
		"Times the Poller stood still for longer than limits.poller_stall.", func(q *queue) uint64 {
			return q.Stalls
		}),
	one("rnicd_poller_still_seconds",
		"How long it has stood still; 0: it turns, or waits for an interrupt.", func(q *queue) float64 {
			return q.Still
		}),
}

// ports have the label port.
var ports = []metric[status.Port]{
	one("rnicd_stags", "STags in use: regions, windows, one of each connection.",
		func(p *status.Port) float64 { return float64(p.Regions) }),
	one("rnicd_memory_bytes", "Memory mapped for packets and rings.", func(p *status.Port) float64 {
		return float64(p.MemoryOctets)
	}),
	reasons("rnicd_startups_refused_total",
		"Connections that peers began and that were refused in start-up, by cause "+
			"(docs/reference/limits.md); over Pollers, at a limit of connections, segments that began one.",
		"cause",
		func(p *status.Port,
			yield func(float64, ...string)) {
			each(p.Refused, status.StartupRefusals, yield)
		}),
	one("rnicd_capture_ended", "1: the port's capture has ended early, as its file could not be "+
		"written; 0: it goes on, or there is none.", func(p *status.Port) float64 {
		return truth(p.Capture != nil && p.Capture.Error != "")
	}),
	count("rnicd_capture_frames_missing_total", "Frames that are missing in the port's capture.",
		func(p *status.Port) uint64 {
			if p.Capture == nil {
				return 0
			}
			return p.Capture.Missing
		}),
	reasons("rnicd_device_trouble", deviceTroubleHelp, "trouble",
		func(p *status.Port, yield func(float64, ...string)) { troubles(p.Trouble, yield) }),
	count("rnicd_peer_offences_total", peerOffencesHelp, func(p *status.Port) uint64 {
		return p.XStats["peer_offences"]
	}),
	count("rnicd_startup_fallbacks_total", "Connections tried again in an older dialect.",
		func(p *status.Port) uint64 { return p.Startup.Fallbacks }),
}

// services have the label service.
var services = []metric[status.Service]{
	one("rnicd_service_connections", "Clients that are being served.",
		func(s *status.Service) float64 { return float64(s.Connections) }),
	one("rnicd_service_connections_limit", "Clients that are served at a time at most.",
		func(s *status.Service) float64 { return float64(s.ConnectionsMax) }),
	count("rnicd_service_accepted_total", "Clients that were served, or are.",
		func(s *status.Service) uint64 { return s.Accepted }),
	reasons("rnicd_service_refused_total",
		"Clients that were refused, by cause: allow, connections, peer_connections; request: what the "+
			"service did not want, as for the quota.", "cause",
		func(s *status.Service, yield func(float64, ...string)) {
			each(s.RefusedBy, status.ServiceRefusals, yield)
		}),
	count("rnicd_service_failed_total", "Connections that did not end well, in start-up or later.",
		func(s *status.Service) uint64 { return s.Failed }),
}

const (
	reloadedHelp = "1: the configuration in force is the file as it was at the last reload, or at " +
		"the start."
	loadedHelp = "When the configuration in force was read, in seconds since 1970."
)

const logLostHelp = "Lines of the log that were lost because its reader was gone or stood still."

const throttledHelp = "Periods in which the process was stopped because its control group had " +
	"used its quota of CPUs."

const deviceDropsHelp = "Frames that the device or its driver lost or refused, by reason; rx no " +
	"buf: with a TAP, bursts cut " +
	"short, whose frames wait; rx other vlan: not of the port's VLAN, normal on a trunk."

const deviceTroubleHelp = "1: the device is so: down, moved (into another network namespace), " +
	"link (it has none), bridge (it leaves " +
	"its bridge at a restart)."

const peerOffencesHelp = "Connections of a memif device ended because the peer's memory went " +
	"away, or was slow."

const buildInfo = "1, with the version of the program."

// daemons have no labels.
var daemons = []metric[status.Daemon]{
	one("rnicd_healthy", "1: all Pollers turn.", func(d *status.Daemon) float64 {
		return truth(d.Healthy)
	}),
	count("rnicd_log_lines_lost_total", logLostHelp, func(d *status.Daemon) uint64 {
		return d.LogLost
	}),
	count("rnicd_cpu_throttled_periods_total", throttledHelp, func(d *status.Daemon) uint64 {
		return d.CPU.Throttled
	}),
	one("rnicd_draining", "1: the daemon takes no more connections, and is about to end.",
		func(d *status.Daemon) float64 { return truth(d.State == status.Draining) }),
	one("rnicd_config_last_reload_successful", reloadedHelp,
		func(d *status.Daemon) float64 { return truth(d.ReloadError == "") }),
	one("rnicd_config_last_reload_success_timestamp_seconds", loadedHelp,
		func(d *status.Daemon) float64 { return float64(d.Loaded.UnixMilli()) / 1000 }),
	{name: "rnicd_build_info", help: buildInfo, labels: []string{"version"},
		of: func(d *status.Daemon, yield func(float64, ...string)) { yield(1, d.Version) }},
}

func truth(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
