package hugepages

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rnicd/rnicd/internal/cgroup"
)

// memory is what can be had in normal pages.
type memory struct{ total, available int64 } // octets

// readMemory returns the system's memory, narrowed to the room of every control group that this
// process is in: beyond either, populating an arena ends in the OOM killer.
func readMemory(root string) (memory, error) {
	m, err := readMeminfo(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return memory{}, err
	}
	for _, g := range cgroup.Of(root, "memory") {
		if room, limited := groupRoom(g); limited {
			m.available = min(m.available, room)
		}
	}
	return m, nil
}

func readMeminfo(name string) (memory, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return memory{}, err
	}
	m := memory{total: -1, available: -1}
	for line := range strings.SplitSeq(string(b), "\n") {
		key, rest, _ := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		kib, err := strconv.ParseInt(fields[0], 10, 64)
		switch {
		case err != nil:
		case key == "MemTotal":
			m.total = kib << 10
		case key == "MemAvailable":
			m.available = kib << 10
		}
	}
	if m.total < 0 || m.available < 0 {
		return memory{}, fmt.Errorf("hugepages: %s has no MemTotal or no MemAvailable", name)
	}
	return m, nil
}

// groupRoom returns how much memory a control group may still take: its limit less its use, not
// counting the file cache, which the kernel gives up first.
func groupRoom(g cgroup.Group) (int64, bool) {
	limit, usage, cache := "memory.max", "memory.current", "inactive_file"
	if g.V1 {
		limit, usage, cache = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
	}
	most, limited := g.Number(limit)
	used, known := g.Number(usage)
	spare, _ := g.Keyed("memory.stat", cache)
	return max(most-used+spare, 0), limited && known
}
