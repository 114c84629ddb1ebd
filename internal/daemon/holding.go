package daemon

import (
	"sync"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/conf"
	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/tools/xfer"
)

// holding is the memory of a Service of type region or file. A Service that follows one of the same
// name, and differs in other things, takes it over with what is in it: to map it twice would take
// twice the hugepages.
type holding struct {
	of     holds
	arena  *hugepages.Arena // nil: of an empty file
	memory *xfer.Memory     // of a region
	octets []byte           // of a file

	mu    sync.Mutex
	users int
}

// holds is what has to be the same for that.
type holds struct {
	kind, page, path, stamp string
	node                    int
	size                    conf.Size
	keep                    bool
}

// heldBy is what a Service of this configuration holds.
func heldBy(s *Service, c *config.Service) holds {
	return holds{kind: c.Type, page: c.Page, path: c.Path, stamp: s.stamp, node: c.Node, size: c.Size,
		keep: c.Keep}
}

// hold takes over the memory of the Service of the same name, or makes it. Under Daemon.changing: a
// Service that is served has its memory.
func (s *Service) hold(c *config.Service, make func(*holding) error) (*holding, error) {
	of := heldBy(s, c)
	if was := s.d.serviceNamed(c.Name); was != nil && was.memory != nil && was.memory.of == of {
		was.memory.mu.Lock()
		defer was.memory.mu.Unlock()
		was.memory.users++
		s.memory = was.memory
		return s.memory, nil
	}
	h := &holding{of: of, users: 1}
	if err := make(h); err != nil {
		return nil, err
	}
	s.memory = h
	return h, nil
}

// leave is the end of one user.
func (h *holding) leave() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users--; h.users > 0 || h.arena == nil {
		return nil
	}
	return h.arena.Close()
}

// mapMemory maps what a Service holds.
func (h *holding) mapMemory(s *Service, c *config.Service, octets int64) error {
	page, err := port.ParsePage(c.Page)
	if err != nil {
		return err
	}
	if h.arena, err = hugepages.New(
		hugepages.Config{Bytes: octets, Page: page, Node: hugepages.OnNode(c.Node)}); err != nil {
		return err
	}
	s.log.Info("memory mapped", MemoryAttrs(h.arena)...)
	WarnUnlocked(s.log, h.arena)
	return nil
}
