package mem

import "sync/atomic"

// tag is an STag's place in a Table: what a MemoryRegion and a Window have in common.
type tag struct {
	table *Table
	stag  atomic.Uint32

	entry *entry // last published; valid while it stands in its slot. Under table.mu, as gone
	gone  bool
}

// slot is the same for all STags of a tag, which differ in the key only.
func (g *tag) slot() *atomic.Pointer[entry] {
	return &g.table.slots[g.last().Index()&g.table.mask]
}

// last is the STag that is valid, or was the last that was.
func (g *tag) last() STag { return STag(g.stag.Load()) }

// next is last with the next key: what was advertised before reaches nothing until the 8 bits have
// come round.
func (g *tag) next() STag {
	stag := g.last()
	return stag&^0xFF | STag(stag.Key()+1)
}

// publish makes e, and its STag with it, valid. Under table.mu.
func (g *tag) publish(e *entry) {
	g.entry = e
	g.stag.Store(uint32(e.stag))
	g.slot().Store(e)
}

// valid reports whether the STag reaches anything. Under table.mu, but a peer may invalidate at any
// time.
func (g *tag) valid() bool {
	return g.entry != nil && g.slot().Load() == g.entry &&
		(g.entry.of == nil || g.table.stands(g.entry.of))
}

func (g *tag) lockedValid() bool {
	g.table.mu.Lock()
	defer g.table.mu.Unlock()
	return g.valid()
}

// invalidate takes the entry out of its slot, if it is there still. Under table.mu.
func (g *tag) invalidate() {
	if g.entry != nil { // the slot of a tag that is gone may be another's
		g.slot().CompareAndSwap(g.entry, nil)
	}
}

// revoke invalidates and waits for the bursts that are under way.
func (g *tag) revoke() {
	g.table.mu.Lock()
	g.invalidate()
	g.table.mu.Unlock()
	g.table.quiesce()
}

// lockInvalid returns with table.mu held and the tag invalid. A valid one is revoked first, which
// waits.
func (g *tag) lockInvalid() {
	g.table.mu.Lock()
	for g.valid() {
		g.table.mu.Unlock()
		g.revoke()
		g.table.mu.Lock()
	}
}

// release revokes and, the first time, gives the slot back. Only after the wait: until then a burst
// may hold the entry, and the slot's next owner must not be taken for this one.
func (g *tag) release() {
	t := g.table
	t.mu.Lock()
	first := !g.gone
	g.leave()
	t.mu.Unlock()
	t.quiesce()
	if first {
		t.mu.Lock()
		g.giveBack()
		t.mu.Unlock()
	}
}

// leave invalidates for good. Under table.mu.
func (g *tag) leave() {
	g.invalidate()
	g.gone, g.entry = true, nil
}

// giveBack lets the slot be another's. Under table.mu, once, after leave.
func (g *tag) giveBack() {
	t := g.table
	at := g.last().Index() & t.mask
	t.used[at], t.regions[at] = false, nil
	t.entries--
}
