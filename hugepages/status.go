package hugepages

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// sysRoot is where /sys and /proc are looked for.
const sysRoot = "/"

// PoolStatus counts the hugepages of one size, of the system or of one node.
type PoolStatus struct {
	Page  PageSize
	Node  int   // AnyNode: the whole system
	Total int64 // pages, surplus included
	Free  int64 // pages not in use
	// of the free ones: promised to a mapping that has not touched them yet; system only
	Reserved int64
	Surplus  int64 // of the total: above the configured number
}

// Available returns the pages a new mapping can have.
func (p PoolStatus) Available() int64 { return max(p.Free-p.Reserved, 0) }

// Status is what the kernel says of hugepages: for each size, smallest first, the system and then
// each node.
type Status struct{ Pools []PoolStatus }

// SystemStatus reads the kernel's counters from /sys. A system without hugepages has no Pools.
func SystemStatus() (Status, error) { return readStatus(sysRoot) }

// Pool returns the counters of one page size on one node, or of the whole system with AnyNode.
func (s Status) Pool(page PageSize, node int) (PoolStatus, bool) {
	for _, p := range s.Pools {
		if p.Page == page && p.Node == node {
			return p, true
		}
	}
	return PoolStatus{}, false
}

// String returns one line per pool, for operators.
func (s Status) String() string {
	if len(s.Pools) == 0 {
		return "hugepages: the kernel has none\n"
	}
	var b strings.Builder
	for _, p := range s.Pools {
		where := "system"
		if p.Node != AnyNode {
			where = fmt.Sprintf("node %d", p.Node)
		}
		fmt.Fprintf(&b, "hugepages: %v, %s: %d total, %d free", p.Page, where, p.Total, p.Free)
		if p.Reserved > 0 {
			fmt.Fprintf(&b, ", %d of them promised", p.Reserved)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// readStatus reads Documentation/admin-guide/mm/hugetlbpage.rst's directories below root.
func readStatus(root string) (Status, error) {
	var s Status
	add := func(dir string, node int) error {
		sizes, err := filepath.Glob(filepath.Join(root, dir, "hugepages-*kB"))
		if err != nil {
			return err
		}
		for _, path := range sizes {
			p, err := readPool(path, node)
			if err != nil {
				return err
			}
			s.Pools = append(s.Pools, p)
		}
		return nil
	}
	if err := add("sys/kernel/mm/hugepages", AnyNode); err != nil {
		return Status{}, err
	}
	nodes, err := onlineNodes(root)
	if err != nil && !os.IsNotExist(err) {
		return Status{}, err
	}
	for _, n := range nodes {
		if err := add(fmt.Sprintf("sys/devices/system/node/node%d/hugepages", n), n); err != nil {
			return Status{}, err
		}
	}
	slices.SortStableFunc(s.Pools, func(a, b PoolStatus) int {
		if a.Page != b.Page {
			return int((a.Page - b.Page) >> 10)
		}
		return a.Node - b.Node
	})
	return s, nil
}

// readPool reads one hugepages-<n>kB directory. resv_hugepages exists for the whole system only.
func readPool(path string, node int) (PoolStatus, error) {
	name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "hugepages-"), "kB")
	kib, err := strconv.ParseInt(name, 10, 64)
	if err != nil {
		return PoolStatus{}, fmt.Errorf("hugepages: page size of %s: %w", path, err)
	}
	p := PoolStatus{Page: PageSize(kib << 10), Node: node}
	for _, f := range []struct {
		name     string
		to       *int64
		optional bool
	}{
		{"nr_hugepages", &p.Total, false},
		{"free_hugepages", &p.Free, false},
		{"resv_hugepages", &p.Reserved, true},
		{"surplus_hugepages", &p.Surplus, true},
	} {
		n, err := readInt(filepath.Join(path, f.name))
		if err != nil {
			if f.optional && os.IsNotExist(err) {
				continue
			}
			return PoolStatus{}, fmt.Errorf("hugepages: reading the kernel's counters: %w", err)
		}
		*f.to = n
	}
	return p, nil
}

// onlineNodes returns the NUMA nodes that are online, in order.
func onlineNodes(root string) ([]int, error) {
	b, err := os.ReadFile(filepath.Join(root, "sys/devices/system/node/online"))
	if err != nil {
		return nil, err
	}
	return parseList(strings.TrimSpace(string(b)))
}

// parseList reads the kernel's list format: "0-2,5".
func parseList(s string) ([]int, error) {
	var list []int
	if s == "" {
		return list, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		lo, err := strconv.Atoi(first)
		if err != nil {
			return nil, fmt.Errorf("hugepages: node list %q: %w", s, err)
		}
		hi, err := strconv.Atoi(last)
		if err != nil {
			return nil, fmt.Errorf("hugepages: node list %q: %w", s, err)
		}
		if lo < 0 || hi < lo || hi >= nodesMax {
			return nil, fmt.Errorf("hugepages: node list %q: %d to %d is no range below %d", s, lo,
				hi, nodesMax)
		}
		for n := lo; n <= hi; n++ {
			list = append(list, n)
		}
	}
	return list, nil
}

func readInt(path string) (int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
}
