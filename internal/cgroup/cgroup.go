// Package cgroup finds the control groups of this process and reads their limits, of version 1
// and 2 (Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/ of the kernel).
//
// Its limit: control groups are looked for below /sys/fs/cgroup, where systemd, Docker and
// Kubernetes mount them. In a container the root there is the container's own group.
package cgroup

import (
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

const mount = "sys/fs/cgroup"

// Group is one control group.
type Group struct {
	root string // of /sys and /proc
	dir  string // below root
	V1   bool   // version 1, whose files have other names
}

// Of are the control groups that bound this process by a controller, as memory, hugetlb or cpu: its
// own and all above it, of either version. root is where /proc and /sys are looked for.
func Of(root, controller string) (all []Group) {
	b, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, found := strings.Cut(rest, ":")
		top := mount
		switch {
		case !found:
			continue
		case controllers == "": // version 2
		case has(controllers, controller):
			top = path.Join(mount, controller)
		default:
			continue
		}
		for group = path.Clean("/" + group); ; group = path.Dir(group) {
			all = append(all, Group{root, path.Join(top, group), top != mount})
			if group == "/" {
				break
			}
		}
	}
	return all
}

func has(list, name string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if one == name {
			return true
		}
	}
	return false
}

// Path of a file of the group, as operators know it.
func (g Group) Path(file string) string { return "/" + path.Join(g.dir, file) }

// text is the content of a file of the group; empty: it cannot be read.
func (g Group) text(file string) string {
	b, err := os.ReadFile(filepath.Join(g.root, g.dir, file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// noLimit: version 1 writes the largest number of whole pages for none.
const noLimit = math.MaxInt64 >> 24 << 24

// Number is that in a file of the group. False: there is none, or it says that there is no limit.
func (g Group) Number(file string) (int64, bool) { return number(g.text(file)) }

// Keyed is a number in a file of lines "key number", as memory.stat.
func (g Group) Keyed(file, key string) (int64, bool) {
	for line := range strings.Lines(g.text(file)) {
		if k, v, found := strings.Cut(strings.TrimSpace(line), " "); found && k == key {
			return number(v)
		}
	}
	return 0, false
}

func number(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n < noLimit
}

// Room is how much more than it uses now a group may have, by the names of its two files. False: it
// has no such limit.
func (g Group) Room(limit, usage string) (int64, bool) {
	most, limited := g.Number(limit)
	used, known := g.Number(usage)
	return max(most-used, 0), limited && known
}

// twoNumbers reads "limit period", as cpu.max. False: there is no limit.
func twoNumbers(text string) (a, b int64, limited bool) {
	first, second, found := strings.Cut(text, " ")
	a, limited = number(first)
	b, known := number(second)
	return a, b, found && limited && known
}
