package wq

import "fmt"

// State of a QueuePair, as the verbs have them. What a state lets one do, and what becomes of what
// was posted, is the same in both ways to the end:
//
//	         Connect,              start-up
//	Idle ─── Accept ──► Connecting ─ frames ──► RTS ── Close, Disconnect, peer's FIN ──► Closing ────┐
//	 │                      │                    │                                          │        │
//	 │                      │                    ├──── Terminate sent or received ──────────┤        │
//	 │                      │                    │                                          ▼        │
//	 │                      │                    │                                     Terminating ──┤
//	 │                      │                    ├──── failed without one, Abort ───► Error ─────────┤
//	 │                      │                    └──── the transport is lost ────────────────────────┤
//	 └─ Close, Abort        └─ error, reject, given up                                               ▼
//	      └──────────────────────────┴──────────────────────────────────────────────────────────► Closed
//
//	Idle         receive buffers may be posted                                          (verbs: idle)
//	Connecting   the same; MPA start-up is under way
//	RTS          in service                                                             (rts)
//	Closing      our half is, or will be, closed after what was posted; or the peer's is closed and ours may
//	             go on (ConnParam.AllowHalfClosed)                                      (closing)
//	Terminating  a Terminate was sent or received: nothing else is sent any more, and the connection is being wound up
//	                                                                                    (terminate)
//	Error        this end has given the connection up without one: for a local error, for ErrHoarding, at Abort, after a
//	             time-out. The peer sees it reset                                       (error)
//	Closed       over. All that was posted has been completed or flushed; Err tells why
//
// Closing may become Terminating or Error, for the peer still speaks. Error passes quickly; it is
// where work is being flushed. A transport that is lost has nothing to wind up: that leads to
// Closed at once.
type State uint32

const (
	Idle State = iota
	Connecting
	RTS
	Closing
	Terminating
	Error
	Closed
)

func (s State) String() string {
	names := [...]string{"idle", "connecting", "rts", "closing", "terminating", "error", "closed"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("state %d", uint32(s))
}
