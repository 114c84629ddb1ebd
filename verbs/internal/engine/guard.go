package engine

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Who may connect (docs/adr/0050-who-may-connect.md): addresses that are allowed, and those that
// have the secret.

// takes is ListenOptions.Allow of the program's listeners; nil: all may connect.
func (e *Engine) takes() func(remote netip.AddrPort) bool {
	if len(e.allowed) == 0 {
		return nil
	}
	return func(remote netip.AddrPort) bool {
		ok := e.allows(remote.Addr())
		if !ok {
			e.tellRefused(remote, 0, notAllowed)
		}
		return ok
	}
}

// allows says whether the program may have to do with an address.
func (e *Engine) allows(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return len(e.allowed) == 0 ||
		slices.ContainsFunc(e.allowed, func(p netip.Prefix) bool { return p.Contains(a) })
}

// proof is what private data has after a hello if there is a secret: that who has sent it has the
// secret, too, and means this one start-up.
//
//	 0  nonce      16   drawn for the Request; of a Reply that of its Request
//	16  challenge  16   drawn by the Responder, for the next connection of its queue pair; 0 in the
//	                    first Request and where it says nothing
//	32  code       32   HMAC-SHA256, under the secret, of the kind of frame and all that is before
type proof struct {
	nonce, challenge [16]byte
	code             [sha256.Size]byte
}

const proofLen = 16 + 16 + sha256.Size

// What a code is of, so that a Reply is no Request.
const (
	ofRequest = "rnqp request"
	ofReply   = "rnqp reply"
)

// draw is a value that has never been before.
func draw() (v [16]byte) {
	_, _ = rand.Read(v[:])
	return v
}

// codeOf is the code of a frame's private data.
func (e *Engine) codeOf(kind string, h *hello) (code [sha256.Size]byte) {
	m := hmac.New(sha256.New, e.secret)
	m.Write([]byte(kind))
	b := h.put()
	m.Write(b[:len(b)-sha256.Size])
	m.Sum(code[:0])
	return code
}

// proven is h with its proof, if there is a secret.
func (e *Engine) proven(kind string, h *hello) *hello {
	if e.secret != nil {
		h.flags |= helloProven
		h.proof.code = e.codeOf(kind, h)
	}
	return h
}

// believes says whether who has sent h has the secret, or nobody needs one.
func (e *Engine) believes(kind string, h *hello) bool {
	if e.secret == nil {
		return h.flags&helloProven == 0
	}
	code := e.codeOf(kind, h)
	return h.flags&helloProven != 0 && hmac.Equal(code[:], h.proof.code[:])
}

// fresh says whether a Request means this connection: none that was recorded does. w is locked.
func (w *way) fresh(a *asker) bool {
	if w.q.engine.secret == nil {
		return true
	}
	if w.challenge == [16]byte{} {
		w.challenge = draw()
	}
	return a.hello.proof.challenge == w.challenge
}

// refusals counts Requests that were refused, by answer, and says of which an operator is told: how
// many there are is for others to decide.
type refusals struct {
	mu    sync.Mutex
	count [answersEnd]uint64
	told  [answersEnd]struct {
		count uint64
		at    time.Time
	}
}

// refusalsEvery is after what time the next of a kind is told.
const refusalsEvery = 10 * time.Second

// add counts one. It says whether to tell of it, and how many there were since the one before.
func (r *refusals) add(why answer, now time.Time) (since uint64, tell bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count[why]++
	t := &r.told[why]
	if t.count > 0 && now.Sub(t.at) < refusalsEvery {
		return 0, false
	}
	since = r.count[why] - t.count
	t.count, t.at = r.count[why], now
	return since, true
}

// of is how many there were.
func (r *refusals) of(why answer) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count[why]
}

// tellRefused tells an operator of a Request that was refused.
func (e *Engine) tellRefused(remote netip.AddrPort, number uint32, why answer) {
	since, tell := e.refusals.add(why, time.Now())
	if !tell || why == comeAgain || why == proveAgain {
		return
	}
	others := ""
	if since > 1 {
		others = fmt.Sprintf("; %d others were, too", since-1)
	}
	to := ""
	if number != 0 {
		to = fmt.Sprintf(", for queue pair 0x%06x", number)
	}
	e.tellLog("refused %v%s: %v%s", remote, to, why, others)
}
