// Package waiting decides what to do when there is nothing to do: turn again at once, let others
// have the processor, or sleep; and, the other way round, when to wake the one who waits.
//
// It is pure. Time and what has happened are arguments; an answer is a Step, which the caller
// carries out. So the tests run it under a scheduler of their own, with and without a processor for
// each thread (sim_test.go), and each number has to be worth something there or in
// docs/results/waiting.md.
//
//	policy.go    the policies that a user chooses from
//	poller.go    a Poller after each Turn: its states, and what follows
//	numbers.go   the numbers
//	beside.go    when to leave a loop to callers who poll
//	away.go      one way of giving the processor up: what it took the last time
//	bell.go      when a Poller does not hear its bell
//	reply.go     whether the peer's answer is worth polling for
//	program.go   the numbers of a C program's polls (verbs/shim/poll.c has them by rnicd_ring.h)
//	telling.go   when a C program that waits is woken for completions
package waiting
