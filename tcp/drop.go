package tcp

// Drop says why a segment, or a part of it, was not accepted. The Poller counts by it.
type Drop uint8

const (
	DropNone Drop = iota
	DropShort
	DropHeaderLen
	DropOptions
	DropChecksum
	// DropChecksumLeft: the sum of the pseudo header is in its place. The sender's kernel has left the
	// rest to a device that does not complete it, as a veth.
	DropChecksumLeft
	DropNoConn
	DropWindow
	DropPAWS
	DropNoTimestamps
	DropDuplicate
	DropAckUnsent
	DropNoACK
	DropRSTChallenge
	DropSYNChallenge
	DropRangesFull
	DropNoMemory
	DropState
	DropRefused
	DropOrphaned
	DropMax
)

var dropNames = [DropMax]string{
	DropNone:         "none",
	DropShort:        "short",
	DropHeaderLen:    "header_len",
	DropOptions:      "options",
	DropChecksum:     "checksum",
	DropChecksumLeft: "checksum_left",
	DropNoConn:       "no_conn",
	DropWindow:       "window",
	DropPAWS:         "paws",
	DropNoTimestamps: "no_timestamps",
	DropDuplicate:    "duplicate",
	DropAckUnsent:    "ack_unsent",
	DropNoACK:        "no_ack",
	DropRSTChallenge: "rst_challenge",
	DropSYNChallenge: "syn_challenge",
	DropRangesFull:   "ranges_full",
	DropNoMemory:     "no_memory",
	DropState:        "state",
	DropRefused:      "refused",
	DropOrphaned:     "orphaned",
}

// String is the name the counter bears in metrics.
func (d Drop) String() string {
	if d < DropMax {
		return dropNames[d]
	}
	return "?"
}
