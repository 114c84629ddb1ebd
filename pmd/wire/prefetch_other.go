//go:build !amd64 || purego

package wire

import "unsafe"

func prefetchW(unsafe.Pointer) {}
