package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/tools/bytestream"
)

// Addresses of both ends of a lab's link, by family.
var (
	interopOurs = map[int]netip.Prefix{4: netip.MustParsePrefix("10.9.0.1/24"),
		6: netip.MustParsePrefix("fd09::1/64")}
	interopTheirs = map[int]netip.Prefix{4: netip.MustParsePrefix("10.9.0.254/24"),
		6: netip.MustParsePrefix("fd09::fe/64")}
)

// Devices between our stack and the Linux kernel.
const (
	deviceTap   = "tap"        // with offloads: frames of up to 64 KiB, their checksums left out
	devicePlain = "tap, plain" // frame by frame, as on a wire
	deviceVeth  = "veth"       // DPDK's net_af_packet at our end
)

// hasDevice says whether the program under test can drive a device: DPDK is not in every build.
func hasDevice(t testing.TB, device string) bool {
	t.Helper()
	programPath(t)
	return device != deviceVeth || program.dpdk
}

// interopQueue is so long that a window of every stream fits into the link: what is lost is then
// somebody's fault.
const interopQueue = 16384

// interopLab is a link with our stack, a process of its own, at one end and the Linux kernel at the
// other.
type interopLab struct {
	ours, theirs *namespace // the same one with a TAP
	end          netlab.Device
	control      string   // congestion control of the kernel
	tap          bool     // the device comes and goes with the process at our end
	args         []string // of a command of ours
}

// interopLink makes a link for connections of a family.
func interopLink(t testing.TB, device string, mtu, family int, control string) *interopLab {
	t.Helper()
	l := &interopLab{ours: newNamespace(t), tap: device != deviceVeth, control: control}
	l.theirs = l.ours
	l.end = netlab.Device{Name: "rnic0", MTU: mtu}
	l.args = []string{"--mtu", strconv.Itoa(mtu), "--addr", interopOurs[family].String(), "--no-dad"}
	if l.tap {
		l.args = append(l.args, "--host-addr", interopTheirs[family].String())
		if device == devicePlain {
			l.args = append(l.args, "--no-offload")
		}
		return l
	}
	l.theirs = newNamespace(t)
	// at our end there is no kernel but DPDK's driver
	l.ours.Sysctl(t, "net.ipv6.conf.default.disable_ipv6", "1")
	l.end.Name, l.end.Addrs = "rnic1", []netip.Prefix{interopTheirs[family]}
	netlab.Veth(t, l.ours.Namespace, netlab.Device{Name: "rnic0", MTU: mtu}, l.theirs.Namespace, l.end)
	l.theirs.Congestion(t, control)
	l.args = append(l.args, "--pmd", "dpdk", "--dev",
		fmt.Sprintf("net_af_packet0,iface=rnic0,framecnt=%d", interopQueue))
	return l
}

// stream starts a command of ours at our end, and returns when the kernel's end is set up as well.
func (l *interopLab) stream(t testing.TB, args ...string) *process {
	t.Helper()
	p := l.ours.rnicd(t, append(append([]string{"stream"}, args...), l.args...)...)
	p.Expect(t, 1, "^device ")
	if l.tap {
		l.ours.Run(t, "ip", "link", "set", l.end.Name, "txqueuelen", strconv.Itoa(interopQueue))
		l.ours.Congestion(t, l.control)
	}
	return p
}

// cell is one test of the matrix.
type cell struct {
	device  string
	mtu     int
	family  int
	weDial  bool
	flow    flow
	streams int
	kernel  string // its congestion control
	us      string // ours
	ecn     bool   // we ask for it
	sysctl  string // of the kernel's end, as net.ipv4.tcp_sack=0
	fault   string // a bad network, as of --fault
}

// flow is where the octets of a cell go.
type flow int

const (
	flowIn    flow = iota // from the kernel to us
	flowOut               // from us to the kernel
	flowBidir             // both
)

func (c cell) String() string { return c.row() + ", " + ways[c.way()] }

// row is everything of a cell but which way the octets go.
func (c cell) row() string {
	s := fmt.Sprintf("%s, MTU %d, IPv%d, ", c.device, c.mtu, c.family)
	if c.weDial {
		s += "rnicd dials"
	} else {
		s += "kernel dials"
	}
	if c.streams > 1 {
		s += fmt.Sprintf(", %d streams", c.streams)
	}
	if c.us != "cubic" {
		s += ", we use " + c.us
	}
	if c.ecn {
		s += ", we ask for ECN"
	}
	if c.sysctl != "" {
		s += ", " + strings.TrimPrefix(c.sysctl, "net.ipv4.")
	}
	if c.fault != "" {
		s += ", bad network"
	}
	return s
}

// ways are the columns of the table.
var ways = [...]string{"kernel sends, CUBIC", "Reno", "BBR", "we send", "both send"}

func (c cell) way() int {
	switch {
	case c.flow == flowOut:
		return 3
	case c.flow == flowBidir:
		return 4
	}
	return slices.Index([]string{"cubic", "reno", "bbr"}, c.kernel)
}

// outcome is what a cell came to.
type outcome struct {
	gbit        float64 // or the sum of both directions
	retransmits int     // as both ends count them
	segments    int     // full ones that were sent, about
	netlab.Analysis
}

// resent is how many segments tshark saw twice. SYNs are another matter: a TAP that has just come
// up loses the kernel's answer to our first ARP, and is asked again when the SYN is due again too.
func (o *outcome) resent() int { return o.Retransmissions - o.SYNsAgain }

// clean says that nothing happened that a link without loss gives no cause for. A machine that
// keeps one end from running for milliseconds does: a segment whose ACK is late is sent again, one
// each time.
func (o *outcome) clean() bool {
	few := resentFew + o.segments/1000
	return max(o.retransmits, o.resent(), o.OutOfOrder, o.DuplicateACKs) <= few && o.LostSegments == 0
}

const resentFew = 2

// run measures a cell: n octets each way, over all streams, with a capture of it all. Our end is a
// command, the kernel's are sockets of this process.
func (c *cell) run(t testing.TB, n int) (o outcome) {
	t.Helper()
	l := interopLink(t, c.device, c.mtu, c.family, c.kernel)
	if key, value, set := strings.Cut(c.sysctl, "="); set {
		l.theirs.Sysctl(t, key, value)
	}
	dump := l.theirs.Capture(t, "any")
	n /= c.streams // of each
	mode := map[flow]string{flowIn: "sink", flowOut: "source", flowBidir: "echo"}[c.flow]
	words := []string{mode, "--json", "--congestion", c.us}
	if c.ecn {
		words = append(words, "--ecn")
	}
	if c.fault != "" {
		words = append(words, "--fault", c.fault)
	}
	if c.flow == flowOut {
		words = append(words, "-n", strconv.Itoa(n))
	}
	var us *process
	var dial func() *net.TCPConn
	if c.weDial {
		us = l.stream(t, append(words, "--wait", "30s", "-P", strconv.Itoa(c.streams),
			at(interopTheirs[c.family]))...)
		ln := l.listen(t) // only now, when its end has its congestion control
		dial = func() *net.TCPConn { return accepted(t, ln) }
	} else {
		us = l.stream(t, words...)
		us.Expect(t, 1, "^ready ")
		dial = func() *net.TCPConn { return l.dial(t, c.family) }
	}
	ends, octets := make([]kernelEnd, c.streams), randomOctets(n)
	for i := range ends {
		ends[i].TCPConn = dial()
	}
	var running sync.WaitGroup
	for i := range ends {
		running.Go(func() { ends[i].run(c.flow, octets) })
	}
	running.Wait()
	us.Expect(t, c.streams, `^\{`)
	if !c.weDial {
		us.Signal(t, syscall.SIGTERM)
	}
	require.Equal(t, 0, us.Wait(t), "%s", us)
	path := dump.Stop(t)
	o.Analysis = netlab.Analyse(t, path)
	if c.ecn { // the sender's data is marked as what routers may mark instead of drop
		require.NotZero(t, netlab.Count(t, path, "ip.dsfield.ecn == 2 && tcp.len > 1000"))
	}
	c.check(t, &o, n, us, ends)
	return o
}

// accepted is the next connection of a listener.
func accepted(t testing.TB, ln *net.TCPListener) *net.TCPConn {
	t.Helper()
	conn, err := ln.AcceptTCP()
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return conn
}

// kernelEnd is the kernel's end of a connection, and what came of it.
type kernelEnd struct {
	*net.TCPConn
	received    int
	retransmits int64
	err         error
}

// run sends octets, or takes as many, or both, and closes.
func (e *kernelEnd) run(f flow, octets []byte) {
	sent := make(chan error, 1)
	go func() {
		if f == flowOut {
			sent <- nil
			return
		}
		_, err := e.Write(octets)
		sent <- errors.Join(err, e.CloseWrite())
	}()
	n := len(octets)
	room := bytes.NewBuffer(make([]byte, 0, n+bytes.MinRead))
	_, err := room.ReadFrom(e)
	back := room.Bytes()
	e.err, e.received = errors.Join(err, <-sent), len(back)
	switch { // a source sends one block again and again
	case f == flowBidir && !bytes.Equal(octets, back),
		f == flowOut && len(back) == n &&
			!bytes.Equal(back[bytestream.LengthDefault:], back[:n-bytestream.LengthDefault]):
		e.err = errors.Join(e.err, errors.New("octets came changed"))
	}
	e.retransmits = bytestream.Retransmits(e.TCPConn)
	e.err = errors.Join(e.err, e.Close())
}

// check compares what the ends have counted, and looks at the capture for what no noise of the
// machine excuses.
func (c *cell) check(t testing.TB, o *outcome, n int, us *process, ends []kernelEnd) {
	t.Helper()
	for _, e := range ends {
		require.NoError(t, e.err)
		require.Equal(t, map[flow]int{flowIn: 0, flowOut: n, flowBidir: n}[c.flow], e.received)
		require.GreaterOrEqual(t, e.retransmits, int64(0))
		o.retransmits += int(e.retransmits)
	}
	lines := us.Lines(`^\{`)
	require.Len(t, lines, len(ends), "%s", us)
	seconds := 0.0
	for _, line := range lines {
		var r plainResult
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		require.Empty(t, r.Error)
		require.EqualValues(t, n, r.Bytes)
		require.EqualValues(t, map[flow]int{flowBidir: n}[c.flow], r.Back)
		o.retransmits += int(max(r.Resent, 0))
		seconds = max(seconds, r.Seconds)
	}
	all := n * len(ends)
	o.segments = all / c.mtu
	o.gbit = float64(all) * 8 / 1e9 / seconds
	if c.flow == flowBidir {
		o.gbit *= 2
	}
	require.Zero(t, o.Malformed)
	if c.device != deviceTap { // there, segments are cut and checksummed where that is needed
		require.Zero(t, o.BadChecksums)
		require.Equal(t, c.mtu, o.LargestIP)
	}
}
