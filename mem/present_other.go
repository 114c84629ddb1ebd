//go:build !linux

package mem

// MakePresent has no way to ask here: b is taken as it is.
func MakePresent([]byte, bool) error { return nil }
