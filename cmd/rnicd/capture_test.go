package main

import (
	"os/exec"
	"path/filepath"
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
				require.Equal(t, 2, dissected(t, file, "iwarp_rdma.opcode == 3"), "the closing message and its answer")
			}
		})
	}
}

// dissected is how many frames of the file tshark shows under the filter.
func dissected(t *testing.T, file, filter string) int {
	t.Helper()
	cmd := exec.Command("tshark", "-r", file, "--enable-heuristic", "iwarp_mpa_tcp", "-o", "tcp.check_checksum:TRUE",
		"-o", "ip.check_checksum:TRUE", "-T", "fields", "-e", "frame.number", "-Y", filter)
	out, err := cmd.Output()
	require.NoError(t, err, "%v", cmd.Args)
	return strings.Count(string(out), "\n")
}
