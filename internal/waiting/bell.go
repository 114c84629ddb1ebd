package waiting

// bell says when a Poller does not hear its bell.
//
// A C program that posts one request after the other on the core of the Poller that it wakes has
// each carried out by itself: two switches of threads each. So a Poller whose sleep the bell ended
// soon, and to which no frame has come since, sleeps once for a moment in which the program posts
// more. Goroutines are not heard either. An answer to the peer is not held up: its frame has come
// before.
type bell struct {
	rung   bool  // in the last Doze, and it was heard
	dozeAt int64 // when that began
	frames uint64
}

// deaf says that the Doze that begins now is not to be ended by the bell.
func (b *bell) deaf(t *Turned, soonNs int64) bool {
	yes := b.rung && t.Frames == b.frames && t.Now-b.dozeAt < soonNs
	b.rung, b.dozeAt, b.frames = false, t.Now, t.Frames
	return yes
}
