package top

import (
	"fmt"
	"io"
	"net/netip"
	"path"
	"strings"
	"time"

	"github.com/rnicd/rnicd/internal/status"
	"github.com/rnicd/rnicd/rnic"
)

// connectionTable has a row for each connection.
func connectionTable(was, is *Look) table {
	t := table{columns: []column{
		{"remote", 22, true}, {"service", 8, true}, {"state", 7, true}, {"inB/s", 6, false},
		{"outB/s", 7, false}, {"rtt", 7, false}, {"cwnd", 6, false},
		{"retr", 5, false}, {"ahead", 6, false}, {"reass", 6, false},
	}}
	before := map[string]*status.Connection{}
	if was != nil {
		for i := range was.Connections {
			before[keyOf(&was.Connections[i])] = &was.Connections[i]
		}
	}
	for i := range is.Connections {
		c := &is.Connections[i]
		r, b := ratesOf(was, is), before[keyOf(c)]
		if b == nil {
			r, b = rates{}, c
		}
		k := &c.Conn.TCP
		var ahead, reassembled uint64
		if c.RDMA != nil {
			ahead, reassembled = c.RDMA.Stats.Receive.OutOfOrder, c.RDMA.Stats.Receive.Reassembled
		}
		t.rows = append(t.rows, []cell{
			text(address(c.Conn.Remote)), text(serviceOf(c)), text(stateOf(c)),
			r.cell(b.Conn.TCP.BytesIn, k.BytesIn), r.cell(b.Conn.TCP.BytesOut, k.BytesOut),
			{duration(k.SRTTNs), float64(k.SRTTNs)}, {Number(float64(k.Cwnd)), float64(k.Cwnd)},
			total(k.Retransmits), total(ahead), total(reassembled),
		})
	}
	return t
}

// serviceOf is what serves a connection: of a program a queue pair.
func serviceOf(c *status.Connection) string {
	if c.QP != 0 {
		return fmt.Sprintf("%06x", c.QP)
	}
	return c.Service
}

func keyOf(c *status.Connection) string {
	return fmt.Sprint(c.Port, " ", c.Queue, " ", c.Conn.Local, " ", c.Conn.Remote)
}

// stateOf is RDMA's where there is one, else TCP's.
func stateOf(c *status.Connection) string {
	if c.RDMA != nil {
		return c.RDMA.State
	}
	return map[string]string{"ESTABLISHED": "estab"}[c.Conn.State] + strings.ToLower(
		strings.TrimPrefix(c.Conn.State, "ESTABLISHED"))
}

// duration writes ns in at most six columns.
func duration(ns int64) string {
	switch d := time.Duration(ns); {
	case d == 0:
		return "-"
	case d < time.Millisecond:
		return fmt.Sprintf("%dus", d.Microseconds())
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.1fms", d.Seconds()*1e3)
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1fs", time.Duration(ns).Seconds())
}

// Details is all that is known of a connection, as ss -ti has it.
func Details(c *status.Connection, now time.Time) (lines []string) {
	first := fmt.Sprintf("%s %s -> %s  port:%s queue:%d %s", strings.ToLower(c.Conn.State),
		address(c.Conn.Local), address(c.Conn.Remote), c.Port, c.Queue, c.Kind)
	if !c.Connected() {
		first = fmt.Sprintf("%s %s  port:%s %s", strings.ToLower(c.Conn.State), address(c.Conn.Local),
			c.Port, c.Kind)
	}
	if c.QP != 0 {
		first += fmt.Sprintf(" qp:0x%06x", c.QP)
	}
	if c.PID != 0 {
		first += fmt.Sprintf(" pid:%d %s", c.PID, programName(c.Command))
	}
	if c.Service != "" {
		first += " service:" + c.Service
	}
	if c.Since != nil {
		first += " for:" + now.Sub(*c.Since).Round(time.Second).String()
	}
	lines = append(lines, first)
	if !c.Connected() {
		return lines
	}
	if c.Kind == status.Kernel {
		return append(lines, "     the kernel's: see ss -ti")
	}
	if c.RDMA != nil && c.RDMA.Stats.TCP.Kernel {
		t := &c.RDMA.Stats.TCP
		lines = append(lines, fmt.Sprintf("     the kernel's (see ss -ti) mss:%d segs_in:%d segs_out:%d "+
			"retrans:%d ooo:%d", t.EMSS, t.SegmentsIn, t.SegmentsOut, t.Retransmits, t.OutOfOrder))
		return append(lines, rdmaDetails(c.RDMA)...)
	}
	k := &c.Conn.TCP
	add := func(format string, args ...any) {
		lines = append(lines, "     "+fmt.Sprintf(format, args...))
	}
	add("%s %s rto:%s rtt:%s/%s minrtt:%s mss:%d cwnd:%d ssthresh:%d", c.Conn.Congestion,
		strings.ToLower(c.Conn.Recovery),
		duration(k.RTONs), duration(k.SRTTNs), duration(k.RTTVarNs), duration(k.MinRTTNs), k.EMSS,
		k.Cwnd, k.Ssthresh)
	add("in:%d out:%d segs_in:%d segs_out:%d flight:%d snd_wnd:%d rcv_wnd:%d", k.BytesIn, k.BytesOut,
		k.SegsIn, k.SegsOut, k.Flight, k.SndWnd, k.RcvWnd)
	add("retrans:%d/%d fast:%d timeouts:%d probes:%d undone:%d lost:%d sacked:%d ooo:%d "+
		"held:%d dup:%d", k.Resent, k.Retransmits,
		k.FastRetransmits, k.Timeouts, k.LossProbes, k.Undone, k.Lost, k.Sacked, k.OOOSegs,
		k.Held, k.DupSegs)
	if k.PacingRate > 0 {
		add("pacing:%s octets/s", Number(float64(k.PacingRate)))
	}
	if k.Probes+k.BlackHoles+k.CEIn+k.ECEIn > 0 {
		add("window_probes:%d black_holes:%d ce:%d ece:%d", k.Probes, k.BlackHoles, k.CEIn, k.ECEIn)
	}
	if c.Conn.Waits {
		add("waits for packet buffers or segment records")
	}
	if c.Conn.SoftError != "" {
		add("trouble: %s", c.Conn.SoftError)
	}
	if s := c.Stream; s != nil {
		add("stream acked:%d unacked:%d unsent:%d unread:%d", s.Acked, s.Unacked, s.Unsent, s.Unread)
	}
	if c.RDMA != nil {
		lines = append(lines, rdmaDetails(c.RDMA)...)
	}
	return lines
}

// address is one of a connection; "-": it is not known yet.
func address(a netip.AddrPort) string {
	if !a.IsValid() {
		return "-"
	}
	return a.String()
}

// programName is the name of a program in its command line.
func programName(command string) string {
	first, _, _ := strings.Cut(command, " ")
	return path.Base(first)
}

func rdmaDetails(r *rnic.ConnInfo) (lines []string) {
	s := &r.Stats
	add := func(format string, args ...any) {
		lines = append(lines, "     "+fmt.Sprintf(format, args...))
	}
	add("rdma %s %s markers:%s crc:%v", r.State, r.Dialect, directions(r.MarkersIn, r.MarkersOut),
		r.CRC)
	if r.Dialect == "" {
		return lines
	}
	add("fpdus in:%d out:%d direct:%d reassembled:%d ahead:%d  messages in:%d out:%d "+
		"writes:%d reads:%d", s.Receive.FPDUs, s.FPDUsSent,
		s.Receive.Direct, s.Receive.Reassembled, s.Receive.OutOfOrder, s.MessagesRecvd, s.MessagesSent,
		s.WritesRecvd, s.ReadsServed)
	add("placed direct:%d reassembled:%d ahead:%d  sent:%d", s.Placed.Direct, s.Placed.Reassembled,
		s.Placed.OutOfOrder, s.PayloadSent)
	add("held_bufs:%d/%d refused budget:%d crc:%d unverified:%d runs:%d spare:%d pending:%d",
		s.Receive.HeldBufs, s.Receive.HeldBufsPeak, s.Receive.RefusedBudget,
		s.Receive.RefusedCRC, s.Receive.RefusedUnverified, s.Receive.RefusedOutOfOrderRuns,
		s.Receive.RefusedSpare, s.RefusedPending)
	return lines
}

func directions(in, out bool) string {
	return map[[2]bool]string{{true, true}: "both", {true, false}: "in",
		{false, true}: "out"}[[2]bool{in, out}] +
		map[bool]string{true: "none"}[!in && !out]
}

// writeCPU writes what a quota costs.
func writeCPU(w io.Writer, c *status.CPU) {
	if c.Quota > 0 {
		fmt.Fprintf(w, "cpu: %.2f CPUs by %s; stopped in %d periods, for %.1f s\n", c.Quota, c.Limit,
			c.Throttled, c.Seconds)
	}
}

func writeLogLost(w io.Writer, lines uint64) {
	if lines > 0 {
		fmt.Fprintf(w, "log: %d lines are lost: its reader was gone or stood still\n", lines)
	}
}

// WriteStatus writes what rnicd status prints.
func WriteStatus(w io.Writer, d *status.Daemon) {
	l := &Look{Daemon: d}
	of := d.Config
	if d.Program != nil {
		of = d.Program.Command
	}
	fmt.Fprintf(w, "%s  pid %d  %s\n", header(d), d.PID, of)
	writeLogLost(w, d.LogLost)
	writeReload(w, d.Loaded, d.ReloadError)
	writeCPU(w, &d.CPU)
	for _, p := range d.Ports {
		parts := []string{"port " + p.Name, p.Driver}
		if p.Device != "" && p.Device != p.Name {
			parts = append(parts, p.Device)
		}
		parts = append(parts, strings.Join(p.Addresses, " "))
		if p.MTU > 0 {
			parts = append(parts, fmt.Sprintf("mtu %d  mac %s  %s octets in pages of %s", p.MTU, p.MAC,
				Number(float64(p.MemoryOctets)), p.Pages))
		}
		if p.Link != "" {
			parts = append(parts, "link "+p.Link)
		}
		parts = append(parts, fmt.Sprintf("%d STags", p.Regions))
		if p.KernelConnections > 0 {
			parts = append(parts, fmt.Sprintf("%d connections", p.KernelConnections))
		}
		fmt.Fprintln(w, strings.Join(parts, "  "))
		if p.Trouble != nil {
			fmt.Fprintf(w, "  trouble: %s\n", p.Trouble.Text)
		}
		if p.Capture != nil && p.Capture.Error != "" {
			fmt.Fprintf(w, "  capture to %s has ended: %s\n", p.Capture.File, p.Capture.Error)
		}
		for _, q := range p.Queues {
			switch {
			case q.Error != "":
				fmt.Fprintf(w, "  queue %d: %s; it has not turned for %.1f s\n", q.Queue, q.Error, q.Still)
			case q.Stalls > 0:
				fmt.Fprintf(w, "  queue %d: stood still %d times\n", q.Queue, q.Stalls)
			}
		}
	}
	t := queueTable(nil, l, false)
	if len(t.rows) > 0 {
		writeQueues(w, d, t)
	}
	for _, line := range t.extra {
		fmt.Fprintln(w, line)
	}
	if d.Program != nil {
		writeProgram(w, d.Program)
		return
	}
	fmt.Fprintf(w, "\n%-12s %-9s %6s %12s %9s %8s %7s\n", "service", "type", "listen", "connections",
		"accepted", "refused", "failed")
	for _, v := range d.Services {
		fmt.Fprintf(w, "%-12s %-9s %6d %12s %9d %8d %7d\n", v.Name, v.Type, v.Listen,
			fmt.Sprintf("%d of %d", v.Connections, v.ConnectionsMax), v.Accepted, v.Refused, v.Failed)
		if line := reasonsOf(v.RefusedBy); line != "" {
			fmt.Fprintln(w, "  refused: "+line)
		}
	}
}

// writeQueues writes a line for each queue.
func writeQueues(w io.Writer, d *status.Daemon, t table) {
	fmt.Fprintln(w)
	keep := []int{0, 1, 2, 3, 8, 9, 10, 11, 12} // no rates: this is one look
	head := make([]string, 0, len(keep))
	for _, i := range keep {
		head = append(head, pad(t.columns[i].title, t.columns[i].width, t.columns[i].left))
	}
	fmt.Fprintln(w, strings.Join(head, "")+"    rx frames/octets      tx frames/octets")
	i := 0
	for _, p := range d.Ports {
		for _, q := range p.Queues {
			var b strings.Builder
			for _, k := range keep {
				b.WriteString(pad(t.rows[i][k].text, t.columns[k].width, t.columns[k].left))
			}
			c := &q.Counters
			fmt.Fprintf(w, "%s  %20s  %20s\n", b.String(), fmt.Sprint(c.RxFrames, "/", c.RxOctets),
				fmt.Sprint(c.TxFrames, "/", c.TxOctets))
			i++
		}
	}
}

// writeReload says that the last reload failed.
func writeReload(w io.Writer, loaded time.Time, why string) {
	if why != "" {
		fmt.Fprintf(w, "NOT RELOADED; in force is the configuration of %s:\n  %s\n",
			loaded.Format(time.DateTime), strings.ReplaceAll(why, "\n", "\n  "))
	}
}
