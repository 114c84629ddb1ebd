package hugepages

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// memory is what can be had in normal pages.
type memory struct{ total, available int64 } // octets

// readMemory returns the system's memory, narrowed to the room of every control group (version 2)
// that this process is in: beyond either, populating an arena ends in the OOM killer.
func readMemory(root string) (memory, error) {
	m, err := readMeminfo(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return memory{}, err
	}
	b, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return m, nil
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		group, ok := strings.CutPrefix(line, "0::")
		if !ok {
			continue
		}
		for group = path.Clean("/" + group); ; group = path.Dir(group) {
			if room, limited := groupRoom(filepath.Join(root, "sys/fs/cgroup", group)); limited {
				m.available = min(m.available, room)
			}
			if group == "/" {
				break
			}
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
func groupRoom(dir string) (int64, bool) {
	limit, err := readInt(filepath.Join(dir, "memory.max")) // "max" is no number and no limit
	if err != nil {
		return 0, false
	}
	used, err := readInt(filepath.Join(dir, "memory.current"))
	if err != nil {
		return 0, false
	}
	stat, _ := os.ReadFile(filepath.Join(dir, "memory.stat"))
	for line := range strings.SplitSeq(string(stat), "\n") {
		if v, ok := strings.CutPrefix(line, "inactive_file "); ok {
			if n, err := strconv.ParseInt(v, 10, 64); err == nil {
				used -= n
			}
		}
	}
	return max(limit-used, 0), true
}
