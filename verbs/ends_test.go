package verbs

import (
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/sample"
)

// However a program ends, the file of --capture has all that it could have seen of its connection,
// here up to the Terminate.
func TestCaptureOfProgramThatEnds(t *testing.T) {
	netlab.NeedTshark(t)
	hows := []string{
		"exit", "_exit", "abort", strconv.Itoa(int(syscall.SIGTERM)), strconv.Itoa(int(syscall.SIGKILL)),
	}
	if leftToMakeVerbs() {
		hows = sample.Of(t, 1, hows)
	}
	for _, how := range hows {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
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

// A program that exits as soon as it has a message has acknowledged it.
func TestLastMessageIsAcknowledged(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	p := l.runOn("--device roce", "gcc", l.compileAlone("last", "-lrdmacm", "-libverbs"),
		strconv.Itoa(sample.Count(20, 300)))
	allWell(t, p)
}

// A program sees at its next completion that its peer has ended the connection. Standard error has
// said why before it has exited, with --verbose and without; and so says vendor_err: who has sent
// the Terminate, its layer, type and code (DDP untagged buffer error: message too long).
func TestCauseOfTheEnd(t *testing.T) {
	t.Parallel()
	const cause = "message too long for the available buffer "
	for _, flags := range []string{"", "--device roce"} {
		for _, verbose := range []bool{true, false} {
			l := newLab(t)
			program := l.compileAlone("ends", "-lrdmacm", "-libverbs")
			for range 3 {
				run := func(args ...string) *netlab.Process {
					if verbose {
						return l.runOn(flags, "gcc", append([]string{program}, args...)...)
					}
					return l.runQuiet(flags, append([]string{program}, args...)...)
				}
				server := run("server")
				l.untilListening(7000)
				client := run("client", "127.0.0.1", "exit")
				bothEnd(t, client, server)
				for _, x := range []struct {
					p          *netlab.Process
					said, code string
				}{
					{client, "^rnicd: ended, .*: rnic: peer terminated the stream: .*" + cause,
						"^client: Work Request Flushed Error, vendor_err 0x11205$"},
					{server, "^rnicd: ended, .*: rnic: stream terminated: .*" + cause,
						"^server: local length error, vendor_err 0x21205$"},
				} {
					require.Len(t, x.p.Lines(x.said), 1, "verbose %v: %s", verbose, x.p)
					require.Len(t, x.p.Lines(x.code), 1, "%s", x.p)
				}
				if !verbose {
					require.Len(t, client.Lines("^rnicd: "), 1, "%s", client)
				}
			}
		}
	}
}
