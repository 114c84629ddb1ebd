package rouse

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// quietDevice never interrupts.
type quietDevice int

func (d quietDevice) Interrupt() (fd int, ok bool) { return int(d), true }
func (quietDevice) Arm(bool)                       {}

func eventfd(t testing.TB) int {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// silentRouser sleeps until it is roused.
func silentRouser(t *testing.T) *Rouser {
	r := &Rouser{MaxNs: int64(time.Hour)}
	r.Init(nil)
	require.NoError(t, r.Prepare(quietDevice(eventfd(t)), nil))
	t.Cleanup(r.Close)
	return r
}

// rouse between the last look and its sleep is not lost, at whichever moment it comes.
func TestRouseIsNeverLost(t *testing.T) {
	r := silentRouser(t)
	for moment := range 2 {
		for range 50 {
			look := func() int {
				if moment == 0 {
					r.Rouse()
				}
				return 0
			}
			deadline := func(int64) (now, at int64) {
				if moment == 1 {
					r.Rouse()
				}
				return 0, int64(time.Hour)
			}
			slept, rung := r.Sleep(look, deadline, false, 0)
			require.True(t, slept)
			require.True(t, rung)
		}
	}
	slept, rung := r.Sleep(func() int { return 1 }, nil, false, 0)
	require.False(t, slept || rung, "work ends it before it begins")
	slept, rung = r.Sleep(func() int {
		return 0
	}, func(int64) (now, at int64) { return 5, 5 }, false, 0)
	require.False(t, slept || rung, "and a deadline that is reached")
}

// A sleep that is deaf lasts as long as it is told, though it is roused, and nobody sees it.
func TestDeafSleep(t *testing.T) {
	r := silentRouser(t)
	const deafNs = 1000
	slept, rung := r.Sleep(func() int {
		require.Zero(t, atomic.LoadUint32(r.asleep))
		r.Rouse()
		return 0
	}, func(maxNs int64) (now, at int64) {
		require.EqualValues(t, deafNs, maxNs)
		return 0, int64(time.Hour)
	}, false, deafNs)
	require.True(t, slept)
	require.False(t, rung)
}

// One that sleeps again and again, with no other processor for Go, leaves its own to who waits
// for it.
func TestSleepLeavesTheProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	Pollers.Add(1)
	defer Pollers.Add(-1)
	r := silentRouser(t)
	var ran atomic.Bool
	go ran.Store(true)
	soon := func(int64) (now, at int64) { return 0, 1 }
	for range 2 { // the scheduler may take us first, once in 61 times
		slept, _ := r.Sleep(func() int { return 0 }, soon, false, 0)
		require.True(t, slept)
	}
	require.True(t, ran.Load())
}

// A rest lasts as long as it is told, though Rouse is called; EndRest ends it, before it begins and
// under way.
func TestRest(t *testing.T) {
	r := silentRouser(t)
	now := stopwatch()
	const ns = int64(time.Millisecond)
	before := now()
	r.Rest(before, ns, true, func() bool {
		r.Rouse()
		return true
	})
	require.GreaterOrEqual(t, now()-before, ns)
	r.Rest(now(), int64(time.Hour), true, func() bool { return false })
	for range 20 {
		r.Rest(now(), int64(time.Hour), true, func() bool {
			go r.EndRest()
			return true
		})
	}
}

// What somebody closes by mistake is made anew: a sleep neither spins nor is deaf, and what has the
// number then is left alone.
func TestDescriptorsClosedByMistake(t *testing.T) {
	for name, which := range map[string]func(r *Rouser) int{
		"epoll": func(r *Rouser) int { return r.epoll },
		"timer": func(r *Rouser) int { return r.timer },
		"rest":  func(r *Rouser) int { return r.rest.epoll },
		"bell":  func(r *Rouser) int { return r.bell.Load().fd },
	} {
		for _, reused := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				r := silentRouser(t)
				fd := which(r)
				if reused {
					other, err := os.Open("/dev/zero")
					require.NoError(t, err)
					require.NoError(t, unix.Dup2(int(other.Fd()), fd))
					require.NoError(t, other.Close())
					defer func() { require.NoError(t, unix.Close(fd), "it is not ours") }()
				} else {
					require.NoError(t, unix.Close(fd))
				}
				r.Rest(1, 1000, true, func() bool { return true })
				r.Rouse() // nobody sleeps
				atomic.StoreUint32(r.asleep, 1)
				r.Rouse()
				now := stopwatch()
				const ns = int64(time.Millisecond)
				for range 3 { // the first finds out
					r.Sleep(func() int { return 0 }, func(int64) (int64, int64) {
						return now(), now() + ns
					}, true, 0)
				}
				go func() {
					for !r.Asleep() {
						runtime.Gosched()
					}
					r.Rouse()
				}()
				_, rung := r.Sleep(func() int { return 0 }, func(int64) (int64, int64) {
					return now(), now() + int64(time.Hour)
				}, true, 0)
				require.True(t, rung)
				require.Len(t, r.lost, 1)
			})
		}
	}
}

// Threads that run no Go end a rest by the Bell's words and descriptor.
func TestRestBell(t *testing.T) {
	fd := eventfd(t)
	bell := &Bell{Asleep: new(uint32), FD: fd, Resting: new(uint32)}
	var r Rouser
	r.Init(bell)
	require.NoError(t, r.Prepare(quietDevice(eventfd(t)), bell))
	defer r.Close()
	now := stopwatch()
	for range 20 {
		r.Rest(now(), int64(time.Hour), true, func() bool {
			require.True(t, atomic.CompareAndSwapUint32(bell.Resting, 1, 0))
			_, err := unix.Write(fd, one[:])
			return err == nil
		})
		require.Zero(t, *bell.Resting)
	}
}
