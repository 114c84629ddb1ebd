package iperf3

import (
	"fmt"
	"net"
)

// Report is the outcome of a test, from both sides' results.
type Report struct {
	Server  bool // of this side
	Local   net.Addr
	Remote  net.Addr
	Params  Params
	Streams []StreamReport
	CPU     CPU // ours
	PeerCPU CPU
	// ServerOutput is what the server wanted the client to see.
	ServerOutput string
}

// StreamReport is the outcome of one data connection.
type StreamReport struct {
	ID              int
	Sends           bool // this side sent
	SentOctets      uint64
	SentSeconds     float64
	ReceivedOctets  uint64
	ReceivedSeconds float64
	Retransmits     int64 // -1: the sender does not know
}

// Sum adds up the streams of one direction.
func (r *Report) Sum(sends bool) StreamReport {
	sum := StreamReport{Sends: sends}
	for _, s := range r.Streams {
		if s.Sends != sends {
			continue
		}
		sum.SentOctets += s.SentOctets
		sum.ReceivedOctets += s.ReceivedOctets
		sum.SentSeconds = max(sum.SentSeconds, s.SentSeconds)
		sum.ReceivedSeconds = max(sum.ReceivedSeconds, s.ReceivedSeconds)
		if s.Retransmits < 0 || sum.Retransmits < 0 {
			sum.Retransmits = unknown
		} else {
			sum.Retransmits += s.Retransmits
		}
	}
	return sum
}

// Directions says in which directions octets went: true is from this side to the peer.
func (r *Report) Directions() []bool {
	switch {
	case r.Params.Bidir:
		return []bool{true, false}
	default:
		return []bool{r.Params.Reverse == r.Server}
	}
}

// BitsPerSecond is 0 for no time.
func BitsPerSecond(octets uint64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(octets) * 8 / seconds
}

// newReport joins our side's count with the peer's.
func newReport(t *transfer, server bool, ours, theirs *wireResults, ctl net.Conn) *Report {
	r := &Report{
		Server: server, Local: ctl.LocalAddr(), Remote: ctl.RemoteAddr(), Params: t.params,
		CPU: ours.cpu(), PeerCPU: theirs.cpu(),
	}
	if !server && t.params.ServerOutput { // iperf3 3.12 goes on sending it once one client has asked
		r.ServerOutput = theirs.ServerOutput
	}
	peer := make([]wireStream, len(t.streams))
	for _, s := range theirs.Streams { // checked
		peer[streamIndex(s.ID)] = s
	}
	for i, s := range t.streams {
		here, there := ours.Streams[i], peer[i]
		if !s.sends {
			here, there = there, here
		}
		r.Streams = append(r.Streams, StreamReport{
			ID: s.id, Sends: s.sends, SentOctets: uint64(here.Bytes),
			SentSeconds:    float64(here.End - here.Start),
			ReceivedOctets: uint64(there.Bytes), ReceivedSeconds: float64(there.End - there.Start),
			Retransmits: here.retransmits(),
		})
	}
	return r
}

// serverText is what a client sees that asked for the server's output.
func serverText(t *transfer) string {
	var text string
	for _, s := range t.streams {
		verb := "received"
		if s.sends {
			verb = "sent"
		}
		text += fmt.Sprintf("[%3d] rnicd %s %d octets in %.3f s, %.3f Gbit/s\n", s.id, verb, s.counted(),
			t.seconds(s),
			BitsPerSecond(s.counted(), t.seconds(s))/1e9)
	}
	return text
}
