package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rnicd/rnicd/rnic"
)

const (
	listenPort    = "7174"
	framelessPort = "7175" // for the dialect without start-up frames
	// patience is how long one end may be left alone by an end that aborted or vanished before it
	// is aborted, too: an idle peer cannot know, and a RST may be lost.
	patience = int64(5 * time.Minute)
)

// session is one connection of the run, of both its peers.
type session struct {
	wl     *Workload
	c      *Conn
	peers  [2]*peer
	ending Ending

	ended    bool   // what ending says was done
	stalled  bool   // damage made one end wait for octets that do not exist
	movedAt  int64  // when anything was last posted, completed or received,
	moved    int    // which was so many
	segments uint64 // those that had arrived when somebody last asked
	giveUp   int64  // when the rest of a connection that broke is aborted; 0: it did not
	frozen   []byte // the region as it was when it was revoked
	aborted  [2]bool
}

// early says whether the connection is to end before all is said.
func (s *session) early() bool { return s.ending.Kind >= Shutdown }

// param is how a peer connects.
func (s *session) param(p *peer) rnic.ConnParam {
	host := 0
	if p == s.peers[1] {
		host = 1
	}
	conn := s.c.param(host)
	conn.PrivateData = p.private
	return conn
}

// connect makes both ends and brings them together through l, a listener at the Responder.
func (s *session) connect(w *World, l *rnic.Listener) (err error) {
	ctx := context.Background()
	ini, res := s.peers[s.c.Dialer], s.peers[1-s.c.Dialer]
	// has no private data: the peers know by other means where they may write
	if s.c.Dialect == rnic.Culley02 {
		ini.private, res.private = nil, nil
		ini.remoteSTag, res.remoteSTag = res.region.STag(), ini.region.STag()
	}
	if err := ini.qp.StartConnect(ctx, l.Addr().String(), s.param(ini)); err != nil {
		return err
	}
	accepted := false
	running := w.Run(s.wl.Limit, func() bool {
		if req := l.Poll(); req != nil {
			if err = res.hear(req.PrivateData()); err == nil {
				err = req.Accept(ctx, res.qp, s.param(res))
			}
			accepted = true
		}
		state := ini.qp.State()
		return err != nil || state == rnic.Closed || accepted && state != rnic.Connecting
	})
	switch {
	case err != nil:
		return err
	case running != nil:
		return fmt.Errorf("%s: to connect: %w", ini.name, running)
	case ini.qp.State() != rnic.RTS:
		return fmt.Errorf("%s: to connect: %w", ini.name, ini.qp.Err())
	}
	if err := ini.hear(ini.qp.PeerPrivateData()); err != nil {
		return err
	}
	// A Responder may not speak first: the Initiator's first message opens its half.
	return ini.post()
}

// turn is what both applications do in one step, and the session's ending when it is due.
func (s *session) turn(w *World) error {
	for _, p := range s.peers {
		if err := p.fill(); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if !s.ended && s.early() && (s.share() >= s.ending.At || s.ending.Kind == Vanish && w.cut) {
		s.ended = true
		if err := s.end(w); err != nil {
			return err
		}
	}
	s.look(w)
	if s.giveUp > 0 && w.Now() < s.giveUp {
		w.WakeAt(s.giveUp)
	} else if s.giveUp > 0 {
		for i, p := range s.peers {
			if !p.done() && !s.aborted[i] {
				p.qp.Abort()
				s.aborted[i] = true
			}
		}
	}
	return nil
}

// look finds sessions that need not be waited for: broken ones, and those that damage has brought
// to a halt. A ULPDU_Length that is damaged upwards makes the receiver wait for the rest of the
// frame, and where the sender has no more to say it waits until the end of the stream tells (MPA's
// error 1).
func (s *session) look(w *World) {
	if moved := s.count(); moved != s.moved || s.movedAt == 0 {
		s.moved, s.movedAt = moved, w.Now()
	}
	s.stalled = s.stalled || s.ended && s.ending.Kind == Shutdown && s.lingered()
	if s.giveUp > 0 {
		return
	}
	switch {
	case s.broken():
		s.giveUp = w.Now() + patience
	case s.peers[0].idle() && s.peers[1].idle():
	case w.Now() < s.movedAt+patience:
		w.WakeAt(s.movedAt + patience)
	case s.heard():
		s.movedAt = w.Now()
	case s.survives(0) && s.survives(1):
	default:
		s.stalled = true
		s.giveUp = w.Now() + patience
		s.close()
	}
}

// lingered says whether an end that was closing, and could not because its Reads were not answered,
// gave up: it does so earlier than patience ends.
func (s *session) lingered() bool {
	return errors.Is(s.peers[0].qp.Err(), rnic.ErrLinger) ||
		errors.Is(s.peers[1].qp.Err(), rnic.ErrLinger)
}

// open says whether the Responder has heard the Initiator's first message, or will not any more.
func (s *session) open() bool {
	stats, _ := s.peers[1-s.c.Dialer].qp.Stats(context.Background())
	return stats.Receive.FPDUs > 0 || s.done()
}

// heard says whether segments have arrived since it was last called.
func (s *session) heard() bool {
	before := s.segments
	s.segments = s.arrivals()
	return s.segments != before
}

// arrivals is how many segments have arrived. A TCP that sends again once a minute, because its RTO
// has come to that (RFC 6298 section 2.5), may complete no message for long, and is at work all the
// same.
func (s *session) arrivals() (n uint64) {
	for _, p := range s.peers {
		stats, _ := p.qp.Stats(context.Background()) // of one that has ended, what it was at the end
		n += stats.TCP.SegmentsIn
	}
	return n
}

// count is how much has happened.
func (s *session) count() int {
	a, b := s.peers[0], s.peers[1]
	return a.posted - len(a.pending) + a.received + b.posted - len(b.pending) + b.received
}

// share is how much of the connection's messages has been posted.
func (s *session) share() float64 {
	return float64(s.peers[0].posted+s.peers[1].posted) / float64(2*s.wl.Messages)
}

// end does what is to end the session early.
func (s *session) end(w *World) error {
	p := s.peers[s.ending.Host]
	switch s.ending.Kind {
	case Shutdown:
		p.left = 0
		p.qp.Disconnect()
	case Abort:
		p.qp.Abort()
		s.aborted[s.ending.Host] = true
		s.giveUp = w.Now() + patience
	case Vanish:
		s.giveUp = w.Now() + patience
		return w.Cut()
	case Revoke:
		p.region.Revoke()
		s.frozen = append([]byte(nil), p.region.Bytes()...)
	case RevokeSource:
		p.source.Revoke()
	}
	return nil
}

// broken says whether one end has left service for another reason than an orderly end.
func (s *session) broken() bool {
	for _, p := range s.peers {
		if st := p.qp.State(); st == rnic.Terminating || st == rnic.Error || st == rnic.Closed &&
			!(s.ended && s.ending.Kind == Shutdown) {
			return true
		}
	}
	return false
}

// settled: nothing more will happen until somebody closes.
func (s *session) settled() bool {
	if s.giveUp > 0 || s.ended && s.ending.Kind == Shutdown {
		return s.done()
	}
	return s.peers[0].idle() && s.peers[1].idle()
}

func (s *session) done() bool { return s.peers[0].done() && s.peers[1].done() }

// close ends the session in order.
func (s *session) close() {
	s.peers[s.ending.Host].qp.Disconnect()
	if s.ending.Kind == Simultaneous {
		s.peers[1-s.ending.Host].qp.Disconnect()
	}
}
