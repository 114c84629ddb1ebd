package verbs

import (
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
)

// However a program ends, the file of --capture has all that it could have seen of its connection,
// here up to the Terminate.
func TestCaptureOfProgramThatEnds(t *testing.T) {
	netlab.NeedTshark(t)
	for _, how := range []string{
		"exit", "_exit", "abort", strconv.Itoa(int(syscall.SIGTERM)), strconv.Itoa(int(syscall.SIGKILL)),
	} {
		t.Run(how, func(t *testing.T) {
			l := newLab(t)
			program := l.compileAlone("ends", "-lrdmacm", "-libverbs")
			file := filepath.Join(t.TempDir(), "x.pcapng")
			server := l.run("gcc", program, "server")
			l.untilListening(7000)
			client := l.runOn(tapFlags+" --capture "+file, "gcc", program, "client", "10.9.0.1", how)
			client.Wait(t)
			require.Zero(t, server.Wait(t), "%s", server)
			client.Expect(t, 1, "^client: Work Request Flushed Error")
			require.Equal(t, 1, netlab.Count(t, file, "tcp.flags.syn == 1 && tcp.flags.ack == 0"))
			require.Equal(t, 2, netlab.Count(t, file, "ip.src == 10.9.0.1 && tcp.len > 0"),
				"the start-up frame and the Terminate, with which it ended")
		})
	}
}
