package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rnicd/rnicd/bench/yard"
)

// kernelConns is Writes of 64 KiB over 64 connections of one process beside one.
func kernelConns(y *yardstick) {
	const what = "64 KiB, loopback, 64 connections"
	if y.kernelMissing("x", what) {
		return
	}
	const conns = 64
	over, n := overKernel("127.0.0.1"), y.count(100_000, 40_000)/conns*conns
	one := over.perftest(figures{long, n, messages}, "ib_write_bw")
	// no peak: to find it takes seconds, as the square of all messages
	many := over.perftest(figures{long, n / conns, messages}, "ib_write_bw", "-N", "-q",
		strconv.Itoa(conns))
	many.figures = figures{long, n, messages}.of // of all connections together
	one.name, many.name = "ib_write_bw over 1 connection", "ib_write_bw -q 64"
	all := y.compete(loopback(y), one, many)
	y.ratioRow(what, all[1], 0, all[0], 0)
	for _, c := range all {
		y.rateRow(what, c, 0, "Gbit/s", longGigabits)
	}
}

// fioTest is fio's engine rdma on our libraries, or its engine net, which is TCP. Its figure is
// octets a second, for so many seconds after the first. That one does not count: the engine rdma
// sleeps for half of it after it has connected (fio_rdmaio_connect, usleep).
func fioTest(rdma bool, block, seconds int) *pair {
	const port = 17177
	job := func(name, engine string, args ...string) []string {
		return append([]string{"fio", "--name=" + name, "--ioengine=" + engine, // before its options
			fmt.Sprint("--port=", port), fmt.Sprint("--bs=", block), "--size=1T",
			"--output-format=json"}, args...)
	}
	client := func(engine string, args ...string) []string {
		return job("client", engine, append(args, "--rw=write", "--hostname=127.0.0.1",
			"--time_based", "--ramp_time=1", fmt.Sprint("--runtime=", seconds))...)
	}
	p := &pair{name: "fio, engine net", port: port, missing: noProgram("fio", "fio")}
	if rdma {
		p.name, p.ready = "fio, engine rdma", rnicdReady
		p.server = append([]string{*yardRnicd, "run", "--verbose", "--"},
			job("server", "rdma", "--rw=read", "--iodepth=16")...)
		p.client = append([]string{*yardRnicd, "run", "--"},
			client("rdma", "--iodepth=16", "--verb=write")...)
		if out, err := exec.Command("fio", "--enghelp=rdma").Output(); p.missing == "" &&
			(err != nil || !bytes.Contains(out, []byte("verb"))) {
			p.missing = "fio has no engine rdma"
		}
	} else {
		p.server = job("server", "net", "--protocol=tcp", "--listen", "--rw=read")
		p.client = client("net", "--protocol=tcp")
	}
	p.figures = func(_, client string) ([]float64, error) {
		v, err := fioRate(client, seconds)
		return []float64{v}, err
	}
	return p
}

// fioRate is octets a second that the only job has written.
func fioRate(out string, seconds int) (float64, error) {
	var r struct {
		Jobs []struct {
			Error int
			Write struct {
				Blocks  int     `json:"total_ios"`
				Runtime int     // ms
				Rate    float64 `json:"bw_bytes"`
			}
		}
	}
	if err := decodeJSON(out, &r); err != nil {
		return 0, err
	}
	if len(r.Jobs) != 1 || r.Jobs[0].Error != 0 {
		return 0, errors.New("fio: not one job that did well:\n" + out)
	}
	w := r.Jobs[0].Write
	if w.Blocks == 0 || w.Runtime < seconds*1000 {
		return 0, fmt.Errorf("fio: %d blocks in %d ms, not in %d s", w.Blocks, w.Runtime, seconds)
	}
	return w.Rate, nil
}

// kernelFio is blocks written by fio.
func kernelFio(y *yardstick) {
	seconds := y.count(4, 2)
	for _, size := range []struct {
		name  string
		block int
	}{{"blocks of 4 KiB", 4 << 10}, {"blocks of 1 MiB", 1 << 20}} {
		if y.kernelMissing("x", size.name) {
			continue
		}
		all := y.compete(loopback(y), fioTest(true, size.block, seconds),
			fioTest(false, size.block, seconds))
		y.ratioRow(size.name, all[0], 0, all[1], 0)
		for _, c := range all {
			y.rateRow(size.name, c, 0, "Gbit/s", 8e-9)
		}
	}
}

// Kinds of system calls. Eventfds are written and read, too.
var callKinds = []struct {
	name  string
	calls []string
}{
	{"sends", []string{"send", "sendto", "sendmsg", "sendmmsg", "write", "writev"}},
	{"receives", []string{"recv", "recvfrom", "recvmsg", "recvmmsg", "read", "readv"}},
	{"waits", []string{"epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select",
		"pselect6", "futex", "nanosleep", "clock_nanosleep", "io_uring_enter"}},
	{"yields", []string{"sched_yield"}},
}

// callCounter counts system calls of a program and all its threads.
type callCounter struct {
	name string
	// args come before the program. They have the counts written to the file.
	args func(file string) []string
	// parse reads the number of calls by name, and all.
	parse func(text string) (calls map[string]float64, all float64)
}

// systemCalls is perf, which hardly slows the program down, or strace, or why there is neither.
func systemCalls() (c *callCounter, why string) {
	const total = "raw_syscalls:sys_enter"
	events := []string{"-e", total}
	for _, k := range callKinds {
		for _, call := range k.calls {
			if _, err := os.Stat("/sys/kernel/tracing/events/syscalls/sys_enter_" + call); err == nil {
				events = append(events, "-e", "syscalls:sys_enter_"+call)
			}
		}
	}
	perf := func(file string) []string {
		return slices.Concat([]string{"perf", "stat", "-x", ",", "-o", file}, events, []string{"--"})
	}
	probe := append(perf(os.DevNull), "true")
	if len(events) > 2 && exec.Command(probe[0], probe[1:]...).Run() == nil {
		return &callCounter{"perf", perf, func(text string) (map[string]float64, float64) {
			calls := perfCalls(text)
			return calls, calls[total]
		}}, ""
	}
	if why := noProgram("strace", "strace"); why != "" {
		return nil, "perf may not count, and " + why
	}
	return &callCounter{"strace", func(file string) []string {
		return []string{"strace", "-f", "-c", "-o", file}
	}, straceCalls}, ""
}

// perfCalls reads perf stat -x ,: value, unit, event.
func perfCalls(text string) map[string]float64 {
	calls := map[string]float64{}
	for line := range strings.Lines(text) {
		col := strings.Split(line, ",")
		if len(col) < 3 {
			continue
		}
		if n, err := strconv.ParseFloat(col[0], 64); err == nil {
			calls[strings.TrimPrefix(col[2], "syscalls:sys_enter_")] += n
		}
	}
	return calls
}

// straceCalls reads strace -c: part of the time, seconds, microseconds a call, calls, errors if
// any, name.
func straceCalls(text string) (calls map[string]float64, all float64) {
	calls = map[string]float64{}
	for line := range strings.Lines(text) {
		col := strings.Fields(line)
		if len(col) < 5 {
			continue
		}
		name := col[len(col)-1]
		if n, err := strconv.ParseFloat(col[3], 64); err == nil && name != "total" {
			calls[name] += n
			all += n
		}
	}
	return calls, all
}

// counts are all calls, those of each kind, and the others.
func (c *callCounter) counts(file string) ([]float64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	calls, all := c.parse(string(text))
	if all == 0 {
		return nil, fmt.Errorf("%s has counted nothing:\n%s", c.name, text)
	}
	v, others := []float64{all}, all
	for _, k := range callKinds {
		sum := 0.0
		for _, call := range k.calls {
			sum += calls[call]
		}
		v, others = append(v, sum), others-sum
	}
	return append(v, others), nil
}

// counted is a pair whose figures are the calls of its server and those of its client.
func (c *callCounter) counted(y *yardstick, p *pair) *pair {
	dir := y.TempDir()
	files := [2]string{filepath.Join(dir, "server"), filepath.Join(dir, "client")}
	q := *p
	q.server = append(c.args(files[0]), p.server...)
	q.client = append(c.args(files[1]), p.client...)
	q.figures = func(server, client string) (v []float64, err error) {
		if _, err := p.figures(server, client); err != nil {
			return nil, err
		}
		for _, file := range files {
			counts, err := c.counts(file)
			if err != nil {
				return nil, err
			}
			v = append(v, counts...)
		}
		return v, nil
	}
	return &q
}

// kernelCalls is the system calls of a message: what a run of many messages has more than one of
// few, for the calls of starting and ending, by their medians, do not count.
func kernelCalls(y *yardstick) {
	const what = "system calls"
	if y.kernelMissing("calls", what) {
		return
	}
	count, why := systemCalls()
	if why != "" {
		y.missing("calls", yard.Goal{}, why, "kernel: "+what)
		return
	}
	over := overKernel("127.0.0.1")
	for _, test := range []struct {
		what, program   string
		size, few, many int
		columns         columns
		ends            []string // of the server, of the client
	}{
		{"a round trip of 8 octets", "ib_send_lat", 8, 200, 10_000, typical,
			[]string{"server", "client"}},
		{"64 KiB", "ib_write_bw", long, 200, 20_000, messages, []string{"receiver", "sender"}},
		{"64 KiB", "ib_send_bw", long, 200, 20_000, messages, []string{"receiver", "sender"}},
		{"64 octets", "ib_send_bw", 64, 2000, 200_000, messages, []string{"receiver", "sender"}},
	} {
		run := func(n int) *pair {
			return count.counted(y, over.perftest(figures{test.size, n, test.columns}, test.program))
		}
		all := y.compete(loopback(y), run(test.few), run(test.many))
		few, many := all[0], all[1]
		kinds := len(callKinds) + 2
		for i, end := range test.ends {
			name := fmt.Sprintf("kernel: %s, %s, %s, %s", what, test.what, test.program, end)
			if why := few.missing + many.missing; why != "" {
				y.missing("calls", yard.Goal{}, why, name)
				continue
			}
			each := make([]yard.Value, kinds)
			for k := range kinds {
				var v []float64
				for _, n := range many.series[i*kinds+k].Rates {
					v = append(v, (n-few.series[i*kinds+k].Median())/float64(test.many-test.few))
				}
				each[k] = yard.Samples(v)
			}
			note := "by " + count.name
			for k, kind := range callKinds {
				note += fmt.Sprintf(", %s %.2f", kind.name, each[1+k].Median)
			}
			y.row(name, "calls", yard.Goal{}, each[0],
				fmt.Sprintf("%s, others %.2f", note, each[kinds-1].Median))
		}
	}
}
