package memif

import (
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/skip"
)

func needsGuard(t testing.TB) {
	t.Helper()
	if faults() < 0 {
		skip.Missing(t, "no userfaultfd: Linux 5.14 and leave to use it are wanted")
	}
}

func punch(t testing.TB, fd int, from, octets int64) {
	t.Helper()
	const hole = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	require.NoError(t, unix.Fallocate(fd, hole, from, octets))
}

func blocks(t testing.TB, fd int) int64 {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(fd, &st))
	return st.Blocks
}

// Pages that a client takes out of its memory are not made again by the queue that looks for them:
// the connection ends at once, whichever they are and in either direction. So it does where the
// client has put others in their place. Who did that waits before it may attach again.
func TestHoles(t *testing.T) {
	needsGuard(t)
	page := int64(os.Getpagesize())
	r := newRand(t)
	for name, c := range map[string]struct {
		from, octets int64
		refill       bool
		sending      bool
	}{
		"a frame":                  {from: 2 * page, octets: page},
		"all of it":                {octets: rawBytes},
		"the rings":                {octets: page},
		"the rings, refilled":      {octets: page, refill: true},
		"a frame, refilled":        {from: 2 * page, octets: page, refill: true},
		"a posted buffer":          {from: 2 * page, octets: page, sending: true},
		"a posted buffer refilled": {from: 2 * page, octets: page, sending: true, refill: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHostileClient(t)
			h.server.poll()
			require.True(t, h.server.queues[0].session.guarded)
			if c.sending {
				h.post(newDesc(0, 0, 2048, uint32(c.from)))
			} else {
				h.put(newDesc(0, 0, 60, uint32(c.from)))
			}
			punch(t, h.fd, c.from, c.octets)
			if c.refill {
				for i := c.from; i < c.from+c.octets; i += page {
					h.memory[i+page-1] = 1
				}
			}
			was := blocks(t, h.fd)
			if c.sending {
				require.Zero(t, h.server.tx(t, frame(r, 60)))
			} else {
				require.Empty(t, h.server.take(0))
			}
			require.Equal(t, Drops{Fault: 1}, h.server.queues[0].Drops())
			require.EqualValues(t, 1, h.server.port.Offences())
			require.Equal(t, was, blocks(t, h.fd), "the server makes no page")
			require.NoError(t, h.server.port.AwaitLink(within(t), false))
			h.server.poll()
			h.refused("memory of a region has gone")
			h.l.lock.Lock()
			b := h.l.barred[offender{true, 0}]
			require.Equal(t, barMin, b.pause)
			b.until = time.Now().Add(time.Hour) // however slow this test is
			h.l.lock.Unlock()
			again := rawDial(t, h.l.cfg.Socket)
			again.tells(goodInit().message(), -1)
			again.refused("Memory of an earlier connection went away: wait ")
			h.server.closed(t)
		})
	}
}

// hugeRegion is memory on hugepages of 2 MiB.
func hugeRegion(t testing.TB, octets int) (fd int) {
	t.Helper()
	fd, err := unix.MemfdCreate("huge", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_HUGETLB|
		unix.MFD_HUGE_2MB)
	if err == nil {
		t.Cleanup(func() { unix.Close(fd) })
		require.NoError(t, unix.Ftruncate(fd, int64(octets)))
		err = unix.Fallocate(fd, 0, 0, int64(octets))
	}
	if err != nil {
		skip.Hugepages(t, int64(octets>>21), err)
	}
	must(unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK))(t)
	return fd
}

// A hole in hugepages is one, too.
func TestHolesInHugepages(t *testing.T) {
	needsGuard(t)
	const huge = 2 << 20
	fd := hugeRegion(t, 2*huge)
	r := must(mapRegion(fd, 2*huge, true))(t)
	defer unmapAll([]region{r})
	require.True(t, r.guarded)
	r.octets[huge] = 1
	punch(t, fd, huge, huge)
	require.ErrorContains(t, withFaults(func() error { r.octets[huge] = 1; return nil }), "has gone")
	require.NoError(t, withFaults(func() error { r.octets[0] = 1; return nil }))
}

// The pause of an offender doubles up to a bound, is its own alone, and is forgotten in time.
func TestOffendersWait(t *testing.T) {
	l := &Listener{bound: map[uint32]*binding{1: {}, 2: {}}, barred: map[offender]*bar{}}
	offends := func(p Peer) {
		s := newSession(nil, nil, nil)
		s.offend("")
		l.judge(s, p)
		l.judge(s, p) // once
	}
	for i := range 12 {
		offends(Peer{ID: 1})
		require.Equal(t, min(barMin<<i, barMax), l.barred[offender{true, 1}].pause)
	}
	require.ErrorContains(t, l.pausing(Peer{ID: 1}), "wait")
	require.NoError(t, l.pausing(Peer{ID: 2}))
	offends(Peer{ID: 7, UID: 5})
	l.barred[offender{false, 5}].until = time.Now().Add(time.Hour)
	require.ErrorContains(t, l.pausing(Peer{ID: 8, UID: 5}), "wait",
		"another interface of the same user")
	require.NoError(t, l.pausing(Peer{ID: 8, UID: 6}))
	b := l.barred[offender{true, 1}]
	b.until = time.Now()
	require.NoError(t, l.pausing(Peer{ID: 1}))
	require.Len(t, l.barred, 2)
	b.until = time.Now().Add(-barMax - time.Second)
	require.NoError(t, l.pausing(Peer{ID: 1}))
	require.Len(t, l.barred, 1)
}

// Where memory cannot be guarded, a client that has its server wait for pages loses its connection.
func TestSlowMemory(t *testing.T) {
	const octets = 64 << 20
	l := listen(t, ListenConfig{})
	server := bind(t, l, BindConfig{}, 64)
	p := server.port
	c := rawDial(t, l.cfg.Socket)
	memory, _ := c.attached(layout{})
	frames, octetsOfFrames := rawRegion(t, octets, unix.F_SEAL_SHRINK)
	c.does((&addRegion{1, octets}).message(), frames)
	c.connect()
	s := p.current.Load()
	require.NoError(t, unix.Munlock(octetsOfFrames)) // as it is without a guard
	s.guarded = false
	require.NoError(t, unguard(s.regions[1]))
	tx := ringAt(memory, 0, 4)
	over := make(chan struct{})
	punched := make(chan struct{})
	go func() {
		defer close(punched)
		for {
			select {
			case <-over:
				return
			default:
				_ = unix.Fallocate(frames, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, octets)
				_ = unix.Fallocate(frames, 0, 0, octets)
			}
		}
	}()
	r := newRand(t)
	for ctx := within(t); p.LinkUp(); {
		require.NoError(t, ctx.Err(), "%+v", server.queues[0].budget)
		for range 8 {
			tx.store(tx.head(), newDesc(0, 1, 60, r.Uint32N(octets/4096)*4096))
			if tx.head()-tx.tail() < tx.size() {
				tx.advance(1)
			}
		}
		server.poll()
	}
	close(over)
	<-punched
	require.Equal(t, uint64(1), server.queues[0].Drops().Slow)
	require.ErrorContains(t, p.Err(), "takes too long")
	server.poll()
	server.closed(t)
}

// A budget is for calls that were long and had page faults: it ends, and comes back with time.
func TestBudget(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b := newBudget()
	long := func(faults int64) stopwatch {
		w := b.begin()
		w.began -= time.Millisecond
		w.faults -= faults
		return w
	}
	w := b.begin()
	require.False(t, w.suspect)
	require.True(t, b.end(w))
	require.True(t, b.end(long(0)), "the first long one has it watched")
	for none := false; !none; { // the runtime has faults of its own now and then
		b.left = 0
		w = long(0)
		require.True(t, w.suspect)
		lasts := b.end(w)
		if none = faultsOfThread() == w.faults; none {
			require.True(t, lasts, "preempted")
			require.Zero(t, b.left)
		}
	}
	b.left = budgetMax
	require.True(t, b.end(long(1)))
	n := 0
	for b.end(long(1)) {
		n++
		require.Less(t, n, 10)
	}
	b.at -= time.Second
	require.True(t, b.end(long(1)), "1 % of a second")
}

// One call may have been long for a pause of the process or the machine. Two in a row were not.
func TestBudgetOutlastsAPause(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b := newBudget()
	b.until = time.Since(epoch) + time.Hour
	paused := func() bool {
		w := b.begin()
		w.began -= budgetMax + time.Duration(newRand(t).Int64N(int64(time.Hour)))
		w.faults--
		return b.end(w)
	}
	require.True(t, paused())
	require.False(t, paused())
}

// lingering is a socket whose last close waits for an hour, as the peer does not read; done ends
// that.
func lingering(t testing.TB) (fd int, done func()) {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	conn := must(net.Dial("tcp", l.Addr().String()))(t)
	other := must(l.Accept())(t)
	require.NoError(t, conn.(*net.TCPConn).SetLinger(3600))
	file := must(conn.(*net.TCPConn).File())(t)
	require.NoError(t, conn.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	var err error
	for err == nil {
		_, err = conn.Write(make([]byte, 1<<16))
	}
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	fd = dup(t, int(file.Fd()))
	require.NoError(t, unix.SetNonblock(fd, false))
	require.NoError(t, file.Close())
	require.NoError(t, conn.Close())
	return fd, func() {
		require.NoError(t, other.(*net.TCPConn).SetLinger(0))
		require.NoError(t, other.Close())
	}
}

// Descriptors that cannot be closed, whenever a client sends them, hold up neither the end of a
// connection nor the listener's, nor a port's; the client's interface and its place are taken until
// they can be.
func TestDescriptorsThatStayOpen(t *testing.T) {
	for name, send := range map[string]func(c *rawClient, fd int){
		"at first": func(c *rawClient, fd int) { c.tells(newMessage(msgConnect), fd) },
		"as a region": func(c *rawClient, fd int) {
			c.init()
			c.tells((&addRegion{0, 4096}).message(), fd)
		},
		"as a ring": func(c *rawClient, fd int) {
			c.init()
			c.tells((&addRing{log2: 4}).message(), fd)
		},
		"later": func(c *rawClient, fd int) {
			c.attached(layout{})
			c.connect()
			c.tells(newMessage(msgACK), fd)
		},
		"beside others": func(c *rawClient, fd int) {
			c.writes(say(newMessage(msgInit), append(slices.Repeat([]int{rawEventfd(c.t)}, 19), fd)...))
		},
		"not received": func(c *rawClient, fd int) {
			c.tells(newMessage(77), -1)
			_ = c.send(newMessage(77), fd) // or the connection has ended already
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t, ListenConfig{})
			p := must(l.Bind(BindConfig{}))(t)
			c := rawDial(t, l.cfg.Socket)
			fd, done := lingering(t)
			send(c, fd)
			go func() { // the last reference is the server's, or this one's that waits as well
				unix.Close(fd)
			}()
			m := new(message)
			for err := error(nil); err == nil; {
				_, err = c.recv(m)
			}
			closed := make(chan error, 1)
			go func() { closed <- errors.Join(p.Close(), l.Close()) }()
			select {
			case err := <-closed:
				require.NoError(t, err)
			case <-within(t).Done():
				done()
				require.Fail(t, "Close waits for a descriptor of the client's")
			}
			done()
			for ctx := within(t); ; yield() {
				l.lock.Lock()
				left := len(l.clients) + len(l.using) + len(l.open)
				l.lock.Unlock()
				if left == 0 {
					break
				}
				require.NoError(t, ctx.Err())
			}
		})
	}
}

// A user whose descriptors cannot be closed is refused when they are many; others are not.
func TestOpenDescriptorsAreBounded(t *testing.T) {
	l := &Listener{
		cfg: ListenConfig{ClientsMax: 64}, clients: map[*control]struct{}{}, strange: map[uint32]int{},
		open: map[uint32]int{},
	}
	l.unclose(1, openMax)
	require.ErrorContains(t, l.add(&control{}, 1), "cannot be closed")
	require.NoError(t, l.add(&control{}, 2))
	l.unclose(1, -openMax)
	require.NoError(t, l.add(&control{}, 1))
	require.Empty(t, l.open)
}

// What can be sent or received without waiting is, however late: a process that was stopped for a
// while finds its deadlines passed.
func TestDeadlinesThatHavePassed(t *testing.T) {
	addr := must(address(socketPath(t)))(t)
	l := must(net.ListenUnix(addr.Net, addr))(t)
	defer l.Close()
	conn := must(net.DialUnix(addr.Net, nil, addr))(t)
	other := must(l.AcceptUnix())(t)
	defer other.Close()
	c, late := &control{conn: conn}, &control{conn: other}
	require.NoError(t, conn.SetDeadline(time.Unix(1, 0)))
	require.NoError(t, other.SetDeadline(time.Unix(1, 0)))
	require.NoError(t, c.send(disconnectMessage("bye"), -1))
	m := new(message)
	_, err := late.recv(m)
	require.NoError(t, err)
	require.Equal(t, "bye", m.reason())
	_, err = late.recv(m)
	require.ErrorContains(t, err, "Timeout")
	require.NoError(t, c.send(disconnectMessage("bye"), -1))
	late.interrupt("enough")
	require.ErrorContains(t, errOf(late.recv(m)), "enough")
	require.NoError(t, conn.Close())
}

// unguard takes back what guard did.
func unguard(mapping []byte) error {
	if faults() < 0 {
		return nil
	}
	_ = unix.Munlock(mapping)
	rng := [2]uint64{uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mapping)))), uint64(len(mapping))}
	const uffdioUnregister = 0x8010aa01
	if errno := ioctl(faults(), uffdioUnregister, unsafe.Pointer(&rng)); errno != 0 {
		return errno
	}
	return nil
}
