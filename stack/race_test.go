//go:build race

package stack

// Under the race detector, which makes each octet cost ten times as much, and where a Poller is one goroutine anyway, attacks
// are shorter.
const (
	floodSYNs  = 50_000
	siegeTicks = 100
)
