package interop

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// dissectTimeout bounds tshark over all that the tests have said, some hundred MB.
const dissectTimeout = 5 * time.Minute

// dissect has tshark read the capture of a run: it must find nothing malformed in what either side said. Left out is its dissector of RPC
// over RDMA, which guesses that short Sends are RPCs and then finds them malformed. (Of several FPDUs in a segment, of an FPDU
// in several, and of markers tshark does not always find the beginning; what it does not take for iWARP it does not judge.)
func dissect(path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), dissectTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "tshark", "--disable-protocol", "rpcordma", "-n", "-r", path, "-Y", "_ws.malformed")
	var errs opening
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("tshark over %s: %w: %s", path, err, errs)
	}
	if lines := strings.TrimSpace(string(out)); lines != "" {
		return fmt.Errorf("tshark finds malformed frames in %s:\n%s", path, lines[:min(len(lines), dissectShown)])
	}
	return nil
}

const dissectShown = 2000

// opening keeps the first of what a program says.
type opening []byte

func (t *opening) Write(b []byte) (int, error) {
	*t = append(*t, b[:min(len(b), dissectShown-min(len(*t), dissectShown))]...)
	return len(b), nil
}
