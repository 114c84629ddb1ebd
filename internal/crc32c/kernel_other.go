//go:build !(amd64 || arm64) || purego

package crc32c

func update(crc uint32, p []byte) uint32 { return updateLibrary(crc, p) }

var kernels = []kernel{{"library", true, updateLibrary}}
