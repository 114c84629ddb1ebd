package stack

// clock is the time of a Turn, read once, and for how long the Poller has not looked before it.
type clock struct {
	source func() int64
	now    int64
	away   int64 // the time since the Turn before this one
	backAt int64 // until when the Poller was to sleep
}

// read begins a Turn. A sleep that the Poller chose does not count as away, until when it wanted to
// be back.
func (k *clock) read() {
	here := max(k.now, k.backAt)
	k.backAt = 0
	k.now = k.source()
	k.away = k.now - here
}

// sleeps says that the Poller chooses to be back at a time or before.
func (k *clock) sleeps(until int64) { k.backAt = until }
