package hugepages

import (
	"fmt"
	"math"

	"github.com/rnicd/rnicd/internal/cgroup"
)

// Room is how many pages of one size a new mapping of this process can have now.
type Room struct {
	Pool  PoolStatus // zero: the kernel has no pages of this size
	Group int64      // pages that control groups allow in addition; a large number without a limit
	Limit string     // the file that says so; empty: there is no limit
}

// Pages is the least of all.
func (r Room) Pages() int64 { return min(r.Pool.Available(), r.Group) }

// RoomAt finds the room for pages of a size on a node, or on AnyNode. root is where /proc and
// /sys are looked for: "/" outside tests.
func RoomAt(root string, page PageSize, node int) Room {
	r := Room{Group: math.MaxInt64 / int64(page)}
	if s, err := readStatus(root); err == nil {
		r.Pool, _ = s.Pool(page, node)
	}
	for _, g := range cgroup.Of(root, "hugetlb") {
		for _, kind := range []string{"", ".rsvd"} { // what is in use, and what is promised
			prefix := "hugetlb." + groupName(page) + kind
			limit, usage := prefix+".max", prefix+".current"
			if g.V1 {
				limit, usage = prefix+".limit_in_bytes", prefix+".usage_in_bytes"
			}
			if octets, limited := g.Room(limit, usage); limited && octets/int64(page) < r.Group {
				r.Group, r.Limit = octets/int64(page), g.Path(limit)
			}
		}
	}
	return r
}

// groupName is how files of the controller hugetlb call a size: 2MB.
func groupName(p PageSize) string {
	switch {
	case p >= 1<<30:
		return fmt.Sprintf("%dGB", p>>30)
	case p >= 1<<20:
		return fmt.Sprintf("%dMB", p>>20)
	}
	return fmt.Sprintf("%dKB", p>>10)
}

// MemoryAt is how much memory on normal pages this process can have now, in octets, and how much
// of that New leaves to others: the system's, or what a control group allows. An error: it is not
// known.
func MemoryAt(root string) (available, kept int64, err error) {
	m, err := readMemory(root)
	return m.available, m.total / keptPart, err
}
