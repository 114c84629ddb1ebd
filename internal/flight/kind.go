package flight

import "fmt"

// Kind is what an Event is about. The comment says what A and B are.
type Kind uint8

// The kinds.
const (
	State Kind = 1 + iota // TCP's: A before, B after, at tcp.State's numbers
	// RST of the peer was accepted: A the offset that we were waiting for
	PeerReset
	// a timeout ended the connection: A octets in flight, B ns without progress
	GaveUp
	Timeout // RTO: A offset of the oldest octet in flight, B the RTO in ns
	// losses were found by SACK, RACK or duplicate ACKs: A as above, B octets in flight
	FastRepair
	RackTimer  // RACK's timer found losses: A as above, B octets in flight
	TailProbe  // TLP: A offset of its end, B octets in flight
	LostRepair // a retransmission was lost: A offset
	// a loss was found to have been none: A offset where its repair began
	Spurious
	BlackHole   // the path swallows large segments: A size that is used now
	WindowShut  // the peer's window closed: A offset
	WindowOpen  // and opened: A octets
	WindowProbe // zero-window probe: A which since it closed
	KeepAlive   // keep-alive probe
	RequestSent // MPA start-up: A revision, B octets of private data
	RequestIn   // likewise
	ReplySent   // likewise; A has 256 where it rejects
	ReplyIn     // likewise
	ReadyIn     // likewise: a Ready-to-Receive frame
	InService   // start-up is over: A the dialect, at mpa.Dialect's numbers
	BadCRC      // a segment was dropped for its CRC: A offset, B how many there were
	// A layer, B type<<8 | code; a Responder that may not send yet sends none
	TerminateSent
	TerminateIn // likewise
	PeerClosed  // the peer's FIN is in order
	Closing     // this end closes its half
	Aborted     // this end resets the connection
	Flushed     // work requests were flushed: the queue pair left service

	kinds
)

var names = [kinds]string{
	State: "state", PeerReset: "peer_reset", GaveUp: "gave_up", Timeout: "rto",
	FastRepair: "fast_repair", RackTimer: "rack_timer",
	TailProbe: "tail_probe", LostRepair: "lost_repair", Spurious: "spurious", BlackHole: "black_hole",
	WindowShut: "window_shut",
	WindowOpen: "window_open", WindowProbe: "window_probe", KeepAlive: "keep_alive",
	RequestSent: "request_sent", RequestIn: "request_in",
	ReplySent: "reply_sent", ReplyIn: "reply_in", ReadyIn: "ready_in", InService: "in_service",
	BadCRC: "bad_crc", TerminateSent: "terminate_sent",
	TerminateIn: "terminate_in", PeerClosed: "peer_closed", Closing: "closing", Aborted: "aborted",
	Flushed: "flushed",
}

// String is a word.
func (k Kind) String() string {
	if k > 0 && k < kinds {
		return names[k]
	}
	return "?"
}

// tcpStates are tcp.State's, which a test of tcp compares.
var tcpStates = [...]string{
	"CLOSED", "SYN-SENT", "SYN-RECEIVED", "ESTABLISHED", "FIN-WAIT-1", "FIN-WAIT-2", "CLOSE-WAIT",
	"CLOSING", "LAST-ACK", "TIME-WAIT",
}

func tcpState(n uint64) string {
	if n < uint64(len(tcpStates)) {
		return tcpStates[n]
	}
	return "?"
}

// rejects marks a Reply that rejects, in A.
const rejects = 256

// Frame is A of a start-up frame.
func Frame(revision int, rejected bool) uint64 {
	if rejected {
		return uint64(revision) | rejects
	}
	return uint64(revision)
}

// String is the event in words, without its time.
func (e Event) String() string {
	switch e.Kind {
	case State:
		return tcpState(e.A) + " to " + tcpState(e.B)
	case PeerReset:
		return fmt.Sprintf("the peer reset the connection, at %d of its octets", e.A)
	case GaveUp:
		return fmt.Sprintf("gave up: %d octets in flight, no progress for %.3f s", e.A, float64(e.B)/1e9)
	case Timeout:
		return fmt.Sprintf("retransmission timeout at %d after %.3f ms", e.A, float64(e.B)/1e6)
	case FastRepair, RackTimer:
		return fmt.Sprintf("%s at %d, %d octets in flight",
			map[Kind]string{FastRepair: "fast retransmission", RackTimer: "RACK's timer"}[e.Kind], e.A, e.B)
	case TailProbe:
		return fmt.Sprintf("tail loss probe to %d, %d octets in flight", e.A, e.B)
	case LostRepair:
		return fmt.Sprintf("a retransmission was lost at %d", e.A)
	case Spurious:
		return fmt.Sprintf("no loss after all, up to %d", e.A)
	case BlackHole:
		return fmt.Sprintf("the path swallows large segments: %d octets from now on", e.A)
	case WindowShut:
		return fmt.Sprintf("the peer's window closed at %d", e.A)
	case WindowOpen:
		return fmt.Sprintf("the peer's window opened: %d octets", e.A)
	case WindowProbe:
		return fmt.Sprintf("zero-window probe %d", e.A)
	case KeepAlive:
		return "keep-alive probe"
	case RequestSent, RequestIn, ReplySent, ReplyIn, ReadyIn:
		text := map[Kind]string{RequestSent: "Request sent", RequestIn: "Request received",
			ReplySent: "Reply sent", ReplyIn: "Reply received",
			ReadyIn: "Ready-to-Receive frame received"}[e.Kind]
		if e.A&rejects != 0 {
			text += ", which rejects"
		}
		return fmt.Sprintf("MPA %s: Rev %d, %d octets of private data", text, e.A&^rejects, e.B)
	case InService:
		return "in service, " + dialect(e.A)
	case BadCRC:
		return fmt.Sprintf("segment dropped at %d: bad CRC, %d in all", e.A, e.B)
	case TerminateSent, TerminateIn:
		return fmt.Sprintf("Terminate %s: layer %d, type %d, code %#x",
			map[Kind]string{TerminateSent: "sent", TerminateIn: "received"}[e.Kind], e.A, e.B>>8, e.B&0xff)
	case PeerClosed:
		return "the peer closed its half"
	case Closing:
		return "this end closes its half"
	case Aborted:
		return "this end resets the connection"
	case Flushed:
		return "work requests flushed"
	}
	return fmt.Sprintf("%d: %d, %d", e.Kind, e.A, e.B)
}

// dialects are the names of mpa.Dialect's numbers.
var dialects = [...]string{1: "culley-02", "rddp-01", "rfc5044", "rtr", "rfc6581"}

func dialect(n uint64) string {
	if n == 0 || n >= uint64(len(dialects)) {
		return fmt.Sprintf("dialect %d", n)
	}
	return dialects[n]
}
