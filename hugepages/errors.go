package hugepages

import (
	"fmt"
	"strings"
)

// ConfigError says which field of a Config no system could serve.
type ConfigError struct {
	Field string
	Value int64
	Want  string
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("hugepages: Config.%s is %d, must be %s", e.Field, e.Value, e.Want)
}

// ShortageError says that the kernel has too few free hugepages.
type ShortageError struct {
	Page   PageSize
	Node   int   // or AnyNode
	Wanted int64 // pages
	Free   int64 // pages that are neither held nor promised
	Total  int64 // pages in the pool, free or not
	Err    error // what the kernel answered
}

func (e *ShortageError) Error() string {
	where, flags := "", ""
	if e.Page == Page1GiB {
		flags = " --size 1G"
	}
	if e.Node != AnyNode {
		where = fmt.Sprintf(" on node %d", e.Node)
		flags += fmt.Sprintf(" --node %d", e.Node)
	}
	// setup.sh sets the size of the pool, and what others hold stays theirs.
	need := e.Wanted + max(e.Total-e.Free, 0)
	return fmt.Sprintf("hugepages: %d pages of %v wanted%s, %d free; run hugepages/setup.sh %d%s",
		e.Wanted, e.Page, where, e.Free, need, flags)
}

func (e *ShortageError) Unwrap() error { return e.Err }

// GroupError says that a control group allows this process too few hugepages, however many are
// free.
type GroupError struct {
	Page    PageSize
	Wanted  int64  // pages
	Allowed int64  // pages, in addition to those in use
	Limit   string // the file that says so
	Err     error  // what the kernel answered
}

func (e *GroupError) Error() string {
	return fmt.Sprintf("hugepages: %d pages of %v wanted, %d more allowed by %s; raise that limit "+
		"(Kubernetes: resources.limits hugepages-%s)",
		e.Wanted, e.Page, e.Allowed, e.Limit,
		map[PageSize]string{Page2MiB: "2Mi", Page1GiB: "1Gi"}[e.Page])
}

func (e *GroupError) Unwrap() error { return e.Err }

// MemoryError says that an arena on normal pages would take more memory than the system can spare.
type MemoryError struct {
	Wanted    int64 // octets
	Available int64 // octets: MemAvailable or the control group's room, whichever is less
	Kept      int64 // octets of those that are left to everybody else
}

func (e *MemoryError) Error() string {
	return fmt.Sprintf("hugepages: %s of memory wanted, %s available of which %s are kept free; ask "+
		"for less or add memory",
		octets(e.Wanted), octets(e.Available), octets(e.Kept))
}

// NodeError says that the wanted NUMA node does not exist or is not online.
type NodeError struct {
	Node   int
	Online []int
}

func (e *NodeError) Error() string {
	list := make([]string, len(e.Online))
	for i, n := range e.Online {
		list[i] = fmt.Sprint(n)
	}
	return fmt.Sprintf("hugepages: NUMA node %d wanted, online: %s; choose one of these, or "+
		"AnyNode (-1)",
		e.Node, strings.Join(list, " "))
}

// CarveError says that an Arena has too few octets left.
type CarveError struct{ Wanted, Align, Remaining int }

func (e *CarveError) Error() string {
	return fmt.Sprintf("hugepages: %d octets aligned to %d wanted, %d remain in the arena; make the "+
		"arena larger",
		e.Wanted, e.Align, e.Remaining)
}

// octets formats a number of octets in the largest binary unit that keeps three digits.
func octets(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d octets", n)
}
