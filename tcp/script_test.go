package tcp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rnicd/rnicd/internal/cc"
)

// A script is a Conn and a peer that does as the test says. Segments are written much as tcpdump
// does,
//
//	"S. 0:1 ack 1 win 65535 mss 1000 sackOK wscale 7 ts 5,9"   "P. 1:1001 ack 1"   ". 1 ack 1001 sack 2001:3001"
//
// flags, first and end sequence number (end omitted: empty), then fields in any order. Sequence
// numbers are relative to the initial ones of their side, so 0 is the SYN and 1 the first octet;
// SYN and FIN are counted in the end. Of what the Conn sends, flags, sequence numbers and the
// fields that are written are compared; "rtx" asks for a retransmission, "fresh" for a first
// transmission, "no X" for the absence of an option.
type script struct {
	t    *testing.T
	c    *Conn
	now  int64
	iss  Seq // ours
	irs  Seq // the peer's
	out  []sentSegment
	next Handle
	// What the peer does unless told otherwise.
	win    int
	ts     bool
	tsEcho uint32
	last   Arrival
	where  string // of the step, in a scenario
}

func (s *script) fatalf(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf(s.where+format, args...)
}

type sentSegment struct {
	Transmit
	at int64
}

const (
	us = int64(1000)
	ms = int64(1_000_000)
	sc = int64(1_000_000_000)
)

// plain is a Config whose EMSS is 1000 and that adds nothing a test does not ask for.
func plain() Config {
	return Config{MSS: 1000, NoTimestamps: true, NoSACK: true, NoWindowScale: true, NoDelay: true,
		ReceiveWindow: 20000, Congestion: cc.NewReno{}}
}

func sackOnly() Config { c := plain(); c.NoSACK = false; return c }

func newScript(t *testing.T, cfg Config) *script {
	return &script{t: t, c: NewConn(cfg), now: 1000 * sc, iss: 0xfffff000, irs: 0xffffff00, win: 60000}
}

// accepted is a script with a connection the peer opened; options are those of its SYN.
func accepted(t *testing.T, cfg Config, options string) *script {
	t.Helper()
	s := newScript(t, cfg)
	s.accept("S 0:1 win 60000 mss 1000 " + options)
	s.expect("S. 0:1 ack 1")
	s.in(". 1 ack 1")
	s.expect()
	s.wantState(Established)
	s.wantEvents(EvEstablished)
	return s
}

// started makes it a connection whose start is over: ACKs are delayed.
func (s *script) started() *script {
	s.c.answered = true
	return s
}

func (s *script) connect() { s.c.Connect(s.now, simID(false), s.iss, 0) }

func (s *script) accept(syn string) {
	s.t.Helper()
	seg := s.parse(syn)
	s.c.Accept(s.now, simID(true), s.iss, 0, &seg)
}

// in delivers a segment and keeps its octets; inRefused does not keep them.
func (s *script) in(text string) Arrival        { s.t.Helper(); return s.deliver(text, false) }
func (s *script) inRefused(text string) Arrival { s.t.Helper(); return s.deliver(text, true) }

func (s *script) deliver(text string, refused bool) Arrival {
	s.t.Helper()
	seg := s.parse(text)
	s.last = s.c.Input(s.now, &seg)
	s.sound()
	s.c.Commit(s.now, &s.last, refused)
	s.sound()
	return s.last
}

// wantDrop says why the last segment was not accepted.
func (s *script) wantDrop(d Drop) {
	s.t.Helper()
	if s.last.Drop != d {
		s.fatalf("dropped as %v, want %v", s.last.Drop, d)
	}
}

// wantArrival is what the last segment brought: octets [from, to) of the stream, from 0.
func (s *script) wantArrival(from, to int) {
	s.t.Helper()
	if a := s.last; int(a.Offset) != from || a.Len != to-from {
		s.fatalf("arrival [%d,%d) %v, want [%d,%d)", a.Offset, int(a.Offset)+a.Len, a.Drop, from, to)
	}
}

func (s *script) wantNothing() {
	s.t.Helper()
	if s.last.Len != 0 {
		s.fatalf("arrival of %d octets, want none", s.last.Len)
	}
}

// roomOf is how many octets the next segment may carry.
func roomOf(c *Conn, now int64) int {
	_, octets := c.Room(now, 1)
	return octets
}

// pushOne queues one segment.
func pushOne(c *Conn, now int64, h Handle, n int, psh bool) {
	c.Push(now, []Piece{{Handle: h, Len: int32(n), Push: psh}})
}

func (s *script) push(sizes ...int) {
	s.t.Helper()
	for _, n := range sizes {
		if roomOf(s.c, s.now) < n {
			s.fatalf("room %d for a push of %d", roomOf(s.c, s.now), n)
		}
		pushOne(s.c, s.now, s.next, n, false)
		s.next++
		s.drain()
	}
}

// fill pushes full segments while there is room and returns how many.
func (s *script) fill() (n int) {
	for roomOf(s.c, s.now) > 0 {
		pushOne(s.c, s.now, s.next, s.c.EMSS(), false)
		s.next++
		s.drain()
		n++
	}
	return n
}

func (s *script) drain() {
	s.t.Helper()
	var t Transmit
	for i := 0; s.c.Next(s.now, 1, &t); i++ {
		if i > 10000 {
			s.fatalf("Next does not end")
		}
		s.out = append(s.out, sentSegment{t, s.now})
		if t.Options.HasTimestamps {
			s.tsEcho = t.Options.TSval
		}
		s.sound()
	}
}

// advance lets d pass and every timer fire at its time.
func (s *script) advance(d int64) {
	s.t.Helper()
	end := s.now + d
	s.drain()
	for i := 0; s.c.Deadline() <= end; i++ {
		if i > 100000 {
			s.fatalf("timers do not end")
		}
		s.now = max(s.now, s.c.Deadline())
		s.c.Expire(s.now)
		s.sound()
		s.drain()
	}
	s.now = end
}

func (s *script) sound() {
	s.t.Helper()
	if err := s.c.broken(); err != nil {
		s.fatalf("invariant: %v", err)
	}
}

// expect says which segments, and no others, have been sent since the last expect.
func (s *script) expect(texts ...string) {
	s.t.Helper()
	s.drain()
	for _, text := range texts {
		s.expectNext(text)
	}
	if len(s.out) > 0 {
		s.fatalf("sent %q, want nothing more", s.show(&s.out[0].Transmit))
	}
}

// expectNext says what the next segment was.
func (s *script) expectNext(text string) {
	s.t.Helper()
	if len(s.out) == 0 {
		s.fatalf("want %q, nothing more was sent", text)
	}
	if err := s.match(&s.out[0].Transmit, text); err != nil {
		s.fatalf("want %q, sent %q: %v", text, s.show(&s.out[0].Transmit), err)
	}
	s.out = s.out[1:]
}

// sent returns and forgets what was sent.
func (s *script) sent() []sentSegment {
	s.drain()
	out := slices.Clone(s.out)
	s.out = s.out[:0]
	return out
}

// opened is a passive open with the SYN's options, whose handshake takes rtt.
func opened(t *testing.T, cfg Config, options string, rtt int64) *script {
	t.Helper()
	s := newScript(t, cfg)
	s.accept("S 0:1 win 60000 " + options)
	s.expect("S. 0:1 ack 1")
	s.advance(rtt)
	s.in(". 1 ack 1")
	return s
}

func (s *script) wantState(want State) {
	s.t.Helper()
	if s.c.State() != want {
		s.fatalf("state %v, want %v", s.c.State(), want)
	}
}

func (s *script) wantEvents(want Events) {
	s.t.Helper()
	if got := s.c.TakeEvents(); got != want {
		s.fatalf("events %#b, want %#b", got, want)
	}
}

func (s *script) wantReleased(want ...Handle) {
	s.t.Helper()
	var got []Handle
	for {
		h, ok := s.c.Release()
		if !ok {
			break
		}
		got = append(got, h)
	}
	if !slices.Equal(got, want) {
		s.fatalf("released %v, want %v", got, want)
	}
}

var flagLetters = map[rune]Flags{'S': SYN, 'F': FIN, 'R': RST, 'P': PSH, '.': ACK, 'E': ECE,
	'W': CWR, 'U': URG, '-': 0}

// fields splits a segment's text.
func fields(text string) (flags Flags, seq, end int, rest []string) {
	words := strings.Fields(text)
	for _, r := range words[0] {
		f, ok := flagLetters[r]
		if !ok {
			panic("flag " + string(r))
		}
		flags |= f
	}
	first, last, both := strings.Cut(words[1], ":")
	seq, err := strconv.Atoi(first)
	if err != nil {
		panic(err)
	}
	end = seq
	if both {
		if end, err = strconv.Atoi(last); err != nil {
			panic(err)
		}
	}
	return flags, seq, end, words[2:]
}

func pair(w, sep string) (a, b int) {
	x, y, _ := strings.Cut(w, sep)
	a, err := strconv.Atoi(x)
	if err != nil {
		panic(err)
	}
	if b, err = strconv.Atoi(y); err != nil {
		panic(err)
	}
	return a, b
}

// parse makes the segment that a peer sends.
func (s *script) parse(text string) Segment {
	s.t.Helper()
	flags, seq, end, rest := fields(text)
	seg := Segment{SrcPort: 1, DstPort: 2, Seq: s.irs + Seq(seq), Flags: flags,
		Window: uint16(s.win), HdrLen: 20}
	seg.Options.clear()
	seg.Len = end - seq - int(flags&FIN) - int(flags&SYN>>1)
	if seg.Len < 0 {
		seg.Len = 0
	}
	o := &seg.Options
	if s.ts && flags&RST == 0 {
		o.HasTimestamps, o.TSval, o.TSecr = true, uint32(s.now/ms), s.tsEcho
	}
	for len(rest) > 0 {
		word, arg := rest[0], ""
		rest = rest[1:]
		if !slices.Contains([]string{"sackOK", "nots", "ce", "ect"}, word) {
			arg, rest = rest[0], rest[1:]
		}
		n, _ := strconv.Atoi(arg)
		switch word {
		case "ack":
			seg.Ack = s.iss + Seq(n)
		case "win":
			seg.Window = uint16(n)
		case "mss":
			o.MSS = uint16(n)
		case "wscale":
			o.WindowScale = int8(n)
		case "sackOK":
			o.SACKPermitted = true
		case "ts":
			v, e := pair(arg, ",")
			o.HasTimestamps, o.TSval, o.TSecr = true, uint32(v), uint32(e)
			if flags&SYN != 0 {
				s.ts = true
			}
		case "ce":
			seg.TOS = ecnCE
		case "ect":
			seg.TOS = ecnECT0
		case "nots":
			o.HasTimestamps = false
		case "sack":
			for _, b := range strings.Split(arg, ",") {
				l, r := pair(b, ":")
				o.SACK[o.SACKCount] = SACKBlock{s.iss + Seq(l), s.iss + Seq(r)}
				o.SACKCount++
			}
		default:
			s.fatalf("field %q", word)
		}
	}
	return seg
}

// match compares what the Conn sent with a text.
func (s *script) match(t *Transmit, text string) error {
	flags, seq, end, rest := fields(text)
	if t.Flags != flags {
		return fmt.Errorf("flags")
	}
	if got := int(int32(t.Seq - s.iss)); got != seq {
		return fmt.Errorf("sequence %d", got)
	}
	n := t.Len + int(t.Flags&FIN) + int(t.Flags&SYN>>1)
	if n != end-seq {
		return fmt.Errorf("length %d", n)
	}
	o := &t.Options
	for len(rest) > 0 {
		word, arg := rest[0], ""
		rest = rest[1:]
		if !slices.Contains([]string{"sackOK", "rtx", "fresh", "ect"}, word) {
			arg, rest = rest[0], rest[1:]
		}
		want, _ := strconv.Atoi(arg)
		got := want
		switch word {
		case "ack":
			got = int(int32(t.Ack - s.irs))
		case "win":
			got = int(t.Window)
		case "mss":
			got = int(o.MSS)
		case "wscale":
			got = int(o.WindowScale)
		case "sackOK":
			if !o.SACKPermitted {
				return fmt.Errorf("no SACK-permitted")
			}
		case "ts":
			v, e := pair(arg, ",")
			if !o.HasTimestamps || o.TSval != uint32(v) || o.TSecr != uint32(e) {
				return fmt.Errorf("timestamps %v %d,%d", o.HasTimestamps, o.TSval, o.TSecr)
			}
		case "ect":
			if t.TOS&ecnMask != ecnECT0 {
				return fmt.Errorf("ECN field %d", t.TOS&ecnMask)
			}
		case "tos":
			got = int(t.TOS)
		case "ecr":
			got = int(o.TSecr)
		case "rtx", "fresh":
			if t.Retransmit != (word == "rtx") {
				return fmt.Errorf("retransmission %v", t.Retransmit)
			}
		case "sack":
			if got := s.showSACK(o); got != arg {
				return fmt.Errorf("sack %q", got)
			}
		case "no":
			present := map[string]bool{"mss": o.MSS != 0, "sackOK": o.SACKPermitted, "ts": o.HasTimestamps,
				"wscale": o.WindowScale >= 0, "sack": o.SACKCount > 0,
				"ect": t.TOS&ecnMask != 0}
			if present[arg] {
				return fmt.Errorf("has %s", arg)
			}
		default:
			return fmt.Errorf("field %q", word)
		}
		if got != want {
			return fmt.Errorf("%s %d", word, got)
		}
	}
	return nil
}

func (s *script) showSACK(o *Options) string {
	var parts []string
	for _, b := range o.SACK[:o.SACKCount] {
		parts = append(parts, fmt.Sprintf("%d:%d", int32(b.Left-s.irs), int32(b.Right-s.irs)))
	}
	return strings.Join(parts, ",")
}

func (s *script) show(t *Transmit) string {
	flags := ""
	for _, r := range "SFRP.EWU" {
		if t.Flags&flagLetters[r] != 0 {
			flags += string(r)
		}
	}
	seq := int(int32(t.Seq - s.iss))
	text := fmt.Sprintf("%s %d:%d ack %d win %d", flags, seq,
		seq+t.Len+int(t.Flags&FIN)+int(t.Flags&SYN>>1), int32(t.Ack-s.irs), t.Window)
	if t.Options.SACKCount > 0 {
		text += " sack " + s.showSACK(&t.Options)
	}
	if t.Options.HasTimestamps {
		text += fmt.Sprintf(" ts %d,%d", t.Options.TSval, t.Options.TSecr)
	}
	if t.Retransmit {
		text += " rtx"
	}
	return text
}
