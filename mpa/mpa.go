// Package mpa frames ULPDUs for TCP (RFC 5044, draft-ietf-rddp-mpa-01): FPDU layout, markers,
// CRC32C and start-up frames. It is pure: no I/O, no clock, no goroutine, no lock.
//
// On the packet path it is between tcp, which gives new octets their stream offsets, and ddp, which
// places ULPDUs:
//
//	tcp.Arrival -> Receiver.Input, Next -> ddp             in any order, each FPDU once
//	tcp's left edge -> Receiver.Edge -> Delivery edge      in order only
//	ddp segment -> Sender.Put -> one Buf, whole FPDUs      in stream order
//
// Nothing is placed before its CRC has been verified. Only FPDUs that are not yet complete, or
// whose start is not yet known, are held: in the Bufs in which they arrived, and passed on in
// pieces, not reassembled.
//
// Limits: a ULPDU has at most mulpduMax octets; a Receiver holds at most ReceiverConfig.BufsMax
// Bufs and RunsMax runs of octets beyond a gap. An octet beyond a limit is refused and counted, and
// TCP retransmits it. Octets in order are never refused for lack of room (see held.go).
package mpa

const (
	MarkerSpacing = 512 // stream octets from one marker to the next (RFC 5044 section 4.3)
	MarkerLen     = 4
	HeaderLen     = 2 // ULPDU_Length
	CRCLen        = 4
	MULPDUMin     = 128   // RFC 5044 section 4.5: never below
	mulpduMax     = 64768 // draft-ietf-rddp-mpa-01 section 3.2: never above
)

// Mode of one half-connection.
type Mode struct{ Markers, CRC bool }

// MULPDU is the largest ULPDU whose FPDU fits in emss octets wherever the markers fall, clamped to
// MULPDUMin..mulpduMax (RFC 5044 section 4.5, DECISIONS 21).
func (m Mode) MULPDU(emss int) int {
	n := emss - (HeaderLen + CRCLen + emss%4)
	if m.Markers {
		n -= MarkerLen * ((emss + MarkerSpacing - 1) / MarkerSpacing)
	}
	return min(max(n, MULPDUMin), mulpduMax)
}
