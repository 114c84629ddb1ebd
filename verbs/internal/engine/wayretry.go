package engine

import (
	"time"

	"github.com/rnicd/rnicd/rnic"
)

// timeQP takes over what says how long an answer may take.
func (e *Engine) timeQP(c *call) error {
	q, err := find[*qp](&e.objects, c.arg[0])
	if err != nil {
		return err
	}
	timeout, retries, rnr, timer := uint(c.arg[1]), uint(c.arg[2]), int(c.arg[3]&7), uint8(c.arg[4])
	r := rnic.Retry{Wait: rnrTime(timer & 31), Tries: rnr}
	if rnr == forEver {
		r.Tries = -1
	}
	q.way.setRetry(timeout, retries, r, c.arg[5] != 0)
	return nil
}

// unansweredMin is the least time after which a request is unanswered. Programs take timeouts for a
// lossless link, whose device repeats within microseconds; here a handshake and a repetition may
// come first, which TCP makes after a second where it has measured nothing yet (RFC 6298). Where
// the peer is gone it is all of the time, whatever the program has said, for no answer can come.
const unansweredMin = 2 * time.Second

// rnrTime is what a code of min_rnr_timer stands for (IBTA table 45): 10 us times 1, 2, 3, 4, 6, 8,
// 12 and so on, from code 1; the longest is code 0.
func rnrTime(code uint8) time.Duration {
	switch code {
	case 0:
		code = 32
	case 1:
		return 10 * time.Microsecond
	}
	return 10 * time.Microsecond * time.Duration(2+code%2) << (code/2 - 1)
}

// forEver is rnr_retry's word for it.
const forEver = 7

// setRetry: 4.096 us times 2^timeout is a try, and there are retries+1; timeout 0 is for ever. A
// device may take up to four times as long (IBTA 9.7.6.1.3), and so do we. Before RTS the program
// has said nothing about its own requests.
func (w *way) setRetry(timeout, retries uint, r rnic.Retry, ready bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !ready {
		r.Tries, timeout = -1, 0
	} else {
		w.heardOf.Store(true) // it needs no telling any more
	}
	if timeout &= 31; timeout > 0 {
		try := 4096 * time.Nanosecond << timeout
		r.Unanswered = max(unansweredMin, try*time.Duration(retries&7+1))
	}
	w.retry = r
	for _, l := range w.lives {
		l.rnic.SetRetry(r)
	}
}
