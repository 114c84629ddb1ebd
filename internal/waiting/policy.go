package waiting

// Policy says what a Poller does when a Turn found no work.
type Policy uint8

const (
	// Adaptive spins, then yields if that costs little, then sleeps up to 50 us: for machines
	// shared with others.
	Adaptive Policy = iota
	// Spin never gives up the core.
	Spin
	// Pause never gives it up, but tells it to wait: for a core whose other hardware thread
	// computes.
	Pause
	// Sleep spins, then sleeps up to 50 us. It never yields.
	Sleep
	// Interrupt is Adaptive, but sleeps until the device, or a goroutine, has something.
	Interrupt
)
