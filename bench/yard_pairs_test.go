package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rnicd/rnicd/bench/yard"
	"github.com/rnicd/rnicd/internal/netlab"
)

// pair is a measurement by two programs: a server and its client, whose output has the figures.
type pair struct {
	name           string
	server, client []string
	env            []string
	ready          string // a pattern of the server's line that says so; empty: it listens on port
	port           uint16
	stopped        bool // the server ends by SIGTERM, otherwise after its client
	// figures are in what the two printed. An error: they did not do what they were told to.
	figures func(server, client string) ([]float64, error)
	missing string // why it cannot run here
}

// place is where the two programs run; without namespaces, beside the test.
type place struct {
	server, client *netlab.Namespace
	addr           string // the server's
}

// pairPatience bounds a run.
const pairPatience = 30 * time.Second

// run is one run of both programs, which must end well.
func (p *pair) run(y *yardstick, at place) ([]float64, error) {
	ctx, cancel := context.WithTimeout(y.Context(), pairPatience)
	defer cancel()
	start := func(ns *netlab.Namespace, args []string) *netlab.Process {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Env = append(os.Environ(), p.env...)
		if ns == nil {
			return netlab.Start(y, cmd)
		}
		return ns.Start(y, cmd)
	}
	server := start(at.server, p.server)
	ok := false
	if p.ready != "" {
		_, ok = server.Await(y, 1, p.ready)
	} else {
		ok = server.AwaitListener(y, p.port)
	}
	if !ok {
		return nil, fmt.Errorf("%s: no server:\n%s", p.name, server)
	}
	client := start(at.client, p.client)
	if code := client.Wait(y); code != 0 {
		return nil, fmt.Errorf("%s: client: %d:\n%s\nserver:\n%s", p.name, code, client, server)
	}
	if p.stopped {
		server.Signal(y, syscall.SIGTERM)
	}
	if code := server.Wait(y); code != 0 {
		return nil, fmt.Errorf("%s: server: %d:\n%s", p.name, code, server)
	}
	v, err := p.figures(server.String(), client.String())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	return v, nil
}

// count is how much is done in a run.
func (y *yardstick) count(full, quick int) int {
	if y.full {
		return full
	}
	return quick
}

// rounds runs each pair once a round, in turns. It returns a Series for each figure of each pair:
// none of a pair that is missing or has failed, which then says why.
func (y *yardstick) rounds(at place, pairs ...*pair) [][]*yard.Series {
	all := make([][]*yard.Series, len(pairs))
	for round := range y.runs() {
		for i := range pairs {
			if round%2 == 1 { // each goes after the other as often
				i = len(pairs) - 1 - i
			}
			p := pairs[i]
			if p.missing != "" {
				continue
			}
			apart := y.crew.Apart()
			v, err := p.run(y, at)
			if err != nil {
				p.missing, all[i] = err.Error(), nil
				continue
			}
			for k, x := range v {
				if len(all[i]) == k {
					all[i] = append(all[i], &yard.Series{Name: p.name, Unit: fmt.Sprint("figure ", k+1)})
				}
				all[i][k].AddRun(x, apart)
			}
		}
	}
	for _, series := range all {
		y.report.Add(nil, series)
	}
	return all
}

// cableOf is what two programs of ours are connected by: flags of rnicd, of both ends and of one.
type cableOf struct {
	flags, server, client []string
	addr                  string // the server's
}

// figures are those of perftest, and of ours, which prints as it does: of messages of a size, so
// many, columns of the line.
type figures struct {
	size, iterations int
	columns
}

// columns, and what their unit is times.
type columns struct {
	at     []int
	factor float64
}

var (
	messages = columns{[]int{4}, 1e6}        // a second: MsgRate[Mpps]
	typical  = columns{[]int{4}, 1}          // t_typical[usec]
	times    = columns{[]int{4, 5, 7, 8}, 1} // typical, average, 99 %, 99.9 %
)

// rnicdReady is what a server of ours prints, and the libraries with --verbose.
const rnicdReady = "^ready |^rnicd: listening at "

// perftest is one of Debian's programs on our libraries.
func (c cableOf) perftest(f figures, program string, args ...string) *pair {
	args = slices.Concat([]string{"--", program, "-R", "-F", "-s", strconv.Itoa(f.size), "-n",
		strconv.Itoa(f.iterations)}, args)
	return &pair{
		name:   program,
		server: slices.Concat([]string{*yardRnicd, "run", "--verbose"}, c.flags, c.server, args),
		client: slices.Concat([]string{*yardRnicd, "run"}, c.flags, c.client, args, []string{c.addr}),
		ready:  rnicdReady, figures: f.of,
	}
}

// perf is a measurement by rnicd perf.
func (c cableOf) perf(f figures, args ...string) *pair {
	return &pair{
		name:   "rnicd perf " + strings.Join(args, " "),
		server: slices.Concat([]string{*yardRnicd, "perf", "server"}, c.flags, c.server),
		client: slices.Concat([]string{*yardRnicd, "perf"}, args, []string{"-s", strconv.Itoa(f.size),
			"-n", strconv.Itoa(f.iterations), c.addr}, c.flags, c.client),
		ready: rnicdReady, stopped: true, figures: f.of,
	}
}

// of reads the only line that begins with the size, and counts the iterations.
func (f figures) of(_, client string) (v []float64, err error) {
	for line := range strings.Lines(client) {
		words := strings.Fields(line)
		if len(words) <= slices.Max(f.at) || words[0] != strconv.Itoa(f.size) {
			continue
		}
		if words[1] != strconv.Itoa(f.iterations) {
			return nil, fmt.Errorf("%s iterations, not %d", words[1], f.iterations)
		}
		for _, c := range f.at {
			x, err := strconv.ParseFloat(words[c], 64)
			if err != nil {
				return nil, err
			}
			v = append(v, x*f.factor)
		}
		return v, nil
	}
	return nil, errors.New("no line with the figures:\n" + client)
}

// ucxTest is a pair of ucx_perftest over TCP on the loopback, an end on each core.
func ucxTest(name string, iterations int, figures func(ucxResult) []float64, args ...string) *pair {
	return &pair{
		name:   name,
		server: []string{"ucx_perftest", "-p", "17174", "-c", "0"}, port: 17174,
		client: append([]string{"ucx_perftest", "127.0.0.1", "-p", "17174", "-c", "1", "-f", "-n",
			strconv.Itoa(iterations)}, args...),
		env: []string{"UCX_TLS=tcp", "UCX_NET_DEVICES=lo"},
		figures: func(_, client string) ([]float64, error) {
			r, err := ucxFinal(client)
			if err == nil && r.iterations != float64(iterations) {
				err = fmt.Errorf("%v iterations, not %d", r.iterations, iterations)
			}
			if err != nil {
				return nil, err
			}
			return figures(r), nil
		},
		missing: noProgram("ucx_perftest", "ucx-utils"),
	}
}

// ucxResult is the last line of ucx_perftest.
type ucxResult struct {
	iterations               float64
	percentile, average, all float64 // us
	mib, mibAll              float64 // a second
	messages, messagesAll    float64
}

func ucxMessages(r ucxResult) []float64 { return []float64{r.messagesAll} }

// ucxFinal reads the last line that consists of eight numbers.
func ucxFinal(out string) (r ucxResult, err error) {
	found := false
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) != 8 {
			continue
		}
		var v [8]float64
		numbers := true
		for i, w := range words {
			v[i], err = strconv.ParseFloat(w, 64)
			numbers = numbers && err == nil
		}
		if numbers {
			r, found = ucxResult{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]}, true
		}
	}
	if !found {
		return r, fmt.Errorf("ucx_perftest says no result: %q", out)
	}
	return r, nil
}

// libfabricTest is a pair of fi_pingpong over the provider tcp. Its figure is the average time one
// way, us.
func libfabricTest(name string, size, iterations int) *pair {
	args := []string{"fi_pingpong", "-p", "tcp", "-e", "msg", "-S", strconv.Itoa(size), "-I",
		strconv.Itoa(iterations)}
	return &pair{
		name: name, server: args, port: 47592, client: append(slices.Clone(args), "127.0.0.1"),
		figures: func(_, client string) ([]float64, error) {
			v, err := libfabricTime(client, iterations)
			return []float64{v}, err
		},
		missing: noProgram("fi_pingpong", "libfabric-bin"),
	}
}

// libfabricTime is microseconds a transfer: octets, sent, acknowledged ("=" as many), in all,
// seconds, MB/s, us, million/s.
func libfabricTime(out string, iterations int) (float64, error) {
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) != 8 || words[0] == "bytes" {
			continue
		}
		if count := strconv.Itoa(iterations/1000) + "k"; words[1] != count || words[2] != "="+count {
			return 0, fmt.Errorf("%s sent, %s acknowledged, not %s", words[1], words[2], count)
		}
		return strconv.ParseFloat(words[6], 64)
	}
	return 0, errors.New("fi_pingpong says no result:\n" + out)
}

// iperfTest is one stream of iperf3, so many messages of 64 KiB. Its figure is messages a second,
// as received.
func iperfTest(name string, messages int, addr string) *pair {
	return &pair{
		name: name, server: []string{"iperf3", "-s", "-1", "-p", "17176"}, port: 17176,
		client: []string{"iperf3", "-c", addr, "-p", "17176", "-J", "-l", strconv.Itoa(long), "-n",
			strconv.Itoa(messages * long)},
		figures: func(_, client string) ([]float64, error) {
			v, err := iperfRate(client, int64(messages)*long)
			return []float64{v / long}, err
		},
		missing: noProgram("iperf3", "iperf3"),
	}
}

// iperfRate is octets a second. The server does not count what it reads after the client has said
// on another connection that it is done: as much as socket buffers hold.
func iperfRate(out string, octets int64) (float64, error) {
	type sum struct {
		Bytes int64
		Bits  float64 `json:"bits_per_second"`
	}
	var r struct {
		End struct {
			Sent     sum `json:"sum_sent"`
			Received sum `json:"sum_received"`
		}
	}
	err := decodeJSON(out, &r)
	sent, received := r.End.Sent.Bytes, r.End.Received.Bytes
	if err == nil && (sent < octets || sent-received > iperfUncounted || received == 0) {
		err = fmt.Errorf("%d octets were sent and %d have arrived of %d", sent, received, octets)
	}
	return r.End.Received.Bits / 8, err
}

// iperfUncounted is what both ends' socket buffers hold at most: the third of net.ipv4.tcp_rmem and
// of net.ipv4.tcp_wmem, as kernels set them.
const iperfUncounted = 36 << 20

// decodeJSON reads what begins with the first brace.
func decodeJSON(out string, v any) error {
	i := strings.IndexByte(out, '{')
	if i < 0 {
		return errors.New("no JSON: " + out)
	}
	return json.NewDecoder(strings.NewReader(out[i:])).Decode(v)
}

// noProgram says that there is no such program, if so.
func noProgram(name, pkg string) string {
	if _, err := exec.LookPath(name); err != nil {
		return fmt.Sprintf("no %s: apt-get install %s", name, pkg)
	}
	return ""
}
