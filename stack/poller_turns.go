package stack

// Turns is how many Turns the Poller has made, for a watchdog: a number that stands still while the
// Poller is not Asleep is a Poller that hangs. Any goroutine.
//
// The Poller counts with a plain store, because an atomic one would be a barrier in each Turn.
// What is read here is an aligned word, which is never torn, and an old value is as good: only
// whether it changes in tens of milliseconds matters. The race detector is told to look away.
//
//go:norace
//go:noinline
func (p *Poller) Turns() uint64 { return p.n.Turns }

// Asleep says that the Poller waits for an interrupt of its device (IdleInterrupt). Any goroutine.
func (p *Poller) Asleep() bool { return p.rouser.Asleep() }
