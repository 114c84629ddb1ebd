package interop

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// dissectTimeout bounds tshark over all that the tests have said, some hundred MB.
const dissectTimeout = 5 * time.Minute

// dissect has tshark read the capture of a run: it must find nothing malformed in what our TCP said
// as iWARP. What it gets wrong is left out:
//   - what siw and the kernel's TCP said: a segment of theirs may begin within an FPDU, and
//     tshark takes octets of payload for a header;
//   - RPC over RDMA: its dissector guesses that short Sends are RPCs and then finds them malformed;
//   - ports: what one end of a connection happens to have may be another protocol's, so iWARP is
//     looked for first;
//   - the Ready-to-Receive frame (dialect rtr), which it takes for an FPDU, and so all that comes
//     after it.
//
// Of several FPDUs in a segment tshark reads the first, and what it does not take for iWARP it does
// not judge.
func dissect(path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), dissectTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "tshark", "--disable-protocol", "rpcordma", "-o",
		"tcp.try_heuristic_first:TRUE", "-n", "-r", path,
		"-Y",
		fmt.Sprintf(
			`(_ws.malformed && iwarp_mpa && ip.src in {%s,%s}) || tcp.payload contains "MPA ID Rt"`,
			ourAddr.Addr(), programAddr),
		"-T", "fields",
		"-e", "tcp.stream", "-e", "tcp.payload", "-e", "frame.number", "-e", "frame.protocols")
	var errs opening
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("tshark over %s: %w: %s", path, err, errs)
	}
	if bad := malformed(string(out)); bad != "" {
		return fmt.Errorf("tshark finds malformed frames in %s (stream, payload, frame, protocols):\n%s",
			path, bad[:min(len(bad), dissectShown)])
	}
	return nil
}

// malformed leaves out the lines of streams that have a Ready-to-Receive frame.
func malformed(lines string) string {
	const rtr = "4d504120494420527452" // "MPA ID Rt", and r or R: both are spoken
	known := map[string]bool{}
	for line := range strings.Lines(lines) {
		col := strings.Split(line, "\t")
		if len(col) > 1 && strings.HasPrefix(col[1], rtr[:len(rtr)-2]) {
			known[col[0]] = true
		}
	}
	var bad strings.Builder
	for line := range strings.Lines(lines) {
		if stream, _, _ := strings.Cut(line, "\t"); !known[stream] {
			bad.WriteString(line)
		}
	}
	return bad.String()
}

func TestMalformedLeavesOutReadyToReceive(t *testing.T) {
	const (
		early  = "7\t0014\t10\teth:ip:tcp:iwarp_mpa\n"
		rtr    = "7\t4d50412049442052747220\t11\teth:ip:tcp:iwarp_mpa\n"
		within = "8\t00144d504120494420527472\t12\teth:ip:tcp:iwarp_mpa\n" // not in front: no such frame
	)
	require.Equal(t, within, malformed(early+rtr+within))
	require.Empty(t, malformed(""))
}

const dissectShown = 2000

// opening keeps the first of what a program says.
type opening []byte

func (t *opening) Write(b []byte) (int, error) {
	*t = append(*t, b[:min(len(b), dissectShown-min(len(*t), dissectShown))]...)
	return len(b), nil
}
