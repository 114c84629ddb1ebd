//go:build dpdk

package dpdk

import (
	"errors"
	"sync"
	"time"

	"github.com/rnicd/rnicd/pmd"
)

var _ pmd.LinkWatcher = (*Port)(nil)

// linkPeriod is how often a device is asked for its link. Not every driver interrupts for it.
const linkPeriod = 250 * time.Millisecond

// linkWatch is what WatchLink began.
type linkWatch struct {
	end  chan struct{}
	over sync.WaitGroup
}

// WatchLink implements pmd.LinkWatcher.
func (p *Port) WatchLink(up func()) error {
	if p.link != nil {
		return errors.New("dpdk: " + p.name + ": the link is watched already")
	}
	w := &linkWatch{end: make(chan struct{})}
	p.link = w
	was := p.LinkUp()
	w.over.Go(func() {
		tick := time.NewTicker(linkPeriod)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-w.end:
				return
			}
			now := p.LinkUp()
			if now && !was {
				up()
			}
			was = now
		}
	})
	return nil
}

// stop ends it.
func (w *linkWatch) stop() {
	if w != nil {
		close(w.end)
		w.over.Wait()
	}
}
