package owned

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Max is how many descriptors the table has room for: the lowest numbers, which the kernel gives
// first. Those above are not protected.
const Max = 1 << 16

// Table has a bit for each number. Threads that run no Go read it.
type Table [Max / 64]uint64

// All is the process's.
var All Table

func (t *Table) word(fd int) (word *uint64, bit uint64) {
	if fd < 0 || fd >= Max {
		return new(uint64), 0
	}
	return &t[fd/64], 1 << (fd % 64)
}

// Keep says that fd is owned from now on. Any goroutine.
func Keep(fd int) {
	word, bit := All.word(fd)
	atomic.OrUint64(word, bit)
}

// Forget says that it is not, before it is closed or given away: its number may be the program's
// next. Any goroutine.
func Forget(fd int) {
	word, bit := All.word(fd)
	atomic.AndUint64(word, ^bit)
}

// Has says whether fd is owned. Any goroutine.
func Has(fd int) bool {
	word, bit := All.word(fd)
	return atomic.LoadUint64(word)&bit != 0
}

// Close closes fd, which may be owned. Any goroutine.
func Close(fd int) error {
	Forget(fd)
	return unix.Close(fd)
}
