package tap

import (
	"bytes"
	"unsafe"

	"github.com/rnicd/rnicd/mem"
	"golang.org/x/sys/unix"
)

// piecesMax bounds the frames that one system call carries, either way: 64 KiB in segments of 512
// octets.
const piecesMax = 128

// gather coalesces consecutive frames of one TCP flow for one writev:
//
//	iov[0]  virtio_net_hdr and the first frame's headers, lengths and last flags mended
//	iov[1]  the first frame's payload, where it lies
//	iov[n]  the n-th frame's payload
//
// The Bufs are read only: they are their owner's, which may send them again. The kernel's TCP takes
// the whole as one skb that remembers gso_size, so it sees, as does any station that the kernel
// forwards it to, the segments there were; except that of several PSHs the last stands for all, on
// the last segment: what follows at once waits for nothing.
type gather struct {
	head [vnetLen + headersMax]byte
	iov  [1 + piecesMax]unix.Iovec

	frames int // how many are coalesced
	pieces int // of iov
}

func (g *gather) piece(b []byte) {
	g.iov[g.pieces].Base = unsafe.SliceData(b)
	g.iov[g.pieces].SetLen(len(b))
	g.pieces++
}

// single prepares one frame as it is.
func (g *gather) single(frame []byte, d *mem.Desc) {
	request((*[vnetLen]byte)(g.head[:]), frame, d)
	g.frames, g.pieces = 1, 0
	g.piece(g.head[:vnetLen])
	// Two pieces, for the octets before a frame are not ours to write: they may be the owner's.
	g.piece(frame)
}

// coalesce prepares the first of bufs and as many after it as go with it.
func (g *gather) coalesce(pool *mem.Pool, bufs []mem.Buf, frameMax int) {
	d, frame := pool.Desc(bufs[0]), pool.Data(bufs[0])
	g.single(frame, d)
	if len(bufs) == 1 || d.Flags&(mem.TxChecksum|mem.TxSegment) != mem.TxChecksum {
		return
	}
	h, ok := parseHeaders(frame, int(d.CsumStart), int(d.CsumOffset))
	if !ok || !h.leads(frame) {
		return
	}
	size := len(frame) - h.len
	total := len(frame)
	last := frame[h.l4+13] & flagPSH
	for _, b := range bufs[1:min(len(bufs), piecesMax)] {
		next := pool.Desc(b)
		f := pool.Data(b)
		n := len(f) - h.len
		if next.Flags&(mem.TxChecksum|mem.TxSegment) != mem.TxChecksum || next.CsumStart != d.CsumStart ||
			next.CsumOffset != d.CsumOffset ||
			n <= 0 || n > size || len(f) > frameMax || total-h.l3+n > ipLenMax ||
			!h.repeats(frame, f, g.frames) && !h.follows(frame, f, g.frames) {
			break
		}
		g.piece(f[h.len:])
		g.frames++
		total += n
		last |= f[h.l4+13] & (flagFIN | flagPSH)
		if last&flagFIN != 0 || n < size {
			break
		}
	}
	if g.frames > 1 {
		g.lead(&h, frame, last, total)
	}
}

// leads says whether frame may be the first of several: a data segment that is whole in its
// datagram, and nothing in it that would be repeated on the others or belongs on the last. CWR is
// for the first only, as the kernel has it too.
func (h *headers) leads(f []byte) bool {
	return !h.udp && len(f) > h.len && f[h.l4+13]&^(flagCWR|flagPSH) == flagACK && h.whole(f)
}

// whole says whether f is one datagram, neither a fragment nor padded, with only what is said of it
// between IP and TCP.
func (h *headers) whole(f []byte) bool {
	if h.v6 {
		return h.l3+ipv6Len == h.l4 && f[h.l3+6] == unix.IPPROTO_TCP && int(get(f, h.l3+4)) == len(f)-h.l4
	}
	return f[h.l3+9] == unix.IPPROTO_TCP && get(f, h.l3+6)&0x3fff == 0 &&
		int(get(f, h.l3+2)) == len(f)-h.l3
}

// repeats is a short cut: f has the length of first and the same octets in its headers except for
// the sequence number, FIN and PSH, which is as follows would have it. DF, because the
// identification is the same.
func (h *headers) repeats(first, f []byte, k int) bool {
	t := h.l4
	a, b := first[:h.len], f[:h.len]
	return len(f) == len(first) && (h.v6 || a[h.l3+6]&0x40 != 0) &&
		string(a[:t+4]) == string(b[:t+4]) &&
		getSeq(b, t) == getSeq(a, t)+uint32(k*(len(first)-h.len)) &&
		string(a[t+8:t+13]) == string(b[t+8:t+13]) &&
		b[t+13]&^(flagFIN|flagPSH) == flagACK && string(a[t+14:]) == string(b[t+14:])
}

// follows says whether f is what the kernel would make of the k-th segment after first, so that
// coalescing them loses nothing. Its checksums must be those of its fields, for they are not sent.
func (h *headers) follows(first, f []byte, k int) bool {
	t := h.l4 // of TCP; octet 13 has the flags, 16 the checksum
	if !bytes.Equal(first[:h.l3], f[:h.l3]) || !h.whole(f) ||
		!bytes.Equal(first[t:t+4], f[t:t+4]) || !bytes.Equal(first[t+8:t+13], f[t+8:t+13]) ||
		f[t+13]&^(flagFIN|flagPSH) != flagACK ||
		!bytes.Equal(first[t+14:t+16], f[t+14:t+16]) || !bytes.Equal(first[t+18:h.len], f[t+18:h.len]) ||
		getSeq(f, t) != getSeq(first, t)+uint32(k*(len(first)-h.len)) {
		return false
	}
	shorter := uint32(len(first) - len(f))
	if get(f, t+tcpCsumOffset) != fold(get(first, t+tcpCsumOffset)+^shorter&0xffff) {
		return false
	}
	if h.v6 {
		return bytes.Equal(first[h.l3:h.l3+4], f[h.l3:h.l3+4]) &&
			bytes.Equal(first[h.l3+6:t], f[h.l3+6:t])
	}
	return h.follows4(first, f, uint32(k), shorter)
}

// follows4: the IPv4 header. The kernel counts the identification up over the segments; where DF is
// set it means nothing (RFC 6864 section 4.1) and may as well stay.
func (h *headers) follows4(first, f []byte, k, shorter uint32) bool {
	a, b := first[h.l3:h.l4], f[h.l3:h.l4]
	id := (get(b, 4) - get(a, 4)) & 0xffff
	if id != k && (id != 0 || b[6]&0x40 == 0) {
		return false
	}
	return get(b, 10) == ^fold(^get(a, 10)&0xffff+^shorter&0xffff+^get(a, 4)&0xffff+
		get(b, 4))&0xffff &&
		bytes.Equal(a[:2], b[:2]) && bytes.Equal(a[6:10], b[6:10]) && bytes.Equal(a[12:], b[12:])
}

// lead makes the headers that stand for all: those of first, of a frame of total octets whose last
// segment has the flags last.
func (g *gather) lead(h *headers, first []byte, last byte, total int) {
	b := g.head[vnetLen : vnetLen+h.len]
	copy(b, first)
	h.setLength(b, total)
	b[h.l4+13] |= last
	segmented((*[vnetLen]byte)(g.head[:]), b, h, len(first)-h.len)
	g.iov[0].SetLen(vnetLen + h.len)
	g.iov[1].Base = &first[h.len]
	g.iov[1].SetLen(len(first) - h.len)
}
