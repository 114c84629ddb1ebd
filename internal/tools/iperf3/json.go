package iperf3

import (
	"encoding/json"
	"io"
	"net"
)

// The report as JSON has the keys of `iperf3 -J`, as far as we know their values: what reads the
// one reads the other.

type jsonFlow struct {
	Seconds     float64 `json:"seconds"`
	Bytes       uint64  `json:"bytes"`
	BitsPerSec  float64 `json:"bits_per_second"`
	Retransmits *int64  `json:"retransmits,omitempty"`
	Sender      bool    `json:"sender"` // of this side
}

type jsonStream struct {
	ID       int      `json:"id"`
	Sender   jsonFlow `json:"sender"`
	Receiver jsonFlow `json:"receiver"`
}

type jsonStart struct {
	Role   string         `json:"role"`
	Local  string         `json:"local"`
	Remote string         `json:"remote"`
	Test   map[string]any `json:"test_start"`
}

type jsonEnd struct {
	Streams      []jsonStream       `json:"streams"`
	SumSent      jsonFlow           `json:"sum_sent"`
	SumReceived  jsonFlow           `json:"sum_received"`
	BidirSent    *jsonFlow          `json:"sum_sent_bidir_reverse,omitempty"`
	BidirReceive *jsonFlow          `json:"sum_received_bidir_reverse,omitempty"`
	CPU          map[string]float64 `json:"cpu_utilization_percent"`
}

type jsonReport struct {
	Start        jsonStart `json:"start"`
	End          jsonEnd   `json:"end"`
	ServerOutput string    `json:"server_output_text,omitempty"`
}

func flows(s StreamReport) (sent, received jsonFlow) {
	sent = jsonFlow{Seconds: s.SentSeconds, Bytes: s.SentOctets,
		BitsPerSec: BitsPerSecond(s.SentOctets, s.SentSeconds), Sender: s.Sends}
	if s.Retransmits >= 0 {
		sent.Retransmits = &s.Retransmits
	}
	received = jsonFlow{
		Seconds: s.ReceivedSeconds, Bytes: s.ReceivedOctets,
		BitsPerSec: BitsPerSecond(s.ReceivedOctets, s.ReceivedSeconds), Sender: s.Sends,
	}
	return sent, received
}

func text(a net.Addr) string {
	if a == nil {
		return ""
	}
	return a.String()
}

// WriteJSON writes the report as one line.
func (r *Report) WriteJSON(w io.Writer) error {
	p := r.Params
	out := jsonReport{ServerOutput: r.ServerOutput}
	out.Start = jsonStart{Role: "client", Local: text(r.Local), Remote: text(r.Remote),
		Test: map[string]any{
			"protocol": "TCP", "num_streams": p.Streams, "blksize": p.Length, "omit": int(p.Omit.Seconds()),
			"duration": int(p.Time.Seconds()), "bytes": p.Bytes, "blocks": p.Blocks,
			"reverse": btoi(p.Reverse), "bidir": btoi(p.Bidir),
		}}
	if r.Server {
		out.Start.Role = "server"
	}
	for _, s := range r.Streams {
		sent, received := flows(s)
		out.End.Streams = append(out.End.Streams, jsonStream{ID: s.ID, Sender: sent, Receiver: received})
	}
	// As in iperf3, the sums are of the client's sending unless only the server sends.
	first := r.Directions()[0]
	if p.Bidir {
		first = !r.Server
		sent, received := flows(r.Sum(!first))
		out.End.BidirSent, out.End.BidirReceive = &sent, &received
	}
	out.End.SumSent, out.End.SumReceived = flows(r.Sum(first))
	out.End.CPU = map[string]float64{
		"host_total": r.CPU.Total, "host_user": r.CPU.User, "host_system": r.CPU.System,
		"remote_total": r.PeerCPU.Total, "remote_user": r.PeerCPU.User, "remote_system": r.PeerCPU.System,
	}
	return json.NewEncoder(w).Encode(out)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
