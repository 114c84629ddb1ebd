package top

import (
	"fmt"
	"maps"
	"time"

	"github.com/rnicd/rnicd/internal/status"
)

// portKey is a port of a switch in two looks.
type portKey struct {
	name   string
	queue  int
	uplink bool
}

// eachPort goes over uplinks, a port for each queue, and programs.
func eachPort(s *status.Switch, yield func(k portKey, p *status.SwitchPort)) {
	if s == nil {
		return
	}
	for i := range s.Uplinks {
		yield(portKey{s.Uplinks[i].Name, s.Uplinks[i].Queue, true}, &s.Uplinks[i])
	}
	for i := range s.Programs {
		yield(portKey{s.Programs[i].Name, 0, false}, &s.Programs[i])
	}
}

// lost are all drops of a port, by reason.
func lost(p *status.SwitchPort) map[string]uint64 {
	all := map[string]uint64{}
	for prefix, of := range map[string]map[string]uint64{"": p.Drops, "ring ": p.Rings,
		"device ": p.Device} {
		for reason, n := range of {
			all[prefix+reason] += n
		}
	}
	return all
}

func sum(of map[string]uint64) (n uint64) {
	for k := range maps.Values(of) {
		n += k
	}
	return n
}

// increase is what has been added since the look before, a second.
func (r rates) increase(was, is map[string]uint64) map[string]uint64 {
	more := map[string]uint64{}
	for reason, n := range is {
		if r.seconds > 0 && n > was[reason] {
			more[reason] = uint64(float64(n-was[reason])/r.seconds + 0.5)
		}
	}
	return more
}

// switchTable has a row for each program and each queue of an uplink.
func switchTable(was, is *Look) table {
	t := table{columns: []column{
		{"port", 17, true}, {"thr", 4, false}, {"state", 10, false}, {"rx/s", 6, false},
		{"tx/s", 6, false}, {"rxB/s", 6, false}, {"txB/s", 6, false},
		{"wait", 5, false}, {"throt/s", 8, false}, {"drop/s", 7, false},
	}}
	r := ratesOf(was, is)
	before := map[portKey]*status.SwitchPort{}
	if was != nil {
		eachPort(was.Switch, func(k portKey, p *status.SwitchPort) { before[k] = p })
	}
	total, fresh := map[string]uint64{}, map[string]uint64{}
	eachPort(is.Switch, func(k portKey, p *status.SwitchPort) {
		b := before[k]
		if b == nil {
			b = &status.SwitchPort{}
		}
		name, state := p.Name, "detached"
		switch {
		case k.uplink:
			name, state = fmt.Sprintf("%s#%d", p.Name, p.Queue), "uplink"
		case p.Attached:
			state = "attached"
		}
		drops, earlier := lost(p), lost(b)
		for reason, n := range drops {
			total[reason] += n
		}
		for reason, n := range r.increase(earlier, drops) {
			fresh[reason] += n
		}
		t.rows = append(t.rows, []cell{
			text(name), {fmt.Sprint(p.Thread), float64(p.Thread)}, text(state),
			r.cell(b.Received, p.Received), r.cell(b.Sent, p.Sent), r.cell(b.ReceivedB, p.ReceivedB),
			r.cell(b.SentB, p.SentB), {fmt.Sprint(p.Waiting), float64(p.Waiting)},
			r.cell(b.Throttled, p.Throttled), r.cell(sum(earlier), sum(drops)),
		})
	})
	t.dropped(total, fresh)
	return t
}

// dropped adds the lines of drops by reason: so far, and a second.
func (t *table) dropped(total, fresh map[string]uint64) {
	for _, line := range []struct {
		title string
		of    map[string]uint64
	}{{"drops: ", total}, {"drops a second: ", fresh}} {
		if text := reasonsOf(line.of); text != "" {
			t.extra = append(t.extra, line.title+text)
		}
	}
}

// threadTable has a row for each thread of a switch.
func threadTable(was, is *Look) table {
	t := table{columns: []column{
		{"thread", 8, true}, {"core", 5, false}, {"frames/s", 9, false}, {"lookup/s", 9, false},
		{"copies/s", 9, false}, {"answer/s", 9, false},
		{"free", 6, false}, {"of", 6, false}, {"drop/s", 7, false}, {"busy%", 6, false},
	}}
	r := ratesOf(was, is)
	before := map[int]*status.SwitchThread{}
	if was != nil && was.Switch != nil {
		for i := range was.Switch.Threads {
			before[was.Switch.Threads[i].Thread] = &was.Switch.Threads[i]
		}
	}
	total, fresh := map[string]uint64{}, map[string]uint64{}
	for i := range is.Switch.Threads {
		p := &is.Switch.Threads[i]
		b := before[p.Thread]
		if b == nil {
			b = &status.SwitchThread{}
		}
		core := text("-")
		if p.Core >= 0 {
			core = cell{fmt.Sprint(p.Core), float64(p.Core)}
		}
		busy := text("-")
		if turns := p.Turns - b.Turns; r.seconds > 0 && p.Turns > b.Turns {
			v := 100 * float64(p.BusyTurns-b.BusyTurns) / float64(turns)
			busy = cell{fmt.Sprintf("%.0f", v), v}
		}
		for reason, n := range p.Drops {
			total[reason] += n
		}
		for reason, n := range r.increase(b.Drops, p.Drops) {
			fresh[reason] += n
		}
		t.rows = append(t.rows, []cell{
			text(fmt.Sprint(p.Thread)), core, r.cell(b.Frames, p.Frames), r.cell(b.Lookups, p.Lookups),
			r.cell(b.Copies, p.Copies), r.cell(b.Answers, p.Answers),
			{fmt.Sprint(p.BufsFree), float64(p.BufsFree)}, {fmt.Sprint(p.Bufs), float64(p.Bufs)},
			r.cell(sum(b.Drops), sum(p.Drops)), busy,
		})
	}
	t.dropped(total, fresh)
	return t
}

// switchHeader is the first line; where there are no counters it says why.
func switchHeader(s *status.Switch) []string {
	attached := 0
	for i := range s.Programs {
		if s.Programs[i].Attached {
			attached++
		}
	}
	health := "healthy"
	if !s.Healthy {
		health = "A THREAD STANDS STILL"
	}
	lines := []string{fmt.Sprintf("rnicd switch %s  %s  up %s  %d of %d attached  %d refused",
		s.Version, health,
		s.At.Sub(s.Started).Round(time.Second), attached, len(s.Programs), s.Refused)}
	if s.Error != "" {
		lines = append(lines, "no counters: "+s.Error)
	}
	return lines
}

// portDetails is all of one port, as status has it, and its drops a second.
func portDetails(was, is *Look, row int) (lines []string) {
	before := map[portKey]map[string]uint64{}
	if was != nil {
		eachPort(was.Switch, func(k portKey, p *status.SwitchPort) { before[k] = lost(p) })
	}
	at := 0
	eachPort(is.Switch, func(k portKey, p *status.SwitchPort) {
		if at == row {
			lines = append(
				[]string{fmt.Sprintf("%s  thread %d  %d frames from it, %d to it, %d of %d wait", p.Name,
					p.Thread, p.Received, p.Sent, p.Waiting, p.WaitMax)}, details(p)...)
			if fresh := reasonsOf(ratesOf(was, is).increase(before[k], lost(p))); fresh != "" {
				lines = append(lines, "drops a second: "+fresh)
			}
		}
		at++
	})
	return lines
}
