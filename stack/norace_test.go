//go:build !race

package stack

const (
	floodSYNs  = 1_000_000
	siegeTicks = 400
	siegeBuild = 0
)
