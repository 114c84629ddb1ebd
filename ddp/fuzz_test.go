package ddp

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
)

// FuzzMessages plays a peer that knows every STag there ever was against an owner that registers,
// revokes, revalidates and deregisters memory meanwhile, and posts and takes buffers. Each step
// is an octet that says what, and some that say how. Segments are placed at once, later or again,
// so in any order; some are any octets at all, with a real STag in them most of the time, for no
// fuzzer guesses one. The model is naive: it looks everything up by walking all there ever was,
// places octet by octet into a map, and says what each segment's error must be, which messages
// are delivered and when; in the end all memory must be as the map says.
// req: DDP-9.1-11, DDP-9.1-13, DDP-10.1-1, DDP-10.3-2, DDP-10.3-3, DDP-10.3-4, DDP-7.4-2
// req: 5041-7.1-4, 5041-8.3.1-3, 5042-6.2.1-1
func FuzzMessages(f *testing.F) {
	for _, script := range messageScripts {
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		m := newModel(t, script)
		for steps := 0; len(m.script) > 0 && steps < 200; steps++ {
			m.step()
		}
		m.deliver(m.leftEdge())
		m.compare()
	})
}

// Most of what a fuzzer makes up ends early, in an error. These scripts are those of a peer and
// an owner that mostly behave, in any order and with many a segment twice.
// req: DDP-3.2-1, DDP-3.2-5, DDP-6.1-2, DDP-6.1-3, DDP-6.3-5, DDP-7.1-1, DDP-7.2-5, DDP-7.2-14
// req: DDP-7.3-4, DDP-7.3-5, DDP-7.3-6, DDP-7.3-7, DDP-7.4-4, DDP-9.1-12, 5040-5.5-1, 5040-7.1-5
func TestMessagesAgainstModel(t *testing.T) {
	whole := 0
	rounds(t, 2000, func(rng *rand.Rand) {
		m := newModel(t, behaved(rng))
		for len(m.script) > 0 {
			m.step()
		}
		for _, s := range m.sent {
			m.place(s)
		}
		m.deliver(m.leftEdge())
		m.compare()
		if !m.failed {
			whole++
			for _, s := range m.sent {
				require.Equal(t, s.header.Last, s.delivered)
			}
		}
	})
	require.Greater(t, whole, 500, "scripts without an error")
}

// behaved is a script for the model.
func behaved(rng *rand.Rand) []byte {
	script := []byte{0, 4, 31, 0, 0, 7, 31, 1, 6, 1, 15, 6, 5, 15, 6, 9, 15, 6, 13, 15, 6, 17, 15, 6,
		21, 15, 6, 24, 15, 6, 2, 15}
	msn := byte(0)
	for range 10 + rng.IntN(30) {
		later := byte(rng.IntN(2) * 2)
		switch rng.IntN(12) {
		case 0, 1, 2, 3:
			off := rng.IntN(25)
			script = append(script, 4, byte(1+rng.IntN(2)), byte(2+off), byte(rng.IntN(33-off)),
				later|byte(rng.IntN(2)))
		case 4, 5, 6:
			if msn == 8 {
				continue
			}
			msn++
			at := byte(rng.IntN(8))
			if at > 0 {
				script = append(script, 5, msn, 0, at, byte(rng.IntN(2)*2))
			}
			script = append(script, 5, msn, at, byte(rng.IntN(8)), later|1)
		case 7, 8, 9:
			script = append(script, 7, byte(rng.IntN(40)))
		case 10:
			script = append(script, 8)
		case 11:
			switch rng.IntN(20) {
			case 0, 1:
				script = append(script, byte(pickOf(rng, 1, 2, 3, 9)), byte(rng.IntN(3)))
			case 2, 3: // any segment of any message that is near
				script = append(script, 5, max(msn, 2)-2+byte(rng.IntN(4)), byte(rng.IntN(18)),
					byte(rng.IntN(9)), byte(rng.IntN(4)))
			case 4:
				script = append(script, 5, 0x80|byte(rng.IntN(3)), 0, 0, 1) // a queue without buffers
			case 5, 6: // one octet is wrong
				b := ulpdu(pickOf(rng, Header{Version: testDV, MSN: uint32(msn + 1)},
					Header{Version: testDV, Tagged: true, STag: 2 << 24, TO: 9}), []byte("abc"))
				b[rng.IntN(len(b))] = byte(rng.Uint32())
				b = b[:len(b)-rng.IntN(2)*rng.IntN(len(b))]
				script = append(append(script, sayRaw, byte(len(b))), b...)
			}
		}
	}
	return script
}

func pickOf[T any](rng *rand.Rand, choices ...T) T { return choices[rng.IntN(len(choices))] }

// messageScripts are the seeds; longer ones stand in testdata.
var messageScripts = [][]byte{
	// register, write, deliver
	{0, 15, 2, 0, 4, 0, 0, 9, 1, 8, 0},
	// register, revoke, write
	{0, 15, 2, 0, 1, 0, 4, 0, 0, 9, 1, 8, 0},
	// revalidate, write by the old STag
	{0, 15, 2, 0, 2, 0, 4, 0, 128, 9, 1, 4, 0, 0, 9, 1, 8, 0},
	// two buffers, two messages, one in two segments
	{6, 9, 6, 9, 5, 1, 0, 5, 0, 5, 1, 5, 5, 1, 8, 0},
	// the same, later and the other way round
	{6, 9, 5, 1, 0, 5, 3, 5, 1, 5, 5, 3, 7, 1, 7, 0, 8, 0},
	{0, 15, 2, 1, 0, 31, 9, 2, 3, 4, 0, 0, 9, 1, 4, 1, 0, 9, 1, 7, 0, 9, 1, 8}, // bound to streams
	// any octets: headers cut short, a foreign version
	{sayRaw, 13, 0xc1, 0x40, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
	{6, 0, 15, sayRaw, 17, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0},
	{0, 7, 31, 0, sayRaw, 17, 0xc2, 0x40, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 'a', 'b', 'c'},
	// any octets: a Write, two segments of a Send, a Write beyond the end, and one that wraps
	{0, 7, 31, 0, sayRaw, 17, 0xc1, 0x40, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 'a', 'b', 'c', 8},
	{6, 0, 15, sayRaw, 21, 0x01, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 'a', 'b', 'c',
		sayRaw, 18, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3, 8},
	{0, 7, 31, 0, sayRaw, 17, 0xc1, 0x40, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 30, 'a', 'b', 'c'},
	{0, 7, 31, 0, sayRaw, 15, 0xc1, 0x40, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 'a'},
}

// model is a sink, what happens to it, and what that must lead to.
type model struct {
	*sink
	script  []byte
	regions []*modelRegion
	octets  map[modelPlace]byte
	posted  []modelBuffer // of queue 0, ever; MSN 1 is the first
	sent    []*modelSegment
	inbox   *modelRegion // posted buffers lie here

	received  uint32 // untagged messages delivered
	edge, cut uint64
	failed    bool
	err       *Error // the last, of Place or Delivery
	stats     Stats
}

type modelRegion struct {
	*mem.MemoryRegion
	stags  []mem.STag // all it ever had
	valid  bool
	gone   bool // deregistered
	access mem.Access
	mine   bool // this stream may use it
}

type modelPlace struct {
	region *modelRegion
	off    uint64
}

type modelBuffer struct {
	stag      mem.STag
	off, size uint32
}

type modelSegment struct {
	start, end uint64
	header     Header
	payload    []byte
	raw        []byte // the ULPDU, if it is any octets
	given      bool   // to Place
	placed     bool   // and accepted
	delivered  bool
}

func newModel(t *testing.T, script []byte) *model {
	m := &model{sink: newSink(t, 400), script: script, octets: map[modelPlace]byte{},
		cut: math.MaxUint64}
	m.register(40, 3, 0, ownStream, m.domain) // not RemoteWrite
	m.inbox = m.regions[0]
	return m
}

// next is the script's next octet.
func (m *model) next() int {
	if len(m.script) == 0 {
		return 0
	}
	b := m.script[0]
	m.script = m.script[1:]
	return int(b)
}

// sayRaw is the step that sends any octets.
const sayRaw = 0xff

func (m *model) step() {
	op := m.next()
	if op == sayRaw {
		m.say()
		return
	}
	switch op % 10 {
	case 0:
		how, size := m.next(), 1+m.next()%32
		stream, domain := mem.AnyStream, m.domain
		switch m.next() % 4 {
		case 1:
			stream = ownStream
		case 2:
			stream = ownStream + 1
		case 3:
			domain = m.table.AllocDomain()
		}
		m.register(size, how&7, uint64(how>>3), stream, domain)
	case 1:
		m.revoke(m.region(), (*mem.MemoryRegion).Revoke)
	case 2:
		m.revalidate(m.region())
	case 3:
		if r := m.region(); r != m.inbox {
			m.revoke(r, (*mem.MemoryRegion).Deregister)
			r.gone = true
		}
	case 4:
		m.write()
	case 5:
		m.send()
	case 6:
		m.post()
	case 7:
		if len(m.sent) > 0 {
			m.place(m.sent[m.next()%len(m.sent)])
		}
	case 8:
		m.deliver(m.leftEdge())
	case 9:
		m.invalidate(m.region())
	}
}

func (m *model) register(size, access int, base uint64, stream mem.StreamID,
	domain mem.ProtectionDomain) {
	if len(m.regions) == 12 {
		return
	}
	// LocalRead comes by itself; the three others are chosen.
	rights := [3]mem.Access{mem.LocalWrite, mem.RemoteRead, mem.RemoteWrite}
	r := &modelRegion{valid: true, mine: domain == m.domain &&
		(stream == mem.AnyStream || stream == ownStream)}
	for i, right := range rights {
		if access>>i&1 != 0 {
			r.access |= right
		}
	}
	r.MemoryRegion = m.registerIn(domain, size,
		mem.RegionOptions{Access: r.access, Base: base, Stream: stream})
	r.stags = []mem.STag{r.STag()}
	m.regions = append(m.regions, r)
}

func (m *model) region() *modelRegion { return m.regions[m.next()%len(m.regions)] }

// revoke takes the right away, outside of a burst as any owner must.
func (m *model) revoke(r *modelRegion, how func(*mem.MemoryRegion)) {
	m.reader.Exit()
	how(r.MemoryRegion)
	m.reader.Enter()
	r.valid = false
}

func (m *model) revalidate(r *modelRegion) {
	if r.gone {
		return
	}
	m.reader.Exit()
	defer m.reader.Enter()
	r.Revalidate()
	r.stags, r.valid = append(r.stags, r.STag()), true
}

// invalidate is the peer's way to revoke.
func (m *model) invalidate(r *modelRegion) {
	want := r.valid && r.mine && r.Stream() == ownStream &&
		r.access&(mem.RemoteRead|mem.RemoteWrite) != 0
	got := m.table.Invalidate(m.domain, ownStream, r.STag()) == mem.CheckOK
	require.Equal(m.t, want, got, "invalidate")
	if got {
		r.valid = false
	}
}

// header fields and payload of a segment to come; the low bit of last says so, the next one that
// it is placed later.
func (m *model) segment(h Header, n, last int) {
	s := &modelSegment{header: h, payload: make([]byte, n)}
	s.header.Version, s.header.Last = testDV, last&1 != 0
	for i := range s.payload {
		s.payload[i] = byte(len(m.sent)*16 + i + 1)
	}
	s.start, s.end = m.span(h.Len() + n)
	if m.sent = append(m.sent, s); last&2 == 0 {
		m.place(s)
	}
}

// say sends so many octets of the script: the high bit of their number says that they are placed
// later.
func (m *model) say() {
	n := m.next()
	raw := bytes.Clone(m.script[:min(n&0x7f, len(m.script))])
	m.script = m.script[len(raw):]
	if len(raw) >= TaggedLen && raw[0]&0x80 != 0 {
		if pick := int(raw[2]) % (len(m.regions) + 1); pick < len(m.regions) {
			binary.BigEndian.PutUint32(raw[2:], uint32(m.regions[pick].STag()))
		}
	}
	s := &modelSegment{raw: raw}
	if h, at, ok := Parse(raw); ok {
		s.header, s.payload = h, raw[at:]
	}
	s.start, s.end = m.span(len(raw))
	if m.sent = append(m.sent, s); n&0x80 == 0 {
		m.place(s)
	}
}

func (m *model) write() {
	r, how, n, last := m.region(), m.next(), m.next()%36, m.next()
	stag := r.STag()
	if how&0x80 != 0 {
		stag = r.stags[0]
	}
	if how&0x7f == 0x7f {
		stag ^= 1 << 20
	}
	m.segment(Header{Tagged: true, STag: stag, TO: r.Base() + uint64(how&0x3f) - 2}, n, last)
}

func (m *model) send() {
	msn, mo, n, last := m.next(), m.next()%24, m.next()%24, m.next()
	m.segment(Header{QN: uint32(msn >> 6 & 3), MSN: uint32(msn & 0x0f), MO: uint32(mo)}, n, last)
}

func (m *model) post() {
	b := modelBuffer{m.inbox.STag(), uint32(m.next() % 32), uint32(m.next() % 16)}
	if m.queues[0].Post(RecvBuffer{ID: uint64(len(m.posted)), STag: b.stag, TO: uint64(b.off),
		Len: b.size}) {
		m.posted = append(m.posted, b)
		return
	}
	require.Equal(m.t, 8, len(m.posted)-int(m.received))
}

// place gives the segment to the Stream, for the first time or once more, and holds the outcome
// against the model's.
func (m *model) place(s *modelSegment) {
	want, again := m.verdict(s)
	b := s.raw
	if b == nil {
		b = ulpdu(s.header, s.payload)
	}
	cut := len(b) / 2
	err := place(&m.stream, s.start, s.end, len(b), [][]byte{b[:cut], b[cut:]})
	s.given = true
	require.Equal(m.t, want, err)
	switch {
	case want != nil:
		m.failed, m.err = true, err
	case m.failed:
		m.stats.AfterError++
	case again:
		m.stats.Duplicates++
	default:
		m.stats.Segments++
		m.stats.Octets += uint64(len(s.payload))
		if s.placed && s.header.Tagged && s.header.Last { // its octets are placed again
			m.stats.Duplicates++
		}
	}
	if m.failed {
		m.cut = min(m.cut, s.start)
	} else if !again {
		s.placed = true
	}
}

// verdict is the error that the segment must meet; again: it was here before, and is left alone.
// What is accepted is written to the map.
func (m *model) verdict(s *modelSegment) (err *Error, again bool) {
	h, n := &s.header, uint64(len(s.payload))
	bad := func(errType, code uint8) (*Error, bool) {
		return &Error{Type: errType, Code: code, Header: *h, SegmentLen: h.Len() + int(n)}, false
	}
	received := m.received
	if h.QN != 0 {
		received = 0
	}
	switch {
	case m.failed:
		return nil, false
	case s.end <= m.edge:
		return nil, true
	case s.raw != nil && (len(s.raw) < TaggedLen || !h.Tagged && len(s.raw) < UntaggedLen):
		return &Error{SegmentLen: len(s.raw), Truncated: true}, false
	case h.Version != testDV && h.Tagged:
		return bad(TypeTagged, CodeTaggedVersion)
	case h.Version != testDV:
		return bad(TypeUntagged, CodeUntaggedVersion)
	case h.Tagged && n == 0:
		return nil, false
	case h.Tagged:
		r, code := m.lookUp(h.STag, h.TO, n, mem.RemoteWrite)
		if r == nil {
			return bad(TypeTagged, code)
		}
		m.fill(r, h.TO-r.Base(), s.payload)
		return nil, false
	case h.QN != 0 && h.QN != 2:
		return bad(TypeUntagged, CodeInvalidQN)
	case int32(h.MSN-received) <= 0: // of the 2^32, one half is over
		return bad(TypeUntagged, CodeMSNRange)
	case h.QN == 2: // where nothing is ever posted
		return bad(TypeUntagged, CodeNoBuffer)
	case h.MSN > uint32(len(m.posted)):
		return bad(TypeUntagged, CodeNoBuffer)
	}
	b := m.posted[h.MSN-1]
	if h.MO > b.size || h.MO == b.size && n > 0 {
		return bad(TypeUntagged, CodeInvalidMO)
	}
	if h.MO+uint32(n) > b.size {
		return bad(TypeUntagged, CodeTooLong)
	}
	if code, again := m.sameMessage(s); code != 0 {
		return bad(TypeUntagged, code)
	} else if again || n == 0 {
		return nil, again
	}
	r, _ := m.lookUp(b.stag, uint64(b.off+h.MO), n, mem.LocalWrite)
	if r == nil {
		return bad(TypeLocalCatastrophic, 0)
	}
	m.fill(r, uint64(b.off+h.MO), s.payload)
	return nil, false
}

// lookUp finds the region that [to, to+n) of an STag lies in, or the code of the Tagged Buffer
// Error.
func (m *model) lookUp(stag mem.STag, to, n uint64, need mem.Access) (*modelRegion, uint8) {
	for _, r := range m.regions {
		switch {
		case !r.valid || r.STag() != stag:
			continue
		case !r.mine:
			return nil, CodeNotAssociated
		case r.access&need == 0:
			return nil, CodeInvalidSTag
		case to+n < to:
			return nil, CodeWrap
		}
		for at := to; at < to+n; at++ {
			if at < r.Base() || at-r.Base() >= uint64(r.Len()) {
				return nil, CodeBounds
			}
		}
		return r, 0
	}
	return nil, CodeInvalidSTag
}

func (m *model) fill(r *modelRegion, off uint64, payload []byte) {
	for i, b := range payload {
		m.octets[modelPlace{r, off + uint64(i)}] = b
	}
}

// sameMessage holds s against the segments of its message that were accepted: L is on one only,
// the last of them in the stream and in the message (section 6.1).
func (m *model) sameMessage(s *modelSegment) (code uint8, again bool) {
	// there is a last one; s comes after it in the stream, or in the message
	var last, after, above bool
	var overtaken, topped bool // one stands after s, or above it
	for _, o := range m.sent {
		if !o.placed || o.header.Tagged || o.header.MSN != s.header.MSN {
			continue
		}
		if o.header.Last {
			if o == s {
				return 0, true
			}
			last, after, above = true, s.end > o.end, s.header.MO > o.header.MO
		}
		overtaken = overtaken || s.end < o.end
		topped = topped || s.header.MO < o.header.MO
	}
	switch {
	case last && after, s.header.Last && overtaken:
		return CodeMSNRange, false
	case last && above, s.header.Last && topped:
		return CodeInvalidMO, false
	}
	return 0, false
}

// leftEdge is where the first segment begins that has not been given to the Stream.
func (m *model) leftEdge() uint64 {
	for _, s := range m.sent {
		if !s.given {
			return s.start
		}
	}
	return m.pos
}

// deliver moves the left edge and holds what is delivered against the model: all that is whole up
// to there, in stream order.
func (m *model) deliver(edge uint64) {
	got := m.delivered(edge)
	edge = min(edge, m.cut)
	m.edge = max(m.edge, edge)
	for _, s := range m.sent {
		if !s.placed || !s.header.Last || s.delivered || s.end > edge {
			continue
		}
		want := Delivered{Header: s.header, Len: s.header.MO + uint32(len(s.payload)), End: s.end}
		if !s.header.Tagged {
			if s.header.MSN != m.received+1 {
				require.Equal(m.t, &Error{Type: TypeUntagged, Code: CodeMSNRange, Header: s.header,
					SegmentLen: s.header.Len() + len(s.payload)}, m.stream.Err())
				m.failed, m.cut, m.err = true, 0, m.stream.Err()
				break
			}
			b := m.posted[m.received]
			want.Buffer = RecvBuffer{ID: uint64(m.received), STag: b.stag, TO: uint64(b.off), Len: b.size}
			m.received++
		}
		require.NotEmpty(m.t, got, "not delivered: %+v", want)
		require.Equal(m.t, want, got[0])
		require.Equal(m.t, s.header.Len()+len(s.payload), got[0].SegmentLen())
		s.delivered, got = true, got[1:]
	}
	require.Empty(m.t, got, "delivered too early, or twice")
	require.Equal(m.t, m.failed, m.stream.Err() != nil)
}

// compare looks at the counters, the error, and all memory there ever was, that of regions that are
// gone included.
func (m *model) compare() {
	require.Equal(m.t, m.stats, m.stream.Stats())
	if m.err != nil {
		require.Same(m.t, m.err, m.stream.Err())
	}
	for _, r := range m.regions {
		want := make([]byte, r.Len())
		for i := range want {
			want[i] = m.octets[modelPlace{r, uint64(i)}]
		}
		if !bytes.Equal(want, r.Bytes()) {
			m.t.Fatalf("memory differs from the model\n got %x\nwant %x", r.Bytes(), want)
		}
	}
}
