package mem

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Where the kernel says that it has membarrier's private expedited barrier, it is used.
func TestBarrierOfTheKernel(t *testing.T) {
	const query, private, register = 0, 8, 16 // linux/membarrier.h
	commands, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, query, 0, 0)
	has := errno == 0 && commands&(private|register) == private|register
	require.Equal(t, has, barrierOfAll() != nil)
}
