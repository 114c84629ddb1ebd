package mem

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/skip"
)

const testPage = 4096

// mapped maps a new file of so many octets.
func mapped(t *testing.T, octets, length, prot, flags int) []byte {
	t.Helper()
	f := must(os.OpenFile(filepath.Join(t.TempDir(), "region"), os.O_RDWR|os.O_CREATE, 0o600))(t)
	defer f.Close()
	require.NoError(t, f.Truncate(int64(octets)))
	b := must(unix.Mmap(int(f.Fd()), 0, length, prot, flags))(t)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(b)) })
	return b
}

// Memory that this process cannot reach itself is not given to peers: what it may not do, they
// would do for it, and the first octet placed would end the process.
// req: DDP-10.3-5, 5041-8.3.2-3, 5042-7.3-1
func TestRegisterWantsTheRightItself(t *testing.T) {
	if !canPopulate() {
		skip.Missing(t, "Linux before 5.14 cannot be asked")
	}
	const rd, rw = unix.PROT_READ, unix.PROT_READ | unix.PROT_WRITE
	table := NewTable(32)
	readOnly := mapped(t, 4*testPage, 4*testPage, rd, unix.MAP_SHARED)
	private := mapped(t, 4*testPage, 4*testPage, rw, unix.MAP_PRIVATE)
	tooLong := mapped(t, testPage, 4*testPage, rw, unix.MAP_SHARED) // beyond the end of the file
	none := must(unix.Mmap(-1, 0, 4*testPage, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS))(t)
	defer func() { require.NoError(t, unix.Munmap(none)) }()
	hole := must(unix.Mmap(-1, 0, 4*testPage, rw, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS))(t)
	defer func() { require.NoError(t, unix.Munmap(hole)) }()
	require.NoError(t, unix.Mprotect(hole[2*testPage:3*testPage], rd))
	for name, c := range map[string]struct {
		b   []byte
		opt RegionOptions
		ok  bool
	}{
		"no right, to send":               {none, RegionOptions{}, false},
		"no right, to be written":         {none, RegionOptions{Access: RemoteWrite}, false},
		"read-only, to be read":           {readOnly, RegionOptions{Access: RemoteRead}, true},
		"read-only, to be written":        {readOnly, RegionOptions{Access: RemoteWrite}, false},
		"read-only, to receive":           {readOnly, RegionOptions{Access: LocalWrite}, false},
		"read-only, for writable windows": {readOnly, RegionOptions{Windows: RemoteWrite}, false},
		"read-only, for readable windows": {readOnly, RegionOptions{Windows: RemoteRead}, true},
		"read-only, to be cleared": {readOnly, RegionOptions{Access: RemoteRead, Zero: true},
			false},
		"private":                   {private, RegionOptions{Access: RemoteWrite}, true},
		"after the end of the file": {tooLong, RegionOptions{Access: RemoteRead}, false},
		"the last octets of the file": {tooLong[testPage-1 : testPage],
			RegionOptions{Access: RemoteWrite}, true},
		"one octet after the end": {tooLong[testPage-1 : testPage+1],
			RegionOptions{Access: RemoteWrite}, false},
		"around a page that is read-only": {hole[1:], RegionOptions{Access: RemoteWrite}, false},
		"up to a page that is read-only": {hole[1 : 2*testPage], RegionOptions{Access: RemoteWrite},
			true},
		"into a page that is read-only": {hole[1 : 2*testPage+1], RegionOptions{Access: RemoteWrite},
			false},
		"after a page that is read-only": {hole[3*testPage:], RegionOptions{Access: RemoteWrite},
			true},
		"a page that is read-only, to read": {hole[1:], RegionOptions{Access: RemoteRead}, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := table.Len()
			m, err := table.Register(1, c.b, c.opt)
			if c.ok {
				require.NoError(t, err)
				m.Deregister()
				return
			}
			var bad *AccessError
			require.ErrorAs(t, err, &bad)
			require.Equal(t, len(c.b), bad.Octets)
			require.ErrorContains(t, err, "by this process")
			require.Equal(t, before, table.Len())
		})
	}
}

// Any memory of the process serves, whatever lies around it, and is as it was.
func TestRegisterAnyMemory(t *testing.T) {
	heap := make([]byte, 3*testPage)
	arena := must(hugepages.New(hugepages.Config{Bytes: 2 << 20, Node: hugepages.AnyNode}))(t)
	defer arena.Close()
	t.Logf("arena on pages of %v", arena.PageSize())
	for name, whole := range map[string][]byte{
		"heap": heap, "arena": arena.Bytes(),
		"over": hugepages.Over(arena.Bytes(), hugepages.Normal).Bytes(),
		"file": mapped(t, 3*testPage, 3*testPage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED),
	} {
		t.Run(name, func(t *testing.T) {
			table := NewTable(4)
			for _, b := range [][]byte{whole, whole[1:2], whole[testPage-1 : testPage+1], whole[testPage:],
				whole[5 : len(whole)-5]} {
				for i := range b {
					b[i] = byte(i)
				}
				before := bytes.Clone(b)
				m := register(t, table, 1, b, RegionOptions{Access: RemoteWrite | LocalWrite, ByAddr: true})
				require.True(t, bytes.Equal(before, b))
				got, res := table.Check(1, 1, m.STag(), m.Base(), len(b), RemoteWrite)
				require.Equal(t, CheckOK, res)
				require.Same(t, &b[0], &got[0])
				m.Deregister()
			}
		})
	}
}

// A file that is mapped holds what was placed.
func TestRegionIsAFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "region")
	require.NoError(t, os.WriteFile(name, make([]byte, 2*testPage), 0o600))
	f := must(os.OpenFile(name, os.O_RDWR, 0))(t)
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, 2*testPage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	table := NewTable(1)
	m := register(t, table, 1, b[100:], RegionOptions{Access: RemoteWrite})
	r := table.NewReader()
	r.Enter()
	got, res := table.Check(1, 1, m.STag(), testPage-100-2, 5, RemoteWrite)
	require.Equal(t, CheckOK, res)
	copy(got, "write")
	r.Exit()
	m.Deregister()
	require.NoError(t, unix.Munmap(b))
	data := must(os.ReadFile(name))(t)
	require.Equal(t, "write", string(data[testPage-2:testPage+3]))
}

// What a page fault would cost is paid when the region is made.
func TestRegisterMakesPagesPresent(t *testing.T) {
	if !canPopulate() {
		skip.Missing(t, "Linux before 5.14 cannot be asked")
	}
	const pages = 64
	b := must(unix.Mmap(-1, 0, pages*testPage, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS))(t)
	defer func() { require.NoError(t, unix.Munmap(b)) }()
	require.NoError(t, unix.Madvise(b, unix.MADV_NOHUGEPAGE))
	require.Zero(t, present(t, b))
	register(t, NewTable(1), 1, b[testPage+5:3*testPage+1], RegionOptions{Access: RemoteWrite})
	require.Equal(t, 3, present(t, b), "its pages, and no other")
}

// present counts the pages of b that there are.
func present(t *testing.T, b []byte) (n int) {
	t.Helper()
	vec := make([]byte, len(b)/testPage)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(addressOf(b)), uintptr(len(b)),
		uintptr(addressOf(vec)))
	require.Zero(t, errno)
	for _, v := range vec {
		n += int(v & 1)
	}
	return n
}

func addressOf(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
