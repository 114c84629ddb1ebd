package main

import (
	"encoding/binary"
	"encoding/hex"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/internal/skip"
)

// A capture opens in tshark, which finds the layers and no bad checksum.
func TestCapture(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		skip.Missing(t, "needs tshark to look at it")
	}
	for _, c := range sample.Of(t, 1, []struct {
		name   string
		args   []string
		tagged int // segments at least, of a MiB
	}{
		{"no markers", []string{"--no-markers"}, 1 << 20 / 1460},
		// tshark 4.0 counts one marker too many in a segment that ends where the next one is due
		// (number_of_markers in packet-iwarp-mpa.c), and gives the connection up there.
		{"markers", nil, 10},
	}) {
		t.Run(c.name, func(t *testing.T) {
			ns := newNamespace(t)
			file := filepath.Join(t.TempDir(), "frames.pcapng")
			server := ns.serving(t, append([]string{"--capture", file}, c.args...)...)
			ns.put(t, randomFile(t, 1<<20))
			ns.stop(t, server)
			require.Equal(t, 1, dissected(t, file, "iwarp_mpa.req"))
			require.Equal(t, 1, dissected(t, file, "iwarp_mpa.rep"))
			require.GreaterOrEqual(t, dissected(t, file, "iwarp_ddp.tagged_flag == 1"), c.tagged)
			require.Zero(t, dissected(t, file, "tcp.checksum.status == 0 || ip.checksum.status == 0"))
			require.Zero(t, dissected(t, file, "_ws.malformed"))
			if c.tagged > 10 {
				require.Equal(t, 2, dissected(t, file, "iwarp_rdma.opcode == 3"),
					"the closing message and its answer")
			}
		})
	}
}

// What the kernel's TCP makes of a put with markers: segments of one length, which begin with
// FPDUs, so that it sends many of them as one. Its markers are judged by the octets that land,
// and by tshark.
func TestMarkersLeaveSegmentsFull(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		skip.Missing(t, "needs tshark to look at it")
	}
	ns := newNamespace(t)
	file := filepath.Join(t.TempDir(), "frames.pcapng")
	server := ns.serving(t, "--capture", file)
	ns.put(t, randomFile(t, 3<<20))
	ns.stop(t, server)
	const requestLen = 20 + 16 // with xfer's private data
	stream, begins := map[int][]byte{}, []int{}
	for line := range strings.Lines(fields(t, file, "tcp.dstport == 7174 && tcp.len > 0", "tcp.seq",
		"tcp.payload")) {
		seq, text, _ := strings.Cut(strings.TrimSpace(line), "\t")
		at := must(strconv.Atoi(seq))(t)
		octets := must(hex.DecodeString(strings.ReplaceAll(text, ":", "")))(t)
		if at -= 1 + requestLen; at >= 0 && stream[at] == nil {
			stream[at], begins = octets, append(begins, at)
		}
	}
	slices.Sort(begins)
	var all []byte
	full := 0
	for _, at := range begins {
		if len(stream[at]) == 1448 {
			full++
		}
		all = append(all[:min(at, len(all))], stream[at]...)
	}
	require.Greater(t, len(all), 3<<20)
	starts := map[int]bool{}
	for at := 0; at < len(all); {
		starts[at] = true
		at = fpduEnd(all, at)
	}
	aligned := 0
	for _, at := range begins {
		if starts[at] {
			aligned++
		}
	}
	require.Greater(t, full, len(begins)*95/100, "full segments, of %d", len(begins))
	require.Greater(t, aligned, len(begins)*95/100, "segments that begin with an FPDU, of %d",
		len(begins))
}

// fpduEnd is where the FPDU ends that begins at octet at of a marked stream: a marker before every
// 512th octet, ULPDU_Length, ULPDU, PAD to a multiple of four, CRC.
func fpduEnd(stream []byte, at int) int {
	step := func(n int) {
		for ; n > 0; n -= 4 {
			if at%512 == 0 {
				at += 4
			}
			at += 4
		}
	}
	head := at
	if head%512 == 0 {
		head += 4
	}
	step((2 + int(binary.BigEndian.Uint16(stream[head:])) + 3) &^ 3)
	step(4)
	return at
}

// dissected is how many frames of the file tshark shows under the filter.
func dissected(t *testing.T, file, filter string) int {
	t.Helper()
	return strings.Count(fields(t, file, filter, "frame.number"), "\n")
}

// fields are what tshark finds in the frames that it shows under the filter, a line each.
func fields(t *testing.T, file, filter string, names ...string) string {
	t.Helper()
	cmd := exec.Command("tshark", "-r", file, "--enable-heuristic", "iwarp_mpa_tcp", "-o",
		"tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-T", "fields", "-Y", filter)
	for _, n := range names {
		cmd.Args = append(cmd.Args, "-e", n)
	}
	out, err := cmd.Output()
	require.NoError(t, err, "%v", cmd.Args)
	return string(out)
}
