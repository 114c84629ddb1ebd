//go:build dpdk

package dpdk

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/skip"
)

// xdpLab is a veth pair, with a raw socket on the end that no port has.
func xdpLab(t *testing.T) (fd int) {
	t.Helper()
	start(t)
	if fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		skip.Missing(t, "no AF_XDP in this kernel: %v", err)
	} else {
		unix.Close(fd)
	}
	ownNamespace(t)
	vethPair(t, 1)
	delete(xdpClosed, "rnic0") // that was another one
	xdpLeft["other tests"] -= leftDevices()
	return rawSocket(t, "rnic1")
}

// leftDevices are those of this test that are plugged for good: on a busy machine some for each
// time that an interface is opened again, and over all tests more than a process may leave.
func leftDevices() (n int) {
	for _, left := range xdpLeft {
		n += left
	}
	return n
}

// net_af_xdp lets the kernel write to the mempool's own memory, so what it receives is copied. One
// queue: the driver counts an interface's combined channels, and a veth has none.
func TestAFXDPOnVeth(t *testing.T) {
	fd := xdpLab(t)
	sides := openSides(t, Config{Vdev: "net_af_xdp0,iface=rnic0", Queues: 1}, 8192, 2048)
	sendEach(t, fd, sides)
	require.Equal(t, []int{128}, flows(t, fd, 64, sides))
	s := sides[0].queue.Stats()
	require.Equal(t, s.RxFrames, s.Copied)
	sides[0].settled(t)
}

// A queue of the interface each, with flows on all of them, closed and opened again.
func TestAFXDPQueues(t *testing.T) {
	xdpLab(t)
	command(t, "ip", "link", "del", "rnic0")
	vethPair(t, 3)
	fd := rawSocket(t, "rnic1")
	for range 2 {
		cfg := Config{Vdev: "net_af_xdp0,iface=rnic0", Queues: 3, Arena: newArena(t, 3*8192*2048+1<<16)}
		p := must(Open(cfg))(t)
		x := p.(*xdpQueues)
		require.Equal(t, 3, p.Caps().Queues)
		var sides []*side
		for i := range 3 {
			s := &side{port: x.ports[i], pool: newPool(t, cfg.Arena, 8192-64, 2048)}
			q := must(p.Open(i, s.pool))(t)
			s.queue, s.idle = q.(*Queue), s.pool.Available()
			sides = append(sides, s)
		}
		require.ErrorContains(t, errOf(p.Open(3, sides[0].pool)), "has 3 queues, there is no queue 3")
		sendEach(t, fd, sides)
		for i, n := range flows(t, fd, 64, sides) {
			require.NotZero(t, n, "queue %d", i)
		}
		all := must(x.XStats())(t)
		require.True(t, slices.ContainsFunc(all, func(s XStat) bool {
			return s.Name == "queue2_rx_good_packets" && s.Value > 0
		}))
		require.Empty(t, x.Stuck(time.Now(), 0))
		require.NoError(t, p.Close())
		require.Empty(t, xdpSockets())
	}
}

// A port that has been closed is opened again in the same process: nothing of it holds the
// interface's queue.
func TestAFXDPAgain(t *testing.T) {
	fd := xdpLab(t)
	for range 3 {
		sides := openSides(t, Config{Vdev: "net_af_xdp0,iface=rnic0", Queues: 1}, 8192, 2048)
		sendEach(t, fd, sides)
		require.Equal(t, []int{128}, flows(t, fd, 64, sides))
		require.NoError(t, sides[0].port.Close())
		require.Empty(t, xdpSockets())
	}
}

// An interface that another port has is refused. To close what was opened so far neither crashes
// nor takes the XDP program from under the other; and it opens once the interface is free.
func TestAFXDPInterfaceTaken(t *testing.T) {
	fd := xdpLab(t)
	first := openSides(t, Config{Vdev: "net_af_xdp0,iface=rnic0", Queues: 1}, 8192, 2048)
	a := newArena(t, 8192*2048+1<<16)
	for range 2 {
		refused(t, Config{Vdev: "net_af_xdp1,iface=rnic0", Arena: a}, 4096-64,
			"no other program has this queue of the interface")
	}
	require.Equal(t, []int{128}, flows(t, fd, 64, first))
	require.NoError(t, first[0].port.Close())
	second := openSides(t, Config{Vdev: "net_af_xdp1,iface=rnic0", Queues: 1}, 8192, 2048)
	require.Equal(t, []int{128}, flows(t, fd, 64, second))
}

// While a queue that a port of ours may just have given back is waited for, other ports are asked,
// opened and closed.
func TestAFXDPWaitsWithoutTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		xdpLab(t)
		openSides(t, Config{Vdev: "net_af_xdp0,iface=rnic0", Queues: 1}, 8192, 2048)
		a := newArena(t, 8192*2048+1<<16)
		opened := func() *Port {
			return must(open(Config{Vdev: "net_af_xdp3,iface=rnic0", Arena: a}))(t)
		}
		free := false
		time.AfterFunc(xdpFirstTry/2, func() {
			if free = environment.TryLock(); free {
				environment.Unlock()
			}
		})
		p := opened()
		xdpClosed["rnic0"] = time.Now().Add(-xdpFreedMax / 2)
		_, err := p.Open(0, newPool(t, a, 4096-64, 2048))
		require.ErrorContains(t, err, "no other program has this queue of the interface")
		require.True(t, free)
		require.NoError(t, p.Close())

		p = opened()
		time.AfterFunc(xdpFirstTry/2, func() { require.NoError(t, p.Close()) })
		xdpClosed["rnic0"] = time.Now()
		_, err = p.Open(0, newPool(t, a, 4096-64, 2048))
		require.ErrorContains(t, err, "was closed while a queue was opened")
	})
}

// Devices that cannot be closed leave room for others.
func TestAFXDPLeftDevicesAreBounded(t *testing.T) {
	xdpLab(t)
	xdpLeft["others"] = xdpLeftMax
	defer delete(xdpLeft, "others")
	cfg := Config{Vdev: "net_af_xdp4,iface=rnic0", Arena: newArena(t, 1<<22)}
	_, err := open(cfg)
	require.ErrorContains(t, err, "16 devices of net_af_xdp are left in this process")
	xdpLeft["others"]--
	p := must(open(cfg))(t)
	require.NoError(t, p.Close())
	require.ErrorContains(t, errOf(open(cfg)), "start this one again")
}

// A device that is refused before it has a socket leaves the interface's XDP program where it is.
func TestAFXDPRefusedLeavesProgram(t *testing.T) {
	fd := xdpLab(t)
	first := openSides(t, Config{Vdev: "net_af_xdp0,iface=rnic0", Queues: 1}, 8192, 2048)
	_, err := open(Config{Vdev: "net_af_xdp2,iface=rnic0", Arena: newArena(t, 1<<22), MTU: 60_000})
	require.ErrorContains(t, err, "carries an MTU of at most")
	require.Equal(t, []int{128}, flows(t, fd, 64, first))
}
