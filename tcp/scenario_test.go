package tcp

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rnicd/rnicd/tcp/cc"
)

// A scenario is a script in a file, testdata/NAME.tcp, much as packetdrill writes them. A line is
// one step; # begins a comment. Whatever the Conn sends must be asked for by the > lines that
// follow at once.
//
//	config FLAGS        sack ts nagle pacing ecn=active ecn=passive exact rto=5ms iw=20 tos=N: before all others
//	accept SEGMENT      the peer's SYN opens the connection
//	connect             we do
//	< SEGMENT           the peer sends it; <! : its octets are refused; <. : Next is asked later
//	> SEGMENT           the Conn has sent it
//	+ 10ms              the time passes and timers fire
//	push N [N...]       segments of that many octets are queued, each with room for it
//	fill N              full segments while there is room: N of them, and what is sent need not be asked for
//	emss N              SetEMSSLimit
//	cwnd N ssthresh N   as Stats say; so any field of Stats: stat NAME N
//	state NAME
//	deadline 10ms       when Expire is next due; never
type scenario struct {
	*script
	cfg  Config
	line int
}

func runScenario(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".tcp"))
	if err != nil {
		t.Fatal(err)
	}
	x := &scenario{cfg: plain()}
	x.script = newScript(t, x.cfg)
	for i, line := range strings.Split(string(text), "\n") {
		x.line = i + 1
		line, _, _ = strings.Cut(line, "#")
		if words := strings.Fields(line); len(words) > 0 {
			x.where = name + ".tcp:" + strconv.Itoa(x.line) + ": "
			x.step(words[0], words[1:])
		}
	}
	x.expect()
}

func (x *scenario) step(verb string, args []string) {
	rest := strings.Join(args, " ")
	if verb != ">" && verb != "push" && verb != "fill" && len(x.out) > 0 {
		x.expect() // nothing unasked
	}
	switch verb {
	case "config":
		for _, a := range args {
			x.configure(a)
		}
		x.script.c = NewConn(x.cfg)
	case "accept":
		x.accept(rest)
		x.drain()
	case "connect":
		x.connect()
		x.drain()
	case "<", "<!", "<.":
		x.deliver(rest, verb == "<!")
		x.drainHandles()
		if verb == "<." {
			return
		}
		x.drain()
	case ">":
		x.expectNext(rest)
	case "+":
		x.advance(x.duration(rest))
	case "push":
		for _, a := range args {
			x.push(x.number(a))
		}
	case "fill":
		if n := x.fill(); n != x.number(args[0]) {
			x.fatalf("room for %d segments, want %s", n, args[0])
		}
		x.sent()
	case "emss":
		x.c.SetEMSSLimit(x.number(args[0]))
		x.drain()
	case "started":
		x.started()
	case "cwnd":
		x.stat("Cwnd", args[0])
		x.stat("Ssthresh", args[2])
	case "stat":
		x.stat(args[0], args[1])
	case "state":
		if got := x.c.State().String(); got != args[0] {
			x.fatalf("state %s", got)
		}
	case "deadline":
		got := x.c.Deadline()
		if args[0] == "never" && got != never || args[0] != "never" && got-x.now != x.duration(args[0]) {
			x.fatalf("deadline in %d us", (got-x.now)/us)
		}
	default:
		x.fatalf("what is %q?", verb)
	}
}

func (x *scenario) configure(a string) {
	key, value, _ := strings.Cut(a, "=")
	switch key {
	case "sack":
		x.cfg.NoSACK = false
	case "ts":
		x.cfg.NoTimestamps = false
	case "nagle":
		x.cfg.NoDelay = false
	case "pacing":
		x.cfg.Pacing, x.cfg.PacingBurst = true, 2
	case "ecn":
		x.cfg.ECN = map[string]ECNMode{"active": ECNActive, "passive": ECNPassive}[value]
	case "exact":
		x.cfg.Congestion = exactReno{}
	case "rto":
		x.cfg.RTOMinNs = x.duration(value)
	case "pto":
		x.cfg.PTOMinNs = x.duration(value)
	case "iw":
		x.cfg.InitialWindow = x.number(value)
	case "tos":
		x.cfg.TOS = uint8(x.number(value))
	default:
		x.fatalf("config %q", a)
	}
}

func (x *scenario) stat(name, want string) {
	x.t.Helper()
	v := reflect.ValueOf(x.c.Stats()).FieldByName(name)
	if !v.IsValid() {
		x.fatalf("Stats has no %s", name)
	}
	got := int64(0)
	if v.CanInt() {
		got = v.Int()
	} else {
		got = int64(v.Uint())
	}
	if got != int64(x.number(want)) {
		x.fatalf("%s %d, want %s", name, got, want)
	}
}

func (x *scenario) number(a string) int {
	n, err := strconv.Atoi(a)
	if err != nil {
		x.fatalf("%v", err)
	}
	return n
}

func (x *scenario) duration(a string) int64 {
	for unit, ns := range map[string]int64{"ms": ms, "us": us} {
		if n, found := strings.CutSuffix(a, unit); found {
			return int64(x.number(n)) * ns
		}
	}
	n, _ := strings.CutSuffix(a, "s")
	return int64(x.number(n)) * sc
}

// exactReno is Reno with the feedback that DCTCP asks for.
type exactReno struct{ cc.NewReno }

func (exactReno) ExactECN() bool { return true }

// Every file of testdata is run by a test that says what it proves.
func TestEveryScenarioIsRun(t *testing.T) {
	var used []string
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`runScenario\(t, "(\w+)"\)`).FindAllStringSubmatch(
			string(text), -1) {
			used = append(used, m[1])
		}
	}
	there, err := filepath.Glob("testdata/*.tcp")
	if err != nil || len(there) == 0 {
		t.Fatalf("%d scenarios, %v", len(there), err)
	}
	for _, f := range there {
		if name := strings.TrimSuffix(filepath.Base(f), ".tcp"); !slices.Contains(used, name) {
			t.Errorf("%s is run by no test", f)
		}
	}
}
