package rnic

const (
	// pendingMin bounds messages that were placed but wait for earlier octets; large segments raise it.
	pendingMin = 1024
	// terminateLenMax holds any Terminate message: 4 octets control, 2 length, 18 + 28 copied headers.
	terminateLenMax = 64
)
