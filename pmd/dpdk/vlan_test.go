//go:build dpdk

package dpdk

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/mem"
)

// vlanLab is net_af_packet on one end of a veth pair, and a raw socket on the other, which tells of
// tags that the kernel took off.
func vlanLab(t *testing.T, cfg Config) (s *side, fd int) {
	t.Helper()
	start(t)
	ownNamespace(t)
	vethPair(t, 1)
	cfg.Vdev = "net_af_packet0,iface=rnic0"
	s = openSide(t, cfg, 1024, 2304)
	fd = rawSocket(t, "rnic1")
	require.NoError(t, unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1))
	return s, fd
}

// tagged is f with an 802.1Q tag.
func tagged(f []byte, vlan byte) []byte {
	return append(append(bytes.Clone(f[:12]), 0x81, 0, 0, vlan), f[12:]...)
}

// readTagged reads a frame of ours as it was on the wire: with its tag.
func readTagged(t *testing.T, fd int) (got []byte) {
	t.Helper()
	buf, more := make([]byte, 2048), make([]byte, 256)
	eventually(func() bool {
		n, m, _, _, err := unix.Recvmsg(fd, buf, more, 0)
		if err != nil {
			return false
		}
		f := bytes.Clone(buf[:n])
		cs := must(unix.ParseSocketControlMessage(more[:m]))(t)
		for _, c := range cs {
			if c.Header.Type != unix.PACKET_AUXDATA {
				continue
			}
			aux := (*unix.TpacketAuxdata)(unsafe.Pointer(&c.Data[0]))
			if aux.Status&unix.TP_STATUS_VLAN_VALID != 0 {
				f = tagged(f, byte(aux.Vlan_tci))
			}
		}
		if bytes.Contains(f[12:min(18, len(f))], []byte{0x88, 0xb5}) {
			got = f
		}
		return got != nil
	})
	require.NotNil(t, got, "no frame on the kernel's side")
	return got
}

// The device puts the port's tag in and takes it off; what is of another VLAN, or of none, is not
// ours.
func TestAFPacketVLAN(t *testing.T) {
	s, fd := vlanLab(t, Config{VLAN: 7})
	require.EqualValues(t, 7, s.port.Caps().VLAN)
	r := newRand(t)
	for range 50 {
		want := frame(r, 60+r.IntN(1400))
		s.send(t, want)
		require.Equal(t, tagged(want, 7), readTagged(t, fd))
		want = frame(r, 60+r.IntN(1400))
		for _, f := range [][]byte{frame(r, 300), tagged(frame(r, 300), 8), tagged(want, 7)} {
			must(unix.Write(fd, f))(t)
		}
		require.Equal(t, [][]byte{want}, s.receive(t, 1, isOurs))
	}
	require.GreaterOrEqual(t, s.queue.Counters().RxOtherVLAN, uint64(100))
	s.settled(t)
}

// On a port without a tag of its own a frame comes in as it was on the wire, although this driver
// takes tags off; and goes out so.
func TestAFPacketLeavesTags(t *testing.T) {
	s, fd := vlanLab(t, Config{})
	require.Zero(t, s.port.Caps().VLAN)
	r := newRand(t)
	for range 50 {
		want := tagged(frame(r, 60+r.IntN(1400)), 7)
		must(unix.Write(fd, want))(t)
		got := s.receive(t, 1, func(f []byte, _ mem.Desc) bool {
			return len(f) > 18 && f[16] == 0x88 && f[17] == 0xb5
		})
		require.Equal(t, [][]byte{want}, got)
		s.send(t, want)
		require.Equal(t, want, readTagged(t, fd))
	}
	require.GreaterOrEqual(t, s.queue.Stats().TagsPut, uint64(50))
	s.settled(t)
}

// A device without these offloads leaves tags to the stack.
func TestVLANWithoutOffload(t *testing.T) {
	s := openSide(t, Config{Vdev: "net_null0", VLAN: 7}, 256, 2048)
	require.Zero(t, s.port.Caps().VLAN)
	_, err := open(Config{Vdev: "net_null1", Arena: newArena(t, 1<<21), VLAN: 4095})
	require.ErrorContains(t, err, "VLAN is 4095")
}

// A device that is given less than a Buf for each piece scatters a frame over several, which come
// together in one.
func TestScatteredReceive(t *testing.T) {
	srv, cli := memifSides(t, Config{rxRoom: 256})
	bothWays(t, srv, cli, func(r *rand.Rand) int { return 300 + r.IntN(1200) })
	st := cli.queue.Stats()
	require.Equal(t, st.RxFrames, st.Copied)
	require.Zero(t, st.RxTooLong)
}
