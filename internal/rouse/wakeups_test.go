package rouse

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func newWakeups(t *testing.T) (w *wakeups, device, bell int) {
	w, device, bell = new(wakeups), eventfd(t), eventfd(t)
	require.NoError(t, w.open(device, bell))
	t.Cleanup(w.close)
	return w, device, bell
}

// The timer is set once for the sleeps that it is early enough for.
func TestTimerIsSetAhead(t *testing.T) {
	w, _, _ := newWakeups(t)
	hour := int64(time.Hour)
	require.True(t, w.set(5, hour))
	require.False(t, w.set(6, 2*hour), "it ends that sleep, too")
	require.False(t, w.set(5, hour))
	require.True(t, w.set(6, hour-2), "too late for that one")
	require.False(t, w.set(hour+3, hour))
	require.True(t, w.set(hour+4, hour), "it has gone off")
}

// A sleep ends when it is due, or a signal comes, also where the timer was set for later.
func TestSleepEndsInTime(t *testing.T) {
	w, _, _ := newWakeups(t)
	now := stopwatch()
	for _, tell := range []bool{false, true} {
		for _, ns := range []int64{1000, quietSleepMaxNs, 5 * quietSleepMaxNs} {
			w.set(now(), int64(time.Hour))
			before := now()
			for end := before + ns; now() < end; {
				w.await(now(), end-now(), tell)
			}
			require.Less(t, now()-before, ns+int64(10*time.Second),
				"a busy machine's scheduler has its say, an hour is another thing")
		}
	}
}

func stopwatch() (now func() int64) {
	start := time.Now()
	return func() int64 { return int64(time.Since(start)) + 1 }
}

// lastKind sleeps, and says which event came last; -1: none, a signal.
func lastKind(w *wakeups) int32 {
	var events [wakeKinds]unix.EpollEvent
	n, _ := unix.EpollWait(w.epoll, events[:], -1)
	kind := int32(-1)
	for i := range max(n, 0) {
		if kind = events[i].Fd; kind == wakeTimer {
			w.due = 0
		}
	}
	return kind
}

// A bell that rings before a sleep or in it ends that one and none after it, although nobody reads
// it; a device's interrupt ends each until the device takes it back.
func TestBellIsNotRead(t *testing.T) {
	w, device, bell := newWakeups(t)
	write := func(fd int) {
		_, err := unix.Write(fd, one[:])
		require.NoError(t, err)
	}
	now := stopwatch()
	for i := range 100 {
		tell := i%2 == 0
		w.due = 0
		write(bell)
		w.await(now(), int64(time.Hour), tell)
		written := make(chan struct{})
		go func() {
			write(bell)
			close(written)
		}()
		w.await(now(), int64(time.Hour), true)
		<-written
		write(device)
		for range 2 {
			w.await(now(), int64(time.Hour), tell)
		}
		var n [8]byte
		_, err := unix.Read(device, n[:])
		require.NoError(t, err)
	}
	w.set(now(), int64(time.Millisecond))
	for w.due != 0 {
		require.NotEqual(t, wakeBell, lastKind(w), "one that has ended a sleep ends none after it")
	}
}

// What has come ends a sleep whose first part is quiet: there is no second part, which a bell
// that is not read would not end.
func TestBellEndsAQuietSleep(t *testing.T) {
	w, _, bell := newWakeups(t)
	_, err := unix.Write(bell, one[:])
	require.NoError(t, err)
	w.await(1, int64(time.Hour), false) // else an hour
	require.Contains(t, []int64{0, 1 + quietSleepMaxNs}, w.due, "0: the timer has gone off meanwhile")
}

// BenchmarkHandover hands one core back and forth between two threads: a round trip is two sleeps
// and two wake-ups. What a timeout of each sleep's own costs, beside a timer that was set before.
func BenchmarkHandover(b *testing.B) {
	poll := func(timeout time.Duration) func(fd int) {
		return func(fd int) {
			fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			ts := unix.NsecToTimespec(int64(timeout))
			p := &ts
			if timeout == 0 {
				p = nil
			}
			_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])), 1,
				uintptr(unsafe.Pointer(p)), 0, 0, 0)
			if fds[0].Revents == 0 {
				return
			}
			var n [8]byte
			_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&n)),
				uintptr(len(n)))
		}
	}
	for _, way := range []struct {
		name  string
		sleep func(b *testing.B, fd int) func()
	}{
		{"wakeups", func(b *testing.B, fd int) func() {
			var w wakeups
			require.NoError(b, w.open(eventfd(b), fd))
			b.Cleanup(w.close)
			w.set(1, int64(time.Hour))
			return func() { w.wait(false) }
		}},
		{"ppoll", func(b *testing.B, fd int) func() { return func() { poll(0)(fd) } }},
		{"ppoll_1ms", func(b *testing.B, fd int) func() { return func() { poll(time.Millisecond)(fd) } }},
		{"ppoll_100us", func(b *testing.B, fd int) func() {
			return func() { poll(100 * time.Microsecond)(fd) }
		}},
	} {
		b.Run(way.name, func(b *testing.B) {
			bells := [2]int{eventfd(b), eventfd(b)}
			sleeps := [2]func(){way.sleep(b, bells[0]), way.sleep(b, bells[1])}
			var turn atomic.Int64 // whose: a signal ends a sleep, too
			side := func(me int64) {
				for turn.Load()&1 != me {
					sleeps[me]()
				}
				turn.Add(1)
				_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(bells[1-me]), uintptr(unsafe.Pointer(&one)),
					8)
			}
			onOneCore := func() {
				runtime.LockOSThread() // for good: the thread ends with its goroutine
				var set unix.CPUSet
				require.NoError(b, unix.SchedGetaffinity(0, &set))
				core := 0
				for !set.IsSet(core) {
					core++
				}
				set.Zero()
				set.Set(core)
				require.NoError(b, unix.SchedSetaffinity(0, &set))
			}
			var run sync.WaitGroup
			for me := range int64(2) {
				run.Go(func() {
					onOneCore()
					for range b.N {
						side(me)
					}
				})
			}
			run.Wait()
		})
	}
}
