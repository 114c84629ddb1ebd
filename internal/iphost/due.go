package iphost

import "math"

// schedule computes when Expire has something to do.
func (h *Host) schedule(now int64) {
	at := min(h.routes.Deadline(), h.paths.Deadline(), h.fragments.Deadline(), h.rsAt, h.linkUps.at,
		h.reroutes.at, h.listenDeadline())
	for i := range h.addrs {
		a := &h.addrs[i]
		if a.defend {
			at = min(at, max(h.quietTo, now))
		}
		if a.step != stepNone {
			at = min(at, h.stepAt(a))
		}
	}
	h.dueAt = at
}

// listenDeadline is when tellListening has something to send.
func (h *Host) listenDeadline() int64 {
	return max(min(h.listener.Deadline(), h.listener4.Deadline()), h.listenAt)
}

// stepAt is when the next step of l may be taken.
func (h *Host) stepAt(l *Address) int64 {
	if l.step == stepAnnounce {
		return max(l.at, h.quietTo)
	}
	return l.at
}

// limiter lets what is wanted happen at most once in an interval.
type limiter struct {
	at     int64 // when it happens; math.MaxInt64: it is not wanted
	lastAt int64
}

func newLimiter() limiter { return limiter{at: math.MaxInt64, lastAt: never} }

// want has it happen at now, or an interval after the last time. False: it is wanted already.
func (l *limiter) want(now, interval int64) bool {
	if l.at != math.MaxInt64 {
		return false
	}
	l.at = max(now, l.lastAt+interval)
	return true
}

// due says whether it happens now, and takes note that it has.
func (l *limiter) due(now int64) bool {
	if l.at > now {
		return false
	}
	l.did(now)
	return true
}

func (l *limiter) did(now int64) { l.at, l.lastAt = math.MaxInt64, now }
