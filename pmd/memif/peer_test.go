package memif

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/mem"
)

// peerVar makes this test binary a peer that sends back what it receives: role, kind and socket,
// with commas.
const peerVar = "RNICD_MEMIF_TEST_PEER"

func TestMain(m *testing.M) {
	if what := os.Getenv(peerVar); what != "" {
		fmt.Println(echo(strings.SplitN(what, ",", 3)))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// echo returns only with an error.
func echo(what []string) error {
	cfg := mem.PoolConfig{Bufs: 512, Stride: stride}
	a, err := hugepages.New(hugepages.Config{Bytes: int64(cfg.Bytes()), Page: hugepages.Normal,
		Node: hugepages.AnyNode, Memfd: true})
	if err != nil {
		return err
	}
	var p *Port
	if what[0] == "client" {
		c := Config{Socket: what[2]}
		if what[1] == "zero" {
			c.Arena = a
		}
		p, err = Dial(c)
	} else {
		var l *Listener
		if l, err = Listen(ListenConfig{Socket: what[2]}); err != nil {
			return err
		}
		p, err = l.Bind(BindConfig{})
	}
	if err != nil {
		return err
	}
	pool, err := mem.NewPool(a, cfg)
	if err != nil {
		return err
	}
	q, err := p.Open(0, pool)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	bufs := make([]mem.Buf, 32)
	for {
		n := q.Rx(bufs)
		q.Tx(bufs[:n])
		pool.FreeN(bufs[:n])
		yield()
	}
}

// peer starts such a process and waits until it is at work.
func peer(t testing.TB, role string, k kind, socket string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), peerVar+"="+role+","+k.name+","+socket)
	cmd.Stderr = os.Stderr
	out := must(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line := must(bufio.NewReader(out).ReadString('\n'))(t)
	require.Equal(t, "ready\n", line)
	return cmd
}

// echoed sends frames until so many have come back, each as it was sent. Frames that the peer has
// no room for are lost, so they are numbered.
func echoed(t testing.TB, s *side, want int) {
	t.Helper()
	ctx := within(t)
	next, got := byte(0), 0
	for got < want {
		require.NoError(t, ctx.Err(), "%d of %d; %+v", got, want, s.queues[0].Counters())
		f := make([]byte, 1000)
		for i := range f {
			f[i] = next + byte(i)
		}
		next++
		s.try(f)
		for _, f := range s.take(0) {
			for i := range f {
				require.Equal(t, f[0]+byte(i), f[i])
			}
			require.Len(t, f, 1000)
			got++
		}
		yield()
	}
}

// try sends a frame if there is a Buf and room for it.
func (s *side) try(f []byte) {
	b := s.pools[0].Alloc()
	if b == mem.NoBuf {
		return
	}
	s.pools[0].Desc(b).Len = uint32(len(f))
	copy(s.pools[0].Data(b), f)
	s.queues[0].Tx([]mem.Buf{b})
	s.pools[0].Free(b)
}

// left polls a side without a link until its queues have left the rings.
func (s *side) left(t testing.TB) {
	t.Helper()
	for ctx := within(t); ; s.poll() {
		gone := true
		for _, q := range s.queues {
			gone = gone && q.session == nil
		}
		if gone {
			return
		}
		require.NoError(t, ctx.Err())
	}
}

// A peer that is killed in the middle leaves nothing behind: no descriptor, no mapping, no Buf,
// in either role; the next one is served, and a client between other processes does not notice.
func TestKilledPeers(t *testing.T) {
	kills := sample.Count(5, 20)
	for _, k := range kinds {
		t.Run("client/"+k.name, func(t *testing.T) {
			client, server, l := newPair(t, pairConfig{client: Config{ID: 1}, bind: BindConfig{ID: 1}})
			victim := bind(t, l, BindConfig{}, 512)
			files, maps := 0, 0
			for i := range kills {
				cmd := peer(t, "client", k, l.cfg.Socket)
				joined(t, victim)
				echoed(t, victim, 100)
				require.NoError(t, cmd.Process.Kill())
				for ctx := within(t); victim.port.LinkUp(); bothWays(t, newRand(t), client, server, 1) {
					require.NoError(t, ctx.Err())
					victim.try(make([]byte, 60))
					victim.poll()
				}
				require.Error(t, cmd.Wait())
				victim.left(t)
				require.Equal(t, 512, victim.pools[0].Available())
				victim.port.unmapped.Wait()
				if i == 0 {
					files, maps = openFiles(t), mappings(t)
				}
			}
			settled(t, files, maps)
			require.Zero(t, server.queues[0].Drops())
		})
		t.Run("server/"+k.name, func(t *testing.T) {
			socket := socketPath(t)
			client := dialSide(t, Config{Socket: socket}, k.zero, 512)
			files, maps := 0, 0
			for i := range kills {
				cmd := peer(t, "server", k, socket) // takes over the socket that the last one left
				joined(t, client)
				echoed(t, client, 100)
				require.NoError(t, cmd.Process.Kill())
				for ctx := within(t); client.port.LinkUp(); {
					require.NoError(t, ctx.Err())
					client.try(make([]byte, 60))
					client.poll()
				}
				require.Error(t, cmd.Wait())
				client.left(t)
				require.Equal(t, 512, client.pools[0].Available())
				client.port.unmapped.Wait()
				if i == 0 {
					files, maps = openFiles(t), mappings(t)
				}
			}
			settled(t, files, maps)
		})
	}
}
