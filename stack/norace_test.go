//go:build !race

package stack

const (
	siegeTicks = 400
	siegeBuild = 0
)
