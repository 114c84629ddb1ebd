package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
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

// iperf3 starts the kernel's end.
func (l *interopLab) iperf3(t testing.TB, args ...string) *process {
	t.Helper()
	return l.theirs.Start(t, exec.Command("iperf3", args...))
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
	gbit        float64 // of the receiver, or the sum of both
	retransmits int     // as the senders count them
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

// iperfEnd is the part of iperf3's report that the cells look at.
type iperfEnd struct {
	Error string
	End   struct {
		SumSent         iperfSum `json:"sum_sent"`
		SumReceived     iperfSum `json:"sum_received"`
		SumSentBack     iperfSum `json:"sum_sent_bidir_reverse"`
		SumReceivedBack iperfSum `json:"sum_received_bidir_reverse"`
	}
}

type iperfSum struct {
	Bytes       uint64
	Bits        float64 `json:"bits_per_second"`
	Retransmits int
}

// run measures a cell: n octets each way over iperf3, with a capture of it all.
func (c *cell) run(t testing.TB, n uint64) (o outcome) {
	t.Helper()
	l := interopLink(t, c.device, c.mtu, c.family, c.kernel)
	if key, value, set := strings.Cut(c.sysctl, "="); set {
		l.theirs.Sysctl(t, key, value)
	}
	dump := l.theirs.Capture(t, "any")
	args := []string{"-n", strconv.FormatUint(n, 10), "-P", strconv.Itoa(c.streams)}
	switch {
	case c.flow == flowBidir:
		args = append(args, "--bidir")
	case (c.flow == flowIn) == c.weDial:
		args = append(args, "-R")
	}
	var server, client, us, them *process
	ours := []string{"--json", "--congestion", c.us}
	if c.ecn {
		ours = append(ours, "--ecn")
	}
	if c.fault != "" {
		ours = append(ours, "--fault", c.fault)
	}
	if c.weDial {
		client = l.stream(
			t,
			append(append([]string{"client", "--wait", "30s", interopTheirs[c.family].Addr().String()},
				ours...), args...)...)
		server = l.iperf3(t, "-s", "-1", "-J") // only now, when its end has its congestion control
		us, them = client, server
	} else {
		server = l.stream(t, append([]string{"server", "--once"}, ours...)...)
		server.Expect(t, 1, "^ready ")
		client = l.iperf3(t, append(args, "-J", "-c", interopOurs[c.family].Addr().String())...)
		us, them = server, client
	}
	require.Equal(t, 0, client.Wait(t), "%s%s", client, server)
	require.Equal(t, 0, server.Wait(t), "%s%s", client, server)
	path := dump.Stop(t)
	o.Analysis = netlab.Analyse(t, path)
	if c.ecn { // the sender's data is marked as what routers may mark instead of drop
		require.NotZero(t, netlab.Count(t, path, "ip.dsfield.ecn == 2 && tcp.len > 1000"))
	}
	c.check(t, &o, n, jsonLine[iperfEnd](t, us), iperfReport(t, them))
	return o
}

// iperfReport reads what iperf3 -J printed.
func iperfReport(t testing.TB, p *process) (r iperfEnd) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(p.String()), &r), "%s", p)
	require.Empty(t, r.Error)
	return r
}

// check compares the two reports, and looks at the capture for what no noise of the machine
// excuses.
func (c *cell) check(t testing.TB, o *outcome, n uint64, us, them iperfEnd) {
	t.Helper()
	in, out := us.End.SumReceived, us.End.SumSent
	kernelOut, kernelIn := them.End.SumSent, them.End.SumReceived
	o.gbit, o.retransmits, o.segments = in.Bits/1e9, out.Retransmits, int(out.Bytes)/c.mtu
	if c.flow == flowBidir {
		o.gbit += us.End.SumReceivedBack.Bits / 1e9
		o.retransmits += us.End.SumSentBack.Retransmits
	}
	if c.flow != flowBidir { // there the client ends the test when it has sent n itself
		require.GreaterOrEqual(t, out.Bytes, n)
	}
	if c.flow == flowIn {
		require.Equal(t, kernelOut.Bytes, in.Bytes, "what the kernel sent, and what came")
	} else { // iperf3 leaves in its sockets what it had not read when the test ended
		require.LessOrEqual(t, kernelIn.Bytes, out.Bytes)
	}
	require.Zero(t, o.Malformed)
	if c.device != deviceTap { // there, segments are cut and checksummed where that is needed
		require.Zero(t, o.BadChecksums)
		require.Equal(t, c.mtu, o.LargestIP)
	}
}
