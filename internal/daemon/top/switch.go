package top

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rnicd/rnicd/internal/status"
)

// WriteSwitch writes what rnicd status --switch prints.
func WriteSwitch(w io.Writer, s *status.Switch) {
	health := "healthy"
	if !s.Healthy {
		health = "A THREAD STANDS STILL"
	}
	attached := 0
	for i := range s.Programs {
		if s.Programs[i].Attached {
			attached++
		}
	}
	fmt.Fprintf(w, "rnicd switch %s  %s  up %s  %d of %d programs attached  %d refused  pid %d  %s\n",
		s.Version, health,
		s.At.Sub(s.Started).Round(time.Second), attached, len(s.Programs), s.Refused, s.PID, s.Config)
	writeLogLost(w, s.LogLost)
	writeReload(w, s.Loaded, s.ReloadError)
	writeCPU(w, &s.CPU)
	if s.Error != "" {
		fmt.Fprintf(w, "no counters: %s\n", s.Error)
		return
	}
	for i := range s.Threads {
		t := &s.Threads[i]
		core := "no CPU of its own"
		if t.Core >= 0 {
			core = fmt.Sprintf("CPU %d", t.Core)
		}
		fmt.Fprintf(w, "thread %d  %s  busy %.0f%%  %s frames  %d of %d buffers free%s\n", t.Thread, core,
			100*float64(t.BusyTurns)/float64(max(t.Turns, 1)), Number(float64(t.Frames)), t.BufsFree, t.Bufs,
			drops("  dropped: ", t.Drops))
	}
	fmt.Fprintln(w)
	columns := []column{{"port", 20, true}, {"thr", 4, false}, {"state", 9, true},
		{"from it", 9, false}, {"octets", 7, false}, {"to it", 8, false}, {"octets", 7, false},
		{"waiting", 12, false}, {"throttled", 10, false}}
	var head strings.Builder
	for _, c := range columns {
		head.WriteString(pad(c.title, c.width, c.left))
		if c.title == "thr" {
			head.WriteString("  ")
		}
	}
	fmt.Fprintln(w, strings.TrimRight(head.String(), " "))
	for _, all := range [][]status.SwitchPort{s.Uplinks, s.Programs} {
		for i := range all {
			p := &all[i]
			name, state := p.Name, "detached"
			switch {
			case p.Program == nil:
				name, state = fmt.Sprintf("%s#%d", p.Name, p.Queue), "uplink"
			case p.Attached:
				state = "attached"
			}
			cells := []string{name, fmt.Sprint(p.Thread), state, Number(float64(p.Received)),
				Number(float64(p.ReceivedB)), Number(float64(p.Sent)), Number(float64(p.SentB)),
				fmt.Sprintf("%d/%d", p.Waiting, p.WaitMax), Number(float64(p.Throttled))}
			var line strings.Builder
			for j, c := range columns {
				line.WriteString(pad(cells[j], c.width, c.left))
				if j == 1 {
					line.WriteString("  ")
				}
			}
			fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
			if detail := strings.Join(details(p), "  "); detail != "" {
				fmt.Fprintf(w, "  %s\n", detail)
			}
		}
	}
}

// details is what there is to say of a port besides the columns.
func details(p *status.SwitchPort) (parts []string) {
	if q := p.Program; q != nil {
		at := strings.Join(q.Addresses, " ")
		if len(q.Ports) > 0 {
			at += " ports " + strings.Join(q.Ports, " ")
		}
		parts = append(parts, at)
		switch {
		case p.Attached:
			parts = append(parts, fmt.Sprintf("pid %d uid %d gid %d %q", q.PID, q.UID, q.GID, q.Client))
		case q.Error != "":
			parts = append(parts, fmt.Sprintf("gone: %q", q.Error))
		}
		if p.Attaches > 1 {
			parts = append(parts, fmt.Sprintf("attached %d times", p.Attaches))
		}
	}
	if p.Trouble != nil {
		parts = append(parts, "trouble: "+p.Trouble.Text)
	}
	if p.Offences > 0 {
		parts = append(parts, fmt.Sprintf("connections ended for its peer's memory: %d", p.Offences))
	}
	for _, text := range []string{drops("dropped: ", p.Drops), drops("ring errors: ", p.Rings),
		drops("device dropped: ", p.Device)} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	return parts
}

// drops are those by reason, in the order of their names.
func drops(title string, of map[string]uint64) string {
	var all []string
	for reason, n := range of {
		all = append(all, fmt.Sprintf("%s %d", reason, n))
	}
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return title + strings.Join(all, ", ")
}
