//go:build race

package stack

// Under the race detector, which makes each octet cost ten times as much, and where a Poller is one
// goroutine anyway, attacks are shorter.
const (
	siegeTicks = 100
	// siegeBuild is how long some hoarders are given more, of which the longer attack is rid when it
	// is over: up to 2 s.
	siegeBuild = 45_000
)
