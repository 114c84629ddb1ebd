package tcp

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/cc"
)

// A file testdata/NAME.tcp holds scripts, much as packetdrill writes them. "== NAME" begins one;
// comments say what it proves and which requirements it is the test of. A line is one step; #
// begins a comment. Whatever the Conn sends must be asked for by > lines before the next action.
// A script with a table runs for each of its rows,
//
//	| NAME | CELL | CELL
//
// with $1, $2 in its lines standing for the cells; ";" in a cell is between steps.
//
//	config FLAGS        begins a Conn: sack ts wscale nagle pacing exact ecn=active ecn=passive, FIELD=VALUE of Config
//	accept SEGMENT      the peer's SYN opens the connection
//	accepted OPTIONS    so, through the handshake; opened 10ms OPTIONS: one that takes that long
//	begin NAME          what the function of that name in starts does
//	connect             we do; connect. and accept. : Next is asked later
//	close               CloseSend; abort: Abort
//	started             its start is over: ACKs are delayed
//	peer FIELD VALUE    what the peer's segments say from here on: win, ts
//	< SEGMENT           the peer sends it; <! : its octets are refused; <. and <!. : Next is asked later
//	> SEGMENT           the Conn has sent it; > nothing: it has sent no more
//	sent [N]            forgets what was sent, which is N segments
//	drain               Next is asked
//	+ 10ms              the time passes and timers fire; + 10ms- : 1 ns less; + deadline: until Expire is due
//	due 10ms SEGMENT    Expire is next due then, and SEGMENT is sent
//	ends 10ms STATE     the state changes to STATE then, not 1 ns sooner
//	until NAME N        timers fire, one after another, until that field of Stats is N; what was
//	                    sent before the last of them is forgotten
//	late 10ms           the time passes and nobody looks; late deadline
//	pause 10ms          the time passes and is excused
//	push N [N...]       segments of that many octets are queued, each with room for it
//	push. N             one is, whatever the room, and Next is asked later; push!. N: with PSH
//	fill [N]            full segments while there is room: N of them, and then what is sent need not be asked for
//	control SEGMENT     NextControl gives it; nothing
//	probe N             a probe of the path that large is sent, and three segments of 100 octets
//	emss N              SetEMSSLimit
//	set FIELD V         of Conn
//	call METHOD ARGS    of Conn; now is the time
//	repeat N ... end    the lines between, so many times; {5+10i} in them is 5, 15, 25
//
// What a script looks at, and may do before it asks for what was sent:
//
//	state NAME
//	events NAMES        since the last such line
//	arrival FROM:TO     the stream's octets that the last segment brought; none
//	drop REASON         why it was not accepted
//	released N [N...]   the handles that come back; where no line asks, each < takes them; any
//	cwnd N ssthresh N   as Stats say; so any field of Stats: stat NAME [not] N
//	recovery NAME N...  wantRecovery
//	is NAME [not] V     a method or a field of Conn, a field of the last Arrival (last.NAME), room
//	deadline [not] 10ms when Expire is next due; never
type scenario struct {
	*script
	name  string
	rows  []string
	lines []string
	first int // number of lines[0] in the file
	cfg   Config
	keep  bool // handles, for a line that asks for them
	turn  int  // of the innermost repeat
}

// starts are states that many scripts begin in.
var starts = map[string]func(*testing.T, Config) *script{
	"ten":       ten,
	"alive":     func(t *testing.T, _ Config) *script { return alive(t) },
	"lost":      lost,
	"large":     func(t *testing.T, _ Config) *script { return large(t) },
	"limited":   func(t *testing.T, _ Config) *script { return limited(t) },
	"recovered": func(t *testing.T, _ Config) *script { return recovered(t) },
	"stamped":   func(t *testing.T, _ Config) *script { return stamped(t) },
}

func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.tcp")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		base := filepath.Base(f)
		t.Run(strings.TrimSuffix(base, ".tcp"), func(t *testing.T) {
			for _, x := range scenarios(base, string(text)) {
				if len(x.rows) == 0 {
					t.Run(x.name, x.run)
				}
				for _, r := range x.rows {
					y := x.row(strings.Split(r, "|"))
					t.Run(x.name+"/"+y.name, y.run)
				}
			}
		})
	}
}

// scenarios cuts a file into its scripts.
func scenarios(file, text string) (all []*scenario) {
	for i, line := range strings.Split(text, "\n") {
		if name, begins := strings.CutPrefix(line, "== "); begins {
			all = append(all, &scenario{name: name, first: i + 2})
			continue
		}
		x := all[len(all)-1]
		line, _, _ = strings.Cut(line, "#")
		cells, isRow := strings.CutPrefix(line, "|")
		if isRow {
			x.rows, line = append(x.rows, cells), ""
		}
		x.lines = append(x.lines, strings.TrimSpace(line))
	}
	return all
}

// row is the script with the cells of a row, the first its name, in place of $0, $1 and so on.
func (x *scenario) row(cells []string) *scenario {
	var pairs []string
	for i, c := range cells {
		pairs = append(pairs, "$"+strconv.Itoa(i), strings.TrimSpace(c))
	}
	y := *x
	y.name = pairs[1]
	y.lines = strings.Split(strings.NewReplacer(pairs...).Replace(strings.Join(x.lines, "\n")), "\n")
	return &y
}

func (x *scenario) run(t *testing.T) {
	x.cfg = plain()
	x.script = newScript(t, x.cfg)
	x.keep = strings.Contains(strings.Join(x.lines, ";"), "released ")
	x.steps(0, len(x.lines))
	x.where = x.name + " ends: "
	x.expect()
}

// steps takes lines [from, to).
func (x *scenario) steps(from, to int) {
	for i := from; i < to; i++ {
		for step := range strings.SplitSeq(x.lines[i], ";") {
			words := strings.Fields(counted.ReplaceAllStringFunc(step, x.count))
			if len(words) == 0 {
				continue
			}
			x.where = fmt.Sprintf("%s, line %d: %s: ", x.name, x.first+i, strings.Join(words, " "))
			if words[0] == "repeat" {
				end := i + slices.Index(x.lines[i:to], "end")
				for x.turn = range x.number(words[1]) {
					x.steps(i+1, end)
				}
				i = end
			} else if !x.looks(words[0], words[1:]) && !x.acts(words[0], words[1:]) {
				x.fatalf("what is %q?", words[0])
			}
		}
	}
}

var counted = regexp.MustCompile(`\{-?\d+\+\d+i\}`)

// count is what {A+Bi} stands for in this turn of a repeat.
func (x *scenario) count(text string) string {
	a, b := pair(strings.Trim(text, "{i}"), "+")
	return strconv.Itoa(a + b*x.turn)
}

// asked are the actions that may come before what was sent is asked for.
var asked = []string{">", "push", "push.", "push!.", "fill", "call", "late", "drain", "sent", "set",
	"close", "abort", "until", "ends"}

// acts does an action, if verb is one.
func (x *scenario) acts(verb string, args []string) bool {
	rest := strings.Join(args, " ")
	if !slices.Contains(asked, verb) && len(x.out) > 0 {
		x.expect() // nothing unasked
	}
	switch verb {
	case "config", "accept", "accept.", "accepted", "opened", "begin", "connect", "connect.",
		"started", "peer":
		x.opens(verb, rest, args)
	case "<", "<!", "<.", "<!.":
		x.deliver(rest, strings.HasPrefix(verb, "<!"))
		if !x.keep {
			x.drainHandles()
		}
		if !strings.HasSuffix(verb, ".") {
			x.drain()
		}
	case ">":
		if x.drain(); rest == "nothing" {
			x.expect()
		} else {
			x.expectNext(rest)
		}
	case "sent":
		if n := len(x.sent()); rest != "" && n != x.number(rest) {
			x.fatalf("%d segments", n)
		}
	case "drain":
		x.drain()
	case "+":
		x.advance(x.duration(rest))
	case "due":
		x.same(x.c.Deadline()-x.now, args[:1])
		x.advance(x.duration(args[0]))
		x.expectNext(strings.Join(args[1:], " "))
	case "ends":
		before := x.c.State()
		x.advance(x.duration(args[0]) - 1)
		x.wantState(before)
		x.advance(1)
		x.same(x.c.State(), args[1:])
	case "until":
		for n := 0; fmt.Sprint(x.field(reflect.ValueOf(x.c.Stats()), args[0])) != args[1]; n++ {
			if n == 1000 {
				x.fatalf("never: %+v", x.c.Stats())
			}
			x.sent()
			x.advance(x.c.Deadline() - x.now)
		}
	case "late":
		x.now += x.duration(rest)
	case "pause":
		x.pause(x.duration(rest))
	case "push":
		for _, a := range args {
			x.push(x.number(a))
		}
	case "push.", "push!.":
		pushOne(x.c, x.now, x.next, x.number(rest), verb == "push!.")
		x.next++
	case "fill":
		n := x.fill()
		if rest == "" {
			break
		}
		if n != x.number(rest) {
			x.fatalf("room for %d segments", n)
		}
		x.sent()
	case "control":
		var t Transmit
		if got := x.c.NextControl(x.now, &t); got != (rest != "nothing") {
			x.fatalf("%v: %s", got, x.show(&t))
		} else if got {
			x.out = append(x.out, sentSegment{t, x.now})
			x.expectNext(rest)
		}
	case "probe":
		x.probe(x.number(rest))
	case "set":
		f := x.at(args[0])
		x.set(reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem(), args[1])
	case "close":
		x.c.CloseSend(x.now)
	case "abort":
		x.c.Abort(x.now)
	case "emss":
		x.c.SetEMSSLimit(x.number(args[0]))
		x.drain()
	case "call":
		x.call(args[0], args[1:])
	default:
		return false
	}
	return true
}

// opens does the actions that begin a connection.
func (x *scenario) opens(verb, rest string, args []string) {
	switch verb {
	case "config":
		x.cfg = plain()
		for _, a := range args {
			x.configure(a)
		}
		x.script = newScript(x.t, x.cfg)
	case "accept", "accept.":
		x.accept(rest)
	case "accepted":
		x.script = accepted(x.t, x.cfg, rest)
	case "opened":
		x.script = opened(x.t, x.cfg, strings.Join(args[1:], " "), x.duration(args[0]))
	case "begin":
		x.script = starts[rest](x.t, x.cfg)
	case "connect", "connect.":
		x.connect()
	case "started":
		x.started()
	case "peer":
		switch args[0] {
		case "win":
			x.win = x.number(args[1])
		case "ts":
			x.ts = args[1] == "true"
		}
	}
	if verb == "connect" || verb == "accept" {
		x.drain()
	}
}

// looks does a comparison, if verb is one.
func (x *scenario) looks(verb string, args []string) bool {
	rest := strings.Join(args, " ")
	switch verb {
	case "state":
		x.same(x.c.State(), args)
	case "events":
		var want Events
		for _, a := range args {
			want |= events[a]
		}
		x.wantEvents(want)
	case "arrival":
		if rest == "none" {
			x.wantNothing()
		} else {
			x.wantArrival(pair(rest, ":"))
		}
	case "drop":
		x.same(x.last.Drop, args)
	case "released":
		if rest == "any" {
			x.drainHandles()
			break
		}
		var want []Handle
		for _, a := range args {
			want = append(want, Handle(x.number(a)))
		}
		x.wantReleased(want...)
	case "cwnd":
		x.wantCong(x.number(args[0]), x.number(args[2]))
	case "recovery":
		st := x.c.Stats()
		got := []any{st.Recovery, st.Flight, st.Sacked, st.Lost, st.Delivered, st.Resent}
		x.same(got, []string{"[" + rest + "]"})
	case "stat":
		x.same(x.field(reflect.ValueOf(x.c.Stats()), args[0]), args[1:])
	case "is":
		x.same(x.value(args[0]), args[1:])
	case "deadline":
		at := x.c.Deadline()
		if at != never {
			at -= x.now
		}
		x.same(at, args)
	default:
		return false
	}
	return true
}

// same compares a value with what a line asks for: [not] WORDS.
func (x *scenario) same(got any, want []string) {
	x.t.Helper()
	no := len(want) > 1 && want[0] == "not"
	if no {
		want = want[1:]
	}
	for i, w := range want {
		if timed.MatchString(w) {
			want[i] = fmt.Sprint(x.duration(w))
		}
	}
	if (fmt.Sprint(got) == strings.Join(want, " ")) == no {
		x.fatalf("got %v", got)
	}
}

var timed = regexp.MustCompile(`^(\d+[num]?s|never)$`)

func (x *scenario) field(v reflect.Value, name string) any {
	f := v.FieldByName(name)
	if !f.IsValid() {
		x.fatalf("no field %s", name)
	}
	return f.Interface()
}

// value is what an "is" line is about.
func (x *scenario) value(name string) any {
	if name == "room" {
		return roomOf(x.c, x.now)
	}
	if f, found := strings.CutPrefix(name, "last."); found {
		return x.field(reflect.ValueOf(x.last), f)
	}
	if reflect.ValueOf(x.c).MethodByName(name).IsValid() {
		return x.call(name, nil)[0].Interface()
	}
	return x.at(name)
}

// at is a field of Conn, or a field's field.
func (x *scenario) at(path string) reflect.Value {
	v := reflect.ValueOf(x.c)
	for name := range strings.SplitSeq(path, ".") {
		if v = reflect.Indirect(v).FieldByName(name); !v.IsValid() {
			x.fatalf("no field %s", name)
		}
	}
	return v
}

// call calls a method of Conn.
func (x *scenario) call(name string, args []string) []reflect.Value {
	m := reflect.ValueOf(x.c).MethodByName(name)
	if !m.IsValid() {
		x.fatalf("Conn has no %s", name)
	}
	in := make([]reflect.Value, len(args))
	for i, a := range args {
		in[i] = reflect.New(m.Type().In(i)).Elem()
		if a == "now" {
			in[i].SetInt(x.now)
		} else {
			x.set(in[i], a)
		}
	}
	return m.Call(in)
}

// set makes v what a says: a number, a duration or a truth.
func (x *scenario) set(v reflect.Value, a string) {
	switch {
	case v.Kind() == reflect.Bool:
		v.SetBool(a == "true")
	case a == "forever":
		v.SetInt(Forever)
	case v.CanUint():
		v.SetUint(uint64(x.number(a)))
	case strings.HasSuffix(a, "s"):
		v.SetInt(x.duration(a))
	default:
		v.SetInt(int64(x.number(a)))
	}
}

func (x *scenario) configure(a string) {
	key, value, _ := strings.Cut(a, "=")
	switch key {
	case "sack":
		x.cfg.NoSACK = false
	case "ts":
		x.cfg.NoTimestamps = false
	case "wscale":
		x.cfg.NoWindowScale = false
	case "nagle":
		x.cfg.NoDelay = false
	case "pacing":
		x.cfg.Pacing, x.cfg.PacingBurst = true, 2
	case "ecn":
		x.cfg.ECN = map[string]ECNMode{"active": ECNActive, "passive": ECNPassive}[value]
	case "exact":
		x.cfg.Congestion = exactReno{}
	default:
		f := reflect.ValueOf(&x.cfg).Elem().FieldByName(key)
		if !f.IsValid() {
			x.fatalf("config %q", a)
		}
		x.set(f, value)
	}
}

var events = map[string]Events{
	"Established": EvEstablished, "Acked": EvAcked, "PeerClosed": EvPeerClosed,
	"Reset": EvReset, "Refused": EvRefused, "Timeout": EvTimeout, "Closed": EvClosed,
	"Suspect": EvSuspect, "FinAcked": EvFinAcked, "Room": EvRoom,
}

func (x *scenario) number(a string) int {
	n, err := strconv.ParseInt(a, 0, 64)
	if err != nil {
		x.fatalf("%v", err)
	}
	return int(n)
}

func (x *scenario) duration(a string) int64 {
	switch less, isLess := strings.CutSuffix(a, "-"); {
	case isLess:
		return x.duration(less) - 1
	case a == "deadline":
		return x.c.Deadline() - x.now
	case a == "never":
		return never
	}
	for _, unit := range []struct {
		name string
		ns   int64
	}{{"ns", 1}, {"us", us}, {"ms", ms}, {"s", sc}} {
		if n, found := strings.CutSuffix(a, unit.name); found {
			return int64(x.number(n)) * unit.ns
		}
	}
	return int64(x.number(a))
}

// exactReno is Reno with the feedback that DCTCP asks for.
type exactReno struct{ cc.NewReno }

func (exactReno) ExactECN() bool { return true }
