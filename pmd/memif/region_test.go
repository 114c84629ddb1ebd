package memif

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/skip"
)

// Of linux/seccomp.h.
type (
	seccompCall struct {
		id       uint64
		pid      uint32
		flags    uint32
		nr       int32
		arch     uint32
		from     uint64
		argument [6]uint64
	}
	seccompAnswer struct {
		id           uint64
		value        int64
		error, flags uint32
	}
)

// announce has the kernel hold this thread in each of two system calls until the listener that is
// returned says what becomes of it: seccomp(2), SECCOMP_RET_USER_NOTIF.
func announce(first, second uint32) (listener int, err error) {
	equal := func(k uint32, yes uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jt: yes}
	}
	f := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		equal(first, 2), equal(second, 1),
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_USER_NOTIF},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, err
	}
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	r, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return -1, errno
	}
	return int(r), nil
}

// mapRegionWhile returns how mapRegion of size octets ends when the client acts right before
// the first system call of number nr, and whether there was one.
func mapRegionWhile(t *testing.T, fd int, size uint64, nr uint32,
	act func()) (acted bool, err error) {
	const over = ^uint64(0) // a descriptor that is none: the thread has done its work
	listeners, errs := make(chan int, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // it ends with this goroutine
		listener, err := announce(unix.SYS_FCNTL, unix.SYS_FSTAT)
		listeners <- listener
		if err != nil {
			errs <- err
			return
		}
		r, err := mapRegion(fd, size, true)
		if err == nil {
			unmapAll([]region{r})
		}
		_, _ = unix.FcntlInt(uintptr(over), unix.F_GETFD, 0)
		errs <- err
	}()
	listener := <-listeners
	if listener < 0 {
		skip.Missing(t, "needs seccomp's listeners: %v", <-errs)
	}
	defer unix.Close(listener)
	for done := false; !done; {
		var c seccompCall
		switch err := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&c)); err {
		case 0:
		case unix.EINTR, unix.ENOENT: // a signal took the thread out of its call, which it begins again
			continue
		default:
			require.NoError(t, err)
		}
		done = uint32(c.argument[0]) == uint32(over&0xffffffff)
		if !done && uint32(c.nr) == nr && !acted {
			act()
			acted = true
		}
		a := seccompAnswer{id: c.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if err := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&a)); err != 0 {
			require.ErrorIs(t, err, unix.ENOENT)
			done = false // as above
		}
	}
	return acted, <-errs
}

// A region's size is read when its file can shrink no more: there is no moment at which a client
// can cut it shorter, and then seal it, and have memory mapped that is not there.
func TestRegionCutWhileItIsTaken(t *testing.T) {
	page := int64(unix.Getpagesize())
	for name, c := range map[string]struct {
		before uint32
		acts   bool
		want   string
	}{
		"before its seals are read": {unix.SYS_FCNTL, true, "Region of"},
		"before its size is read":   {unix.SYS_FSTAT, false, "not sealed against shrinking"},
	} {
		t.Run(name, func(t *testing.T) {
			fd := must(unix.MemfdCreate("cut", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING))(t)
			defer unix.Close(fd)
			require.NoError(t, unix.Ftruncate(fd, 2*page))
			acted, err := mapRegionWhile(t, fd, uint64(2*page), c.before, func() {
				require.NoError(t, unix.Ftruncate(fd, page))
				must(unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK))(t)
			})
			require.ErrorContains(t, err, c.want)
			require.Equal(t, c.acts, acted)
		})
	}
}
