package waiting

// away is one way of giving the core up, to other threads or to goroutines of the same one. How
// long it took is known when the next Turn has begun.
type away struct {
	going bool  // it was done last
	at    int64 // when
	from  int64 // it is not done again before
}

func (a *away) may(now int64) bool { return now >= a.from }

func (a *away) leave(now int64) { a.going, a.at = true, now }

// back says for how long the core was away; false: it was not, by this way.
func (a *away) back(now int64) (took int64, was bool) {
	was, a.going = a.going, false
	return now - a.at, was
}
