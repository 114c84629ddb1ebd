package engine

import "github.com/rnicd/rnicd/rnic"

// underway counts the completions that a queue pair's requests have still to bring: of those that
// ask for one. One goroutine at a time: the one that drives the connection.
//
// A program that has posted many Writes or Sends and waits for a completion need not be woken for
// each: it would take the engine's core to post one more after the others.
type underway struct{ now, most int } // most: that there ever were at once

// take is called for each request that is posted.
func (u *underway) take(signaled bool) {
	if signaled {
		u.now++
		u.most = max(u.most, u.now)
	}
}

// complete is called for each completion, and says whether so many are still to come that the
// program may be left asleep: more than half of the most. Of an error, of which there are more than
// were asked for, and of what a Read brings it is told at once.
func (u *underway) complete(c *rnic.Completion) (enough bool) {
	u.now = max(u.now-1, 0)
	mere := c.Op == rnic.OpWrite || c.Op == rnic.OpSend || c.Op == rnic.OpSendInvalidate
	return mere && c.Status == rnic.Success && u.now > u.most/2
}
