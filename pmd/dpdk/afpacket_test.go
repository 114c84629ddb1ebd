//go:build dpdk

package dpdk

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// net_af_packet on one end of a veth pair, a raw socket on the other.
func TestAFPacketOnVeth(t *testing.T) {
	start(t)
	ownNamespace(t)
	command(t, "ip", "link", "add", "rnic0", "type", "veth", "peer", "name", "rnic1")
	for _, i := range []string{"rnic0", "rnic1"} {
		command(t, "ip", "link", "set", i, "up")
	}
	// The driver's frames of 2048 octets do not fit after the headroom of a Buf of 2048.
	s := openSide(t, Config{Vdev: "net_af_packet0,iface=rnic0"}, 1024, 2304)
	fd := rawSocket(t, "rnic1")
	r := newRand(t)
	for range 200 {
		want := frame(r, 60+r.IntN(1400))
		s.send(t, want)
		require.Equal(t, want, readRaw(t, fd, isOurs))
		want = frame(r, 60+r.IntN(1400))
		must(unix.Write(fd, want))(t)
		require.Equal(t, want, s.receive(t, 1, isOurs)[0])
	}
	s.settled(t)
}
