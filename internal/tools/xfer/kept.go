package xfer

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"

	"github.com/rnicd/rnicd/internal/tools/peer"
)

const (
	nameMax = 64   // octets of a name
	keptMax = 1024 // names of one Memory
)

var nameForm = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,64}$`)

// CheckName says what is wrong with a name under which a file is to be kept, or read.
func CheckName(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("%q: want 1 to %d letters, digits, and . _ -", name, nameMax)
	}
	return nil
}

// kept is a file that stays in a Memory under a name, for others to read.
//
//	put --store--> read by any number --store of another, remove--> gone, for those who still read it --close of the last--> room
type kept struct {
	extent
	owner   netip.Addr
	digest  [digestLen]byte
	readers int
	gone    bool // only its readers have it
}

// KeepNames makes m keep what is put under a name until its address (of IPv6, its /64) puts
// something else there; an empty file takes it away. Until then it counts in the quota. For before
// the Servers.
func (m *Memory) KeepNames() { m.names = map[string]*kept{} }

// mayKeep says why a peer may not put under a name.
func (m *Memory) mayKeep(from netip.Addr, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mayKeepLocked(from, name)
}

func (m *Memory) mayKeepLocked(from netip.Addr, name string) error {
	if m.names == nil {
		return errors.New("this server keeps nothing under a name: a region with keep = true does")
	}
	k := m.names[name]
	switch {
	case k != nil && peer.Network(k.owner) != peer.Network(from):
		return fmt.Errorf("%s is another address's: choose another name", name)
	case k == nil && len(m.names) >= keptMax:
		return fmt.Errorf("%d names are kept, which is all that there may be: replace one of yours",
			keptMax)
	}
	return nil
}

// store keeps x, which from holds and which is not written any more, under a name; an empty one
// takes away what is there. With an error x is still the caller's.
func (m *Memory) store(from netip.Addr, name string, x extent, digest [digestLen]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.mayKeepLocked(from, name); err != nil {
		return err
	}
	if was := m.names[name]; was != nil {
		delete(m.names, name)
		was.gone = true
		m.settle(was)
	}
	if x.n == 0 {
		m.giveLocked(from, x)
		return nil
	}
	m.names[name] = &kept{extent: x, owner: from, digest: digest}
	return nil
}

// open finds what is kept under a name, for a reader.
func (m *Memory) open(name string) (*kept, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.names[name]
	if k == nil {
		return nil, fmt.Errorf("there is no %s here", name)
	}
	k.readers++
	return k, nil
}

func (m *Memory) close(k *kept) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k.readers--
	m.settle(k)
}

// settle gives the room back of what is gone and not being read.
func (m *Memory) settle(k *kept) {
	if k.gone && k.readers == 0 {
		m.giveLocked(k.owner, k.extent)
	}
}
