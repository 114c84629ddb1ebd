package stack

// each runs the embedder's part of a Turn (Config.Each): what arrived has been delivered, nothing has been sent yet. What it
// posts rings a doorbell, which is heard at once, so that it leaves in this Turn and not in the next one.
func (p *Poller) each() int {
	if p.cfg.Each == nil {
		return 0
	}
	work := p.cfg.Each()
	return work + p.drainBells()
}
