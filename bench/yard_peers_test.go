package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/bench/yard"
	"github.com/rnicd/rnicd/internal/crc32c"
	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/pmd/tap"
	"github.com/rnicd/rnicd/rnic"
)

// rootless says why a part that makes network namespaces cannot run, if so.
func (y *yardstick) rootless() string {
	switch {
	case y.dry:
		return "not in a test"
	case os.Geteuid() != 0:
		return "needs root: makes network namespaces"
	}
	return ""
}

// kernelTCP is one connection of Linux TCP over a veth pair. Its programs write from and read into
// memory of 1 MiB, records with room for a CRC32C after each: with crc the sender computes it and
// the receiver verifies it.
type kernelTCP struct {
	fds     [2]int // sender, receiver
	crc     bool
	memory  [2][]byte
	at      [2]int // in it
	records int    // received
	failed  error
}

const (
	recordBytes = 64 << 10
	recordLen   = recordBytes + 4
	records     = message / recordBytes
	socketBytes = 4 << 20
)

func newKernelTCP(y *yardstick, mtu int, segmentation, crc bool) *kernelTCP {
	prepare := (*netlab.Namespace).NoSegmentation
	if segmentation {
		prepare = nil
	}
	a, b := netlab.New(y), netlab.New(y)
	to := netip.MustParsePrefix("10.8.0.1/24")
	netlab.VethWith(y, a, netlab.Device{Name: "yard0", MTU: mtu, Addrs: []netip.Prefix{to}}, b,
		netlab.Device{Name: "yard1", MTU: mtu, Addrs: []netip.Prefix{netip.MustParsePrefix(
			"10.8.0.2/24")}}, prepare)
	k := &kernelTCP{crc: crc, memory: [2][]byte{make([]byte, records*recordLen),
		make([]byte, records*recordLen)}}
	_, _ = rand.NewChaCha8([32]byte{1}).Read(k.memory[0]) // never fails
	var l net.Listener
	var err error
	a.Do(func() { l, err = net.Listen("tcp4", "10.8.0.1:7174") })
	require.NoError(y, err)
	defer l.Close()
	var client net.Conn
	b.Do(func() { client, err = net.Dial("tcp4", l.Addr().String()) })
	require.NoError(y, err)
	server := must(l.Accept())(y)
	for i, c := range []net.Conn{client, server} {
		f := must(c.(*net.TCPConn).File())(y)
		require.NoError(y, c.Close())
		k.fds[i] = int(f.Fd())
		for _, o := range []int{unix.SO_SNDBUFFORCE, unix.SO_RCVBUFFORCE} {
			require.NoError(y, unix.SetsockoptInt(k.fds[i], unix.SOL_SOCKET, o, socketBytes))
		}
		require.NoError(y, unix.SetNonblock(k.fds[i], true))
		y.Cleanup(func() { _ = f.Close() })
	}
	return k
}

// await sleeps until fd is ready or a moment has passed.
func await(fd int, events int16) {
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, 1)
}

// record is the one that octet at of memory m belongs to.
func (k *kernelTCP) record(m []byte, at int) []byte {
	from := at / recordLen * recordLen
	return m[from:][:recordLen]
}

func (k *kernelTCP) send(s *yard.Slice) {
	for !s.Over() && k.failed == nil {
		at := k.at[0]
		r := k.record(k.memory[0], at)
		if k.crc && at%recordLen == 0 {
			binary.NativeEndian.PutUint32(r[recordBytes:], crc32c.Update(0, r[:recordBytes]))
		}
		n, err := unix.Write(k.fds[0], r[at%recordLen:])
		switch {
		case n > 0:
			k.at[0] = (at + n) % len(k.memory[0])
		case errors.Is(err, unix.EAGAIN):
			await(k.fds[0], unix.POLLOUT)
		default:
			k.failed = fmt.Errorf("write: %d, %w", n, err)
		}
	}
}

func (k *kernelTCP) receive(s *yard.Slice) {
	for !s.Over() && k.failed == nil {
		at := k.at[1]
		r := k.record(k.memory[1], at)
		n, err := unix.Read(k.fds[1], r[at%recordLen:])
		switch {
		case n > 0:
			if k.at[1] = (at + n) % len(k.memory[1]); k.at[1]%recordLen != 0 {
				continue
			}
			k.records++
			if k.crc && binary.NativeEndian.Uint32(r[recordBytes:]) != crc32c.Update(0, r[:recordBytes]) {
				k.failed = errors.New("a CRC is wrong")
			}
			s.Did(recordBytes)
		case errors.Is(err, unix.EAGAIN):
			await(k.fds[1], unix.POLLIN)
		default:
			k.failed = fmt.Errorf("read: %d, %w", n, err)
		}
	}
}

func (k *kernelTCP) check() error {
	switch {
	case k.failed != nil:
		return k.failed
	case k.records < records:
		return fmt.Errorf("%d records have arrived, not one of each", k.records)
	case !bytes.Equal(k.memory[0][:recordBytes], k.memory[1][:recordBytes]) && k.at[1] != 0 &&
		k.at[1] >= recordLen:
		return errors.New("what arrived is not what was sent")
	}
	return nil
}

// vethPart is bulk Write beside Linux TCP over a veth pair, whose kernel does the work of both
// drivers in the same threads.
func vethPart(y *yardstick) {
	for _, mtu := range []int{1500, 9000} {
		ours := fmt.Sprintf("Write of 1 MiB to Linux TCP over veth, MTU %d", mtu)
		if why := y.rootless(); why != "" {
			y.missing("x", atLeast(4), why, ours)
			continue
		}
		all := []*yard.Contender{writing(y, fmt.Sprintf("Write beside veth, MTU %d", mtu),
			cable{mtu: mtu}, false)}
		type kind struct{ segmentation, crc bool }
		kinds := []kind{{false, true}, {false, false}, {true, true}, {true, false}}
		for _, k := range kinds {
			tcp := newKernelTCP(y, mtu, k.segmentation, k.crc)
			all = append(all, &yard.Contender{
				Name: fmt.Sprintf("Linux TCP over veth, MTU %d, segmentation offload %v, CRC32C %v", mtu,
					k.segmentation, k.crc), Unit: "octets/s",
				Left: tcp.send, Right: tcp.receive, Sleeps: true, Check: tcp.check,
			})
		}
		s := y.take(all...)
		for i, k := range kinds {
			name, goal := ours+", no segmentation offload", atLeast(4)
			if k.segmentation {
				name, goal = ours+", segmentation offload", yard.Goal{}
			}
			if k.crc {
				name += ", CRC32C"
			}
			y.row(name, "x", goal, yard.Ratio(s[0], s[i+1]), "")
		}
		for _, x := range s {
			y.row(x.Name, "Gbit/s", yard.Goal{}, yard.Rate(x, 8e-9), "")
		}
	}
}

// tapPart is Write from MPA over the kernel's TCP through a TAP into our stack, with markers and
// without.
func tapPart(y *yardstick) {
	const name = "Write from the kernel over a TAP, MTU 1500, markers to none"
	if why := y.rootless(); why != "" {
		y.missing("x", atLeast(0.8), why, name)
		return
	}
	s := y.take(writingTAP(y, false), writingTAP(y, true))
	y.row(name, "x", atLeast(0.8), yard.Ratio(s[1], s[0]), "")
	for _, x := range s {
		y.row(x.Name, "Gbit/s", yard.Goal{}, yard.Rate(x, 8e-9), "")
	}
}

// writingTAP has its sender sleep in the kernel: goroutines of package rnic do what it posts.
func writingTAP(y *yardstick, markers bool) *yard.Contender {
	ns := netlab.New(y)
	var port *tap.Port
	ns.Do(func() {
		var err error
		port, err = tap.New(tap.Config{Name: "yard0", Addr: netip.MustParsePrefix("10.9.0.254/24")})
		require.NoError(y, err)
	})
	y.Cleanup(func() { require.NoError(y, port.Close()) })
	server := quietHost(y, port, "10.9.0.1/24", 1500)
	// What turns the server while no slice does.
	g := &together{server: server}
	y.Cleanup(g.own)
	g.lend()
	kernel, err := rnic.Open(rnic.Config{})
	require.NoError(y, err)
	opt := opts{rnic.QPOptions{SendDepth: 64}, rnic.ConnParam{NoMarkers: !markers}}
	s := newEnd(y, server, message, opt)
	c := newEnd(y, &host{dev: kernel}, message, opt)
	join(y, server, s, func(ctx context.Context) (err error) {
		ns.Do(func() { err = c.qp.Connect(ctx, "10.9.0.1:7174", c.conn) })
		return err
	})
	newNoise(y).fill(c.region.Bytes())
	w := &writer{end: c, to: s.region}
	park(y, g)
	return &yard.Contender{
		Name: fmt.Sprintf("Write from the kernel over a TAP, markers %v", markers), Unit: "octets/s",
		Sleeps: true,
		Left: func(slice *yard.Slice) {
			w.slice = slice
			for !slice.Over() {
				if w.step() == 0 {
					ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
					_ = w.cq.Wait(ctx) // or the slice is over
					cancel()
				}
			}
		},
		Right: func(slice *yard.Slice) {
			for !slice.Over() {
				server.poller.Turn()
			}
		},
		Check: func() error {
			g.clock.resume()
			err := w.settle(y, func() int { return w.step() + g.turn() })
			g.lend()
			defer g.own() // others have slices still
			if err != nil {
				return err
			}
			return w.written(y, s)
		},
	}
}

// runs is how often a program is run that takes no slices.
func (y *yardstick) runs() int {
	if y.full {
		return 9
	}
	return 3
}

// values of f, one a run, as a Series.
func (y *yardstick) repeat(name, unit string, f func() (float64, error)) (*yard.Series, error) {
	s := &yard.Series{Name: name, Unit: unit}
	for range y.runs() {
		apart := y.crew.Apart()
		v, err := f()
		if err != nil {
			return nil, err
		}
		s.AddRun(v, apart)
	}
	y.report.Add(nil, []*yard.Series{s})
	return s, nil
}

// demoPart is a transfer by rnicd demo beside bulk Write as it is measured here: of one message
// over and over again, which the caches hold, and of as much memory as the demo's. They take
// turns, some slices and then a whole run.
func demoPart(y *yardstick) {
	const to, rate = "rnicd demo of 1 GiB to Write, MTU 1500, markers",
		"rnicd demo of 1 GiB, MTU 1500, markers"
	size, span := "128MiB", 128<<20
	if y.full {
		size, span = "1GiB", 1<<30
	}
	same := fmt.Sprintf("%s, of as much memory", to)
	if *yardRnicd == "" {
		y.missing("x", atLeast(0.9), "-yard.rnicd says not where the program is", to, same)
		return
	}
	contenders := []*yard.Contender{
		writing(y, "Write beside the demo, markers", cable{mtu: 1500}, true),
		writing(y, "Write beside the demo, of as much memory, markers", cable{mtu: 1500, span: span},
			true),
	}
	writes := []*yard.Series{{}, {}}
	demo, err := y.repeat("rnicd demo", "octets/s", func() (float64, error) {
		some, err := y.crew.Take(y.turns/y.runs(), y.length, contenders...)
		if err != nil {
			return 0, err
		}
		for i, s := range some {
			writes[i].Rates = append(writes[i].Rates, yard.Quantile(s.Rates, 0.5))
			y.report.Add(nil, some[i:i+1])
		}
		ctx, cancel := context.WithTimeout(y.Context(), patience)
		defer cancel()
		out, err := exec.CommandContext(ctx, *yardRnicd, "demo", "--size", size).Output()
		if err != nil {
			return 0, err
		}
		return demoGoodput(string(out))
	})
	if err != nil {
		y.missing("x", atLeast(0.9), err.Error(), to, same)
		return
	}
	note := size + "; whole runs, each beside the median of some slices"
	y.row(to, "x", atLeast(0.9), yard.Ratio(demo, writes[0]),
		note+" of one message of 1 MiB, in the caches")
	y.row(same, "x", atLeast(0.9), yard.Ratio(demo, writes[1]), note)
	y.row(rate, "Gbit/s", yard.Goal{}, yard.Rate(demo, 8e-9), size)
}

// demoGoodput is octets a second, of the line that says it.
func demoGoodput(out string) (float64, error) {
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] != "goodput" {
			continue
		}
		v, err := strconv.ParseFloat(words[1], 64)
		unit := map[string]float64{"kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9}[words[2]]
		if err != nil || unit == 0 {
			break
		}
		return v * unit / 8, nil
	}
	return 0, errors.New("rnicd demo: no line says the goodput")
}

// ucxPart is UCX over TCP, both ends on this machine's loopback.
func ucxPart(y *yardstick) {
	const bulk = "Write of 1 MiB to UCX put of 64 KiB over TCP, MTU 9000"
	why := noProgram("ucx_perftest", "ucx-utils")
	if y.dry {
		why = "not in a test"
	}
	if why != "" {
		y.missing("x", atLeast(4), why, bulk)
		return
	}
	for _, test := range []struct {
		name, unit string
		iterations int
		figure     func(ucxResult) []float64
		args       []string
	}{
		{"UCX put of 64 KiB over TCP", "octets/s", 5000,
			func(r ucxResult) []float64 { return []float64{r.mibAll * (1 << 20)} },
			[]string{"-t", "ucp_put_bw", "-s", "65536", "-w", "200"}},
		{"UCX put of 8 octets over TCP, one way", "us", 20_000,
			func(r ucxResult) []float64 { return []float64{r.percentile} },
			[]string{"-t", "ucp_put_lat", "-s", "8", "-w", "1000"}},
		{"UCX put of 8 octets over TCP, messages", "messages/s", 200_000,
			func(r ucxResult) []float64 { return []float64{r.messagesAll} },
			[]string{"-t", "ucp_put_bw", "-s", "8", "-w", "1000"}},
	} {
		run := ucxTest(test.name, test.iterations, test.figure, test.args...)
		s, err := y.repeat(test.name, test.unit, func() (float64, error) {
			v, err := run.run(y, place{})
			if err != nil {
				return 0, err
			}
			return v[0], nil
		})
		if err != nil {
			y.missing(test.unit, yard.Goal{}, err.Error(), test.name)
			continue
		}
		if test.unit == "us" {
			y.row(test.name, "us", yard.Goal{}, yard.Samples(s.Rates), "whole runs")
			continue
		}
		y.row(test.name, test.unit, yard.Goal{}, yard.Rate(s, 1), "whole runs")
		if test.unit == "octets/s" {
			write := y.take(writing(y, "Write beside UCX, MTU 9000", cable{mtu: 9000}, false))[0]
			y.row(bulk, "x", atLeast(4), yard.Ratio(write, s),
				"UCX in whole runs over the loopback, MTU 65536, segmentation offload")
		}
	}
}

// gvisorPart is our stack beside gVisor's over a TAP, as bench/peers measures it.
func gvisorPart(y *yardstick) {
	const name = "one TCP stream over a TAP, to gVisor"
	why := y.rootless()
	if *yardPeers == "" {
		why = "-yard.peers says not where bench/peers' programs are"
	} else if _, err := os.Stat(filepath.Join(*yardPeers, "gvisor")); err != nil {
		why = "gVisor could not be built"
	}
	if why != "" {
		y.missing("x", yard.Goal{}, why, name)
		return
	}
	ctx, cancel := context.WithTimeout(y.Context(), 10*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(*yardPeers, "compare"), "-bin", *yardPeers,
		"-json", "-peers", "ours,gvisor", "-rounds", strconv.Itoa(y.runs()), "-for", "1s").Output()
	var cells []struct {
		MTU       int
		Way, Peer string
		Gbps      []float64
	}
	if err == nil {
		err = json.Unmarshal(out, &cells)
	}
	if err != nil {
		y.missing("x", yard.Goal{}, err.Error(), name)
		return
	}
	for i := 0; i+1 < len(cells); i += 2 {
		ours, theirs := &yard.Series{Rates: cells[i].Gbps}, &yard.Series{Rates: cells[i+1].Gbps}
		y.row(fmt.Sprintf("%s, MTU %d, %s", name, cells[i].MTU, cells[i].Way), "x", yard.Goal{},
			yard.Ratio(ours, theirs), "whole transfers")
	}
}
