package waiting

// Beside says when the one that turns a loop in the background leaves it to callers who poll, and
// each turn it themselves when it is free: two would take each other's caches and, where cores are
// few, the core of the peer.
type Beside struct {
	at   int64  // when it was asked last, or its own Turn after that was over
	vain uint64 // Turns of callers by then that found nothing
	rest int64  // the last one
}

// Who polls turns the loop in vain now and then. One that waits for memory to change turns it when
// it has posted something, which is no vain Turn, and needs us for what comes. After so many vain
// Turns, not too long ago, the loop is left alone for restMinNs, twice as long each time, up to
// restMaxNs: by so much what a caller posts before it stops to poll may be late.
const (
	besideVain  = 2
	besideMaxNs = 200_000
	restMinNs   = 50_000
	restMaxNs   = 200_000
)

// Rest says for how long to leave the loop to its callers; 0: they do not poll. vain is how many
// Turns of theirs have found nothing so far, waited how many when one of them began to wait for
// what it had polled for. busy: one of them is in a Turn.
func (b *Beside) Rest(now int64, vain, waited uint64, busy bool) int64 {
	made, took := vain-b.vain, now-b.at
	b.vain, b.at = vain, now
	if !busy && (made < besideVain || vain == waited || took > 2*besideMaxNs) {
		b.rest = 0
		return 0
	}
	b.rest = min(max(2*b.rest, restMinNs), restMaxNs)
	return b.rest
}

// Turned says that a Turn of its own is over. What callers did in vain while it lasted, however
// long, they did a moment ago.
func (b *Beside) Turned(now int64) { b.at = now }
