package stack

import "sync"

// Locals holds what packages above keep per Poller, each under a key type of its own. Any goroutine.
func (p *Poller) Locals() *sync.Map { return &p.locals }
