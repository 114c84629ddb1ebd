package iperf3

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Bounds of a test. Those of length, time and omit are iperf3's own.
const (
	StreamsMax    = 128
	LengthMax     = 1 << 20
	LengthDefault = 128 << 10
	TimeMax       = 86400 * time.Second
	OmitMax       = 600 * time.Second
	countMax      = 1 << 53 // what a JSON number holds exactly
	textMax       = 256     // of a title, of a congestion control's name
)

// Params are a test's parameters: the client chooses, the server accepts or refuses.
type Params struct {
	Reverse      bool          // the server sends
	Bidir        bool          // both send, on Streams connections each
	Time         time.Duration // 0: no limit
	Omit         time.Duration // not counted, at the beginning
	Bytes        uint64        // to send in all, 0: no limit
	Blocks       uint64        // the same in blocks of Length
	Streams      int           // in each direction
	Length       int           // octets of a block: of one Write
	Rate         uint64        // bit/s of each stream, 0: no limit
	NoDelay      bool
	Window       int    // octets of the socket's buffers, 0: its own choice
	TOS          int    // octet of IPv4, or IPv6's traffic class
	Congestion   string // name of the congestion control, empty: the system's
	Title        string
	ServerOutput bool // the client wants to see the server's text
	Version      string
}

// wireParams are the parameters as JSON. Keys that are not here are ignored: MSS, flowlabel, burst,
// fqrate, authtoken...
type wireParams struct {
	TCP          flag   `json:"tcp,omitempty"`
	UDP          flag   `json:"udp,omitempty"`
	SCTP         flag   `json:"sctp,omitempty"`
	Omit         number `json:"omit"`
	Time         number `json:"time"`
	Num          number `json:"num"`
	Blocks       number `json:"blockcount"`
	NoDelay      flag   `json:"nodelay,omitempty"`
	Parallel     number `json:"parallel"`
	Reverse      flag   `json:"reverse,omitempty"`
	Bidir        flag   `json:"bidirectional,omitempty"`
	Window       number `json:"window,omitempty"`
	Len          number `json:"len"`
	Bandwidth    number `json:"bandwidth,omitempty"`
	PacingTimer  number `json:"pacing_timer"`
	TOS          number `json:"TOS,omitempty"`
	Title        string `json:"title,omitempty"`
	Congestion   string `json:"congestion,omitempty"`
	ServerOutput flag   `json:"get_server_output,omitempty"`
	Version      string `json:"client_version"`
}

func (p *Params) wire() wireParams {
	return wireParams{
		TCP: true, Omit: number(p.Omit.Seconds()), Time: number(p.Time.Seconds()), Num: number(p.Bytes),
		Blocks: number(p.Blocks), NoDelay: flag(p.NoDelay), Parallel: number(p.Streams),
		Reverse: flag(p.Reverse),
		Bidir:   flag(p.Bidir), Window: number(p.Window), Len: number(p.Length),
		Bandwidth:   number(p.Rate),
		PacingTimer: 1000, TOS: number(p.TOS), Title: p.Title, Congestion: p.Congestion,
		ServerOutput: flag(p.ServerOutput), Version: p.Version,
	}
}

// params checks what a client wants.
func (w *wireParams) params() (Params, error) {
	p := Params{
		Reverse: bool(w.Reverse), Bidir: bool(w.Bidir), NoDelay: bool(w.NoDelay),
		Congestion: w.Congestion, Title: w.Title,
		ServerOutput: bool(w.ServerOutput), Version: w.Version,
	}
	switch {
	case bool(w.UDP):
		return p, refusal(CodeProtocol, "the client wants UDP; only TCP is served")
	case bool(w.SCTP):
		return p, refusal(CodeNoSCTP, "the client wants SCTP; only TCP is served")
	}
	var ok [7]bool
	var n [7]int64
	n[0], ok[0] = w.Time.count(TimeMax.Seconds())
	n[1], ok[1] = w.Omit.count(OmitMax.Seconds())
	n[2], ok[2] = w.Num.count(countMax)
	n[3], ok[3] = w.Blocks.count(countMax)
	n[4], ok[4] = w.Parallel.count(math.MaxInt32)
	n[5], ok[5] = w.Len.count(math.MaxInt32)
	n[6], ok[6] = w.Window.count(math.MaxInt32)
	rate, rateOK := w.Bandwidth.count(countMax)
	tos, tosOK := w.TOS.count(math.MaxUint8)
	switch {
	case !ok[0]:
		return p, refusal(CodeDuration, "time %v: want 0 to %v s", w.Time, TimeMax.Seconds())
	case !ok[1]:
		return p, refusal(CodeOmit, "omit %v: want 0 to %v s", w.Omit, OmitMax.Seconds())
	case !tosOK:
		return p, refusal(CodeTOS, "TOS %v: want 0 to 255", w.TOS)
	case !ok[2] || !ok[3] || !ok[4] || !ok[5] || !ok[6] || !rateOK:
		return p, refusal(CodeParams, "num %v, blockcount %v, parallel %v, len %v, window %v, "+
			"bandwidth %v: not all are counts",
			w.Num, w.Blocks, w.Parallel, w.Len, w.Window, w.Bandwidth)
	}
	p.TOS = int(tos)
	p.Time, p.Omit = time.Duration(n[0])*time.Second, time.Duration(n[1])*time.Second
	p.Bytes, p.Blocks, p.Streams, p.Length, p.Window, p.Rate = uint64(n[2]), uint64(n[3]), int(n[4]),
		int(n[5]), int(n[6]), uint64(rate)
	return p, p.check()
}

// Check says what is wrong with the Params of a client.
func (p *Params) Check() error {
	if err := p.check(); err != nil {
		return err
	}
	if p.Time == 0 && p.limit() == 0 {
		return errors.New("iperf3: a test without an end: want a time or a number of octets or blocks")
	}
	return nil
}

// check holds Params of either side against the bounds.
func (p *Params) check() error {
	switch {
	case p.Streams < 1 || p.Streams > StreamsMax:
		return refusal(CodeNumStreams, "%d parallel streams: want 1 to %d", p.Streams, StreamsMax)
	case p.Length < 1 || p.Length > LengthMax:
		return refusal(CodeBlockSize, "blocks of %d octets: want 1 to %d", p.Length, LengthMax)
	case p.Time < 0 || p.Time > TimeMax || p.Time%time.Second != 0:
		return refusal(CodeDuration, "a test of %v: want whole seconds up to %v", p.Time, TimeMax)
	case p.Omit < 0 || p.Omit > OmitMax || p.Omit%time.Second != 0:
		return refusal(CodeOmit, "omit %v: want whole seconds up to %v", p.Omit, OmitMax)
	case p.Reverse && p.Bidir:
		return refusal(CodeReverseBidi, "both reverse and bidirectional")
	case p.TOS < 0 || p.TOS > math.MaxUint8:
		return refusal(CodeTOS, "TOS %d: want 0 to 255", p.TOS)
	case p.Bytes > countMax || p.Blocks > countMax/LengthMax || p.Rate > countMax:
		return refusal(CodeParams, "%d octets, %d blocks or %d bit/s: more than can be counted", p.Bytes,
			p.Blocks, p.Rate)
	case len(p.Title) > textMax || len(p.Congestion) > textMax:
		return refusal(CodeParams, "title or congestion longer than %d octets", textMax)
	}
	return nil
}

// limit is how many octets the senders of one side send together, 0: no limit.
func (p *Params) limit() uint64 {
	if p.Bytes != 0 {
		return p.Bytes
	}
	return p.Blocks * uint64(p.Length)
}

// layout says of each stream, in the order in which they are opened, whether this side sends on it.
func (p *Params) layout(server bool) []bool {
	if !p.Bidir {
		return repeat(p.Reverse == server, p.Streams)
	}
	return append(repeat(!server, p.Streams), repeat(server, p.Streams)...)
}

func repeat(v bool, n int) []bool {
	s := make([]bool, n, 2*n)
	for i := range s {
		s[i] = v
	}
	return s
}

// streamID is iperf3's number of the i-th stream: there is no 2 (iperf_add_stream).
func streamID(i int) int {
	if i == 0 {
		return 1
	}
	return i + 2
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
