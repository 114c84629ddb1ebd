//go:build !amd64 || purego

package stack

// pause is nothing where the instruction is not known.
func pause(int64) {}
