package hugepages

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/internal/skip"
)

// arenaOf maps an arena, or skips the test with the reason why these pages cannot be had.
func arenaOf(t *testing.T, cfg Config) *Arena {
	t.Helper()
	a, err := New(cfg)
	if short := (*ShortageError)(nil); cfg.NoFallback && errors.As(err, &short) {
		if cfg.Page == Page1GiB {
			skip.Because(t, skip.GiBPages, "%v", err)
		}
		skip.Hugepages(t, short.Wanted, err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	return a
}

// forEachKind runs f over pages of 4 KiB and 2 MiB, with and without memfd and guard pages, and
// once over 1 GiB if asked to.
func forEachKind(t *testing.T, oneGiB bool, f func(t *testing.T, cfg Config)) {
	pages := []PageSize{Normal, Page2MiB, Page1GiB}
	if testing.Short() {
		t.Log("-short: not over 1 GiB, which takes seconds to find and to clear")
		pages = pages[:2]
	}
	for _, page := range pages {
		for _, memfd := range []bool{false, true} {
			for _, guards := range []bool{false, true} {
				if page == Page1GiB && (!oneGiB || !memfd || !guards) {
					// the kernel may move a lot of memory to make room for one, and the ways differ no more than
					// on 2 MiB
					continue
				}
				t.Run(fmt.Sprintf("%v memfd=%v guards=%v", page, memfd, guards), func(t *testing.T) {
					if page == Page1GiB {
						reserve1GiB(t)
					}
					size := int64(page)
					if page != Page1GiB {
						size++ // two pages, the second for one octet
					}
					f(t, Config{Bytes: size, Page: page, Node: AnyNode, Memfd: memfd, GuardPages: guards,
						NoFallback: true})
				})
			}
		}
	}
}

// reserve1GiB raises the 1 GiB pool to one page for one test, or skips it with the reason.
func reserve1GiB(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		skip.Because(t, skip.GiBPages, "reserving a page of 1 GiB needs root")
	}
	const pool = "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
	before, err := readInt(pool)
	if err != nil {
		skip.Because(t, skip.GiBPages, "none: %v", err)
	}
	if before > 0 {
		return
	}
	if m, err := readMemory(sysRoot); err != nil || m.available < 4<<30 {
		skip.Because(t, skip.GiBPages, "one needs 4 GiB available, there are %s", octets(m.available))
	}
	t.Cleanup(func() { os.WriteFile(pool, []byte(strconv.FormatInt(before, 10)), 0) })
	if err := os.WriteFile(pool, []byte("1"), 0); err != nil {
		skip.Because(t, skip.GiBPages, "raising their pool: %v", err)
	}
	if got, _ := readInt(pool); got < 1 {
		skip.Because(t, skip.GiBPages, "the kernel found none free")
	}
}

func TestMappingIsPresentZeroAndWritable(t *testing.T) {
	forEachKind(t, true, func(t *testing.T, cfg Config) {
		a := arenaOf(t, cfg)
		require.Empty(t, a.Fallback())
		require.Equal(t, cfg.Page, a.PageSize())
		require.GreaterOrEqual(t, len(a.Bytes()), int(cfg.Bytes))
		require.Zero(t, len(a.Bytes())%int(cfg.Page))
		require.Zero(t, address(a.Bytes())%uintptr(cfg.Page))
		require.Equal(t, cfg.Memfd, a.FD() >= 0)
		requirePresent(t, a)
		require.Equal(t, int64(cfg.Page)>>10, smapsField(t, a, "KernelPageSize"))
		for off := 0; off < len(a.Bytes()); off += 4096 {
			require.Zero(t, a.Bytes()[off])
			a.Bytes()[off] = 1
			a.Bytes()[off+4095] = 2
		}
	})
}

// requirePresent asks the kernel: mincore(2) tells which pages would not fault.
func requirePresent(t *testing.T, a *Arena) {
	t.Helper()
	unit := os.Getpagesize()
	vec := make([]byte, len(a.Bytes())/unit)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, address(a.Bytes()), uintptr(len(a.Bytes())),
		address(vec))
	require.Zero(t, errno)
	for i, v := range vec {
		if v&1 == 0 {
			t.Fatalf("page %d of %d is absent", i, len(vec))
		}
	}
}

// smapsField returns a number from the entry of /proc/self/smaps that the arena begins in. With
// guard pages that is the arena alone; without, the kernel may have made one entry of it and of a
// neighbour with equal properties.
func smapsField(t *testing.T, a *Arena, field string) int64 {
	t.Helper()
	b := must(os.ReadFile("/proc/self/smaps"))(t)
	at, inside := address(a.Bytes()), false
	for line := range strings.Lines(string(b)) {
		var from, to uintptr
		if _, err := fmt.Sscanf(line, "%x-%x ", &from, &to); err == nil {
			inside = from <= at && at < to
			continue
		}
		if rest, ok := strings.CutPrefix(line, field+":"); ok && inside {
			return must(strconv.ParseInt(strings.Fields(rest)[0], 10, 64))(t)
		}
	}
	t.Fatalf("no %s of the arena at %x", field, at)
	return 0
}

func TestNormalPagesAreLocked(t *testing.T) {
	a := arenaOf(t, Config{Bytes: 1 << 20, Page: Normal, Node: AnyNode, GuardPages: true})
	if err := a.LockErr(); err != nil {
		skip.Missing(t, "%v", err)
	}
	require.EqualValues(t, 1<<10, smapsField(t, a, "Locked"))
}

func TestMlockFailureIsReportedNotFatal(t *testing.T) {
	a := arenaOf(t, Config{Bytes: 4096, Page: Normal, Node: AnyNode, GuardPages: true})
	mem := a.Bytes()
	require.NoError(t, a.Close())
	err := lock(mem) // nothing is mapped there any more
	require.ErrorIs(t, err, unix.ENOMEM)
	require.ErrorContains(t, err, "RLIMIT_MEMLOCK is ")
	require.ErrorContains(t, err, "run ulimit -l 4 or grant CAP_IPC_LOCK")
}

func TestGuardPagesCatchStrayAccess(t *testing.T) {
	forEachKind(t, false, func(t *testing.T, cfg Config) {
		cfg.GuardPages = true
		a := arenaOf(t, cfg)
		first := unsafe.Pointer(unsafe.SliceData(a.Bytes()))
		for name, at := range map[string]unsafe.Pointer{
			"before": unsafe.Add(first, -1), "after": unsafe.Add(first, len(a.Bytes())),
			"far before": unsafe.Add(first, -4096), "far after": unsafe.Add(first, len(a.Bytes())+4095),
		} {
			require.True(t, faults(func() { *(*byte)(at) = 1 }), "write %s the arena", name)
			require.True(t, faults(func() { sink = *(*byte)(at) }), "read %s the arena", name)
		}
		require.False(t, faults(func() { a.Bytes()[0], a.Bytes()[len(a.Bytes())-1] = 1, 1 }))
	})
}

var sink byte

// faults reports whether f raised a memory fault.
func faults(f func()) (fault bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { fault = recover() != nil }()
	f()
	return false
}

func TestMemfdIsSharedAndSealed(t *testing.T) {
	forEachKind(t, false, func(t *testing.T, cfg Config) {
		cfg.Memfd = true
		a := arenaOf(t, cfg)
		other, err := unix.Mmap(a.FD(), 0, len(a.Bytes()), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_SHARED)
		require.NoError(t, err)
		defer unix.Munmap(other)
		a.Bytes()[4097] = 0x5A
		require.EqualValues(t, 0x5A, other[4097])
		other[len(other)-1] = 0xA5
		require.EqualValues(t, 0xA5, a.Bytes()[len(other)-1])
		require.ErrorIs(t, unix.Ftruncate(a.FD(), 0), unix.EPERM)
		require.ErrorIs(t, unix.Ftruncate(a.FD(), int64(2*len(other))), unix.EPERM)
	})
}

func TestCloseGivesPagesBack(t *testing.T) {
	for _, memfd := range []bool{false, true} {
		a := arenaOf(t, Config{Bytes: 1, Page: Page2MiB, Node: AnyNode, NoFallback: true, Memfd: memfd,
			GuardPages: true})
		first := unsafe.Pointer(unsafe.SliceData(a.Bytes()))
		fd := a.FD()
		require.NoError(t, a.Close())
		require.NoError(t, a.Close())
		require.True(t, faults(func() { sink = *(*byte)(first) }))
		if memfd {
			require.ErrorIs(t, unix.Ftruncate(fd, 1), unix.EBADF)
		}
	}
}

func TestPagesLieOnTheWantedNode(t *testing.T) {
	online, err := onlineNodes(sysRoot)
	if err != nil {
		skip.Missing(t, "no NUMA: %v", err)
	}
	for _, page := range []PageSize{Normal, Page2MiB} {
		for _, node := range online {
			a, err := New(Config{Bytes: int64(page), Page: page, Node: OnNode(node), NoFallback: true})
			if short := (*ShortageError)(nil); errors.As(err, &short) {
				require.Equal(t, node, short.Node)
				continue
			}
			require.NoError(t, err)
			at := uintptr(address(a.Bytes()))
			status := int32(-1)
			_, _, errno := unix.Syscall6(unix.SYS_MOVE_PAGES, 0, 1, uintptr(unsafe.Pointer(&at)), 0,
				uintptr(unsafe.Pointer(&status)), 0)
			if errno == 0 { // some sandboxes forbid the call
				require.EqualValues(t, node, status)
			}
			require.NoError(t, a.Close())
		}
	}
}

func TestShortageFallsBackAndSaysSo(t *testing.T) {
	s := must(SystemStatus())(t)
	pool, ok := s.Pool(Page2MiB, AnyNode)
	if !ok {
		skip.Missing(t, "the kernel has no pages of 2 MiB")
	}
	if n, err := readInt("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages"); err ==
		nil && n > 0 {
		skip.Missing(t, "the kernel may overcommit hugepages here")
	}
	if pool.Total > 2048 {
		skip.Missing(t, "falling back from %d pages would take too much memory", pool.Total+1)
	}
	wanted := pool.Total + 1 // more than there are, whatever else uses some now
	for _, memfd := range sample.Of(t, 1, []bool{false, true}) {
		for _, page := range sample.Of(t, 1, []PageSize{Auto, Page2MiB}) {
			cfg := Config{Bytes: wanted << 21, Page: page, Node: AnyNode, Memfd: memfd}
			a, err := New(cfg)
			if tooBig := (*MemoryError)(nil); errors.As(err, &tooBig) {
				skip.Missing(t, "%v", err)
			}
			require.NoError(t, err)
			require.Equal(t, Normal, a.PageSize())
			require.Regexp(
				t, fmt.Sprintf(`^hugepages: %d pages of 2 MiB wanted, \d+ free; run hugepages/setup.sh %d`+
					` \(using pages of 4 KiB\)$`, wanted, wanted), withoutOthers(a.Fallback(), wanted))
			requirePresent(t, a)
			require.NoError(t, a.Close())

			cfg.NoFallback = true
			_, err = New(cfg)
			var short *ShortageError
			require.ErrorAs(t, err, &short)
			require.Equal(t, wanted, short.Wanted)
			require.ErrorIs(t, err, unix.ENOMEM)
		}
	}
}

// withoutOthers undoes what pages held by other processes add to the number in the command.
func withoutOthers(line string, wanted int64) string {
	var n, free, run int64
	if _, err := fmt.Sscanf(line, "hugepages: %d pages of 2 MiB wanted, %d free; run "+
		"hugepages/setup.sh %d", &n, &free, &run); err != nil {
		return line
	}
	if run < wanted {
		return line
	}
	return strings.Replace(line, fmt.Sprintf("setup.sh %d", run), fmt.Sprintf("setup.sh %d", wanted),
		1)
}

func Test1GiBFallsBackStepwise(t *testing.T) {
	s := must(SystemStatus())(t)
	if pool, ok := s.Pool(Page1GiB, AnyNode); ok && pool.Total > 0 {
		skip.Because(t, skip.GiBPages, "there are some")
	}
	a := arenaOf(t, Config{Bytes: 1 << 20, Page: Page1GiB, Node: AnyNode})
	require.Contains(t, a.Fallback(),
		"hugepages: 1 pages of 1 GiB wanted, 0 free; run hugepages/setup.sh 1 --size 1G (using pages of ")
	require.Contains(t, []PageSize{Page2MiB, Normal}, a.PageSize())
}

// The kernel promises pages per system but binds them per node, and limits them per control group:
// a mapping may succeed whose pages are not there. Both ways to populate must answer, not raise
// SIGBUS. A mapping without reservation, one page larger than the pool, is the same case on any
// machine.
func TestPopulateAnswersInsteadOfSIGBUS(t *testing.T) {
	s := must(SystemStatus())(t)
	pool, ok := s.Pool(Page1GiB, AnyNode)
	if !ok || pool.Total > 0 {
		skip.Because(t, skip.GiBPages, "an empty pool of them is wanted")
	}
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(Page1GiB), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|unix.MAP_HUGETLB|log2(Page1GiB)<<
			unix.MAP_HUGE_SHIFT)
	require.NoError(t, err)
	mem := unsafe.Slice((*byte)(p), int(Page1GiB))
	defer unmap(mem)

	require.True(t, faults(func() { mem[0] = 1 }), "the mapping must be one that raises SIGBUS")
	require.ErrorIs(t, populate(mem, Page1GiB), errShort)
	require.ErrorIs(t, populateByRead(mem, Page1GiB), unix.EFAULT)
	require.ErrorIs(t, mapErrorIf("populating", Page1GiB, mem, populateByRead(mem, Page1GiB)),
		errShort)
}

func TestPopulateByReadMakesPagesPresent(t *testing.T) {
	p, err := unix.MmapPtr(-1, 0, nil, 1<<20, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	a := &Arena{mem: unsafe.Slice((*byte)(p), 1<<20), fd: -1}
	a.reserved = a.mem
	defer a.Close()
	require.NoError(t, populateByRead(a.mem, Normal))
	requirePresent(t, a)
}

// A failed New leaves neither a mapping nor a descriptor behind.
func TestFailureLeaksNothing(t *testing.T) {
	count := func() int {
		fds := must(filepath.Glob("/proc/self/fd/*"))(t)
		return len(fds)
	}
	before := count()
	for range 20 {
		_, err := New(Config{Bytes: 1 << 45, Page: Page2MiB, Node: AnyNode, NoFallback: true, Memfd: true,
			GuardPages: true})
		require.Error(t, err)
	}
	require.Equal(t, before, count())
}
