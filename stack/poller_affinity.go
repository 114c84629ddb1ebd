package stack

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cpuMax is how many CPUs a unix.CPUSet has room for.
const cpuMax = 1024

// pin binds the calling thread to core (-1: leaves it) and returns what undoes it. The thread must
// be locked.
func pin(core int) (restore func(), err error) {
	if core == -1 {
		return func() {}, nil
	}
	var old, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		return nil, fmt.Errorf("reading the CPU affinity: %w", err)
	}
	if core < 0 || core >= cpuMax || !old.IsSet(core) {
		return nil, fmt.Errorf("core %d is not available; allowed CPUs: %s", core, cpuList(&old))
	}
	set.Set(core)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("binding to core %d: %w; allowed CPUs: %s", core, err, cpuList(&old))
	}
	return func() { _ = unix.SchedSetaffinity(0, &old) }, nil
}

// cpuList writes a set the way the kernel does: 0-3,8.
func cpuList(set *unix.CPUSet) string {
	var parts []string
	for i := 0; i < cpuMax; i++ {
		if !set.IsSet(i) {
			continue
		}
		first := i
		for i+1 < cpuMax && set.IsSet(i+1) {
			i++
		}
		s := strconv.Itoa(first)
		if i > first {
			s += "-" + strconv.Itoa(i)
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, ",")
}
