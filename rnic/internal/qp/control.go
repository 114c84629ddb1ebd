package qp

import "github.com/rnicd/rnicd/mem"

// readDepths are the depths to make room for: of the peer's Requests, and of our own.
type readDepths struct{ ird, ord int }

// Prepare makes the control region, for depths as they are wanted. Before Start.
func (q *Engine) Prepare(ird, ord int) error {
	want := readDepths{readDepth(ird), readDepth(ord)}
	ctrl, err := q.Table.Register(q.Domain, make([]byte, want.controlLen()), mem.RegionOptions{Access: mem.LocalWrite, Stream: q.Stream})
	if err != nil {
		return err
	}
	q.ctrl, q.depths = ctrl, want
	return nil
}

// readDepth is the depth to make room for.
func readDepth(n int) int {
	if n == ReadDepthULP {
		return ReadDepthDefault
	}
	return n
}

// The control region: the peer's Terminate, then Requests; what comes after is in requester.go.
const (
	requestsAt  = terminateLenMax
	requestSlot = 64 // octets; the longest Request has 52
)

// The control region, after the Requests: Atomic Responses.
const responseSlot = 16 // octets; an Atomic Response has 12

func (d readDepths) requestsMax() int { return max(1, d.ird) } // an RTR message may be one

func (d readDepths) responsesAt() int { return requestsAt + requestSlot*d.requestsMax() }

func (d readDepths) controlLen() int { return d.responsesAt() + responseSlot*d.ord }
