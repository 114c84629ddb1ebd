package owned

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestOwned(t *testing.T) {
	for _, fd := range []int{0, 63, 64, Max - 1} {
		require.False(t, Has(fd))
		Keep(fd)
		require.True(t, Has(fd))
		require.False(t, Has(fd+1))
		Forget(fd)
		require.False(t, Has(fd))
	}
	for _, fd := range []int{-1, Max, Max + 64} {
		Keep(fd)
		require.False(t, Has(fd))
		Forget(fd)
	}
	require.Equal(t, Table{}, All)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	require.NoError(t, err)
	Keep(fd)
	require.NoError(t, Close(fd))
	require.False(t, Has(fd))
	require.ErrorIs(t, unix.Close(fd), unix.EBADF)
}

// Go's runtime has one epoll, an eventfd in it, and no other is kept.
func TestKeepRuntime(t *testing.T) {
	other, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(other)
	require.NoError(t, KeepRuntime())
	kinds := map[string]int{}
	for fd := range 1024 {
		if Has(fd) {
			Forget(fd)
			require.NotEqual(t, other, fd)
			to, err := os.Readlink(fmt.Sprint("/proc/self/fd/", fd))
			require.NoError(t, err)
			kinds[to]++
		}
	}
	require.Equal(t, map[string]int{"anon_inode:[eventpoll]": 1, "anon_inode:[eventfd]": 1}, kinds)
}
