package tap

import (
	"encoding/binary"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// links is a device whose link is watched without a goroutine: what a command changes the kernel
// has told, except for carriers, when it ends.
type links struct {
	t  *testing.T
	fd int
	*watcher
}

func newLinks(t *testing.T, device string) *links {
	enterNetns(t)
	p := newDevice(t, Config{Name: device})
	t.Cleanup(func() { _ = p.Close() })
	fd, w, err := newWatcher(device)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	require.True(t, w.now.connected(), "%+v", w.now)
	return &links{t: t, fd: fd, watcher: w}
}

// hears reads what the kernel has told; with wait until it tells that the device is connected.
func (l *links) hears(wait bool) (up bool) {
	l.t.Helper()
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(l.fd, buf, 0)
		switch {
		case err == nil:
			up = l.hear(buf[:n]) || up
		case err == unix.EINTR:
		case !wait || up:
			return up
		default:
			require.Equal(l.t, unix.EAGAIN, err)
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}}, 30_000)
			require.True(l.t, n == 1 || err == unix.EINTR, "nothing was told: %v", err)
		}
	}
}

func (l *links) connects(words string) {
	l.t.Helper()
	ip(l.t, words)
	require.True(l.t, l.hears(true), "ip %s", words)
}

func (l *links) silent(words string) {
	l.t.Helper()
	ip(l.t, words)
	require.False(l.t, l.hears(false), "ip %s", words)
}

// Setting the device up, putting it into a bridge and taking it to another one are told of; what
// disconnects it, and what happens to others, is not.
func TestLinkIsFollowed(t *testing.T) {
	l := newLinks(t, "rlink")
	l.silent("link set rlink down")
	l.connects("link set rlink up")
	l.silent("link set rlink mtu 1400")
	ip(t, "link add other type veth peer name another")
	l.silent("link set other up")
	l.silent("link set another up")
	l.silent("link add rbr0 type bridge")
	l.silent("link add rbr1 type bridge")
	l.silent("link set rbr0 up")
	l.silent("link set rbr1 up")
	l.connects("link set rlink master rbr0")
	l.silent("link set rlink down")
	l.connects("link set rlink up")
	l.silent("link set other master rbr0")
	l.connects("link set rlink master rbr1")
	l.connects("link set rlink nomaster")
}

// A port of a bridge with a spanning tree is connected when it forwards, two times two seconds
// after it came.
func TestLinkIsFollowedThroughASpanningTree(t *testing.T) {
	t.Parallel()
	l := newLinks(t, "rtree")
	l.silent("link add rbr2 type bridge stp_state 1 forward_delay 200")
	l.silent("link set rbr2 up")
	l.silent("link set rtree master rbr2")
	require.True(t, l.hears(true))
}

// script is what a watcher reads, step by step.
type script []func(b []byte) (int, error)

func (s *script) Read(b []byte) (int, error) {
	if len(*s) == 0 {
		return 0, io.EOF
	}
	step := (*s)[0]
	*s = (*s)[1:]
	return step(b)
}

// newLink is the kernel's message of device 5, of IFF_UP and IFF_LOWER_UP or not.
func newLink(up bool) []byte {
	b := make([]byte, unix.SizeofNlMsghdr+unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(b[0:], uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], unix.RTM_NEWLINK)
	binary.NativeEndian.PutUint32(b[unix.SizeofNlMsghdr+4:], 5)
	if up {
		binary.NativeEndian.PutUint32(b[unix.SizeofNlMsghdr+8:], unix.IFF_UP|unix.IFF_LOWER_UP)
	}
	return b
}

// Whatever the messages said that were lost, the next time that the device is connected is told.
func TestLinkIsFollowedThroughLosses(t *testing.T) {
	for _, lost := range []string{"down", "down and up", "gone"} {
		real, told := true, []bool{}
		steps := script{
			func([]byte) (int, error) {
				real = lost == "down and up"
				return 0, unix.ENOBUFS
			},
			func(b []byte) (int, error) {
				real = true
				return copy(b, newLink(true)), nil
			},
		}
		w := &watcher{index: 5, now: link{up: true}}
		again := func() (link, error) {
			if lost == "gone" {
				return link{up: true}, unix.ENODEV
			}
			return link{up: real}, nil
		}
		w.run(&steps, again, func() { told = append(told, real) })
		require.Equal(t, []bool{true}, told, lost)
	}
}

// A socket that has overflowed is emptied, and says then how the device is.
func TestAskAgain(t *testing.T) {
	l := newLinks(t, "rlost")
	// the kernel's least
	require.NoError(t, unix.SetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1))
	for _, up := range []bool{false, true} {
		for range 8 {
			ip(t, "link set rlost mtu 1400")
			ip(t, "link set rlost mtu 1500")
		}
		ip(t, "link set rlost "+map[bool]string{true: "up", false: "down"}[up])
		_, _, err := unix.Recvfrom(l.fd, make([]byte, 64<<10), 0)
		require.Equal(t, unix.ENOBUFS, err)
		now := must(askAgain(l.fd, int(l.index)))(t)
		require.Equal(t, up, now.connected())
		_, _, err = unix.Recvfrom(l.fd, make([]byte, 64<<10), 0)
		require.Equal(t, unix.EAGAIN, err, "what is older than the answer is gone")
	}
	require.ErrorContains(t, errOf(askAgain(l.fd, 1<<30)), "the kernel does not tell of it")
}

// WatchLink tells, and ends with Close.
func TestWatchLink(t *testing.T) {
	enterNetns(t)
	p := newDevice(t, Config{Name: "rwatch"})
	up := make(chan struct{}, 64)
	require.NoError(t, p.WatchLink(func() { up <- struct{}{} }))
	ip(t, "link set rwatch down")
	ip(t, "link set rwatch up")
	select {
	case <-up:
	case <-time.After(30 * time.Second):
		t.Fatal("nothing was told")
	}
	require.NoError(t, p.Close())
}
