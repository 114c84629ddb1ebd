package waiting

// A program that polls in vain keeps the engine from a processor that the two share. After VainMax
// polls without a completion each gives way once.
//
// A yield costs half a microsecond where no other thread wants the processor. Where others run in
// each of many yields, and nothing completes, the program waits for completions instead, and looks
// with a yield in between whether that is still so: two programs that yield in turn keep a
// processor from both engines. So does one that has a processor for itself while its engine has to
// share one. A thread that computes keeps it until the tick, milliseconds, and for a hundred times
// as long the program only waits.
const (
	VainMax       = 64
	YieldLongNs   = 1_000_000
	YieldShare    = 100
	YieldSharedNs = 1500
	SharedMax     = 256
)

// A program that may be waiting for something else looks again after AwaitNs: twice as long where
// nothing has come, AwaitDoublings times, and half where something has, so that waits last about as
// long as the engine takes. One that ends by its bound takes 16 us of a core that the engine may
// need.
const (
	AwaitNs        = 50_000
	AwaitDoublings = 4
)

// A completion that waits for the peer's answer (ADR 0046) cannot come before its request has left.
// So the post of a signaled request makes a Turn where BatchMin requests or more have been posted
// since the last Turn: the peer takes them while the program posts more. Fewer wait for the next
// poll, for a Turn takes as long as some tens of posts.
const BatchMin = 32
