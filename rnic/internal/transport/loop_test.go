package transport

import (
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/rouse"
)

// own says whether a loop's own goroutine is there.
func own() bool {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return strings.Contains(string(stacks), "(*Loop).begin in goroutine")
}

// drivenLoop has no goroutine of its own.
func drivenLoop(t *testing.T) *Loop {
	l := newLoop(t)
	require.NoError(t, l.sockets.open())
	require.NoError(t, l.rouser.Prepare(&l.sockets, nil))
	l.running = true
	return l
}

// drivenEnds are two connected ends over a drivenLoop.
func drivenEnds(t *testing.T) (l *Loop, ends [2]*end) {
	l = drivenLoop(t)
	ours, theirs := socketPair(t)
	slots := NewSlots(2, 0)
	ends[0], _ = kernelEnd(t, l, ours, slots)
	ends[1], _ = kernelEnd(t, l, theirs, slots)
	return l, ends
}

// Who polls needs no other goroutine: its Turns send, receive and end connections, one at a time.
func TestDrive(t *testing.T) {
	l, ends := drivenEnds(t)
	drive := func(what string, holds func() bool) {
		t.Helper()
		for late := time.Now().Add(patience); !holds(); l.Drive() {
			require.True(t, time.Now().Before(late), what)
		}
	}
	var pools [2]*bufPool
	for i, e := range ends {
		l.do(func() { e.conn.EnterFull(2) })
		pools[i] = e.conn.(*KernelConn).pool
	}
	all := ""
	for _, octets := range []string{"ping", strings.Repeat("bulk", 1<<20)} {
		all += octets
		for i, e := range ends {
			e.out = []byte(octets)
			e.conn.Wake()
			o := ends[1-i]
			drive("octets", func() bool { return len(o.in) == len(all) })
			require.True(t, all == string(o.in))
		}
	}
	l.hold()
	require.False(t, l.Drive(), "one at a time")
	l.release()
	for l.Drive() {
	}
	vain := l.vainly.Load()
	l.Drive()
	require.Equal(t, vain+1, l.vainly.Load())
	_ = ends[0].conn.Submit(ends[0].conn.Abort)
	drive("both ends", func() bool { return ends[0].gone && ends[1].gone })
	require.Same(t, pools[0], pools[1])
	require.Zero(t, pools[0].conns)
	require.GreaterOrEqual(t, pools[0].Available(), pools[0].Size()-readSlots, "of the next read")
	require.False(t, own())
}

// Who makes one Turn and no more does not leave what that has not sent to lie: the loop's own
// goroutine goes on with it.
func TestDriveLeavesTheRestToTheLoop(t *testing.T) {
	ours, peer := socketPair(t)
	l := newLoop(t)
	e, s := kernelEnd(t, l, ours, NewSlots(1, 0))
	const octets = 4 * writesMax * socketWriteMax
	require.NoError(t, peer.SetReadDeadline(time.Now().Add(patience)))
	// the socket takes all that there is: it will not say that it can take more
	require.NoError(t, unix.SetsockoptInt(s.socket.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 2*octets))
	for rounds := 0; rounds < 5; {
		require.Eventually(t, l.rouser.Asleep, patience, time.Millisecond)
		l.hold()
		e.out = make([]byte, octets)
		l.activate(&s.member)
		l.release()
		if l.Drive() { // else the loop itself was at its last look
			rounds++
		}
		must(io.CopyN(io.Discard, peer, octets))(t)
	}
	e.do(s.Abort)
	e.until("its end", func() bool { return e.gone })
}

// The loop's own goroutine is there while there are connections, serves them where nobody polls,
// and rests beside one who does: what comes then waits for that one, or for the rest's end.
func TestLoopsOwnGoroutine(t *testing.T) {
	// another test's
	require.Eventually(t, func() bool { return !own() }, patience, time.Millisecond)
	contract(t, func(t *testing.T, a, b *end) {
		s, ok := a.conn.(*KernelConn)
		if !ok {
			return
		}
		require.True(t, own())
		for i := range 20 {
			for range 100 { // polls in vain
				s.loop.Drive()
			}
			s.loop.Attend()
			a.send([]byte("x"))
			b.until("an octet", func() bool { return len(b.in) == i+1 })
		}
	})
	require.Eventually(t, func() bool { return !own() }, patience, time.Millisecond)
}

// With OnTurn the loop runs from the beginning, calls it in each Turn, and sleeps where that finds
// nothing; threads that run no Go wake it by the Bell.
func TestLoopBell(t *testing.T) {
	fd := must(unix.Eventfd(0, unix.EFD_CLOEXEC))(t)
	defer unix.Close(fd)
	bell := &rouse.Bell{Asleep: new(uint32), FD: fd}
	posted, found := make(chan struct{}, 1), make(chan struct{}, 1)
	l := must(NewLoop(LoopConfig{Start: time.Now(), Bell: bell, OnTurn: func() int {
		select {
		case <-posted:
			found <- struct{}{}
			return 1
		default:
			return 0
		}
	}}))(t)
	for range 20 {
		require.Eventually(t, l.rouser.Asleep, patience, 100*time.Microsecond)
		posted <- struct{}{}
		l.rouser.Rouse()
		<-found
	}
	l.do(func() { l.cfg.OnTurn = nil }) // it would be there for as long as the process
	require.Eventually(t, func() bool { return !own() }, patience, time.Millisecond)
}

// A loop that leaves the sockets to callers is told by its Bell that one of them waits, and then
// looks after them.
func TestLoopBellTellsOfWaits(t *testing.T) {
	bell := &rouse.Bell{Asleep: new(uint32), FD: -1, Waits: new(uint32), Polls: new(uint64)}
	l := must(NewLoop(LoopConfig{Start: time.Now(), Bell: bell}))(t)
	r := newLoopRunner(l)
	l.vainly.Store(10)
	require.True(t, r.stay())
	*bell.Waits = 1
	require.False(t, r.stay())
	require.Zero(t, *bell.Waits)
	require.False(t, r.stay(), "nobody has polled since")
	l.vainly.Store(20)
	require.True(t, r.stay())
	*bell.Waits = 1
	require.False(t, r.stay())
	*bell.Polls++
	require.True(t, r.stay(), "a poll found work, but not what it was for")
	l.Attend()
	require.False(t, r.stay())
}

// What was posted leaves before a Turn reads: the other end may wait for it, and a read that finds
// nothing takes as long as a send.
func TestTurnSendsFirst(t *testing.T) {
	l := newLoop(t)
	order := ""
	s := &member{conn: &scripted{received: func() bool { order += "r"; return true },
		served: func() { order += "s" }}}
	l.conns, l.hot, l.running = 1, s, true
	l.wake(s)
	require.Equal(t, 2, l.turn(true, false))
	require.Equal(t, "sr", order)
	require.Equal(t, 1, l.turn(true, false))
	require.Equal(t, "srr", order)
}

// Later is called in the next Turn, after that has read: what has come then may be acknowledged
// together with what came before.
func TestLaterIsAfterTheRead(t *testing.T) {
	l, ends := drivenEnds(t)
	l.Drive()
	l.do(ends[0].conn.SendLater)
	require.Zero(t, ends[0].later)
	ends[1].out = []byte("octets")
	ends[1].conn.Wake()
	l.Drive()
	require.Equal(t, 1, ends[0].later)
	require.Equal(t, len("octets"), ends[0].laterAt)
	l.Drive()
	require.Equal(t, 1, ends[0].later)
}

// A descriptor that the program closes by mistake ends its connection, not the process, and what
// has its number afterwards is left alone.
func TestDescriptorClosedByMistake(t *testing.T) {
	contract(t, func(t *testing.T, a, b *end) {
		s, ok := a.conn.(*KernelConn)
		if !ok {
			return
		}
		var fd int
		a.do(func() {
			fd = s.socket.fd
			other, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
			require.NoError(t, err)
			require.NoError(t, unix.Dup2(other, fd))
			require.NoError(t, unix.Close(other))
		})
		b.until("the peer's end", func() bool { return b.peerEnded || b.gone })
		a.send([]byte("more"))
		a.until("closed", func() bool { return a.gone })
		a.do(func() { require.Error(t, a.err) })
		require.NoError(t, unix.Close(fd), "somebody else's was closed")
	})
}

// scripted is a member that does what a test says.
type scripted struct {
	received func() bool
	served   func()
}

func (s *scripted) receive() bool { return s.received != nil && s.received() }
func (s *scripted) serve()        { s.served() }

// A wake in the middle of the last look before a sleep, which leaves it to the holder, is heard.
func TestWakeInLastLook(t *testing.T) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(fd)
	var l *Loop
	served, made := make(chan struct{}), make(chan struct{})
	rings := &member{conn: &scripted{served: func() { close(served) }}}
	late := &member{conn: &scripted{received: sync.OnceValue(func() bool {
		rang := make(chan struct{})
		go func() { // somebody else
			l.wake(rings)
			close(rang)
		}()
		<-rang
		return false // nothing has come
	})}}
	once := false
	l, err = NewLoop(LoopConfig{Start: time.Now(), Bell: &rouse.Bell{Asleep: new(uint32), FD: fd},
		OnTurn: func() int {
			<-made
			if !once && l.rouser.Asleep() {
				once = true
				l.list(late)
			}
			return 0
		}})
	close(made)
	require.NoError(t, err)
	select {
	case <-served:
	case <-time.After(patience):
		t.Fatal("the loop sleeps, and nobody will rouse it")
	}
	l.do(func() { l.cfg.OnTurn = nil })
	require.Eventually(t, func() bool { return !own() }, patience, time.Millisecond)
}

// Where the last connection has ended just before a sleep, there is none: its descriptors would be
// closed, or another sleep's by then.
func TestNoSleepWithoutConnections(t *testing.T) {
	l, ends := drivenEnds(t)
	r := newLoopRunner(l)
	for _, e := range ends {
		_ = e.conn.Submit(e.conn.Abort)
	}
	for !ends[0].gone || !ends[1].gone {
		l.Drive()
	}
	require.NotZero(t, r.look())
	require.False(t, r.over)
	require.True(t, l.runs(), "the descriptors are there")
	for !r.over {
		r.step()
	}
	require.False(t, l.runs())
}

// The loop's own goroutine leaves its processor to one whose Turn takes long, who may need it, and
// goes on once that is over, although nobody polls.
func TestLongTurn(t *testing.T) {
	l, ends := drivenEnds(t)
	for l.Drive() {
	}
	l.Attend()
	r := newLoopRunner(l)
	l.hold()
	r.step()
	r.inTurn += int64(patience) // however late this test is
	require.False(t, r.stay(), "it may be over soon")
	r.inTurn -= int64(patience) + longTurnNs
	require.True(t, r.stay())
	l.release()
	require.False(t, r.stay(), "it is over")

	l.hold()
	r.inTurn = l.clock() - longTurnNs
	rested := make(chan struct{})
	go func() {
		l.rouser.Rest(l.clock(), int64(2*patience), true, r.stay)
		close(rested)
	}()
	require.Eventually(t, l.rouser.Resting, patience, 100*time.Microsecond)
	ends[0].out = []byte("ping")
	l.activate(&ends[0].conn.(*KernelConn).member)
	l.release()
	for !l.Drive() { // the Turn that was long, and found work
	}
	select {
	case <-rested:
	case <-time.After(patience):
		t.Fatal("it rests on")
	}
	r.step()
	require.Zero(t, r.inTurn)
}

// The loop's own goroutine leaves the loop to a caller who has polled all through a Turn of its
// own, however long that was; not to one who has called now and then.
func TestLongTurnOfItsOwn(t *testing.T) {
	for calls, rests := range map[int]bool{shutShare - 1: false, 3 * shutShare: true} {
		l, _ := drivenEnds(t)
		for l.Drive() {
		}
		l.Attend()
		r := newLoopRunner(l)
		l.cfg.OnTurn = func() int {
			l.cfg.Start = l.cfg.Start.Add(-time.Second) // that long
			for range calls {
				require.False(t, l.Drive())
			}
			return 1
		}
		r.step()
		before := l.turns
		r.step()
		require.Equal(t, rests, l.turns == before, "%d calls", calls)
	}
}

// One who ends the last connection wakes the loop's own goroutine, which is to end.
func TestDriveEndsLoop(t *testing.T) {
	l := drivenLoop(t)
	l.conns = 1
	over := make(chan struct{})
	go func() {
		l.run()
		close(over)
	}()
	require.Eventually(t, l.rouser.Asleep, patience, 100*time.Microsecond)
	l.hold()
	l.conns = 0 // as by Drive's own Turn
	l.release()
	l.Drive()
	select {
	case <-over:
	case <-time.After(patience):
		t.Fatal("it sleeps on")
	}
}

// A connection of which each Turn reads something does not keep others from being read.
func TestHotConnectionStarvesNobody(t *testing.T) {
	l := newLoop(t)
	require.NoError(t, l.sockets.open())
	defer l.sockets.close()
	l.conns = 2
	hot := &member{conn: &scripted{received: func() bool { return true }, served: func() {}}}
	read := false
	other := &member{conn: &scripted{received: func() bool { read = true; return true },
		served: func() {}}}
	fds := must(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0))(t)
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	other.socket.fd = fds[0]
	require.NoError(t, l.sockets.add(other))
	l.look() // that it can be written to
	l.ready = l.ready[:0]
	other.listed = false
	l.hot = hot
	must(unix.Write(fds[1], []byte("x")))(t)
	for turns := 0; !read; turns++ {
		require.Less(t, turns, 32)
		l.hot = hot
		l.turn(true, l.looks())
	}
}

// Buffers for what sockets do not take are not kept for good.
func TestSpareSegments(t *testing.T) {
	l := newLoop(t)
	for range 2 * spareMax {
		l.keep(new(segments))
	}
	require.Len(t, l.spare, spareMax)
}

// Where the loop's epoll is closed by mistake, connections go on with another one, and what has its
// number then is left alone.
func TestEpollClosedByMistake(t *testing.T) {
	for name, other := range map[string]func() (int, error){
		"closed": nil,
		"a file": func() (int, error) { return unix.Open("/dev/zero", unix.O_CLOEXEC, 0) },
		"another epoll": func() (int, error) {
			theirs, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
			if err != nil {
				return -1, err
			}
			fd, err := unix.Eventfd(1, unix.EFD_CLOEXEC)
			if err != nil {
				return -1, err
			}
			ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: 1 << 20}
			return theirs, unix.EpollCtl(theirs, unix.EPOLL_CTL_ADD, fd, &ev)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, ends := drivenEnds(t)
			for l.Drive() {
			}
			fd := l.sockets.fd
			if other == nil {
				require.NoError(t, unix.Close(fd))
			} else {
				theirs := must(other())(t)
				require.NoError(t, unix.Dup3(theirs, fd, unix.O_CLOEXEC))
				defer func() { require.NoError(t, unix.Close(fd)) }()
				require.NoError(t, unix.Close(theirs))
			}
			for i := range 20 {
				ends[0].out = []byte("x")
				ends[0].conn.Wake()
				for late := time.Now().Add(patience); len(ends[1].in) <= i; l.Drive() {
					require.True(t, time.Now().Before(late))
				}
			}
			l.unseen = unseenMax // look
			l.Drive()
			if other != nil {
				require.NotEqual(t, fd, l.sockets.fd)
			}
			before := l.idly
			for range 100 {
				l.Drive()
			}
			require.Equal(t, before+100, l.idly, "there is no more")
			for i, e := range ends {
				_ = e.conn.Submit(e.conn.Abort)
				for !ends[i].gone {
					l.Drive()
				}
			}
			l.sockets.close()
			l.rouser.Close()
		})
	}
}

// The loop's own goroutine finds that, too, when it looks the next time.
func TestOwnGoroutineReopensEpoll(t *testing.T) {
	contract(t, func(t *testing.T, a, b *end) {
		s, ok := a.conn.(*KernelConn)
		if !ok {
			return
		}
		a.do(func() { require.NoError(t, unix.Close(s.loop.sockets.fd)) })
		require.Eventually(t, s.loop.rouser.Asleep, patience, time.Millisecond)
		s.loop.rouser.Rouse() // in place of the longest sleep
		for i := range 20 {
			a.send([]byte("x"))
			b.until("an octet", func() bool { return len(b.in) == i+1 })
		}
	})
}

// Octets that a peer calls urgent are the stream's as others are, and those after them come at
// once, although a read stops there.
func TestUrgentOctets(t *testing.T) {
	l := drivenLoop(t)
	ours, peer := socketPair(t)
	e, s := kernelEnd(t, l, ours, NewSlots(1, 0))
	raw := must(peer.SyscallConn())(t)
	sends := func(octets string, flags int) {
		require.NoError(t, raw.Control(func(fd uintptr) {
			require.NoError(t, unix.Send(int(fd), []byte(octets), flags))
		}))
	}
	all := ""
	for range 20 {
		for _, part := range []struct {
			octets string
			flags  int
		}{{"abc", 0}, {"d", unix.MSG_OOB}, {"efg", 0}, {"hi", unix.MSG_OOB}, {"j", 0}} {
			sends(part.octets, part.flags)
			all += part.octets
		}
		for range 10 { // as the loop's own goroutine does: it reads nothing that it was not told of
			l.turn(true, true)
		}
		require.Equal(t, all, string(e.in))
	}
	_ = s.Submit(s.Abort)
	for !e.gone {
		l.Drive()
	}
	l.sockets.close()
	l.rouser.Close()
}
