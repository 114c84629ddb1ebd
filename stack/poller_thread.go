package stack

import (
	"runtime"
	"sync"
)

// ownsThread says whether the Poller keeps one OS thread: when it is pinned to a core or never
// gives it up, when its device wants that (pmd.Caps.OneThread), or when threads that are not Go's
// wait for it (Bell).
//
// Any other Poller is a goroutine like the rest and shares its thread with them. On a machine where
// the cores are no more than the Pollers that is what makes an application beside one fast: what it
// waits for wakes it on the Poller's thread, a switch of 200 ns. If the Poller had the thread for
// itself the kernel would have to find the application another one and give it a core
// (docs/adr/0044-waiting.md).
func (p *Poller) ownsThread() bool {
	c := &p.cfg
	return c.Core != -1 || c.Idle == IdleSpin || c.Idle == IdlePause || c.Caps.OneThread ||
		c.Bell != nil
}

// owners counts the Pollers that keep their thread, and with it one of Go's processors
// (GOMAXPROCS), and how many processors were added for that.
var owners struct {
	sync.Mutex
	n, added int
}

// keepThread locks the goroutine to its thread until release. The rest of the program keeps one
// processor at least: such Pollers never give theirs up.
func keepThread() (release func()) {
	runtime.LockOSThread()
	owners.Lock()
	defer owners.Unlock()
	owners.n++
	have := runtime.GOMAXPROCS(0)
	if add := owners.n + 1 - have; add > 0 {
		owners.added += add
		runtime.GOMAXPROCS(have + add)
	}
	return func() {
		owners.Lock()
		defer owners.Unlock()
		owners.n--
		have := runtime.GOMAXPROCS(0)
		if less := min(owners.added, have-1-owners.n); less > 0 {
			owners.added -= less
			runtime.GOMAXPROCS(have - less)
		}
		runtime.UnlockOSThread()
	}
}
