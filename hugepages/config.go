package hugepages

import (
	"fmt"
	"math"
	"os"
)

// PageSize is a page size in octets.
type PageSize int64

const (
	Auto     PageSize = 0 // 2 MiB when the system has enough of them, else normal pages
	Normal   PageSize = 4 << 10
	Page2MiB PageSize = 2 << 20
	Page1GiB PageSize = 1 << 30
)

// String returns the size as operators write it: "2 MiB".
func (p PageSize) String() string {
	switch {
	case p == Auto:
		return "auto"
	case p >= 1<<30 && p%(1<<30) == 0:
		return fmt.Sprintf("%d GiB", p>>30)
	case p >= 1<<20 && p%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", p>>20)
	case p >= 1<<10 && p%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", p>>10)
	}
	return fmt.Sprintf("%d octets", int64(p))
}

// AnyNode lets the kernel choose the NUMA node, as the zero Config does.
const AnyNode = -1

// firstNode is node 0 in Config.Node, where the zero value is any.
const firstNode = math.MinInt

// OnNode is the value of Config.Node for NUMA node n, or AnyNode. From 1 on it is n itself.
func OnNode(n int) int {
	if n == 0 {
		return firstNode
	}
	return n
}

// nodesMax bounds the node numbers that fit into the mask handed to mbind.
const nodesMax = 1024

// Config says what an Arena is to be made of.
type Config struct {
	Bytes      int64    // wanted size; rounded up to whole pages
	Page       PageSize // Auto, or the page size to insist on first
	Node       int      // NUMA node: OnNode; 0 or AnyNode: any
	Memfd      bool     // back by memfd_create so that the mapping can be shared with another process
	NoFallback bool     // fail instead of falling back to smaller pages
	// an inaccessible page before and after: a stray access faults instead of corrupting
	GuardPages bool
}

// numbered has in Node a node's number, or AnyNode.
func (c Config) numbered() Config {
	switch c.Node {
	case 0:
		c.Node = AnyNode
	case firstNode:
		c.Node = 0
	}
	return c
}

// check refuses what no system could serve.
func (c Config) check() error {
	switch {
	case c.Bytes <= 0:
		return &ConfigError{Field: "Bytes", Value: c.Bytes, Want: "at least 1"}
	case c.Page != Auto && c.Page != Normal && c.Page != Page2MiB && c.Page != Page1GiB:
		return &ConfigError{Field: "Page", Value: int64(c.Page),
			Want: "Auto, Normal, Page2MiB or Page1GiB"}
	case c.Node < AnyNode || c.Node >= nodesMax:
		return &ConfigError{Field: "Node", Value: int64(c.Node),
			Want: fmt.Sprintf("AnyNode (-1) or 0 to %d", nodesMax-1)}
	}
	return nil
}

// candidates returns the page sizes to try, the wanted one first.
func (c Config) candidates() []PageSize {
	var sizes []PageSize
	switch c.Page {
	case Normal:
		return []PageSize{Normal}
	case Page1GiB:
		sizes = []PageSize{Page1GiB, Page2MiB, Normal}
	default:
		sizes = []PageSize{Page2MiB, Normal}
	}
	if c.NoFallback {
		return sizes[:1]
	}
	return sizes
}

// pages returns how many pages of size p hold n octets. A system's normal pages may be larger than
// Normal (64 KiB on some arm64); then the octets are rounded up to those.
func pages(n int64, p PageSize) int64 {
	unit := unitOf(p)
	count := n / unit
	if n%unit != 0 {
		count++
	}
	return count * (unit / int64(p))
}

// roundUp returns n rounded up to whole pages of size p, and false when no mapping can be that
// large.
func roundUp(n int64, p PageSize) (int64, bool) {
	count := pages(n, p)
	// Room for the guard pages and their alignment must remain within the address arithmetic.
	if count > (math.MaxInt64-4*unitOf(Page1GiB))/int64(p) {
		return 0, false
	}
	return count * int64(p), true
}

func unitOf(p PageSize) int64 {
	if p == Normal {
		return max(int64(p), int64(os.Getpagesize()))
	}
	return int64(p)
}
