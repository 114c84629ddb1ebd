package perf

// times is when each message of a bandwidth test was posted, and when it completed. nil keeps none.
type times struct {
	posted, completed []int64 // ns
}

func newTimes(n int) *times { return &times{make([]int64, 0, n), make([]int64, 0, n)} }

func (t *times) post(r *run) {
	if t != nil {
		t.posted = append(t.posted, r.now())
	}
}

// unpost takes the last one back: it could not be posted.
func (t *times) unpost() {
	if t != nil {
		t.posted = t.posted[:len(t.posted)-1]
	}
}

func (t *times) complete(r *run, n int) {
	if t == nil || n == 0 {
		return
	}
	now := r.now()
	for range n {
		t.completed = append(t.completed, now)
	}
}

// best is the shortest time per message, in ns, over all runs of messages: from the posting of the
// first to the completion of the last. That is perftest's peak. 0 when there was none.
//
// Where perftest tries all pairs, this asks of a ratio whether some run beats it, which takes one
// pass: a run i..j does when completed[j] - ratio*(j+1) < posted[i] - ratio*i. The best such run
// has the next ratio, until none is better (Dinkelbach).
func (t *times) best() float64 {
	n := min(len(t.posted), len(t.completed))
	if n == 0 {
		return 0
	}
	ratio := float64(t.completed[n-1]-t.posted[0]) / float64(n)
	for {
		from, best, first, last := 0, 0.0, -1, -1
		for j := range n {
			if float64(t.posted[j])-ratio*float64(j) > float64(t.posted[from])-ratio*float64(from) {
				from = j
			}
			gain := float64(t.posted[from]) - ratio*float64(from) - float64(t.completed[j]) +
				ratio*float64(j+1)
			if gain > best {
				best, first, last = gain, from, j
			}
		}
		if first < 0 {
			return ratio
		}
		better := float64(t.completed[last]-t.posted[first]) / float64(last-first+1)
		if better >= ratio { // nothing but rounding is left
			return ratio
		}
		ratio = better
	}
}
