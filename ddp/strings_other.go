//go:build !amd64 || race || purego

package ddp

func copyOctets(dst, src []byte) int { return copy(dst, src) }
