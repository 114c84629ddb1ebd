package waiting

// tellTurns is for how many Turns in a row that completed something a thread of the program that
// waits is left asleep: a wake-up takes 10 to 20 us of a core that the engine may need, and the
// thread then finds more.
const tellTurns = 4

// Telling says when a C program that waits for completions is woken. One goroutine.
type Telling struct{ untold int }

// Turned is called once in each Turn; fresh: something has completed since the last one.
func (t *Telling) Turned(fresh bool) (tell bool) {
	if fresh {
		t.untold++
	}
	if t.untold == 0 || fresh && t.untold < tellTurns {
		return false
	}
	t.untold = 0
	return true
}

// Owes says that the program has yet to be told of completions: no time to sleep.
func (t *Telling) Owes() bool { return t.untold > 0 }

// Underway counts the completions that a queue pair's requests have still to bring: of those that
// ask for one. One goroutine at a time: the one that drives the connection.
//
// A program that has posted many Writes or Sends and waits for a completion need not be woken for
// each: it would take the engine's core to post one more after the others.
type Underway struct{ now, most int } // most: that there ever were at once

// Take is called for each request that is posted.
func (u *Underway) Take(signaled bool) {
	if signaled {
		u.now++
		u.most = max(u.most, u.now)
	}
}

// None says that none is still to come.
func (u *Underway) None() bool { return u.now == 0 }

// Complete is called for each completion, and says whether so many are still to come that the
// program may be left asleep: more than half of the most.
func (u *Underway) Complete() (enough bool) {
	u.now = max(u.now-1, 0)
	return u.now > u.most/2
}
