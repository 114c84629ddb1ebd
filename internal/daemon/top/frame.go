package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rnicd/rnicd/internal/printable"
	"github.com/rnicd/rnicd/internal/status"
)

// Look is what was seen of a daemon, or of a switch, at one moment: one of the two is there.
type Look struct {
	Daemon      *status.Daemon
	Switch      *status.Switch
	Connections []status.Connection
	More        bool // there are more connections
}

// View is what a screen shows.
type View int

// The views.
const (
	Ports View = iota
	Queues
	Connections
	viewMax
)

var viewNames = [viewMax]string{"ports", "queues", "connections"}

// State is what keys change.
type State struct {
	View   View
	Sort   [viewMax]int // column
	Up     bool         // the least first
	Row    int          // the first that is shown
	Detail bool         // of the connection, or the switch's port, in Row
}

// column of a table. Rows are sorted by value, the greatest first, or by text.
type column struct {
	title string
	width int
	left  bool
}

type cell struct {
	text  string
	value float64
}

type table struct {
	columns []column
	rows    [][]cell
	extra   []string // a line under the table
}

// Frame is a screen of width columns and at most height lines; height 0: all lines. was is the look
// before; nil: this is the first, and there are no rates.
func Frame(was, is *Look, s *State, width, height int) []string {
	var lines []string
	if is.Switch != nil {
		lines = switchHeader(is.Switch)
	} else {
		lines = []string{header(is.Daemon)}
	}
	lines = append(lines, is.troubles()...)
	t := s.View.table(was, is)
	order := sorted(t, s)
	if at := min(s.Row, len(order)-1); s.Detail && at >= 0 && s.View.details(is) {
		if is.Switch != nil {
			return clip(append(lines, portDetails(was, is, order[at])...), width, height)
		}
		return clip(append(lines, Details(&is.Connections[order[at]], is.Daemon.At)...), width, height)
	}
	s.Row = max(0, min(s.Row, len(order)-1))
	lines = append(lines,
		fmt.Sprintf("%s, by %s (%d)", s.View.name(is), strings.TrimSpace(t.columns[s.sortOf(t)].title),
			len(order)), titles(t, s))
	for _, i := range order[s.Row:] {
		if height > 0 && len(lines) >= height-len(t.extra) {
			break
		}
		lines = append(lines, row(t.columns, t.rows[i]))
	}
	lines = append(lines, t.extra...)
	if s.View == Connections && is.More {
		lines = append(lines, fmt.Sprintf("the first %d connections; rnicd ss has all",
			len(is.Connections)))
	}
	return clip(lines, width, height)
}

// troubles are lines about devices that take no frames, or soon will not.
func (l *Look) troubles() (lines []string) {
	add := func(name string, t *status.Trouble) {
		if t == nil {
			return
		}
		line := "trouble: " + name + ": " + t.Text
		if !slices.Contains(lines, line) { // each queue of an uplink has it
			lines = append(lines, line)
		}
	}
	if l.Switch != nil {
		for i := range l.Switch.Uplinks {
			add(l.Switch.Uplinks[i].Name, l.Switch.Uplinks[i].Trouble)
		}
		return lines
	}
	for i := range l.Daemon.Ports {
		add(l.Daemon.Ports[i].Name, l.Daemon.Ports[i].Trouble)
	}
	return lines
}

// table is that of a view of a daemon, or of a switch.
func (v View) table(was, is *Look) table {
	switch {
	case is.Switch != nil && v == Queues:
		return threadTable(was, is)
	case is.Switch != nil:
		return switchTable(was, is)
	case v == Queues:
		return queueTable(was, is, false)
	case v == Connections:
		return connectionTable(was, is)
	}
	return queueTable(was, is, true)
}

func (v View) name(l *Look) string {
	if l.Switch != nil && v == Queues {
		return "threads"
	}
	return viewNames[v]
}

// details says whether a view shows one row in full: a connection, or a port of a switch.
func (v View) details(l *Look) bool {
	return l.Switch == nil && v == Connections || l.Switch != nil && v == Ports
}

// Keys is the last line of a live screen.
const Keys = "q end  p ports  c cores  n connections  s sort  r reverse  up/down  enter detail"

func header(d *status.Daemon) string {
	health := "healthy"
	if !d.Healthy {
		health = "A POLLER STANDS STILL"
	}
	conns := 0
	for _, p := range d.Ports {
		conns += p.KernelConnections
		for _, q := range p.Queues {
			conns += q.Counters.Conns
		}
	}
	return fmt.Sprintf("rnicd %s  %s, %s  up %s  %d connections", d.Version, d.State, health,
		d.At.Sub(d.Started).Round(time.Second), conns)
}

func (s *State) sortOf(t table) int { return max(0, min(s.Sort[s.View], len(t.columns)-1)) }

// sorted are the numbers of rows in order.
func sorted(t table, s *State) (order []int) {
	by := s.sortOf(t)
	for i := range t.rows {
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := t.rows[a][by], t.rows[b][by]
		c := -cmp.Compare(x.value, y.value)
		if t.columns[by].left {
			c = cmp.Compare(x.text, y.text)
		}
		if s.Up {
			c = -c
		}
		return c
	})
	return order
}

func titles(t table, s *State) string {
	var b strings.Builder
	for i, c := range t.columns {
		title := c.title
		if i == s.sortOf(t) {
			title = "*" + title
		}
		b.WriteString(pad(title, c.width, c.left))
	}
	return b.String()
}

func row(columns []column, cells []cell) string {
	var b strings.Builder
	for i, c := range cells {
		b.WriteString(pad(c.text, columns[i].width, columns[i].left))
	}
	return strings.TrimRight(b.String(), " ")
}

// pad makes a cell of width columns, with a space at the end or the beginning.
func pad(s string, width int, left bool) string {
	if len(s) > width-1 {
		s = s[:width-1]
	}
	if left {
		return fmt.Sprintf("%-*s", width, s)
	}
	return fmt.Sprintf("%*s", width, s)
}

func clip(lines []string, width, height int) []string {
	if height > 0 && len(lines) > height {
		lines = lines[:height]
	}
	for i, l := range lines {
		lines[i] = printable.Text(l)
		if width > 0 && len(lines[i]) > width {
			lines[i] = strings.ToValidUTF8(lines[i][:width], "")
		}
	}
	return lines
}

// Number writes n in at most five columns: 999, 1.2k, 34M.
func Number(n float64) string {
	units := []string{"", "k", "M", "G", "T", "P"}
	i := 0
	for n >= 999.5 && i < len(units)-1 {
		n /= 1000
		i++
	}
	if i > 0 && n < 9.95 {
		return fmt.Sprintf("%.1f%s", n, units[i])
	}
	return fmt.Sprintf("%.0f%s", n, units[i])
}

// rates is how much counters of two looks differ by the second.
type rates struct{ seconds float64 }

func ratesOf(was, is *Look) rates {
	if was == nil {
		return rates{}
	}
	return rates{is.at().Sub(was.at()).Seconds()}
}

func (l *Look) at() time.Time {
	if l.Switch != nil {
		return l.Switch.At
	}
	return l.Daemon.At
}

// cell shows a rate, or nothing at the first look.
func (r rates) cell(before, now uint64) cell {
	if r.seconds <= 0 || now < before {
		return cell{text: "-"}
	}
	v := float64(now-before) / r.seconds
	return cell{Number(v), v}
}

func total(n uint64) cell { return cell{Number(float64(n)), float64(n)} }

func text(s string) cell { return cell{text: s} }

// sums of the queues in a line of a table.
type sums struct {
	conns                                                                                int
	rx, tx, rxOctets, txOctets, retransmits, ahead, reassembled, crc, drops, idle, turns uint64
}

func (s *sums) add(q *status.Queue) {
	k := &q.Counters
	s.conns += k.Conns
	s.rx, s.tx, s.rxOctets, s.txOctets = s.rx+k.RxFrames, s.tx+k.TxFrames, s.rxOctets+k.RxOctets,
		s.txOctets+k.TxOctets
	s.retransmits += k.Memory.Totals.Retransmits
	s.ahead, s.reassembled, s.crc = s.ahead+q.RDMA.OutOfOrder, s.reassembled+q.RDMA.Reassembled,
		s.crc+q.RDMA.CRCErrors+q.RDMA.RefusedCRC
	for _, n := range q.Drops {
		s.drops += n
	}
	s.idle, s.turns = s.idle+k.EmptyTurns, s.turns+k.Turns
}

// queueTable has a row for each queue, or for all of a port.
func queueTable(was, is *Look, byPort bool) table {
	t := table{columns: []column{
		{"port", 8, true}, {"q", 3, false}, {"core", 5, false}, {"conn", 5, false}, {"rx/s", 6, false},
		{"tx/s", 6, false}, {"rxB/s", 6, false}, {"txB/s", 6, false},
		{"retr", 6, false}, {"ahead", 6, false}, {"reass", 6, false}, {"crc", 5, false},
		{"drops", 6, false}, {"busy%", 6, false},
	}}
	if byPort {
		t.columns[1].title, t.columns[2].title, t.columns[2].width = "qs", "", 1
	}
	before := map[string]*sums{}
	if was != nil {
		eachSum(was, byPort, func(name string, s *sums, _ *status.Queue, _ int) { before[name] = s })
	}
	r := ratesOf(was, is)
	drops := map[string]uint64{}
	eachSum(is, byPort, func(name string, s *sums, q *status.Queue, n int) {
		b := before[name]
		if b == nil {
			b = &sums{}
		}
		port, _, _ := strings.Cut(name, " ")
		second, core := cell{fmt.Sprint(q.Queue), float64(q.Queue)}, text("-")
		if q.Core >= 0 {
			core = cell{fmt.Sprint(q.Core), float64(q.Core)}
		}
		if byPort {
			second, core = cell{fmt.Sprint(n), float64(n)}, text("")
		}
		busy := cell{text: "-"}
		if turns := s.turns - b.turns; r.seconds > 0 && turns > 0 && s.turns >= b.turns {
			v := 100 * (1 - float64(s.idle-b.idle)/float64(turns))
			busy = cell{fmt.Sprintf("%.0f", v), v}
		}
		if q.Error != "" && !byPort {
			busy = text("stuck")
		}
		t.rows = append(t.rows, []cell{
			text(port), second, core, {fmt.Sprint(s.conns), float64(s.conns)}, r.cell(b.rx, s.rx),
			r.cell(b.tx, s.tx), r.cell(b.rxOctets, s.rxOctets), r.cell(b.txOctets, s.txOctets),
			total(s.retransmits), total(s.ahead), total(s.reassembled), total(s.crc), total(s.drops), busy,
		})
	})
	for _, p := range is.Daemon.Ports {
		for _, q := range p.Queues {
			for reason, n := range q.Drops {
				drops[reason] += n
			}
		}
	}
	if line := reasonsOf(drops); line != "" {
		t.extra = []string{"drops: " + line}
	}
	refused := map[string]uint64{}
	for i := range is.Daemon.Ports {
		for cause, n := range is.Daemon.Ports[i].Refused {
			refused[cause] += n
		}
	}
	if line := reasonsOf(refused); line != "" {
		t.extra = append(t.extra, "refused: "+line)
	}
	return t
}

func eachSum(l *Look, byPort bool, yield func(name string, s *sums, q *status.Queue, n int)) {
	for i := range l.Daemon.Ports {
		p := &l.Daemon.Ports[i]
		all := &sums{conns: p.KernelConnections}
		for j := range p.Queues {
			q := &p.Queues[j]
			all.add(q)
			if !byPort {
				one := &sums{}
				one.add(q)
				yield(fmt.Sprint(p.Name, " ", q.Queue), one, q, 1)
			}
		}
		if byPort {
			yield(p.Name, all, &status.Queue{Core: -1}, len(p.Queues))
		}
	}
}

// reasonsOf are drops, the most frequent first.
func reasonsOf(drops map[string]uint64) string {
	var names []string
	for name := range drops {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(-cmp.Compare(drops[a], drops[b]), cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, drops[name])
	}
	return strings.Join(names, ", ")
}
