package memif

import (
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/skip"
	"github.com/rnicd/rnicd/mem"
)

// testpmd is DPDK's, with net_memif, as a peer that sends back what it receives, on the same
// queue, after start.
//
// Not before the link is up: its driver (22.11 and later) looks for a ring in a region first, and
// then whether it is connected. A server whose thread is preempted in between, while the region
// is mapped, reads at the ring's offset from address 0, and dies. That of its first queue is 0,
// which it notices; with three queues one run in eight ended so on a busy machine.
type testpmd struct {
	*netlab.Process
	commands io.Writer
}

func (p *testpmd) start(t testing.TB) {
	t.Helper()
	must(io.WriteString(p.commands, "start\n"))(t)
}

func newTestpmd(t testing.TB, role, socket string, queues int, more string) *testpmd {
	t.Helper()
	path, err := exec.LookPath("dpdk-testpmd")
	if err != nil {
		skip.Missing(t, "no dpdk-testpmd: install Debian's dpdk-dev")
	}
	cmd := exec.Command(path, "--no-huge", "-m", "256", "--no-pci", "--no-telemetry", "--no-shconf",
		"--file-prefix", filepath.Base(t.TempDir())+filepath.Base(filepath.Dir(socket)), "-l", "0,1",
		"--vdev", fmt.Sprintf("net_memif0,role=%s,id=7,socket-abstract=no,secret=psst,socket=%s%s", role,
			socket, more), "--", "--forward-mode=io", "--port-topology=loop", "--interactive",
		"--no-flush-rx", "--total-num-mbufs=8192", "--no-mlockall", fmt.Sprintf("--rxq=%d", queues),
		fmt.Sprintf("--txq=%d", queues))
	stdin := must(cmd.StdinPipe())(t)
	p := &testpmd{netlab.Start(t, cmd), stdin}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p)
		}
	})
	return p
}

// ourSide is ours for a peer of DPDK's in the given role.
func ourSide(t testing.TB, role, socket string, queues int, k kind) *side {
	t.Helper()
	if role == "server" {
		return dialSide(t, Config{Socket: socket, ID: 7, Secret: "psst", Queues: queues}, k.zero, 512)
	}
	return bind(t, listen(t, ListenConfig{Socket: socket}),
		BindConfig{ID: 7, Secret: "psst", Queues: queues}, 512)
}

// reflected sends bursts on all queues and wants each to come back on its queue as it was.
func reflected(t testing.TB, s *side, rounds, longest int) {
	t.Helper()
	r := newRand(t)
	for range rounds {
		sent := make([][][]byte, len(s.queues))
		for q := range s.queues {
			for range 1 + r.IntN(30) {
				sent[q] = append(sent[q], frame(r, 60+r.IntN(longest-59)))
			}
			for _, f := range sent[q] {
				b := s.buf(t, q, f)
				// it may not have posted buffers yet
				for ctx := within(t); s.queues[q].Tx([]mem.Buf{b}) == 0; yield() {
					require.NoError(t, ctx.Err())
				}
				s.pools[q].Free(b)
			}
		}
		for q := range s.queues {
			require.Equal(t, sent[q], s.receive(t, q, len(sent[q])))
		}
	}
}

// Every octet of frames to and from DPDK's driver, in both roles, with one queue and with
// several; the longest are the driver's own longest. When it ends, or is killed, the link goes
// down.
func TestTestpmd(t *testing.T) {
	for _, role := range []string{"client", "server"} {
		for _, queues := range []int{1, 3} {
			for _, k := range kinds {
				if k.zero && role == "client" {
					continue // the client's choice, and it is not ours
				}
				t.Run(fmt.Sprintf("%s/%d/%s", role, queues, k.name), func(t *testing.T) {
					socket := socketPath(t)
					s := ourSide(t, role, socket, queues, k)
					cmd := newTestpmd(t, role, socket, queues, "")
					joined(t, s)
					cmd.start(t)
					peer, ok := s.port.Peer()
					require.True(t, ok)
					require.Contains(t, peer.Name, "DPDK")
					require.Equal(t, "net_memif0", peer.Interface)
					require.EqualValues(t, cmd.PID(), peer.PID)
					reflected(t, s, 200, 1514)
					for q := range s.queues {
						require.Zero(t, s.queues[q].Drops())
					}
					signal := unix.SIGINT
					if queues > 1 {
						signal = unix.SIGKILL
					}
					cmd.Signal(t, signal)
					require.NoError(t, s.port.AwaitLink(within(t), false))
					s.closed(t)
				})
			}
		}
	}
}

// Frames in several buffers of the other end's: DPDK's server fills small buffers of ours, its
// client brings small ones.
func TestTestpmdChains(t *testing.T) {
	t.Run("server", func(t *testing.T) {
		socket := socketPath(t)
		p := must(Dial(Config{Socket: socket, ID: 7, Secret: "psst", BufferBytes: 256, RingLog2: 10}))(t)
		s := openSide(t, p, nil, 512)
		cmd := newTestpmd(t, "server", socket, 1, "")
		joined(t, s)
		cmd.start(t)
		reflected(t, s, 200, 1514)
		require.Zero(t, s.queues[0].Drops())
		s.closed(t)
	})
	t.Run("client", func(t *testing.T) {
		socket := socketPath(t)
		s := ourSide(t, "client", socket, 1, kinds[0])
		cmd := newTestpmd(t, "client", socket, 1, ",bsize=512,rsize=12")
		joined(t, s)
		cmd.start(t)
		// One lap of its ring: in the next, its driver (22.11) leaves the flag of chains in descriptors
		// of frames that are not.
		reflected(t, s, 40, 1514)
		require.Zero(t, s.queues[0].Drops())
		s.closed(t)
	})
}
