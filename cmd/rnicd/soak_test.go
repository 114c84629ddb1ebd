package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var soakFor = flag.Duration("soak", 5*time.Second, "how long TestSoak loads a daemon (make soak)")

// soakConfig has a TAP, memif and the kernel's sockets; the verbs are the control socket and the
// socket of memif. The services of internal/daemon/testdata/services.toml are added to it.
const soakConfig = `
[control]
socket = %q
[metrics]
listen = "127.0.0.1:9174"
[limits]
drain = "30s"
poller_stall = "1h"          # a busy machine takes cores away from Pollers; what that costs shows in the transfers
[[port]]
name = "rnic0"
addresses = ["10.9.0.1/24"]
host_address = "10.9.0.254/24"
connections = 512
peer_connections = 0
[[port]]
name = "shared"
driver = "memif"
role = "server"
socket = %q
addresses = ["10.7.0.1/24"]
dad = "off"
[[port]]
name = "local"
driver = "kernel"
addresses = ["127.0.0.1"]
`

// soakOthers are what a reload adds to it, in turn: another service, which comes and goes; and
// nothing. A third changes a limit.
var soakOthers = []func(string) string{
	func(c string) string {
		return c + "[[service]]\nname = \"guest\"\ntype = \"perf\"\nlisten = 7005\n"
	},
	func(c string) string { return c },
	func(c string) string {
		return strings.Replace(c, "listen = 7002", "listen = 7002\nconnections = 50", 1)
	},
	func(c string) string {
		return strings.Replace(c, "mode = \"echo\"", "mode = \"echo\"\nlength = \"64KiB\"", 1)
	},
}

// soakFlap is what the daemon says of a TAP that a flap has taken down.
const soakFlap = `level=ERROR msg="the device takes no frames" port=rnic0 trouble="rnic0 is down: `

// soakExplained are the lines at level WARN or above that the test causes: it takes the TAP down,
// it kills clients at any moment and cuts them off, and their places stay taken until the daemon
// notices. A client that was left alone checks its own result. bounded limits the number of
// lines.
var soakExplained = []*regexp.Regexp{
	regexp.MustCompile(
		`level=WARN msg=failed service=\w+ remote=\S+ error=".*(connection reset by peer|broken pipe|transport endpoint is not connected|the peer closed|peer closed its half|no cookie|EOF|nothing moved for|nothing was (written|read) by the client for|closed the connection (during MPA start-up|in the middle of a frame)|timed out|did not close the connection after the answer|closed the connection (before its closing message|without reading anything)|this end has reset what was left)`),
	regexp.MustCompile(
		`level=WARN msg="a connection has ended with an error" port=\S+ local=\S+ remote=\S+ error=".*(connection reset by peer|peer closed its half|nothing moved for|nothing was (written|read) by the client for|closed the connection (during MPA start-up|in the middle of a frame)|timed out)`),
	regexp.MustCompile(soakFlap),
	regexp.MustCompile(`level=WARN msg=refused service=\w+ remote=\S+ why=".*try again later"`),
}

// soaker is a daemon under load.
type soaker struct {
	t      *testing.T
	ns     *namespace
	dir    string
	file   testFile
	server *process
	over   atomic.Bool
	flaps  atomic.Int64 // of the TAP, each counted when it begins and when it has ended

	mu     sync.Mutex
	done   map[string]int // clients that succeeded, by kind
	killed map[string]int // by service
	cut    map[string]int // clients that a flap made fail, by service
	// clients that failed because of a flap, or of another one that was killed, by what they said
	excused  map[string]int
	failures []string
}

// soakClient is a kind of client: its command, and what is to be true when it says that it has
// succeeded.
type soakClient struct {
	name    string
	service string
	words   func(host string) string
	check   func(p *process) error
	talk    func(c *net.TCPConn) error // instead of a command: over a TCP connection to port
	port    int
}

func (s *soaker) clients() []soakClient {
	just := func(words string) func(string) string {
		return func(host string) string { return strings.ReplaceAll(words, "HOST", host) }
	}
	has := func(pattern string) func(*process) error {
		return func(p *process) error {
			if len(p.Lines(pattern)) == 0 {
				return fmt.Errorf("no line %q", pattern)
			}
			return nil
		}
	}
	sum := has("^sha256 +" + s.file.sum + "$")
	got := filepath.Join(s.dir, "got")
	same := func(p *process) error {
		want, err := os.ReadFile(s.file.path)
		if err != nil {
			return err
		}
		have, err := os.ReadFile(got)
		if err == nil && !bytes.Equal(want, have) {
			err = fmt.Errorf("what was read is not the file")
		}
		return err
	}
	memif := "--pmd memif --socket " + filepath.Join(s.dir, "memif.sock") +
		" --addr 10.7.0.2/24 --no-dad --wait 30s "
	return []soakClient{
		{name: "put", service: "scratch",
			words: just("put --quiet --timeout 60s " + s.file.path + " HOST"), check: sum},
		{name: "put over memif", service: "scratch", words: func(string) string {
			return "put --quiet --timeout 60s " + memif + s.file.path + " 10.7.0.1"
		}, check: sum},
		{name: "get", service: "image", words: just("get --quiet --timeout 60s HOST:7000 " + got),
			check: same},
		{name: "perf write", service: "measure", words: just("perf write bw HOST -n 100 --timeout 60s"),
			check: has(`^ 65536 +100 `)},
		{name: "perf read", service: "measure",
			words: just("perf read lat HOST -n 100 -s 4096 --timeout 60s"), check: has(`^ 4096 +100 `)},
		{name: "perf send", service: "measure",
			words: just("perf send bw HOST -n 100 -s 20000 --timeout 60s"), check: has(`^ 20000 +100 `)},
		{name: "sink", service: "sink", port: 7002, talk: func(c *net.TCPConn) error {
			return sendAll(c, soakOctets)
		}},
		{name: "source", service: "source", port: 7003, talk: func(c *net.TCPConn) error {
			return receive(c, soakOctets, nil)
		}},
		{name: "echo", service: "echo", port: 7004, talk: func(c *net.TCPConn) error {
			sent := make(chan error, 1)
			go func() { sent <- sendAll(c, soakOctets) }()
			return errors.Join(receive(c, soakOctets, soakText), <-sent)
		}},
	}
}

const soakOctets = 1_000_000 // of source, as its configuration has it

// soakText is what is sent, over and over: a prime number of octets.
var soakText = bytes.Repeat([]byte("0123456789"), 110)[:1097]

// sendAll sends n octets and the end.
func sendAll(c *net.TCPConn, n int) error {
	text := bytes.Repeat(soakText, n/len(soakText)+1)[:n]
	_, err := c.Write(text)
	return errors.Join(err, c.CloseWrite())
}

// receive reads n octets, which are text over and over if there is one, and the end.
func receive(c *net.TCPConn, n int, text []byte) error {
	all, err := io.ReadAll(c)
	if err != nil {
		return err
	}
	if len(all) != n {
		return fmt.Errorf("%d octets, not %d", len(all), n)
	}
	if text != nil && !bytes.Equal(all, bytes.Repeat(text, n/len(text)+1)[:n]) {
		return errors.New("octets came back changed")
	}
	return nil
}

// talk is a conversation over a TCP connection; one that is cut is reset in the middle.
func (s *soaker) talk(c soakClient, host string, cut bool) error {
	var conn *net.TCPConn
	var err error
	s.ns.Do(func() {
		conn, err = net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.ParseIP(host), Port: c.port})
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if cut {
		return conn.SetLinger(0)
	}
	return c.talk(conn)
}

// flapped says whether the TAP was down at a moment after n was read.
func (s *soaker) flapped(n int64) bool { return n%2 == 1 || s.flaps.Load() != n }

// run is one client after the other of a kind, until it is over. One in six is killed, at once or
// when it has begun.
func (s *soaker) run(c soakClient, r *rand.Rand) {
	for !s.over.Load() {
		host, flaps := "10.9.0.1", s.flaps.Load()
		if r.IntN(3) == 0 {
			host = "127.0.0.1"
		}
		kill := r.IntN(6) == 0
		err := s.once(c, host, kill, r)
		s.mu.Lock()
		switch excuse := soakExcuse.FindString(fmt.Sprint(err)); {
		case kill:
			s.killed[c.service]++
		case err == nil:
			s.done[c.name]++
		case excuse == soakLater, excuse != "" && host == "10.9.0.1" && s.flapped(flaps):
			s.excused[excuse]++
			if excuse != soakLater {
				s.cut[c.service]++
			}
		default:
			s.failures = append(s.failures, fmt.Sprintf("%s to %s: %v", c.name, host, err))
		}
		s.mu.Unlock()
	}
}

// once is one client.
func (s *soaker) once(c soakClient, host string, kill bool, r *rand.Rand) error {
	if c.talk != nil {
		return s.talk(c, host, kill)
	}
	p := s.ns.rnicd(s.t, strings.Fields(c.words(host))...)
	if kill {
		if r.IntN(2) == 0 {
			p.Await(s.t, 1, "^")
		}
		_ = syscall.Kill(p.PID(), syscall.SIGKILL) // it may have ended
	}
	if status := p.Wait(s.t); status != 0 {
		return fmt.Errorf("exit status %d\n%s", status, p)
	}
	if err := c.check(p); err != nil {
		return fmt.Errorf("%w\n%s", err, p)
	}
	return nil
}

// soakExcuse is what a client may end with: while the TAP is down the kernel has no route; and
// until it shows that a client was killed, its place is taken.
var soakExcuse = regexp.MustCompile(`network is unreachable|no route to host|` + soakLater)

const soakLater = "try again later"

// status is a number of /proc/PID/status.
func (s *soaker) status(key string) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.server.PID()))
	if err != nil {
		return 0
	}
	m := regexp.MustCompile(`(?m)^` + key + `:\s+(\d+)`).FindSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n
}

// descriptors are the daemon's open files, each by what it is.
func (s *soaker) descriptors() (names []string) {
	paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", s.server.PID()))
	for _, path := range paths {
		if name, err := os.Readlink(path); err == nil { // else it was closed meanwhile
			names = append(names, name)
		}
	}
	return names
}

// metric is the sum of a metric of the daemon's, over all labels.
func (s *soaker) metric(name string) (sum float64) {
	dial := func(ctx context.Context, network, addr string) (c net.Conn, err error) {
		s.ns.Do(func() { c, err = new(net.Dialer).DialContext(ctx, network, addr) })
		return c, err
	}
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	client := http.Client{Timeout: patience, Transport: transport}
	answer := must(client.Get("http://127.0.0.1:9174/metrics"))(s.t)
	defer answer.Body.Close()
	text := must(io.ReadAll(answer.Body))(s.t)
	all := regexp.MustCompile(`(?m)^`+name+`(?:\{.*\})? (\S+)$`).FindAllSubmatch(text, -1)
	require.NotEmpty(s.t, all, "%s in %s", name, text)
	for _, m := range all {
		x := must(strconv.ParseFloat(string(m[1]), 64))(s.t)
		sum += x
	}
	return sum
}

// heap is what the daemon's heap may grow to before the next garbage collection, KiB: twice what
// the last one found alive. That is what clients had at the time, and what was allocated while it
// marked, for longer where others have the cores: 19 to 34 MiB, of which nothing stays.
func (s *soaker) heap() int { return int(s.metric("go_memstats_next_gc_bytes")) >> 10 }

// Bounds of what may be more in the last third than in the first, by their medians: the most of
// either follows from which clients come together, and how long a garbage collection takes.
const (
	soakRSSExtraKiB  = 8 << 10
	soakHeapExtraKiB = 8 << 10 // of which half is live
)

// samples are of the whole time, at even pauses.
type samples []int

// thirds are the medians of the first and the last third.
func (s samples) thirds() (first, last int) {
	median := func(of []int) int {
		if len(of) == 0 {
			return 0
		}
		of = slices.Clone(of)
		slices.Sort(of)
		return of[len(of)/2]
	}
	return median(s[:len(s)/3]), median(s[len(s)-len(s)/3:])
}

func (s samples) growth() int {
	first, last := s.thirds()
	return last - first
}

func (s samples) String() string {
	first, last := s.thirds()
	return fmt.Sprintf("%d in the first third, %d in the last", first, last)
}

// Every type of service of a daemon under load for a while, over three kinds of port, with
// clients that come, go and are killed, reloads, and a TAP that is taken down and up: each
// transfer is right, each line of the log is accounted for, and memory and descriptors stay what
// they are.
func TestSoak(t *testing.T) {
	if raceEnabled || testing.Short() {
		*soakFor = min(*soakFor, time.Second)
	}
	s := &soaker{t: t, ns: newNamespace(t), dir: t.TempDir(), file: randomFile(t, 3<<20+7),
		done: map[string]int{}, killed: map[string]int{}, cut: map[string]int{},
		excused: map[string]int{}}
	services := readFile(t, "../../internal/daemon/testdata/services.toml")
	config := fmt.Sprintf(soakConfig, filepath.Join(s.dir, "control.sock"),
		filepath.Join(s.dir, "memif.sock")) +
		strings.NewReplacer("FILE", s.file.path, "SIZE", "64MiB").Replace(services)
	path := configured(t, config)
	s.server = s.ns.rnicd(t, "serve", "--config", path)
	s.server.Expect(t, 1, "msg=ready ")
	idle := s.descriptors()

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, for %v", seed, *soakFor)
	var working sync.WaitGroup
	for i, c := range s.clients() {
		working.Go(func() { s.run(c, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	begin := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var rss, heap samples
	threads := 0
	reloads := 0
	reload := func(text string) {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		s.server.Signal(t, syscall.SIGHUP)
		reloads++
		s.server.Expect(t, reloads, "msg=reloaded ")
	}
	for n := 1; time.Since(begin) < *soakFor; n++ {
		<-tick.C
		if n%15 == 0 { // every second and a half
			reload(soakOthers[reloads%len(soakOthers)](config))
		}
		if n%40 == 20 { // down for a third of a second
			s.flaps.Add(1)
			s.ns.Run(t, "ip", "link", "set", "rnic0", "down")
		}
		if n%40 == 23 {
			s.ns.Run(t, "ip", "link", "set", "rnic0", "up")
			s.flaps.Add(1)
		}
		rss, threads = append(rss, s.status("VmRSS")), max(threads, s.status("Threads"))
		if n%10 == 0 {
			heap = append(heap, s.heap())
		}
	}
	if s.flaps.Load()%2 == 1 {
		s.ns.Run(t, "ip", "link", "set", "rnic0", "up")
		s.flaps.Add(1)
	}
	s.over.Store(true)
	working.Wait()

	t.Logf("reloads %d, flaps %d", reloads, s.flaps.Load()/2)
	s.succeeded()
	t.Logf("KiB: resident %v; heap before a collection %v; threads %d", rss, heap, threads)
	if *soakFor >= time.Minute { // in less the first third is no measure
		require.LessOrEqual(t, rss.growth(), soakRSSExtraKiB, "resident memory grows: %v", rss)
		require.LessOrEqual(t, heap.growth(), soakHeapExtraKiB, "the heap grows: %v", heap)
	}
	t.Logf("WARN and above:%s", s.reasons())
	s.unexplained()

	// With its first configuration and without clients it has its first descriptors, when the
	// connections of killed clients have ended (idle_timeout).
	reload(config)
	served := func() float64 { return s.metric("rnicd_service_connections") }
	for patient := time.Now().Add(patience); len(s.descriptors()) > len(idle) ||
		served() > 0; <-tick.C {
		require.True(t, time.Now().Before(patient), "%v connections; descriptors %q, at first %q",
			served(), s.descriptors(), idle)
	}
	s.server.Signal(t, syscall.SIGTERM)
	require.Equal(t, 0, s.server.Wait(t), "%s", s.server)
	s.server.Expect(t, 1, "msg=drained .*reset=0")
	s.unexplained()
	s.bounded()
}

// succeeded fails if a client that was left alone failed, or if no client of a kind succeeded.
func (s *soaker) succeeded() {
	s.t.Helper()
	s.t.Logf("done %v, killed %v, excused %v", s.done, s.killed, s.excused)
	require.Empty(s.t, s.failures)
	for _, c := range s.clients() {
		require.NotZero(s.t, s.done[c.name], "%s never succeeded", c.name)
	}
}

// reasons are the kinds of lines at level WARN and ERROR, each with how often it came.
func (s *soaker) reasons() (text string) {
	number := regexp.MustCompile(`\d+`)
	kinds := map[string]int{}
	for _, line := range s.server.Lines("level=(WARN|ERROR) ") {
		_, kind, _ := strings.Cut(line, "level=")
		kinds[number.ReplaceAllString(kind, "N")]++
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		text += fmt.Sprintf("\n%6d %s", kinds[kind], kind)
	}
	return text
}

// soakServices are where they listen. A client has one connection.
var soakServices = map[string]int{
	"scratch": 7174, "image": 7000, "measure": 7175, "sink": 7002, "source": 7003, "echo": 7004,
}

// bounded fails if the daemon logged more failures than the test caused. A connection that fails
// is logged at most twice: once by its service (failed), once by the adapter (a connection has
// ended with an error). Only connections of clients that were killed, or that a flap made fail,
// may do so: a client that ended well has closed its connections after the last octet. The bound
// of each kind of line is so, for each service, the number of such clients. It is not exact, as a
// client may be killed before it connects; a service that fails clients which were left alone
// exceeds it soon.
func (s *soaker) bounded() {
	s.t.Helper()
	require.LessOrEqual(s.t, len(s.server.Lines(soakFlap)), int(s.flaps.Load()+1)/2)
	for name, port := range soakServices {
		most := s.killed[name] + s.cut[name]
		failed := s.server.Lines("level=WARN msg=failed service=" + name + " ")
		require.LessOrEqual(s.t, len(failed), most,
			"service %s failed %d connections of killed clients at most: %s", name, most,
			strings.Join(failed, "\n"))
		ended := s.server.Lines(
			fmt.Sprintf(`level=WARN msg="a connection has ended with an error" port=\S+ local=\S+:%d `,
				port))
		require.LessOrEqual(s.t, len(ended), most, "service %s: %s", name, strings.Join(ended, "\n"))
	}
}

// unexplained fails if a line of the daemon is none that is expected.
func (s *soaker) unexplained() {
	s.t.Helper()
	var lines []string
	for _, line := range s.server.Lines("") {
		known := strings.Contains(line, "level=INFO ")
		for _, re := range soakExplained {
			known = known || re.MatchString(line)
		}
		if !known {
			lines = append(lines, line)
		}
	}
	require.Empty(s.t, lines)
}
