package transport

// Count is how many slots are taken.
func (p *Slots) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}

// Empty says whether no slot is taken and nothing of former ones is left.
func (p *Slots) Empty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken == 0 && len(p.peers) == 0 && p.silent.Len() == 0
}
