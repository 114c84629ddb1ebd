package ddp

// queuesMax is how many queue numbers a Segmenter counts MSNs for: RDMAP uses 0 to 2, its atomics
// 3.
const queuesMax = 4

// ulpduMax is the longest ULPDU that MPA carries (draft-ietf-rddp-mpa-01 section 3.2).
const ulpduMax = 64768

// Message is one ULP message to send. Exactly one of tagged or untagged by Header.Tagged; Segmenter
// fills Last, TO and MO, MSN, and Version.
type Message struct {
	Header Header // template: STag and first TO, or QN; ULP, ULP32
	Len    uint32
}

// Segmenter cuts one message after another into segments (section 7.2); MSNs are counted per queue.
// It is pulled: each Next is given the MULPDU of that moment, so a change concerns only segments
// not yet cut.
//
//	Start ──► Active ──Next, Next, … Last──► idle ──► Start
//	            └─────────Abort─────────────► idle
//
// It belongs to one goroutine and holds no payload. Init before use; calls out of turn panic.
type Segmenter struct {
	header  Header // of the segment in hand, or the one before it
	first   uint64 // TO of the active message
	len     uint32 // of the active message
	off     uint32 // first octet not yet cut
	active  bool
	version uint8
	msn     [queuesMax]uint32 // of the next message
}

// Init readies the Segmenter for a new stream. version is the DV of every segment of it.
func (s *Segmenter) Init(version uint8) {
	*s = Segmenter{version: version & controlVersion}
	for qn := range s.msn {
		s.msn[qn] = 1 // section 6.3: the initial MSN is one
	}
}

// Start begins a message; an untagged one takes the next MSN of its queue. It panics while a
// message is Active and on a queue number of queuesMax or more.
func (s *Segmenter) Start(m Message) {
	if s.active {
		panic("ddp: Segmenter.Start before the last segment of the previous message")
	}
	s.header, s.len, s.off, s.active = m.Header, m.Len, 0, true
	s.first = m.Header.TO
	s.header.Version = s.version
	if m.Header.Tagged {
		return
	}
	if m.Header.QN >= queuesMax {
		panic("ddp: Segmenter.Start with a queue number out of range")
	}
	s.header.MSN = s.msn[m.Header.QN]
	s.msn[m.Header.QN]++ // modulo 2^32, section 6.3
}

// StartUntagged is Start of an untagged message of n octets, in place: for small messages the copy
// of a Message, which waits for the stores that made it, is a good part of what sending one costs.
func (s *Segmenter) StartUntagged(qn uint32, ulp uint8, ulp32, n uint32) {
	if s.active {
		panic("ddp: Segmenter.StartUntagged before the last segment of the previous message")
	}
	if qn >= queuesMax {
		panic("ddp: Segmenter.StartUntagged with a queue number out of range")
	}
	h := &s.header
	h.Tagged, h.Last, h.Version, h.ULP, h.ULP32 = false, false, s.version, ulp, ulp32
	h.STag, h.TO = 0, 0
	h.QN, h.MSN, h.MO = qn, s.msn[qn], 0
	s.msn[qn]++ // modulo 2^32, section 6.3
	s.first, s.len, s.off, s.active = 0, n, 0, true
}

// StartTagged is Start of a tagged message of n octets to stag at to, in place.
func (s *Segmenter) StartTagged(ulp uint8, stag STag, to uint64, n uint32) {
	if s.active {
		panic("ddp: Segmenter.StartTagged before the last segment of the previous message")
	}
	h := &s.header
	h.Tagged, h.Last, h.Version, h.ULP, h.ULP32 = true, false, s.version, ulp, 0
	h.STag, h.TO = stag, to
	h.QN, h.MSN, h.MO = 0, 0, 0
	s.first, s.len, s.off, s.active = to, n, 0, true
}

// Active says whether segments of the started message remain to be cut.
func (s *Segmenter) Active() bool { return s.active }

// Abort abandons the active message: its last segment is never sent, and the peer never Delivers
// it. For a stream that goes down: RDMAP's Terminate follows at once instead of after the rest of a
// long message. Or for a peer that drops the message, before Rewind.
func (s *Segmenter) Abort() { s.active = false }

// MSN is that of the next message of queue qn.
func (s *Segmenter) MSN(qn uint32) uint32 { return s.msn[qn] }

// Rewind gives the MSNs of the last n messages of queue qn to those that follow: the peer has
// dropped these, and knows.
func (s *Segmenter) Rewind(qn, n uint32) { s.msn[qn] -= n }

// Rest is how many octets of the active message have not been cut, and where they begin in it.
func (s *Segmenter) Rest() (off, n uint32) { return s.off, s.len - s.off }

// NextLen is the ULPDU length (header included) the next segment will have under mulpdu: the whole
// rest of the message if it fits, else mulpdu. It panics when no message is Active or mulpdu leaves
// no room for payload.
func (s *Segmenter) NextLen(mulpdu int) int {
	return s.header.Len() + s.payloadLen(mulpdu)
}

// Next cuts the next segment: its header, and the place of its payload in the message, octets [off,
// off+n). The message ends when h.Last. The header is the Segmenter's own, to be read before its
// next call. It panics as NextLen does.
func (s *Segmenter) Next(mulpdu int) (h *Header, off uint32, n int) {
	n = s.payloadLen(mulpdu)
	h, off = &s.header, s.off
	if h.Tagged {
		h.TO = s.first + uint64(off)
	} else {
		h.MO = off
	}
	s.off += uint32(n)
	h.Last = s.off == s.len
	s.active = !h.Last
	return h, off, n
}

func (s *Segmenter) payloadLen(mulpdu int) int {
	if !s.active {
		panic("ddp: Segmenter without an active message")
	}
	room := min(mulpdu, ulpduMax) - s.header.Len()
	if room < 1 {
		panic("ddp: MULPDU leaves no room for payload")
	}
	return int(min(uint32(room), s.len-s.off))
}
