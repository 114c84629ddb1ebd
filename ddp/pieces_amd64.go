//go:build !race && !purego

package ddp

import "golang.org/x/sys/cpu"

var hasCopyLong = cpu.X86.HasAVX

// copyLong copies pieces to dst, one after the other, up to the first one of less than 32 octets or
// that dst has no room for. It returns how many pieces and octets it copied. A piece does not
// overlap dst.
//
//go:noescape
func copyLong(dst []byte, pieces [][]byte) (done, octets int)
