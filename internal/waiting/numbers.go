package waiting

// numbers are all that the rules of a Poller know of machines. Each is worth 10 % to somebody:
// TestNumbers (schedules_test.go) and docs/results/waiting.md say to whom, or the latter that it is
// not shown. A test may take others.
type numbers struct {
	spinTurns  int   // empty Turns before the first yield: some tens of microseconds
	yieldTurns int   // yields before the first sleep: a millisecond or less on an idle machine
	ranNs      int64 // a yield that takes longer has let another thread run
	longNs     int64 // and one that computes, if it takes longer than this
	longShare  int64 // such yields take at most one part in so many of the time
	awayMaxNs  int64 // more than this was a pause of the process, and counts as this
	besideNs   int64 // spinning beside a thread that computes

	napMinNs, napMaxNs int64 // sleeps double from one to the other

	letEvery     int   // so many empty Turns before other goroutines may use the thread
	letBusyEvery int   // and so many with work
	letAloneNs   int64 // it takes less where there were none

	bellSoonNs int64 // the bell ended a sleep soon
	bellDeafNs int64 // the sleep after that, which it does not end

	replyMaxNs int64 // the latest answer that is polled for, and the longest poll
	keptNs     int64 // for how long a Poller says that it was kept from its core
}

var standard = numbers{
	spinTurns:  4,
	yieldTurns: 2000,
	ranNs:      1500,
	longNs:     1_000_000,
	longShare:  100,
	awayMaxNs:  20_000_000,
	besideNs:   50_000,

	napMinNs: 1_000,
	napMaxNs: 50_000,

	letEvery:     4,
	letBusyEvery: 64,
	letAloneNs:   400,

	bellSoonNs: 30_000,
	bellDeafNs: 10_000,

	replyMaxNs: 60_000,
	keptNs:     50_000_000,
}
