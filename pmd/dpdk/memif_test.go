//go:build dpdk

package dpdk

import (
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
)

// memifSides joins two memif ports of one process: shared memory rings, agreed on over a Unix
// socket.
func memifSides(t *testing.T, client Config) (srv, cli *side) {
	t.Helper()
	sock := filepath.Join(t.TempDir(), "memif.sock")
	args := ",id=0,socket-abstract=no,socket=" + sock
	srv = openSide(t, Config{Vdev: "net_memif0,role=server" + args}, 1024, 2048)
	client.Vdev = "net_memif1,role=client" + args
	cli = openSide(t, client, 1024, 2048)
	up := func() bool { return srv.port.LinkUp() && cli.port.LinkUp() }
	require.True(t, eventually(up), "link: server %v, client %v", srv.port.LinkUp(), cli.port.LinkUp())
	// The client's first Rx gives the server buffers to send into.
	require.Zero(t, cli.queue.Rx(make([]mem.Buf, 4)))
	return srv, cli
}

func TestMemifPair(t *testing.T) {
	srv, cli := memifSides(t, Config{})
	bothWays(t, srv, cli, func(r *rand.Rand) int { return 60 + r.IntN(1400) })
	require.Zero(t, cli.queue.Stats().Copied)
}

// One end's Close makes the driver take the other end down on a thread of its own, while we close
// that too.
func TestMemifClosesInEitherOrder(t *testing.T) {
	r := newRand(t)
	for i := range 10 {
		first, second := memifSides(t, Config{})
		if i%2 == 1 {
			first, second = second, first
		}
		want := frame(r, 300)
		first.send(t, want)
		require.Equal(t, [][]byte{want}, second.receive(t, 1, nil))
		require.NoError(t, first.port.Close())
		require.NoError(t, second.port.Close())
	}
}

// The file of a server that has died is removed, that of one that lives is not, nor what is no
// socket.
func TestMemifStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memif.sock")
	p := &Port{name: "net_memif0",
		cfg: Config{Vdev: "net_memif0,role=server,socket-abstract=no,socket=" + path}}
	require.NoError(t, p.removeStaleSocket(), "there is none")
	l := must(net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"}))(t)
	l.SetUnlinkOnClose(false)
	require.NoError(t, p.removeStaleSocket())
	require.FileExists(t, path)
	require.NoError(t, l.Close())
	client := &Port{name: "net_memif0",
		cfg: Config{Vdev: "net_memif0,role=client,socket-abstract=no,socket=" + path}}
	require.NoError(t, client.removeStaleSocket())
	require.FileExists(t, path)
	require.NoError(t, p.removeStaleSocket())
	require.NoFileExists(t, path)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, p.removeStaleSocket())
	require.FileExists(t, path)
}
