package verbs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/skip"
)

// A disk by iSER (RFC 7145) between Debian's tgtd and libiscsi: what the initiator writes is in
// the target's file, and it finds what is there. One test in each process: libiscsi 1.19 forgets
// to clear a second connection.
func TestISER(t *testing.T) {
	for program, of := range map[string]string{"tgtd": "tgt", "tgtadm": "tgt",
		"iscsi-test-cu": "libiscsi-bin"} {
		if _, err := exec.LookPath(program); err != nil {
			skip.Missing(t, "needs %s, of Debian's package %s", program, of)
		}
	}
	if testing.Short() {
		return
	}
	const target, initiator, iserPort = "iqn.2026-01.org.example:disk",
		"iqn.2026-01.org.example:initiator", 3260
	dir := t.TempDir()
	t.Setenv("TGT_IPC_SOCKET", filepath.Join(dir, "socket"))
	disk := filepath.Join(dir, "disk")
	require.NoError(t, os.WriteFile(disk, make([]byte, 16<<20), 0o600))
	l := newLab(t)
	// Its pings, each five seconds, may follow a login so closely that libiscsi has no buffer yet.
	server := l.run("tgt", "tgtd", "-f", "-d", "0", "--iscsi", "portal=127.0.0.1:3261", "--iser",
		"nop=off")
	l.untilListening(iserPort)
	for _, args := range []string{
		"--op new --mode target --tid 1 -T " + target,
		"--op new --mode logicalunit --tid 1 --lun 1 -b " + disk,
		"--op bind --mode target --tid 1 -I ALL",
		"--op bind --mode target --tid 1 -Q " + initiator,
	} {
		out, err := exec.Command("tgtadm", append([]string{"--lld", "iser"}, strings.Fields(args)...)...).
			CombinedOutput()
		require.NoError(t, err, "%s: %s\n%s", args, out, server)
	}
	for _, test := range []string{"Write10.Simple", "OrWrite.Simple", "Verify10.Simple",
		"Verify10.Mismatch", "Read10.Simple"} {
		client := l.run("libiscsi-bin", "iscsi-test-cu", "--dataloss", "-t", "SCSI."+test, "-i",
			initiator, "iser://127.0.0.1:3260/"+target+"/1")
		require.Zero(t, client.Wait(t), "%s: %s\nserver: %s", test, client, server)
		client.Expect(t, 1, `^ +tests +1 +1 +1 +0 +0`)
		if test == "Write10.Simple" {
			got := must(os.ReadFile(disk))(t)
			require.True(t, bytes.HasPrefix(got, bytes.Repeat([]byte{0xa6}, 512)), "% x", got[:16])
		}
	}
}
