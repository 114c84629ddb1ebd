//go:build !amd64 || race || purego

package ddp

const hasCopyLong = false

func copyLong([]byte, [][]byte) (done, octets int) { return 0, 0 }
