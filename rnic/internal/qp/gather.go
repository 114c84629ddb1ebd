package qp

import (
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/rdmap"
)

// source says where the octets of the message in hand are: in own, or in ranges of registered
// memory, first and then list, which must have the rights in need.
type source struct {
	own    []byte // the octets themselves; nil: they are in registered memory
	first  wq.SGE
	list   []wq.SGE // further ranges
	stream mem.StreamID
	need   mem.Access
}

// gatherRoom is what a sendHalf keeps of the message in hand beside its request.
type gatherRoom struct {
	// a message that the engine makes: a Request, an Atomic Response
	body [rdmap.AtomicRequestLen]byte
	// of the ULPDU in hand: header, payload. Shared's, if there is one
	parts [][]byte

	// Within a Pull: found are octets of the message that is being cut, from foundAt on, of its one
	// range. Segments for ahead octets are still to be filled, the one in hand included.
	found   []byte
	foundAt uint32
	ahead   int
}

// sized is s with n elements, what they are does not matter, or a new one where there is no room.
func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// findSource says where the octets of the request in hand are.
func (s *sendHalf) findSource() {
	f, w := &s.from, &s.wr
	f.own = nil
	if w.Inline() {
		f.own = w.Data[:w.Local.Length]
	}
	f.first, f.list, f.stream, f.need = w.Local, w.List[:w.More], mem.AnyStream, mem.LocalRead
}

// checkSource checks every range in full, before any of it is on the wire. A range of no octets is
// not checked.
func (q *Engine) checkSource() mem.CheckResult {
	f := &q.send.from
	if f.own != nil {
		return mem.CheckOK
	}
	if _, res := q.lookUp(f.first, 0, f.first.Length); res != mem.CheckOK {
		return res
	}
	for _, sge := range f.list {
		if _, res := q.lookUp(sge, 0, sge.Length); res != mem.CheckOK {
			return res
		}
	}
	return mem.CheckOK
}

// lookUp finds n octets of a range, from off. For no octets it checks nothing.
func (q *Engine) lookUp(sge wq.SGE, off, n uint32) ([]byte, mem.CheckResult) {
	if n == 0 {
		return nil, mem.CheckOK
	}
	f := &q.send.from
	return q.Table.Check(q.Domain, f.stream, sge.STag, sge.Offset+uint64(off), int(n), f.need)
}

// findOctets makes n octets of the message, from off, the parts of the ULPDU after its header. They
// are looked up in each Pull, so that Revoke takes effect in the middle of a message.
func (q *Engine) findOctets(off uint32, n int) mem.CheckResult {
	s := &q.send
	switch f := &s.from; {
	case n == 0:
		return mem.CheckOK
	case f.own != nil:
		s.parts = append(s.parts, f.own[off:][:n])
		return mem.CheckOK
	case len(f.list) > 0:
		return q.gather(off, uint32(n))
	default:
		b, res := q.findAhead(off, n)
		s.parts = append(s.parts, b)
		return res
	}
}

// findAhead is findOctets for a message of one range. In the middle of a long message it looks up
// at once what all segments of the Pull may need.
func (q *Engine) findAhead(off uint32, n int) ([]byte, mem.CheckResult) {
	s, f := &q.send, &q.send.from
	if at := int(off - s.foundAt); off >= s.foundAt && at <= len(s.found)-n {
		return s.found[at:][:n], mem.CheckOK
	}
	from := f.first.Offset + uint64(off)
	if _, rest := s.seg.Rest(); s.ahead > 2*n && rest > 0 {
		most := min(n+int(rest), s.ahead)
		if b, res := q.Table.Check(q.Domain, f.stream, f.first.STag, from, most,
			f.need); res == mem.CheckOK {
			s.found, s.foundAt = b, off
			return b[:n], mem.CheckOK
		}
	}
	return q.Table.Check(q.Domain, f.stream, f.first.STag, from, n, f.need)
}

// gather is findOctets for a message of several ranges. A segment may have octets of more than one.
func (q *Engine) gather(off, n uint32) mem.CheckResult {
	s := &q.send
	sge, rest := s.from.first, s.from.list
	for {
		if off < sge.Length {
			k := min(n, sge.Length-off)
			b, res := q.lookUp(sge, off, k)
			if res != mem.CheckOK {
				return res
			}
			s.parts = append(s.parts, b)
			if n -= k; n == 0 {
				return mem.CheckOK
			}
		}
		off -= min(off, sge.Length)
		sge, rest = rest[0], rest[1:]
	}
}
