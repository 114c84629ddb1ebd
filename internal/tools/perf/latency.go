package perf

import (
	"fmt"
	"time"
)

// rounds counts the rounds of a latency test and times those after the warm-up.
type rounds struct {
	r      *run
	done   uint64
	begin  int64 // of the round under way
	first  int64 // of the first that is measured
	timing *histogram
}

// next begins a round; false: that was all.
func (s *rounds) next() bool {
	now := s.r.now()
	warm := s.warmup()
	switch {
	case s.done > warm:
		s.timing.record(now - s.begin)
	case s.done == warm:
		s.first = now
	}
	s.begin = now
	s.done++
	rest := s.done - 1 - min(warm, s.done-1) // measured so far
	switch {
	case s.done <= warm:
		return true
	case s.r.Duration > 0:
		return now < s.first+int64(s.r.Duration)
	}
	return rest < uint64(s.r.Iterations)
}

func (s *rounds) warmup() uint64 { return uint64(s.r.Warmup) }

func (s *rounds) result(part int64) (Result, error) {
	n := s.done - 1 - uint64(s.r.Warmup)
	if n == 0 {
		return Result{}, fmt.Errorf("perf: the %v were over before one round had come to its end: "+
			"measure for longer", s.r.Duration)
	}
	return latencyOf(&s.r.Test, n, time.Duration(s.begin-s.first), s.timing, part), nil
}

// roundTrips measures what needs only this end: one request at a time.
func (r *run) roundTrips() (Result, error) {
	s := rounds{r: r, timing: newHistogram()}
	for s.next() {
		if err := r.post(); err != nil {
			return Result{}, r.refused(err)
		}
		if err := r.await(func() bool { return r.sent == s.done }); err != nil {
			return Result{}, err
		}
	}
	return s.result(1)
}

// pingPong measures Writes or Sends to and fro.
func (r *run) pingPong() (Result, error) {
	s := rounds{r: r, timing: newHistogram()}
	for s.next() {
		if err := r.exchange(s.done, false); err != nil {
			return Result{}, err
		}
	}
	return s.result(2)
}

// pongs is the other end of pingPong.
func (r *run) pongs() error {
	total := uint64(r.Iterations + r.Warmup)
	for n := uint64(1); r.Iterations == 0 || n <= total; n++ {
		if err := r.exchange(n, true); err != nil {
			return err
		}
	}
	return nil
}

// exchange is one end's part of round n: a message out and one in, or the other way round.
func (r *run) exchange(n uint64, peerFirst bool) error {
	if peerFirst {
		if err := r.message(n); err != nil {
			return err
		}
	}
	if r.Op == Write {
		r.Local.Bytes()[r.SendAt+r.Size-1] = byte(n)
	}
	if err := r.post(); err != nil {
		return r.refused(err)
	}
	if !peerFirst {
		if err := r.message(n); err != nil {
			return err
		}
	}
	// The octets are ours again, to be changed for the next round, when the request has completed.
	return r.await(func() bool { return r.sent == n })
}

// message waits for the peer's message of round n.
func (r *run) message(n uint64) error {
	if r.Op == Write {
		at := r.RecvAt + r.Size - 1
		err := r.await(func() bool { return r.octet(at) == byte(n) || r.final })
		if err == nil && r.octet(at) != byte(n) {
			err = errFinished
		}
		return err
	}
	if err := r.await(func() bool { return r.recvd >= n || r.final }); err != nil {
		return err
	}
	if r.recvd < n {
		return errFinished
	}
	return r.postRecv() // before the peer can answer
}
