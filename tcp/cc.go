package tcp

// congestion is what every congestion controller works on. Octets. The Conn reads it directly; a controller is called
// once per acknowledgment or loss episode, never per field.
type congestion struct {
	cwnd, ssthresh int
	acked          int // acknowledged since cwnd last grew in congestion avoidance
}

// controller decides how cwnd moves. Loss detection and recovery stay with the Conn (recovery.go).
type controller interface {
	// start begins a connection with an initial window of iw octets.
	start(w *congestion, iw int)
	// acked grows cwnd: octets were newly acknowledged outside of loss recovery while cwnd was what held us back.
	// afterTimeout says that what a timeout found lost is still being repaired.
	acked(w *congestion, now int64, octets, smss int, afterTimeout bool)
	// loss is the begin of a loss episode with flight octets outstanding.
	loss(w *congestion, now int64, flight, smss int)
	// timeout is an RTO; first is false when the same segment timed out before.
	timeout(w *congestion, now int64, flight, smss int, first bool)
}

// cwndMax keeps sums far from overflow; no window is larger.
const cwndMax = 1 << 30
