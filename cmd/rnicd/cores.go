package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// coreMax is the last CPU that an affinity mask of unix.CPUSet names.
const coreMax = 1023

// parseCores reads a list of CPUs as the kernel writes one: 2-5,8.
func parseCores(s string) (cores []int, err error) {
	for part := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.ParseUint(from, 10, 16)
		last, err2 := strconv.ParseUint(to, 10, 16)
		if err1 != nil || err2 != nil || first > last || last > coreMax {
			return nil, fmt.Errorf("--cores %q: want CPUs as 2-5 or 2,4,6", s)
		}
		for c := int(first); c <= int(last); c++ {
			if slices.Contains(cores, c) {
				return nil, fmt.Errorf("--cores %q: %d twice; a poll-mode core has a CPU of its own", s, c)
			}
			cores = append(cores, c)
		}
	}
	return cores, nil
}

// checkCores refuses a list that does not go with the other flags, and without --queues takes a
// queue for each core.
func (o *nicOptions) checkCores() error {
	if o.cores == "" {
		return nil
	}
	cores, err := parseCores(o.cores)
	switch {
	case err != nil:
		return err
	case o.pmd == "kernel":
		return nil // useless says so
	case len(o.given("core")) > 0:
		return fmt.Errorf("--core and --cores: leave one away")
	case len(cores) > queuesMax:
		return fmt.Errorf("--cores %s: %d CPUs, and a device has at most %d queues", o.cores, len(cores), queuesMax)
	case len(o.given("queues")) == 0:
		o.queues = len(cores)
	case o.queues != len(cores):
		return fmt.Errorf("--cores %s: %d CPUs for --queues %d: want one for each", o.cores, len(cores), o.queues)
	}
	return nil
}

// coreOf is the CPU for the Poller on queue i, or coreNone.
func (o *nicOptions) coreOf(i int) (int, error) {
	switch {
	case o.cores != "":
		cores, err := parseCores(o.cores)
		if err != nil {
			return coreNone, err
		}
		return cores[i], nil
	case o.core != coreNone:
		return o.core + i, nil
	}
	return coreNone, nil
}
