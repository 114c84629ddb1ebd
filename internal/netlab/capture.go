package netlab

import (
	"bytes"
	"context"
	"crypto/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/skip"
)

// Capture is a tcpdump that writes down what passes a device.
type Capture struct {
	ns     *Namespace
	device string
	path   string
	dump   *Process
}

// markerType is the EtherType of the frame that ends a capture: local experimental (IEEE 802,
// 88-B5).
const markerType = 0x88B5

// Capture starts one and returns when it sees the device's frames. Device "any" are all of the
// namespace; a TAP whose process may end first needs that, because a device without a carrier takes
// no frame to end the capture.
func (ns *Namespace) Capture(t testing.TB, device string) *Capture {
	t.Helper()
	c := &Capture{ns: ns, device: device, path: filepath.Join(t.TempDir(), device+".pcap")}
	// Without --immediate-mode the ring's frames have the size they have, and more of them fit.
	c.dump = ns.Start(t, exec.Command("tcpdump", "-i", device, "-n", "-U", "-s", "0", "-B", "65536",
		"-Z", "root", "-w", c.path))
	c.dump.Expect(t, 1, "listening on ")
	return c
}

// Stop ends the capture and returns its file. It sends a frame of its own and waits to find it
// there, so that everything that went before is there too. The other end of the device sees that
// frame.
func (c *Capture) Stop(t testing.TB) (path string) {
	t.Helper()
	mark := make([]byte, 64)
	_, _ = rand.Read(mark)
	c.ns.Do(func() {
		device := c.device
		if device == "any" {
			device = "lo"
		}
		ifi, err := net.InterfaceByName(device)
		require.NoError(t, err)
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		defer unix.Close(fd)
		to := &unix.SockaddrLinklayer{Protocol: markerType>>8 | markerType&0xFF<<8,
			Ifindex: ifi.Index, Halen: 6}
		to.Addr[5], to.Addr[0] = 1, 2
		require.NoError(t, unix.Sendto(fd, mark, 0, to))
	})
	for until := time.Now().Add(Patience); ; {
		b, err := os.ReadFile(c.path)
		require.NoError(t, err)
		if bytes.Contains(b, mark) {
			break
		}
		require.True(t, time.Now().Before(until), "the capture does not come to its end: %s", c.dump)
		<-time.After(5 * time.Millisecond)
	}
	c.dump.Signal(t, syscall.SIGINT)
	require.Equal(t, 0, c.dump.Wait(t), "%s", c.dump)
	require.Empty(t, c.dump.Lines("[1-9][0-9]* packets dropped by kernel"), "the capture has gaps")
	return c.path
}

// Analysis is what tshark finds in a capture: numbers of frames.
type Analysis struct {
	TCP             int // frames that carry TCP
	Connections     int
	Retransmissions int // all kinds of it: fast and spurious ones as well
	SYNsAgain       int // of those, SYNs
	OutOfOrder      int
	LostSegments    int // a segment before this one was not captured
	DuplicateACKs   int
	ZeroWindows     int
	WindowsFull     int
	ACKedUnseen     int // acknowledges what was not captured
	Resets          int
	BadChecksums    int // IPv4, TCP, UDP, ICMP, ICMPv6
	Malformed       int
	LargestIP       int // octets; more than the MTU means that a device segments
}

// fields are tshark's, in the order of Analyse's columns.
var fields = []string{
	"tcp.stream", "tcp.analysis.retransmission", "tcp.analysis.out_of_order",
	"tcp.analysis.lost_segment",
	"tcp.analysis.duplicate_ack", "tcp.analysis.zero_window", "tcp.analysis.window_full",
	"tcp.analysis.ack_lost_segment",
	"tcp.flags.reset", "ip.checksum.status", "tcp.checksum.status", "udp.checksum.status",
	"icmp.checksum.status",
	"icmpv6.checksum.status", "_ws.malformed", "ip.len", "ipv6.plen", "tcp.flags.syn",
	"tcp.checksum", "tcp.checksum_calculated",
}

// NeedTshark skips a test where there is no tshark to look at captures, or no tcpdump to make them.
func NeedTshark(t testing.TB) {
	t.Helper()
	for _, tool := range []string{"tshark", "tcpdump"} {
		if _, err := exec.LookPath(tool); err != nil {
			skip.Missing(t, "needs scripts/deps.sh test: %v", err)
		}
	}
}

// Analyse has tshark follow the TCP connections of a capture and verify all checksums.
func Analyse(t testing.TB, path string) (a Analysis) {
	t.Helper()
	// Payload is data: by its port or its look tshark would take it for something else, and find
	// that malformed.
	args := []string{"-r", path, "-n", "-T", "fields", "-E", "separator=,", "-E", "occurrence=f", "-Y",
		"ip || ipv6",
		"-d", "tcp.port==1-65535,data"}
	for _, proto := range []string{"ip", "tcp", "udp"} {
		args = append(args, "-o", proto+".check_checksum:TRUE")
	}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	streams := map[string]bool{}
	for line := range strings.Lines(tshark(t, args)) {
		col := strings.Split(strings.TrimSuffix(line, "\n"), ",")
		require.Len(t, col, len(fields), "%q", line)
		a.add(t, col, streams)
	}
	a.Connections = len(streams)
	return a
}

// Count is the number of frames of a capture that pass a display filter of tshark.
func Count(t testing.TB, path, filter string) int {
	t.Helper()
	return strings.Count(
		tshark(t, []string{"-r", path, "-n", "-T", "fields", "-e", "frame.number", "-Y", filter}), "\n")
}

// MPA has tshark look for MPA, DDP and RDMAP in a capture. For each frame with a whole FPDU that it
// reads, in order, the result has the fields asked for; text is everything it says of the start-up
// frames and FPDUs, their CRCs with it.
func MPA(t testing.TB, path string, fields ...string) (rows [][]string, text string) {
	t.Helper()
	args := []string{"-r", path, "-n", "--enable-heuristic", "iwarp_mpa_tcp",
		// they see themselves in any payload
		"--disable-protocol", "rpcordma", "--disable-protocol", "smb_direct"}
	list := append(slices.Clone(args), "-T", "fields", "-E", "separator=,", "-Y", "iwarp_mpa.fpdu")
	for _, f := range fields {
		list = append(list, "-e", f)
	}
	for line := range strings.Lines(tshark(t, list)) {
		rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), ","))
	}
	return rows, tshark(t, append(args, "-O", "iwarp_mpa", "-Y", "iwarp_mpa"))
}

// tshark runs it and returns what it printed.
func tshark(t testing.TB, args []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, "tshark", args...).Output()
	require.NoError(t, err, "%v", args)
	return string(out)
}

// add counts one frame.
func (a *Analysis) add(t testing.TB, col []string, streams map[string]bool) {
	t.Helper()
	if col[0] != "" {
		a.TCP++
		streams[col[0]] = true
	}
	for i, n := range []*int{
		&a.Retransmissions, &a.OutOfOrder, &a.LostSegments, &a.DuplicateACKs, &a.ZeroWindows,
		&a.WindowsFull, &a.ACKedUnseen,
	} {
		if col[1+i] != "" {
			*n++
		}
	}
	set := func(flag string) bool { return flag == "1" || flag == "True" }
	if set(col[8]) {
		a.Resets++
	}
	if col[1] != "" && set(col[17]) {
		a.SYNsAgain++
	}
	// Linux may write 0xffff for 0, which is as good (RFC 1624 section 3); tshark disagrees.
	sameZero := col[18] == "0xffff" && col[19] == "0x0000"
	for i, status := range col[9:14] {
		if status == "0" && !(i == 1 && sameZero) { // PROTO_CHECKSUM_E_BAD; the second is TCP's
			a.BadChecksums++
		}
	}
	if col[14] != "" {
		a.Malformed++
	}
	for i, header := range []int{0, 40} { // ip.len counts its header, ipv6.plen does not
		if text := col[15+i]; text != "" {
			n, err := strconv.Atoi(text)
			require.NoError(t, err)
			a.LargestIP = max(a.LargestIP, n+header)
		}
	}
}
