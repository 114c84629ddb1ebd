package fault

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
)

const (
	runOctetsMax = 1 << 16 // payload that is coalesced
	runFramesMax = burstMax
	headerMax    = 14 + 8 + 60 + 60
	cutsMax      = 4 // cuts of one run, besides those that the link's MTU asks for
	// octets from a boundary at which cuts like to be: headers of what TCP carries stand there
	seamMax       = 24
	timestampsLen = 12 // NOP, NOP, kind, length and two values
)

// Flags of a TCP header.
const (
	flagFIN = 0x01
	flagSYN = 0x02
	flagRST = 0x04
	flagPSH = 0x08
	flagURG = 0x20
	flagECE = 0x40
	flagCWR = 0x80
)

// middlebox gathers a run of segments that continue each other and lets it go with other
// boundaries.
type middlebox struct {
	path *Path
	rng  *rand.Rand

	bufs  []mem.Buf // the run, in order; its Bufs are ours
	first tcpParts  // where the parts of its first frame are
	next  uint32    // sequence number after it
	size  int       // of its payload

	head []byte // headers of what goes out
	data []byte // payload of the run
	cuts []int
}

func (m *middlebox) init(p *Path) {
	*m = middlebox{
		path: p, rng: rand.New(rand.NewPCG(p.spec.Seed, 0xb0c5)), bufs: make([]mem.Buf, 0, runFramesMax),
		head: make([]byte, headerMax), data: make([]byte, 0, runOctetsMax),
		cuts: make([]int, 0, cutsMax+1),
	}
}

func (m *middlebox) chance(p float64) bool { return p > 0 && m.rng.Float64() < p }

// input takes the next frame of the device.
func (m *middlebox) input(b mem.Buf) {
	spec := &m.path.spec
	frame := m.path.pool.Data(b)
	f, ok := findTCP(frame)
	if spec.Coalesce == 0 && spec.Split == 0 || !ok || !cuttable(frame, &f) {
		m.flush()
		m.path.give(b)
		return
	}
	if len(m.bufs) == 0 || !m.continues(frame, &f) || !m.chance(spec.Coalesce) {
		m.flush()
		m.first, m.size = f, 0
	} else {
		m.path.did.Coalesced++
	}
	m.bufs = append(m.bufs, b)
	m.size += f.end - f.data
	m.next = binary.BigEndian.Uint32(frame[f.tcp+4:]) + uint32(f.end-f.data)
}

// cuttable says whether the segment may be changed: it has octets, nothing but them, and its
// checksum is right.
func cuttable(frame []byte, f *tcpParts) bool {
	if f.end == f.data || f.data > headerMax || frame[f.tcp+13]&(flagSYN|flagRST|flagURG) != 0 {
		return false
	}
	if !f.v6 && frame[f.ip+6]&0x20 != 0 {
		return false // a fragment
	}
	return inet.Checksum(frame[f.tcp:f.end], pseudoSum(frame, f, f.end-f.tcp)) == 0
}

func pseudoSum(frame []byte, f *tcpParts, n int) uint64 {
	ip := frame[f.ip:]
	if f.v6 {
		return inet.PseudoSum(inet.Addr(ip[8:24]), inet.Addr(ip[24:40]), protoTCP, n)
	}
	return inet.PseudoSum(inet.AddrFrom4([4]byte(ip[12:])), inet.AddrFrom4([4]byte(ip[16:])),
		protoTCP, n)
}

// continues says whether the frame's octets follow the run's and may be coalesced with them:
// headers must be the same except for lengths, numbers, window, PSH and, at the end, FIN, and
// timestamps.
func (m *middlebox) continues(frame []byte, f *tcpParts) bool {
	last := m.path.pool.Data(m.bufs[len(m.bufs)-1])
	a, b := last[m.first.tcp:], frame[f.tcp:]
	switch {
	case len(m.bufs) == runFramesMax || m.size+f.end-f.data > runOctetsMax:
		return false
	case f.v6 != m.first.v6 || f.ip != m.first.ip || f.tcp != m.first.tcp || f.data != m.first.data:
		return false
	case !bytes.Equal(last[:f.ip], frame[:f.ip]) || !sameIP(last[f.ip:], frame[f.ip:f.tcp], f.v6):
		return false
	case !bytes.Equal(a[:4], b[:4]) || binary.BigEndian.Uint32(b[4:]) != m.next:
		return false
	case int32(binary.BigEndian.Uint32(b[8:])-binary.BigEndian.Uint32(a[8:])) < 0: // its ACK is older
		return false
	case a[13]&flagFIN != 0 || b[13]&flagCWR != 0 || (a[13]^b[13])&flagECE != 0:
		return false
	}
	return sameOptions(a[20:f.data-f.tcp], b[20:f.data-f.tcp])
}

// sameIP compares headers except for length, identification and checksum.
func sameIP(a, b []byte, v6 bool) bool {
	if v6 {
		return bytes.Equal(a[:4], b[:4]) && bytes.Equal(a[6:40], b[6:40])
	}
	n := len(b)
	return bytes.Equal(a[:2], b[:2]) && bytes.Equal(a[6:10], b[6:10]) && bytes.Equal(a[12:n], b[12:n])
}

// sameOptions: equal octets, or timestamps alone.
func sameOptions(a, b []byte) bool {
	return bytes.Equal(a, b) || hasTimestamps(a) && hasTimestamps(b)
}

func hasTimestamps(o []byte) bool {
	return len(o) == timestampsLen && o[0] == 1 && o[1] == 1 && o[2] == 8 && o[3] == 10
}

// flush lets the run go.
func (m *middlebox) flush() {
	if len(m.bufs) == 0 {
		return
	}
	pool := m.path.pool
	split := m.chance(m.path.spec.Split) && m.size > 1
	if len(m.bufs) == 1 && !split {
		m.path.give(m.bufs[0])
		m.bufs = m.bufs[:0]
		return
	}
	m.plan(split)
	// Everything is copied before the first piece is made: the pool may need the run's own Bufs for
	// the pieces.
	f := &m.first
	copy(m.head, pool.Data(m.bufs[0])[:f.data])
	m.data = m.data[:0]
	flags := byte(0)
	for _, b := range m.bufs {
		frame := pool.Data(b)
		m.data = append(m.data, frame[f.data:m.endOf(frame)]...)
		flags |= frame[f.tcp+13]
	}
	m.takeLast(pool.Data(m.bufs[len(m.bufs)-1]))
	pool.FreeN(m.bufs)
	m.bufs = m.bufs[:0]
	at := 0
	for _, end := range m.cuts {
		for at < end {
			n := min(end-at, m.path.spec.LinkMTU-(f.data-f.ip))
			m.piece(at, n, flags)
			at += n
		}
	}
}

// endOf is where the payload of a frame of the run ends.
func (m *middlebox) endOf(frame []byte) int {
	f, _ := findTCP(frame)
	return f.end
}

// plan chooses where to cut the run, its end included.
func (m *middlebox) plan(split bool) {
	m.cuts = m.cuts[:0]
	if split {
		m.path.did.Split++
		at := 0
		for range 1 + m.rng.IntN(cutsMax) {
			room := m.size - at
			if room < 2 {
				break
			}
			if m.rng.IntN(2) == 0 {
				room = min(room, seamMax)
			}
			at += 1 + m.rng.IntN(room-1)
			m.cuts = append(m.cuts, at)
		}
	}
	m.cuts = append(m.cuts, m.size)
}

// takeLast takes over from the run's last frame what its first cannot know: the newest ACK, window
// and timestamp echo.
func (m *middlebox) takeLast(last []byte) {
	f := &m.first
	to, from := m.head[f.tcp:f.data], last[f.tcp:f.data]
	copy(to[8:12], from[8:12])
	copy(to[14:16], from[14:16])
	if hasTimestamps(to[20:]) {
		copy(to[28:32], from[28:32])
	}
}

// piece sends n octets at at of the run. flags are those of all its segments.
func (m *middlebox) piece(at, n int, flags byte) {
	p, f := m.path, &m.first
	b := p.pool.Alloc()
	if b == mem.NoBuf {
		p.did.Full++
		return
	}
	p.did.Pieces++
	d := p.pool.Desc(b)
	d.Len = uint32(f.data + n)
	frame := p.pool.Data(b)
	copy(frame, m.head[:f.data])
	copy(frame[f.data:], m.data[at:at+n])

	ip, tcp := frame[f.ip:], frame[f.tcp:]
	binary.BigEndian.PutUint32(tcp[4:], binary.BigEndian.Uint32(tcp[4:])+uint32(at))
	tcp[13] = flags
	if at > 0 {
		tcp[13] &^= flagCWR
	}
	if at+n < len(m.data) {
		tcp[13] &^= flagFIN | flagPSH
	}
	if f.v6 {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(tcp)))
	} else {
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], inet.Checksum(ip[:f.tcp-f.ip], 0))
	}
	tcp[16], tcp[17] = 0, 0
	binary.BigEndian.PutUint16(tcp[16:], inet.Checksum(tcp, pseudoSum(frame, f, len(tcp))))
	p.give(b)
}
