package tap

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// spec says what a frame of a flow looks like.
type spec struct {
	tags    int
	v6, udp bool
	ipOpt   int // octets of IPv4 options
	tcpOpt  int
	id      uint16
	df      bool
	seq     uint32
	flags   byte
	port    uint16
	ack     byte // lowest octet
	window  byte // highest octet
	payload []byte
}

// build makes a frame with an IP checksum, whose transport checksum is the pseudo-header's sum.
func (s spec) build() (frame []byte, csumStart, csumOffset uint16) {
	f := append(make([]byte, 0, 2048), 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2)
	for i := range s.tags {
		f = append(f, 0x81, 0, 0, byte(10+i))
	}
	proto, l4len := byte(unix.IPPROTO_TCP), tcpLen+s.tcpOpt
	if s.udp {
		proto, l4len = unix.IPPROTO_UDP, udpLen
	}
	l4len += len(s.payload)
	if s.v6 {
		f = append(f, 0x86, 0xdd, 0x60, 1, 2, 3, byte(l4len>>8), byte(l4len), proto, 64)
		f = append(f, "\xfd\x77-source-IPv6--\xfd\x77-destination--"...)
	} else {
		f = append(f, 8, 0)
		n, frag := ipv4Len+s.ipOpt+l4len, byte(0)
		if s.df {
			frag = 0x40
		}
		ip := len(f)
		f = append(f, 0x40|byte((ipv4Len+s.ipOpt)/4), 1, byte(n>>8), byte(n), byte(s.id>>8), byte(s.id),
			frag, 0, 64, proto, 0, 0, 10, 77, 0, 2, 10, 77, 0, 1)
		for range s.ipOpt {
			f = append(f, 1)
		}
		binary.BigEndian.PutUint16(f[ip+10:], ^sum16(f[ip:], 0))
	}
	l4 := len(f)
	f = binary.BigEndian.AppendUint16(f, s.port)
	f = append(f, 0x12, 0x34)
	if s.udp {
		f = append(f, byte(l4len>>8), byte(l4len), 0, 0)
		csumOffset = udpCsumOffset
	} else {
		f = binary.BigEndian.AppendUint32(f, s.seq)
		f = append(f, 9, 8, 7, s.ack, byte((tcpLen+s.tcpOpt)/4)<<4, s.flags, s.window, 0, 0, 0, 0, 0)
		for i := range s.tcpOpt {
			f = append(f, byte(i))
		}
		csumOffset = tcpCsumOffset
	}
	f = append(f, s.payload...)
	binary.BigEndian.PutUint16(f[l4+int(csumOffset):], pseudo(f, l4-40, s.v6, proto, l4len))
	return f, uint16(l4), csumOffset
}

// asked puts s into a Buf of a sender that leaves the checksum to the device.
func (s spec) asked(pool *mem.Pool) (b mem.Buf, frame []byte) {
	b = pool.Alloc()
	frame, start, offset := s.build()
	*pool.Desc(b) = mem.Desc{Off: 100, Len: uint32(len(frame)), Flags: mem.TxChecksum,
		CsumStart: start, CsumOffset: offset}
	copy(pool.Data(b), frame)
	return b, frame
}

// give puts s into a socket as the kernel would: to be cut, or with size 0 as it is.
func (s spec) give(t require.TestingT, socket, size int) {
	frame, start, offset := s.build()
	give(t, socket, s.vnet(start, offset, size), frame)
}

// give puts octets into a socket after a header.
func give(t require.TestingT, socket int, header, frame []byte) {
	must(unix.Writev(socket, [][]byte{header, frame}))(t)
}

func pseudo(f []byte, ip6 int, v6 bool, proto byte, n int) uint16 {
	if v6 {
		return sum16(f[ip6+8:ip6+40], uint32(proto)+uint32(n))
	}
	return sum16([]byte{10, 77, 0, 2, 10, 77, 0, 1}, uint32(proto)+uint32(n))
}

func sum16(b []byte, s uint32) uint16 {
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(b[i])<<8 | uint32(b[i+1])
	}
	if len(b)%2 == 1 {
		s += uint32(b[len(b)-1]) << 8
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// segments is the model: what the kernel makes of the frame s of any length at this gso_size.
func (s spec) segments(size int) []spec {
	var out []spec
	for off := 0; off == 0 || off < len(s.payload); off += size {
		part := s
		part.payload = s.payload[off:min(off+size, len(s.payload))]
		part.id += uint16(len(out))
		part.seq += uint32(off)
		if off > 0 {
			part.flags &^= flagCWR
		}
		if off+size < len(s.payload) {
			part.flags &^= flagFIN | flagPSH
		}
		out = append(out, part)
	}
	return out
}

// pipe stands for the device: a message is what one system call carries, and is cut if there is no
// room.
func pipe(t testing.TB) (ours, kernel int) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC,
		0)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = unix.Close(fds[0])
		_ = unix.Close(fds[1])
	})
	return fds[0], fds[1]
}

func newQueue(t testing.TB, fd, bufs, mtu int) (*queue, *mem.Pool) {
	pool := newPool(t, bufs, mtu)
	p := &Port{mtu: mtu, vnet: true, fds: []int{fd}, queues: make([]*queue, 1)}
	q := must(p.Open(0, pool))(t)
	return q.(*queue), pool
}

// vnet is the header the kernel would give frame s.
func (s spec) vnet(csumStart, csumOffset uint16, size int) []byte {
	var h [vnetLen]byte
	h[0] = vnetNeedsCsum
	binary.NativeEndian.PutUint16(h[6:], csumStart)
	binary.NativeEndian.PutUint16(h[8:], csumOffset)
	if size == 0 {
		return h[:]
	}
	h[1] = vnetGSOTCPv4
	switch {
	case s.udp:
		h[1] = vnetGSOUDP
	case s.v6:
		h[1] = vnetGSOTCPv6
	}
	if s.flags&flagCWR != 0 {
		h[1] |= vnetGSOECN
	}
	binary.NativeEndian.PutUint16(h[2:], csumStart+20)
	binary.NativeEndian.PutUint16(h[4:], uint16(size))
	return h[:]
}

var someOctets = func() []byte {
	b := make([]byte, 1<<17)
	for i := range b {
		b[i] = byte(i*7) ^ byte(i>>8)*13
	}
	return b
}()

func drawSpec(t *rapid.T) spec {
	s := spec{
		tags: rapid.IntRange(0, 2).Draw(t, "tags"), v6: rapid.Bool().Draw(t, "v6"),
		id: rapid.Uint16().Draw(t, "id"), df: rapid.Bool().Draw(t, "df"),
		port: rapid.Uint16().Draw(t, "port"),
		seq:  rapid.Uint32().Draw(t, "seq"),
		flags: flagACK | rapid.SampledFrom([]byte{0, flagPSH, flagFIN, flagCWR, flagCWR | flagPSH}).Draw(
			t, "flags"),
		tcpOpt: 4 * rapid.IntRange(0, 10).Draw(t, "tcpOpt"),
	}
	if !s.v6 {
		s.ipOpt = 4 * rapid.SampledFrom([]int{0, 0, 1, 10}).Draw(t, "ipOpt")
	}
	return s
}

// Whatever comes after whatever, in whatever pool: the frames are those of the model, and none is
// lost.
func TestScatterIsSegmentation(t *testing.T) {
	ours, kernel := pipe(t)
	rapid.Check(t, func(rt *rapid.T) {
		mtu := rapid.SampledFrom([]int{1500, 576, 9000, 68}).Draw(rt, "mtu")
		q, pool := newQueue(t, ours, rapid.SampledFrom([]int{1, 3, 20, 64, 600}).Draw(rt, "bufs"), mtu)
		bufs := make([]mem.Buf, rapid.IntRange(1, 40).Draw(rt, "burst"))
		for range rapid.IntRange(1, 8).Draw(rt, "frames") {
			s := drawSpec(rt)
			s.udp = rapid.Bool().Draw(rt, "udp")
			s.payload = nil
			head, _, _ := s.build()
			room := mtu + pmd.FrameOverhead - len(head)
			if room < 1 {
				continue
			}
			size := rapid.IntRange(min(room, 8), room).Draw(rt, "size")
			most := min(size*200, ipLenMax-len(head)+14+4*s.tags)
			from := rapid.IntRange(0, 1<<16).Draw(rt, "from")
			s.payload = someOctets[from:][:rapid.IntRange(1, most).Draw(rt, "payload")]
			gso := size
			if len(s.payload) <= size && rapid.Bool().Draw(rt, "plain") {
				gso = 0
			}
			s.give(rt, kernel, gso)
			wantSegments(rt, q, pool, bufs, s.segments(size))
		}
		n := q.Counters()
		require.Zero(rt, n.RxErrors+n.RxTooLong, "%+v", n)
		q.giveBack()
		require.Equal(rt, pool.Size(), pool.Available())
	})
}

func wantSegments(t require.TestingT, q *queue, pool *mem.Pool, bufs []mem.Buf, want []spec) {
	for len(want) > 0 {
		n := q.Rx(bufs)
		require.NotZero(t, n, "%d segments did not come: %+v", len(want), q.Counters())
		require.True(t, n == len(bufs) || n == len(want) || pool.Available() == 0,
			"a burst that is not full leaves nothing behind")
		for _, b := range bufs[:n] {
			frame, start, offset := want[0].build()
			require.Equal(t, frame, pool.Data(b))
			require.Equal(t, mem.Desc{Off: pool.Desc(b).Off, Len: uint32(len(frame)), Flags: good,
				CsumStart: start, CsumOffset: offset}, *pool.Desc(b))
			want = want[1:]
		}
		pool.FreeN(bufs[:n])
	}
}

// What leaves is, after the kernel's segmentation, what Tx was given; in order, and no Buf is
// changed. Except that PSH stands on the last of what left together if it stood on any of it: it
// says that nothing is to be waited for, and is no record mark (RFC 9293 section 3.9.1.2).
func TestGatherIsUndoneBySegmentation(t *testing.T) {
	ours, kernel := pipe(t)
	coalesced := 0
	rapid.Check(t, func(rt *rapid.T) {
		q, pool := newQueue(t, ours, 200, 1500)
		var bufs []mem.Buf
		var want [][]byte
		add := func(s spec) {
			b, frame := s.asked(pool)
			bufs, want = append(bufs, b), append(want, frame)
		}
		for len(bufs) < 100 {
			s := drawSpec(rt)
			s.df = s.df && rapid.Bool().Draw(rt, "same id")
			size := rapid.IntRange(1, 1360).Draw(rt, "size")
			s.payload = someOctets[:size*rapid.IntRange(1, 70).Draw(rt, "n")+rapid.IntRange(0, size).Draw(
				rt, "more")]
			damaged := rapid.IntRange(1, 60).Draw(rt, "damaged")
			for i, part := range s.segments(size) {
				if len(bufs) >= 190 {
					break
				}
				if s.df {
					part.id = s.id // as our stack has it
				}
				if rapid.IntRange(0, 19).Draw(rt, "odd") == 0 {
					part = oddOne(rt, part)
				}
				add(part)
				if f := pool.Data(bufs[len(bufs)-1]); i == damaged {
					sum := rapid.SampledFrom([]int{int(pool.Desc(bufs[len(bufs)-1]).CsumStart) + tcpCsumOffset,
						ethertypeAt + 2 + 4*s.tags + 10}).Draw(rt, "sum")
					f[sum]++ // of TCP or of IPv4 (an octet of the address, in IPv6)
					want[len(want)-1] = append([]byte(nil), f...)
				}
			}
		}
		for sent := 0; sent < len(bufs); {
			// The pipe holds only so much; 70 frames may be more than 64 KiB.
			sent += q.Tx(bufs[sent:min(sent+70, len(bufs))])
			var all [][]byte
			for _, m := range drain(rt, kernel) {
				parts := unjoin(rt, m)
				if len(parts) > 1 {
					coalesced++
					require.LessOrEqual(rt, len(all)+len(parts), len(want))
					pushOnLast(want[len(all):][:len(parts)], int(binary.NativeEndian.Uint16(m[6:])))
				}
				all = append(all, parts...)
			}
			require.LessOrEqual(rt, len(all), len(want))
			for i, f := range all {
				sameButID(rt, want[i], f)
			}
			want = want[len(all):]
		}
		require.Empty(rt, want)
		require.EqualValues(rt, len(bufs), q.Counters().TxFrames)
	})
	require.NotZero(t, coalesced)
}

// pushOnLast makes frames, whose TCP headers begin at l4, what is expected of them once coalesced.
func pushOnLast(frames [][]byte, l4 int) {
	psh := byte(0)
	for _, f := range frames {
		psh |= f[l4+13] & flagPSH
		f[l4+13] &^= flagPSH
	}
	frames[len(frames)-1][l4+13] |= psh
}

// oddOne changes what must keep a frame from being coalesced as if nothing were.
func oddOne(t *rapid.T, s spec) spec {
	switch rapid.IntRange(0, 9).Draw(t, "what") {
	case 0:
		s.seq++
	case 1:
		s.id += 7
	case 2:
		s.port++
	case 3:
		s.flags |= rapid.SampledFrom([]byte{0x40, 0x20, 0x04, 0x02, flagFIN, flagCWR}).Draw(t, "flag")
	case 4:
		s.tcpOpt = 40 - s.tcpOpt
	case 5:
		s.v6 = !s.v6
		s.ipOpt = 0
	case 6:
		s.ack++
	case 7:
		s.window++
	case 8:
		s.df = !s.df
	case 9:
		s.payload = s.payload[:len(s.payload)-1]
	}
	return s
}

func drain(t require.TestingT, fd int) [][]byte {
	var out [][]byte
	for {
		b := make([]byte, 1<<17)
		n, err := unix.Read(fd, b)
		if err == unix.EAGAIN {
			return out
		}
		require.NoError(t, err)
		out = append(out, b[:n])
	}
}

// unjoin segments a message as the kernel would, from its octets alone.
func unjoin(t require.TestingT, m []byte) [][]byte {
	h, f := m[:vnetLen], m[vnetLen:]
	require.EqualValues(t, vnetNeedsCsum, h[0])
	if h[1] == vnetGSONone {
		return [][]byte{f}
	}
	size, l4 := int(binary.NativeEndian.Uint16(h[4:])), int(binary.NativeEndian.Uint16(h[6:]))
	l3 := ethertypeAt + 2
	for f[l3-2] == 0x81 {
		l3 += tagLen
	}
	s := spec{
		tags: (l3 - 14) / 4, v6: f[l3]>>4 == 6, port: uint16(get(f, l4)), seq: getSeq(f, l4),
		flags: f[l4+13], tcpOpt: int(f[l4+12]>>4)*4 - tcpLen, ack: f[l4+11], window: f[l4+14],
	}
	if !s.v6 {
		s.ipOpt, s.id, s.df = l4-l3-ipv4Len, uint16(get(f, l3+4)), f[l3+6] == 0x40
		require.EqualValues(t, 0xffff, sum16(f[l3:l4], 0), "IPv4 checksum of what was coalesced")
		require.EqualValues(t, vnetGSOTCPv4, h[1]&^vnetGSOECN)
	} else {
		require.EqualValues(t, vnetGSOTCPv6, h[1]&^vnetGSOECN)
	}
	require.Equal(t, s.flags&flagCWR != 0, h[1]&vnetGSOECN != 0)
	hl := l4 + tcpLen + s.tcpOpt
	require.EqualValues(t, hl, binary.NativeEndian.Uint16(h[2:]))
	s.payload = f[hl:]
	whole, _, _ := s.build()
	require.Equal(t, whole, f, "lengths and sums are those of the whole")
	require.Less(t, size, len(s.payload), "nothing to cut")
	var out [][]byte
	for _, part := range s.segments(size) {
		frame, _, _ := part.build()
		out = append(out, frame)
	}
	return out
}

// sameButID compares frames; the identification means nothing where DF is set (RFC 6864 section
// 4.1).
func sameButID(t require.TestingT, want, got []byte) {
	require.Len(t, got, len(want))
	l3 := ethertypeAt + 2
	for want[l3-2] == 0x81 {
		l3 += tagLen
	}
	if want[l3]>>4 == 4 && want[l3+6] == 0x40 {
		want, got = append([]byte(nil), want...), append([]byte(nil), got...)
		for _, f := range [][]byte{want, got} {
			copy(f[l3+4:], []byte{0, 0})
			copy(f[l3+10:], []byte{0, 0})
		}
	}
	if string(want) != string(got) {
		require.Equal(t, fmt.Sprintf("%x", want), fmt.Sprintf("%x", got))
	}
}

// What the kernel, or what stands for it, says is not believed.
func FuzzReceive(f *testing.F) {
	for _, s := range []spec{{payload: someOctets[:4000]},
		{v6: true, tags: 1, payload: someOctets[:3000]}, {udp: true, payload: someOctets[:3000]}} {
		s.flags = flagACK
		frame, start, offset := s.build()
		f.Add(s.vnet(start, offset, 1000), frame[:100], uint16(len(frame)))
		f.Add(s.vnet(start, offset, 0), frame[:100], uint16(100))
	}
	ours, kernel := pipe(f)
	q, pool := newQueue(f, ours, 64, 1500)
	bufs := make([]mem.Buf, 48)
	f.Fuzz(func(t *testing.T, h, head []byte, length uint16) {
		frame := make([]byte, max(int(length), len(head)))
		copy(frame, head)
		if _, err := unix.Writev(kernel, [][]byte{h, frame}); err != nil {
			return
		}
		before := q.Counters()
		got := uint64(0)
		for n := len(bufs); n == len(bufs); {
			n = q.Rx(bufs)
			for _, b := range bufs[:n] {
				d := pool.Desc(b)
				require.LessOrEqual(t, len(pool.Data(b)), 1522)
				if pmd.Incomplete(d) {
					require.True(t, pmd.CompleteChecksum(pool.Data(b), d.CsumStart, d.CsumOffset))
				}
			}
			pool.FreeN(bufs[:n])
			got += uint64(n)
		}
		after := q.Counters()
		if len(h)+len(frame) > 0 { // an empty message looks like the end of the pipe
			require.NotZero(t, got+after.RxErrors+after.RxTooLong-before.RxErrors-before.RxTooLong,
				"neither received nor counted")
		}
	})
}
