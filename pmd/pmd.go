// Package pmd is the seam between the Poller and a device: ports and queues, one call per burst.
package pmd

import "github.com/rnicd/rnicd/mem"

// Caps says what a port can do.
type Caps struct {
	MTU        int    // largest IP packet, octets
	Queues     int    // receive/transmit queue pairs
	RxChecksum bool   // verifies IPv4 and TCP checksums, sets mem.RxChecksumGood or Bad per frame
	TxChecksum bool   // completes checksums asked for by mem.TxChecksum
	TxSegment  bool   // cuts frames asked for by mem.TxSegment
	RSSKey     []byte // Toeplitz key, nil when there is one queue
}

// Counters of one queue, by reason. Read on the queue's own goroutine only.
type Counters struct {
	RxFrames, RxOctets, TxFrames, TxOctets uint64
	RxNoBuf                                uint64 // dropped: pool empty
	RxTooLong                              uint64 // dropped: longer than a Buf
	RxErrors                               uint64 // device or system call errors on receive
	TxFull                                 uint64 // frames not taken because the device was full
	TxErrors                               uint64 // dropped: device or system call errors on transmit
}

// Queue is one receive/transmit queue pair. All calls come from one goroutine.
type Queue interface {
	// Rx fills bufs with received frames, which the caller then owns, and returns how many.
	Rx(bufs []mem.Buf) int
	// Tx sends a prefix of bufs and returns its length. The caller keeps its own hold on every Buf, taken or
	// not: it frees those it needs no more (mem.Pool.Free); a device that still reads one holds it too.
	Tx(bufs []mem.Buf) int
	Counters() Counters
}

// Port is a device.
type Port interface {
	Name() string
	MAC() [6]byte
	Caps() Caps
	// Open sets up queue i (0 <= i < Caps().Queues) with the pool its frames come from. Once per queue.
	Open(i int, pool *mem.Pool) (Queue, error)
	Close() error
}
