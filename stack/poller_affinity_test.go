package stack

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestPin(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, during, after unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &before))
	core := anyCore(t)
	restore := must(pin(core))(t)
	require.NoError(t, unix.SchedGetaffinity(0, &during))
	restore()
	require.NoError(t, unix.SchedGetaffinity(0, &after))
	require.Equal(t, 1, during.Count())
	require.True(t, during.IsSet(core))
	require.Equal(t, before, after)
}

func TestPinSaysWhatIsAllowed(t *testing.T) {
	var set unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &set))
	for _, core := range []int{-2, 1000, 5000} {
		require.ErrorContains(t, errOf(pin(core)), "is not available; allowed CPUs: "+cpuList(&set))
	}
}

func TestCPUList(t *testing.T) {
	var set unix.CPUSet
	for _, c := range []int{0, 1, 2, 5, 8, 9, 1023} {
		set.Set(c)
	}
	require.Equal(t, "0-2,5,8-9,1023", cpuList(&set))
	require.Equal(t, "", cpuList(&unix.CPUSet{}))
}
