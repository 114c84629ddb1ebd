package tap

import (
	"net"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// packetVnet is PACKET_VNET_HDR, linux/if_packet.h: a packet socket's frames are led by a
// virtio_net_hdr.
const packetVnet = 15

// vnetSocket sends frames out of the device that are still to be cut, and sees those that come from
// us.
func vnetSocket(t testing.TB, name string) int {
	ifi := must(net.InterfaceByName(name))(t)
	sock := must(unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0))(t)
	t.Cleanup(func() { _ = unix.Close(sock) })
	require.NoError(t, unix.SetsockoptInt(sock, unix.SOL_PACKET, packetVnet, 1))
	all := uint16(unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00)
	require.NoError(t, unix.Bind(sock, &unix.SockaddrLinklayer{Ifindex: ifi.Index, Protocol: all}))
	return sock
}

// ofFlow tells frames of a spec from the kernel's own.
func ofFlow(f []byte) bool {
	return len(f) > 20 && string(f[:12]) == "\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02"
}

// received polls for n frames of specs and completes their checksums.
func received(t testing.TB, pool *mem.Pool, q *queue, n int) (frames [][]byte) {
	bufs := make([]mem.Buf, 8)
	for deadline := time.Now().Add(5 * time.Second); len(frames) < n; {
		require.True(t, time.Now().Before(deadline), "%d of %d frames came: %+v", len(frames), n,
			q.Counters())
		k := q.Rx(bufs)
		for _, b := range bufs[:k] {
			if d := pool.Desc(b); ofFlow(pool.Data(b)) {
				if pmd.Incomplete(d) {
					require.True(t, pmd.CompleteChecksum(pool.Data(b), d.CsumStart, d.CsumOffset))
				}
				frames = append(frames, append([]byte(nil), pool.Data(b)...))
			}
		}
		pool.FreeN(bufs[:k])
	}
	return frames
}

var flows = map[string]struct {
	spec
	size int
}{
	"IPv4":             {spec{flags: flagACK, tcpOpt: 12}, 1448},
	"IPv4, last short": {spec{flags: flagACK | flagPSH, id: 0xfff0, seq: 0xffffff00}, 1000},
	"CWR and FIN":      {spec{flags: flagACK | flagCWR | flagFIN | flagPSH, df: true}, 536},
	"IPv4 options":     {spec{flags: flagACK, ipOpt: 8}, 1400},
	"IPv6":             {spec{flags: flagACK | flagPSH, v6: true, tcpOpt: 12}, 1428},
	"tag":              {spec{flags: flagACK, tags: 1}, 1460},
	"tag, IPv6":        {spec{flags: flagACK, tags: 1, v6: true}, 1440},
	"UDP":              {spec{udp: true}, 1472},
	"UDP, IPv6":        {spec{udp: true, v6: true}, 1200},
}

// The oracle is the kernel: what it cuts for a device without offload is what we cut of the same
// frame.
func TestCutIsTheKernels(t *testing.T) {
	enterNetns(t)
	ours, pool, q := open(t, Config{Name: "rours"})
	theirs, pool2, q2 := open(t, Config{Name: "rtheirs", NoOffload: true})
	require.True(t, ours.Caps().RxChecksum)
	require.False(t, theirs.Caps().RxChecksum)
	sock, sock2 := vnetSocket(t, ours.Name()), vnetSocket(t, theirs.Name())
	for name, f := range flows {
		t.Log(name)
		f.payload = someOctets[:f.size*40+17]
		if f.size > 1440 {
			f.payload = f.payload[:f.size*44]
		}
		f.give(t, sock, f.size)
		f.give(t, sock2, f.size)
		n := (len(f.payload) + f.size - 1) / f.size
		cut, want := received(t, pool, q, n), received(t, pool2, q2, n)
		require.Equal(t, want, cut)
		require.Zero(t, q.Counters().RxErrors+q.Counters().RxTooLong)
	}
}

// A packet socket sees one frame of ours where there were many segments, with the size they had;
// and what cuts it again has them as they were.
func TestJoinedFramesReachTheKernelWhole(t *testing.T) {
	enterNetns(t)
	p, pool, q := open(t, Config{Name: "rjoin"})
	sock := vnetSocket(t, p.Name())
	for name, f := range flows {
		if f.udp {
			continue
		}
		t.Log(name)
		f.payload = someOctets[:f.size*20+17]
		var bufs []mem.Buf
		var want [][]byte
		for _, part := range f.segments(f.size) {
			b, frame := part.asked(pool)
			bufs, want = append(bufs, b), append(want, frame)
		}
		require.Equal(t, len(bufs), q.Tx(bufs))
		require.Zero(t, q.Counters().TxErrors)
		pool.FreeN(bufs)
		m := seen(t, sock)
		f.tags = 0 // the kernel has them out of the frame before a packet socket sees it
		got := unjoin(t, m)
		require.Equal(t, len(want), len(got), "in one frame")
		for i, part := range f.segments(f.size) {
			frame, _, _ := part.build()
			sameButID(t, frame, got[i])
		}
	}
}

// seen is the next frame of a spec at a packet socket.
func seen(t testing.TB, sock int) []byte {
	b := make([]byte, 1<<17)
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); runtime.Gosched() {
		if n, err := unix.Read(sock, b); err == nil && ofFlow(b[vnetLen:n]) {
			return b[:n]
		}
	}
	t.Fatal("no frame came")
	return nil
}

// Of 70 segments of 1448 octets no more than one datagram holds leave together.
func TestJoinedFramesFitIP(t *testing.T) {
	ours, kernel := pipe(t)
	q, pool := newQueue(t, ours, 100, 1500)
	for _, v6 := range []bool{false, true} {
		f := spec{flags: flagACK, v6: v6, payload: someOctets[:70*1448]}
		var bufs []mem.Buf
		for _, part := range f.segments(1448) {
			b, _ := part.asked(pool)
			bufs = append(bufs, b)
		}
		require.Equal(t, 70, q.Tx(bufs))
		pool.FreeN(bufs)
		ms := drain(t, kernel)
		require.Len(t, ms, 2)
		require.Len(t, unjoin(t, ms[0]), 45)
		require.Len(t, unjoin(t, ms[1]), 25)
	}
}

// refuse has the kernel answer EINVAL to one ioctl of this thread, which ends with the test, when
// argument has a bit of mask: seccomp(2), as a container's policy would.
func refuse(t testing.TB, request, mask uint32) {
	const nr, arg1, arg2 = 0, 24, 32 // offsets in struct seccomp_data
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	equal := func(k uint32, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jf: no}
	}
	f := []unix.SockFilter{
		load(nr), equal(unix.SYS_IOCTL, 5),
		load(arg1), equal(request, 3),
		load(arg2), {Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: mask, Jf: 1},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EINVAL)},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW},
	}
	require.NoError(t, unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	require.NoError(t, unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER,
		uintptr(unsafe.Pointer(&prog)), 0, 0))
	runtime.KeepAlive(f)
}

// A kernel that cannot is no error: the port works without, and its Caps say so.
func TestOffloadFallsBack(t *testing.T) {
	for name, c := range map[string]struct {
		request, mask uint32
		offload       bool
	}{
		"nothing refused":   {0, 0, true},
		"no USO":            {unix.TUNSETOFFLOAD, tunUSO, true},
		"no offload":        {unix.TUNSETOFFLOAD, unix.TUN_F_CSUM, false},
		"no header size":    {unix.TUNSETVNETHDRSZ, 0xffffffff, false},
		"features not told": {unix.TUNGETFEATURES, 0xffffffff, false},
	} {
		t.Run(name, func(t *testing.T) {
			enterNetns(t)
			if c.request != 0 {
				refuse(t, c.request, c.mask)
			}
			p, pool, q := open(t, Config{Name: "rfall"})
			require.Equal(t, c.offload, p.Caps().RxChecksum && p.Caps().TxChecksum && p.Caps().TxSegment)
			require.Equal(t, c.offload, p.Caps().RxChecksum || p.Caps().TxChecksum || p.Caps().TxSegment)
			f := flows["UDP"]
			f.payload = someOctets[:f.size*10]
			f.give(t, vnetSocket(t, p.Name()), f.size)
			require.Len(t, received(t, pool, q, 10), 10)
		})
	}
}

// A device that outlives us has no offload after us, nor do we trust what another left.
func TestOffloadEndsWithThePort(t *testing.T) {
	enterNetns(t)
	fd, _, err := attachQueue("rstay", 1, true)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1))
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, 12))
	require.NoError(t, setOffload(fd))
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, 12))
	require.NoError(t, unix.Close(fd))
	for _, no := range []bool{true, false, true} {
		p := newDevice(t, Config{Name: "rstay", NoOffload: no})
		pool := newPool(t, 64, 1500)
		q := must(p.Open(0, pool))(t)
		f := flows["IPv4"]
		f.payload = someOctets[:f.size*10]
		f.give(t, vnetSocket(t, p.Name()), f.size)
		got := received(t, pool, q.(*queue), 10)
		for i, part := range f.segments(f.size) {
			want, start, offset := part.build()
			require.True(t, pmd.CompleteChecksum(want, start, offset))
			require.Equal(t, want, got[i])
		}
		require.NoError(t, p.Close())
		require.Equal(t, pool.Size(), pool.Available())
	}
}

// Answers to what a queue sent come to that queue.
func TestQueues(t *testing.T) {
	enterNetns(t)
	p := newDevice(t, Config{Name: "rqueues", Addr: kernelIP, Queues: 4})
	t.Cleanup(func() { _ = p.Close() })
	require.Equal(t, 4, p.Caps().Queues)
	var pools [4]*mem.Pool
	var queues [4]*queue
	for i := range queues {
		pools[i] = newPool(t, 64, 1500)
		q := must(p.Open(i, pools[i]))(t)
		queues[i] = q.(*queue)
	}
	_, err := p.Open(4, pools[0])
	require.EqualError(t, err, "tap: rqueues: no queue 4; the device has 4")
	require.ErrorContains(t, errOf(p.Open(3, pools[0])), "queue 3 is open already")
	sock := vnetSocket(t, p.Name())
	for i, q := range queues {
		// One flow, learned again from each queue: the hash is symmetric.
		f := spec{flags: flagACK, port: 99, payload: someOctets[:100]}
		out, start, offset := f.build()
		require.True(t, pmd.CompleteChecksum(out, start, offset))
		require.Equal(t, 1, send(t, pools[i], q, out))
		f.give(t, sock, 0)
		require.Len(t, received(t, pools[i], q, 1), 1)
	}
}

func TestQueuesOfASingleQueueDevice(t *testing.T) {
	enterNetns(t)
	fd, _, err := attachQueue("rsingle", 1, true)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1))
	_, err = New(Config{Name: "rsingle", Queues: 2})
	require.ErrorIs(t, err, unix.EINVAL)
	require.ErrorContains(t, err,
		"not a TAP with several queues; choose another name, one queue, or remake it")
	_, err = New(Config{Name: "rmany", Queues: 300})
	require.ErrorContains(t, err, "300 queues are more than this kernel's driver has; use fewer")
	_, err = New(Config{Name: "rnone", Queues: -1})
	require.ErrorContains(t, err, "-1 queues; at least 1 is needed")
}
