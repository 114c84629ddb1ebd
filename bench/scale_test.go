package bench

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/bench/yard"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/memif"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

// What connections cost, by their number: a process for each measurement, which has both ends.

var scaleChild = flag.String("scale.child", "",
	"measure in this process: OVER,CONNECTIONS,DEPTH,MESSAGES")

// scaled are the figures of a process. Those of a connection are of both ends, others of one.
type scaled struct {
	SetUpUs     float64 // of processor time, a connection
	SetUpWallUs float64
	RSSKiB      float64 // of this process, of an end that has not sent or received
	HeapKiB     float64
	KernelKiB   float64 // of the kernel's slabs
	UsedKiB     float64 // RSS of an end after messages
	AllUs       float64 // processor time of a message, both ends, of all connections in turn
	FewUs       float64 // of scaleFew of them; the others rest
	RestUs      float64 // processor time of a second without messages
	Rate        float64 // messages a second, as fast as they go, of all in turn
}

const (
	scaleFew  = 10
	scaleBufs = 4096 // of a Poller, sharedPool's too
)

// TestScaleChild is the process that the part "scale" of the yardsticks runs.
func TestScaleChild(t *testing.T) {
	if *scaleChild == "" {
		*scaleChild = "sockets,20,4,100" // to see that it works
	}
	words := strings.Split(*scaleChild, ",")
	require.Len(t, words, 4)
	conns := must(strconv.Atoi(words[1]))(t)
	messages := must(strconv.Atoi(words[3]))(t)
	if words[0] == "sockets" {
		conns = socketsFor(t, conns)
	}
	depth := must(strconv.Atoi(words[2]))(t)
	s := newSeldom(conns)
	s.depth = depth
	var cfg [2]rnic.Config
	addr := "127.0.0.1:0"
	if words[0] == "memif" {
		cfg, addr = memifConfigs(t, conns), "10.9.0.1:7000"
	}
	f := must(measureScale(t, s, messages, cfg, addr))(t)
	line := must(json.Marshal(f))(t)
	fmt.Printf("scaled %s\n", line)
}

// socketsFor raises the limit on descriptors for both ends of so many connections. Where it may not
// be raised as far, it says for how many it is enough.
func socketsFor(t *testing.T, conns int) int {
	const others = 100
	var l unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &l))
	wants := uint64(2*conns + others)
	l.Cur, l.Max = max(l.Cur, wants), max(l.Max, wants)
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &l) == nil {
		return conns
	}
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &l))
	l.Cur = l.Max
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &l))
	return min(conns, int(l.Cur-others)/2)
}

// memifConfigs are two hosts over a memif, which sleep where there is nothing to do.
func memifConfigs(t *testing.T, conns int) (cfg [2]rnic.Config) {
	socket := filepath.Join(t.TempDir(), "memif.sock")
	l := must(memif.Listen(memif.ListenConfig{Socket: socket}))(t)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	server := must(l.Bind(memif.BindConfig{MTU: 1500}))(t)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	arena, lent := sharedPool(t, 1500)
	pools := [2]*mem.Pool{testhost.NewPool(t, scaleBufs, 1500), lent}
	ports := [2]pmd.Port{
		server, attach(t, server, memif.Config{Socket: socket, MTU: 1500, Arena: arena}),
	}
	var pollers [2]*stack.Poller
	for i := range pollers {
		pollers[i] = testhost.NewPoller(t, ports[i], stack.Config{
			Addr: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(i + 1)}), 24), MTU: 1500,
			Pool: pools[i], ConnsMax: conns + 1, Idle: stack.IdleInterrupt,
		})
		cfg[i].Pollers = pollers[i : i+1]
	}
	testhost.Run(t, pollers[:]...)
	return cfg
}

func measureScale(t *testing.T, s *seldom, messages int, cfg [2]rnic.Config,
	addr string) (f scaled, err error) {
	n := float64(s.conns)
	before, began, from := memoryNow(t), time.Now(), cpuTime()
	end := s.between(t, cfg, addr)
	defer end()
	f.SetUpWallUs = float64(time.Since(began).Nanoseconds()) / 1e3 / n
	f.SetUpUs = float64((cpuTime() - from).Nanoseconds()) / 1e3 / n
	idle := memoryNow(t)
	f.RSSKiB, f.HeapKiB = (idle.rss-before.rss)/2/n, (idle.heap-before.heap)/2/n
	f.KernelKiB = (idle.slab - before.slab) / 2 / n
	if _, err = s.run(s.conns * seldomSlots); err != nil { // each place of a queue is used
		return f, err
	}
	f.UsedKiB = (memoryNow(t).rss - before.rss) / 2 / n
	if f.AllUs, err = s.run(messages); err != nil {
		return f, err
	}
	if f.FewUs, err = s.runOver(min(scaleFew, s.conns), messages); err != nil {
		return f, err
	}
	lasts := time.Duration(messages) * seldomEvery / 2
	from, began = cpuTime(), time.Now()
	<-time.After(lasts)
	f.RestUs = float64((cpuTime() - from).Nanoseconds()) / 1e3 / time.Since(began).Seconds()
	f.Rate, err = s.flood(lasts)
	return f, err
}

// flood sends messages as fast as they go, each connection in its turn, for so long, and returns
// how many a second.
func (s *seldom) flood(lasts time.Duration) (float64, error) {
	began, before := time.Now(), s.all.Load()
	var message [seldomLen]byte
	sent := uint64(0)
	for next := 0; time.Since(began) < lasts || s.all.Load() < before+sent; {
		if time.Since(began) < lasts && s.sent[next]-s.taken[next].Load() < seldomSlots {
			seldomMessage(message[:], next, s.sent[next])
			err := s.send(next, message[:])
			if err == nil {
				s.sent[next]++
				sent++
				next = (next + 1) % s.conns
				continue
			}
			if !errors.Is(err, rnic.ErrSendQueueFull) {
				return 0, err
			}
		}
		select {
		case err := <-s.wrong:
			return 0, err
		default:
		}
		if time.Since(began) > lasts+pairPatience {
			return 0, fmt.Errorf("%d of %d messages arrived", s.all.Load()-before, sent)
		}
		runtime.Gosched()
	}
	return float64(sent) / time.Since(began).Seconds(), nil
}

// memoryUse is in KiB.
type memoryUse struct{ rss, heap, slab float64 }

func memoryNow(t *testing.T) (m memoryUse) {
	runtime.GC()
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	m.heap = float64(stats.HeapAlloc) / 1024
	status := must(os.ReadFile("/proc/self/status"))(t)
	m.rss = kibOf(t, string(status), "VmRSS:")
	info := must(os.ReadFile("/proc/meminfo"))(t)
	m.slab = kibOf(t, string(info), "Slab:")
	return m
}

func kibOf(t *testing.T, text, name string) float64 {
	_, rest, ok := strings.Cut(text, name)
	require.True(t, ok, name)
	return must(strconv.ParseFloat(strings.Fields(rest)[0], 64))(t)
}

// scaleRun measures in a process of its own.
func scaleRun(y *yardstick, over string, conns, depth int) (f scaled) {
	messages := y.count(20_000, 10_000)
	if y.dry {
		messages = 100
	}
	cmd := exec.CommandContext(y.Context(), os.Args[0], "-test.run", "^TestScaleChild$",
		"-scale.child", fmt.Sprintf("%s,%d,%d,%d", over, conns, depth, messages))
	out, err := cmd.CombinedOutput()
	require.NoError(y, err, "%s", out)
	_, line, ok := strings.Cut(string(out), "scaled ")
	require.True(y, ok, "%s", out)
	line, _, _ = strings.Cut(line, "\n")
	require.NoError(y, json.Unmarshal([]byte(line), &f))
	return f
}

// scalePart is what connections cost, by their number. The medians are the constants of the model
// (scale_model_test.go).
func scalePart(y *yardstick) {
	numbers, runs := []int{10, 1000, 10_000}, y.runs()
	if y.dry {
		numbers, runs = []int{20}, 1
	}
	if y.full {
		runs = 5
	}
	table := scaleTable{}
	for _, over := range []string{"sockets", "memif"} {
		byNumber := map[int][]scaled{}
		for range runs {
			for _, n := range numbers {
				byNumber[n] = append(byNumber[n], scaleRun(y, over, n, seldomSlots))
			}
		}
		for _, n := range numbers {
			scaleRows(y, table, over, n, byNumber[n])
		}
		if y.dry {
			continue
		}
		deep := scaleRun(y, over, 1000, 128)
		place := (deep.HeapKiB - byNumber[1000][0].HeapKiB) * 1024 / (128 - seldomSlots)
		table.add(over, 0, "place", exactly(place, 1))
		y.row(fmt.Sprintf("scale: %s, a place more of both queues, with completions", over), "octets",
			yard.Goal{}, exactly(place, 1), "heap, an end")
		few, many := byNumber[10], byNumber[1000]
		ratios := make([]float64, len(few))
		for i := range few {
			ratios[i] = many[i].AllUs / few[i].AllUs
		}
		y.row(fmt.Sprintf("scale: %s, a message of 1000 connections to one of 10", over), "x",
			atMost(1.5), yard.Samples(ratios), "")
		table.add(over, 0, "ratio", yard.Samples(ratios))
	}
	switchRows(y, table, runs)
	if y.dry {
		return
	}
	require.NoError(y, os.WriteFile(scaleFile, []byte(table.String()), 0o644))
}

func scaleRow(y *yardstick, table scaleTable, over string, n int, key, name, unit string,
	all []float64) {
	v := yard.Samples(all)
	table.add(over, n, key, v)
	y.row(fmt.Sprintf("scale: %s, %d, %s", over, n, name), unit, yard.Goal{}, v, "")
}

func scaleRows(y *yardstick, table scaleTable, over string, conns int, runs []scaled) {
	row := func(key, name, unit string, of func(scaled) float64) {
		var all []float64
		for _, f := range runs {
			all = append(all, of(f))
		}
		scaleRow(y, table, over, conns, key, name, unit, all)
	}
	row("setup", "set-up, processor", "us", func(f scaled) float64 { return f.SetUpUs })
	row("setup-wall", "set-up", "us", func(f scaled) float64 { return f.SetUpWallUs })
	row("idle", "an idle end, resident", "KiB", func(f scaled) float64 { return f.RSSKiB })
	row("heap", "an idle end, heap", "KiB", func(f scaled) float64 { return f.HeapKiB })
	row("kernel", "an idle end, the kernel's slabs", "KiB",
		func(f scaled) float64 { return f.KernelKiB })
	row("used", "an end after messages, resident", "KiB", func(f scaled) float64 { return f.UsedKiB })
	row("message", "a message, all in turn, processor", "us",
		func(f scaled) float64 { return f.AllUs })
	row("few", "a message, 10 of them, processor", "us", func(f scaled) float64 { return f.FewUs })
	row("rest", "a second at rest, processor", "us", func(f scaled) float64 { return f.RestUs })
	row("rate", "as fast as they go", "messages/s", func(f scaled) float64 { return f.Rate })
}
