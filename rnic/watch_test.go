package rnic

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Memory reaches what is registered with its domain and as it is registered, and finds that it is
// there no more.
func TestMemory(t *testing.T) {
	a := must(Open(Config{}))
	pd, other := a.AllocPD(), a.AllocPD()
	const size = 1 << 16
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	readable := must(pd.Register(b[:size/2], RemoteRead))
	writable := must(pd.Register(b[size/2:], LocalWrite))
	m := a.NewMemory()
	m.Enter()
	for _, x := range []struct {
		pd   *ProtectionDomain
		s    SGE
		need Access
		ok   bool
	}{
		{pd, readable.Slice(8, 16), 0, true}, {pd, readable.Slice(8, 16), LocalWrite, false},
		{pd, writable.Slice(0, 16), LocalWrite, true}, {other, writable.Slice(0, 16), 0, false},
		{pd, SGE{}, LocalWrite, true}, {pd, SGE{Length: 1}, 0, false},
		{pd, SGE{Offset: size/2 - 1, Length: 2, STag: writable.STag()}, 0, false},
	} {
		got, ok := m.Find(x.pd, x.s, x.need)
		require.Equal(t, x.ok, ok, "%+v", x)
		if ok {
			require.Len(t, got, int(x.s.Length))
		}
	}
	to, _ := m.Find(pd, writable.Slice(0, 4), LocalWrite)
	require.True(t, m.Copy(to, []byte("some")))
	require.Equal(t, "some", string(b[size/2:][:4]))
	require.NoError(t, unix.Mprotect(b, unix.PROT_NONE))
	require.False(t, m.Copy(to, []byte("some")))
	m.Exit()
	require.NoError(t, unix.Mprotect(b, unix.PROT_READ|unix.PROT_WRITE))
	readable.Deregister()
	writable.Deregister()
	require.NoError(t, unix.Munmap(b))
}

// An Adapter over Pollers has no loop that could watch a descriptor.
func TestWatchOverPollers(t *testing.T) {
	_, err := (&Adapter{}).Watch(0, nil)
	require.Error(t, err)
}
