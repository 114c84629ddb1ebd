package memif

import "time"

// A client whose memory went away, or held up a queue, may attach again only later: each time may
// cost the queue's goroutine as long as a hole of the size of a region takes to punch. The pause
// doubles, up to barMax, and is forgotten when a connection begins after another barMax without an
// offence.
const (
	barMin = time.Second
	barMax = 5 * time.Minute
)

// bar is the pause of one offender.
type bar struct {
	pause time.Duration
	until time.Time
}

// offender names the clients that have to wait: those of one interface of Bind, or one user.
type offender struct {
	bound bool
	id    uint32 // of the interface, or of the user
}

func (l *Listener) offenderOf(peer Peer) offender {
	if l.bound[peer.ID] != nil {
		return offender{true, peer.ID}
	}
	return offender{false, peer.UID}
}

// judge counts the offence of a session, once.
func (l *Listener) judge(s *session, peer Peer) {
	if !s.offended.Swap(false) {
		return
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	who := l.offenderOf(peer)
	b := l.barred[who]
	if b == nil {
		b = &bar{pause: barMin / 2}
		l.barred[who] = b
	}
	b.pause = min(2*b.pause, barMax)
	b.until = time.Now().Add(b.pause)
}

// pausing is an error while a client has to wait. The holder of lock may.
func (l *Listener) pausing(peer Peer) error {
	who, now := l.offenderOf(peer), time.Now()
	b := l.barred[who]
	switch {
	case b == nil:
		return nil
	case now.Before(b.until):
		return ours("Memory of an earlier connection went away: wait %v",
			b.until.Sub(now).Round(time.Millisecond))
	case now.After(b.until.Add(barMax)):
		delete(l.barred, who)
	}
	return nil
}
