package perf

import (
	"sync/atomic"
	"unsafe"

	"github.com/rnicd/rnicd/rnic"
)

const (
	creditLen   = 4
	creditWords = 2 * creditLen // the peer's word, and after it our own to send from
)

// credits is one end's part of the flow control of Sends.
type credits struct {
	sent  uint64 // sender: messages posted, warm-up and all
	told  uint64 // receiver: what the sender knows of
	busy  bool   // receiver: the word is being sent
	known uint32 // sender: the word as it was last seen
}

// mayPost says whether the peer has a buffer for the next message.
func (r *run) mayPost() bool {
	if r.Credit == nil || r.Op != Send {
		return true
	}
	// Of 32 bits, which may wrap, the difference counts. What the peer wrote means nothing more
	// than a number: a wrong one ends in a message without a buffer, and that is an error of the
	// connection.
	if uint32(r.credits.sent)-r.credits.known >= uint32(r.RxDepth) {
		r.credits.known = atomic.LoadUint32(r.word(r.Credit.Local))
	}
	return uint32(r.credits.sent)-r.credits.known < uint32(r.RxDepth)
}

// grant tells the sender of the messages taken, when it is worth a Write and the last one has been
// carried out.
func (r *run) grant() error {
	least := max(uint64(r.RxDepth)/4, 1)
	if r.Credit == nil || r.credits.busy || r.recvd-r.credits.told < least || r.needsNoMore() {
		return nil
	}
	own := r.Credit.Local + creditLen
	atomic.StoreUint32(r.word(own), uint32(r.recvd))
	_, err := r.QP.PostSend(rnic.WorkRequest{
		Op: rnic.OpWrite,
		ID: idCredit, Signaled: true, Local: r.Local.Slice(own, creditLen),
		RemoteSTag: r.Credit.RemoteSTag, RemoteOffset: r.Credit.RemoteOffset,
	})
	if busy(err) {
		return nil
	}
	if err != nil {
		return r.refused(err)
	}
	r.credits.told, r.credits.busy = r.recvd, true
	return nil
}

// needsNoMore: the sender knows of enough buffers for all that is still to come. What it is not
// told cannot reach it late, when it is in the middle of its next Test.
func (r *run) needsNoMore() bool {
	return r.Iterations > 0 && r.credits.told+uint64(r.RxDepth) > uint64(r.Iterations+r.Warmup)
}

// word is the aligned word of Local that has octet at.
func (r *run) word(at int) *uint32 {
	return (*uint32)(unsafe.Pointer(&r.Local.Bytes()[at&^3]))
}

// octet looks at one octet of Local, which the peer may write.
func (r *run) octet(at int) byte {
	w := atomic.LoadUint32(r.word(at))
	return (*[4]byte)(unsafe.Pointer(&w))[at&3]
}
