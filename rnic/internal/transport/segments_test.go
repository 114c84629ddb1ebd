package transport

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/stack"
)

// Runs of full segments become one, which a segment that is not full ends. What the kernel says it
// took tells how far they are sent.
func TestSegments(t *testing.T) {
	w := newSegments()
	for _, n := range []int{3, 10, 10, 4, 10} {
		w.add(10*len(w.all()), n, 10)
	}
	require.Equal(t, []run{{0, 3, false}, {10, 34, false}, {40, 50, true}}, w.runs)
	require.Equal(t, 37, w.octets())
	for _, step := range []struct{ took, last, want, left int }{
		{1, 2, 0, 35},  // a part of the first
		{2, 20, 1, 14}, // its rest, and a part of the second
		{2, 10, 3, 0},  // the rest
	} {
		require.Equal(t, len(w.runs)-w.at, w.prepare())
		for i := range step.took - 1 {
			w.hdrs[i].len = uint32(w.runs[w.at+i].to - w.runs[w.at+i].from)
		}
		w.hdrs[step.took-1].len = uint32(step.last)
		w.sent(step.took)
		require.Equal(t, []int{step.want, step.left}, []int{w.at, w.octets()})
	}
	require.Zero(t, w.prepare())
	w.reset()
	require.Zero(t, w.octets())
}

// octets is how many are still to be sent.
func (w *segments) octets() (n int) {
	for _, r := range w.runs[w.at:] {
		n += r.to - r.from
	}
	return n
}

// all are the segments that were added, by where they begin.
func (w *segments) all() (at []int) {
	for _, r := range w.runs {
		for from := r.from; from < r.to; from += 10 {
			at = append(at, from)
		}
	}
	return at
}

// Segments of any sizes arrive whole and in order, however little the socket takes at a time; the
// error of a socket that takes nothing more is the kernel's. One that was closed by mistake has
// an error, and its number is not closed again.
func TestSocketSend(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	a, b := socketPair(t)
	require.NoError(t, a.SetWriteBuffer(4<<10))
	var k socket
	require.NoError(t, k.take(a))
	var sent []byte
	got := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(b)
		got <- all
	}()
	w := newSegments()
	send := func() error {
		for {
			err := k.send(w)
			if err != unix.EAGAIN {
				return err
			}
			fds := [1]unix.PollFd{{Fd: int32(k.fd), Events: unix.POLLOUT}}
			_, _ = unix.Poll(fds[:], 1000)
		}
	}
	for range 30 {
		w.reset()
		for at := range 1 + r.IntN(2*sendVec) {
			n := 1 + r.IntN(1000)
			for i := range n {
				w.out[at*1000+i] = byte(r.Uint32())
			}
			w.add(at*1000, n, 1000)
			sent = append(sent, w.out[at*1000:][:n]...)
		}
		require.NoError(t, send())
	}
	require.NoError(t, k.shutdown(unix.SHUT_WR))
	require.True(t, bytes.Equal(sent, <-got))
	again := func() error {
		w.reset()
		w.add(0, 1, 1000)
		return send()
	}
	require.ErrorIs(t, again(), syscall.EPIPE)
	fd := k.fd
	require.NoError(t, unix.Close(fd))
	require.ErrorIs(t, again(), syscall.EBADF)
	require.NoError(t, unix.Dup2(0, fd))
	k.close()
	require.NoError(t, unix.Close(fd), "it is somebody else's")
}

// hold has the test be the holder of s's loop, without its goroutine, from now on.
func hold(t *testing.T, s *KernelConn) {
	s.loop.hold()
	s.running = true
	t.Cleanup(func() {
		s.running = false
		s.loop.release()
	})
}

// fill writes runs of full segments as one, and ends the kernel's segment after one that is not
// full; it fills no more than there is room for.
func TestKernelFill(t *testing.T) {
	s, u, _ := newKernel(t)
	hold(t, s)
	w := newSegments()
	require.False(t, s.fill(w))
	u.pulls = []int{20, 30}
	require.True(t, s.fill(w))
	require.Equal(t, []int{20, 30}, lengths(w))
	emss := s.EMSS()
	u.pulls = []int{5, -1, 6, 0, 7}
	require.True(t, s.fill(w))
	require.Equal(t, []int{5, emss + 6}, lengths(w))
	require.Equal(t, []int{7}, u.pulls, "an empty one ends it")

	// how large a segment is, is asked for after some time, but not where little was sent since
	s.segment, s.askAt, s.askPast = 100, 0, s.pulled+100
	u.pulls = []int{99}
	require.True(t, s.fill(w))
	require.Equal(t, 100, s.segment)
	s.askPast = s.pulled
	require.True(t, !s.fill(w))
	require.Equal(t, emss, s.segment)

	s.segment, s.askAt = 100, 1<<62
	u.pulls = slices.Repeat([]int{64}, 2*runsMax)
	require.True(t, s.fill(w))
	require.Len(t, w.runs, min(runsMax, socketWriteMax/100))
	u.pulls = slices.Repeat([]int{-1}, 2*socketWriteMax/100)
	require.True(t, s.fill(w))
	require.Len(t, w.runs, 1)
	require.Equal(t, socketWriteMax/100*100, w.octets())
}

func lengths(w *segments) (n []int) {
	for _, r := range w.runs {
		n = append(n, r.to-r.from)
	}
	return n
}

// read has s read what was just written to its peer.
func read(t *testing.T, s *KernelConn, peer *net.TCPConn, octets string) {
	t.Helper()
	must(peer.Write([]byte(octets)))(t)
	fds := [1]unix.PollFd{{Fd: int32(s.socket.fd), Events: unix.POLLIN}}
	must(unix.Poll(fds[:], 10_000))(t)
	require.True(t, s.receive())
}

// Octets of start-up have no Buf; what full operation refuses for that comes again in one. A Buf
// that is kept is replaced for the next read. What comes after the peer was given its stream back
// is the stream's.
func TestKernelReceive(t *testing.T) {
	s, u, peer := newKernel(t)
	hold(t, s)
	require.False(t, s.receive(), "nothing has come")
	read(t, s, peer, "start")
	require.EqualValues(t, 5, u.edge)
	require.Equal(t, []arrival{{0, false, "start"}}, u.arrived)

	u.arrived, u.verdicts = nil, []stack.Verdict{stack.Refused, stack.Taken}
	u.onArrive = func() {
		s.EnterFull(2)
		u.onArrive = nil
	}
	read(t, s, peer, "full")
	require.Equal(t, []arrival{{5, false, "full"}, {5, true, "full"}}, u.arrived)
	require.EqualValues(t, 9, u.edge)

	u.arrived, u.bufs, u.verdicts = nil, nil, []stack.Verdict{stack.Kept}
	read(t, s, peer, "ab")
	read(t, s, peer, "cd")
	require.Equal(t, []arrival{{9, true, "ab"}, {11, true, "cd"}}, u.arrived)
	require.NotEqual(t, u.bufs[0], u.bufs[1])
	require.NotContains(t, s.pool.read, u.bufs[0], "it is the Upper's")

	// what is refused stays, and nothing more is read before it is taken
	u.arrived, u.verdicts = nil, []stack.Verdict{stack.Refused, stack.Refused}
	read(t, s, peer, "efgh")
	must(peer.Write([]byte("i")))(t)
	require.False(t, s.receive())
	require.Equal(t, []arrival{{13, true, "efgh"}, {13, true, "efgh"}}, u.arrived)
	require.EqualValues(t, 13, u.edge)

	u.base = 15
	s.giving = true
	s.keepRest()
	require.Equal(t, "gh", string(s.rest))
	require.True(t, s.readEnd)
	require.False(t, s.receive())
}

// Octets that were refused in start-up outlast the next read of another connection, which has the
// same memory.
func TestKernelKeepsRefusedOctets(t *testing.T) {
	s, u, peer := newKernel(t)
	hold(t, s)
	u.verdicts = []stack.Verdict{stack.Refused}
	read(t, s, peer, "early")
	copy(s.loop.first[:], "other")
	require.True(t, s.receive())
	require.Equal(t, []arrival{{0, false, "early"}, {0, false, "early"}}, u.arrived)
}

// What was read before comes first.
func TestKernelPutBack(t *testing.T) {
	s, u, peer := newKernel(t)
	s.in.add(mem.NoBuf, []byte("abc"))
	hold(t, s)
	require.True(t, s.receive())
	read(t, s, peer, "d")
	require.Equal(t, []arrival{{0, false, "abc"}, {3, false, "d"}}, u.arrived)
}
