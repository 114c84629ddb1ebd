package stack

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// The large tables of a Poller are advised to stand on huge pages, whole ones inside of them.
func TestOnLargePages(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err != nil {
		t.Log("a kernel without transparent huge pages has no such advice")
		return
	}
	s := make([]uint64, 8<<20/8)
	onLargePages(s)
	onLargePages(s[:0])
	maps := must(os.ReadFile("/proc/self/smaps"))(t)
	at := uint64(uintptr(unsafe.Pointer(&s[len(s)/2])))
	inside, flags := false, ""
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		if n, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); n == 2 {
			inside = from <= at && at < to
		} else if inside && strings.HasPrefix(line, "VmFlags:") {
			flags = line
		}
	}
	require.Contains(t, strings.Fields(flags), "hg")
	runtime.KeepAlive(s)
}
