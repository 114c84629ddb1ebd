package rnic

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/rnic/internal/transport"
)

// Watch is a descriptor that an Adapter over the kernel's sockets polls and sleeps with, beside its
// connections.
type Watch = transport.Watch

// Watched is who uses such a descriptor.
type Watched = transport.Watched

// Watch has on's methods called when fd, which stays the caller's, has something to be read, until
// Watch.Stop. Over Pollers it is an error. Any application goroutine.
func (a *Adapter) Watch(fd int, on Watched) (*Watch, error) {
	if a.loop == nil {
		return nil, errors.New("rnic: an Adapter over Pollers watches no descriptors")
	}
	w, err := transport.NewWatch(a.loop, fd, on)
	if err != nil {
		return nil, fmt.Errorf("rnic: watch a descriptor: %w", err)
	}
	return w, nil
}

// Memory is the way to registered memory for somebody who moves octets without a QueuePair, as
// datagrams. One goroutine at a time.
type Memory struct {
	table  *mem.Table
	reader *mem.Reader
}

// NewMemory makes one, for good. Any goroutine.
func (a *Adapter) NewMemory() *Memory { return &Memory{a.table, a.table.NewReader()} }

// Enter begins a burst: Revoke and Deregister wait for its Exit. The goroutine that has the Memory,
// which must not block meanwhile.
func (m *Memory) Enter() { m.reader.Enter() }

// Exit ends the burst. The same goroutine. What Find has returned in it must not be touched any
// more.
func (m *Memory) Exit() { m.reader.Exit() }

// Find returns the octets of s if they are registered with pd and may be read, and with LocalWrite
// written; ok is false otherwise. A range of no octets is not checked. Between Enter and Exit,
// the same goroutine.
func (m *Memory) Find(pd *ProtectionDomain, s SGE, need Access) (b []byte, ok bool) {
	if s.Length == 0 {
		return nil, true
	}
	b, res := m.table.Check(pd.id, mem.AnyStream, s.STag, s.Offset, int(s.Length),
		mem.Access(need)|mem.LocalRead)
	return b, res == mem.CheckOK
}

// Copy copies src to dst, one of which Find has returned and which the application may have
// unmapped: false, then. Between Enter and Exit, the same goroutine.
func (m *Memory) Copy(dst, src []byte) (ok bool) {
	defer m.recover(debug.SetPanicOnFault(true))
	copy(dst, src)
	return true
}

// recover has Copy return false where memory of a region is gone.
func (m *Memory) recover(faults bool) {
	debug.SetPanicOnFault(faults)
	m.table.Unreachable(recover())
}
