package hugepages

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
)

// New maps an arena: every page present, zero, on the wanted node, locked where the system lets us.
//
// Page sizes are tried from the wanted one downwards (1 GiB, 2 MiB, normal). Taking smaller pages
// than wanted is not an error unless NoFallback is set: Fallback says why. A shortage comes back
// as *ShortageError, *GroupError, *MemoryError or *NodeError, for errors.As; it never comes later
// as SIGBUS. New may block for as long as the kernel takes to clear the pages, about 0.3 s per
// GiB.
func New(cfg Config) (*Arena, error) {
	cfg = cfg.numbered()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if err := checkNode(cfg.Node); err != nil {
		return nil, err
	}
	var short []error
	for _, page := range cfg.candidates() {
		a, err := newOn(cfg, page)
		if err == nil {
			a.fallback = fallbackLine(short, page)
			return a, nil
		}
		short = append(short, err)
	}
	return nil, joinLine(short)
}

// fallbackLine says why the first choice was not had, and what was taken instead.
func fallbackLine(short []error, got PageSize) string {
	if len(short) == 0 {
		return ""
	}
	return fmt.Sprintf("%v (using pages of %v)", short[0], got)
}

// joinLine makes one line of several errors and keeps all of them for errors.As. What there is not
// enough memory for at all comes first, and what hugepages it would have taken is an aside: to
// reserve them is seldom the help then.
func joinLine(errs []error) error {
	var short *MemoryError
	if len(errs) > 1 && errors.As(errs[len(errs)-1], &short) {
		return &noMemory{short, errs}
	}
	err := errs[0]
	for _, next := range errs[1:] {
		err = fmt.Errorf("%w; then %w", err, next)
	}
	return err
}

// noMemory is what was tried before memory turned out to be too little.
type noMemory struct {
	memory *MemoryError
	errs   []error
}

func (e *noMemory) Error() string {
	var asides []string
	for _, err := range e.errs[:len(e.errs)-1] {
		var short *ShortageError
		if errors.As(err, &short) {
			asides = append(asides, fmt.Sprintf("%d pages of %v, of which %d are free", short.Wanted,
				short.Page, short.Free))
		} else {
			asides = append(asides, err.Error())
		}
	}
	return fmt.Sprintf("%v (or %s)", e.memory, strings.Join(asides, ", "))
}

func (e *noMemory) Unwrap() []error { return e.errs }

// newOn maps the arena on pages of one size.
func newOn(cfg Config, page PageSize) (*Arena, error) {
	size, ok := roundUp(cfg.Bytes, page)
	if !ok {
		return nil, &MemoryError{Wanted: cfg.Bytes, Available: available()}
	}
	if page == Normal {
		if err := checkMemory(size); err != nil {
			return nil, err
		}
	}
	a, err := mapArena(cfg, page, size)
	switch {
	case err == nil:
		return a, nil
	case page != Normal && errors.Is(err, errShort):
		return nil, cause(RoomAt(sysRoot, page, cfg.Node), cfg.Node, page, size/int64(page), err)
	case page == Normal && errors.Is(err, syscall.ENOMEM):
		return nil, fmt.Errorf("%w%s", err, addressLimit())
	}
	return nil, err
}

// errShort marks an answer of the kernel that means: too few pages, or no more of them for this
// process.
var errShort = errors.New("too few pages")

// cause finds out which limit an answer of the kernel is about, which is one word for several.
func cause(r Room, node int, page PageSize, wanted int64, err error) error {
	switch {
	case r.Group < wanted && r.Group <= r.Pool.Available():
		return &GroupError{Page: page, Wanted: wanted, Allowed: r.Group, Limit: r.Limit, Err: err}
	case r.Pool.Available() < wanted:
		return &ShortageError{Page: page, Node: node, Wanted: wanted, Free: r.Pool.Available(),
			Total: r.Pool.Total, Err: err}
	}
	return fmt.Errorf("%w, although %d are free%s", err, r.Pages(), addressLimit())
}

// checkNode refuses a node that is not online. The kernel's own answer would be a bare EINVAL.
func checkNode(node int) error {
	if node == AnyNode {
		return nil
	}
	online, err := onlineNodes(sysRoot)
	if err != nil || len(online) == 0 {
		online = []int{0} // a kernel without NUMA: all memory is node 0
	}
	if !slices.Contains(online, node) {
		return &NodeError{Node: node, Online: online}
	}
	return nil
}

// keptPart of the memory is left to everybody else.
const keptPart = 64

// checkMemory refuses an arena on normal pages that would call the OOM killer: populating it
// commits every page at once, and the kernel kills somebody rather than answer ENOMEM.
func checkMemory(size int64) error {
	s, err := readMemory(sysRoot)
	if err != nil {
		return nil // nothing to compare with; the kernel decides
	}
	kept := s.total / keptPart
	if size > s.available-kept {
		return &MemoryError{Wanted: size, Available: s.available, Kept: kept}
	}
	return nil
}

// available returns the octets the system can spare, 0 when unknown.
func available() int64 {
	s, _ := readMemory(sysRoot)
	return s.available
}
