package iperf3

import "math"

// CPU is how much of one core's time a side used while the test ran, in percent.
type CPU struct {
	Total  float64
	User   float64
	System float64
}

// wireResults is what each side tells the other at the end.
type wireResults struct {
	CPUTotal       number       `json:"cpu_util_total"`
	CPUUser        number       `json:"cpu_util_user"`
	CPUSystem      number       `json:"cpu_util_system"`
	HasRetransmits number       `json:"sender_has_retransmits"`
	Congestion     string       `json:"congestion_used,omitempty"`
	ServerOutput   string       `json:"server_output_text,omitempty"`
	Streams        []wireStream `json:"streams"`
}

type wireStream struct {
	ID          int    `json:"id"`
	Bytes       number `json:"bytes"`
	Retransmits number `json:"retransmits"`
	Jitter      number `json:"jitter"`
	Errors      number `json:"errors"`
	Packets     number `json:"packets"`
	Start       number `json:"start_time"`
	End         number `json:"end_time"`
}

// unknown is what iperf3 writes where there is no count.
const unknown = -1

// check refuses results that are not of this test's streams.
func (w *wireResults) check(streams int) error {
	if len(w.Streams) != streams {
		return refusal(CodeResults, "results of %s: there are %d", plural(len(w.Streams), "stream"),
			streams)
	}
	seen := make([]bool, streams)
	for _, s := range w.Streams {
		i := streamIndex(s.ID)
		if i < 0 || i >= streams || seen[i] {
			return refusal(CodeStreamID, "results of stream %d: there is none, or twice", s.ID)
		}
		seen[i] = true
		if _, ok := s.Bytes.count(countMax); !ok ||
			!(s.Start >= 0 && s.End >= s.Start && s.End <= 2*number(TimeMax.Seconds())) {
			return refusal(CodeResults, "stream %d: %v octets from %v s to %v s", s.ID, s.Bytes,
				s.Start, s.End)
		}
	}
	if !w.CPUTotal.valid() || !w.CPUUser.valid() || !w.CPUSystem.valid() {
		return refusal(CodeResults, "the CPU's utilisation is not a number")
	}
	return nil
}

func streamIndex(id int) int {
	if id == 1 {
		return 0
	}
	if id < 3 {
		return -1
	}
	return id - 2
}

// retransmits is the count, or unknown.
func (s *wireStream) retransmits() int64 {
	n, ok := s.Retransmits.count(math.MaxUint32)
	if !ok {
		return unknown
	}
	return n
}

func (w *wireResults) cpu() CPU {
	return CPU{Total: float64(w.CPUTotal), User: float64(w.CPUUser), System: float64(w.CPUSystem)}
}
