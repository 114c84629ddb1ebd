package rnic

// StartupCounters of an Adapter.
type StartupCounters struct {
	Fallbacks uint64 // connections tried anew in an older dialect
	UnaskedS  uint64 // Replies with an S bit that their Request had not: the bit counts as zero
	WakeUps   uint64 // RDMA Writes of no octets for Quirks.WakeUp
}

// StartupCounters returns what happened in start-up so far. Any goroutine.
func (a *Adapter) StartupCounters() StartupCounters {
	return StartupCounters{
		Fallbacks: a.host.Startup.Fallbacks.Load(), UnaskedS: a.host.Startup.UnaskedS.Load(), WakeUps: a.host.Startup.WakeUps.Load(),
	}
}
