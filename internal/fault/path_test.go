package fault

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/wire"
)

// pathRig is a Path in front of one end of a cable.
type pathRig struct {
	t        testing.TB
	path     *Path
	peer     pmd.Queue
	pool     *mem.Pool // of the Path
	peerPool *mem.Pool
}

func newPathRig(t testing.TB, spec PathSpec) *pathRig {
	l, err := wire.New(wire.Config{})
	require.NoError(t, err)
	r := &pathRig{t: t, pool: newPool(t, 512), peerPool: newPool(t, 512)}
	q, err := l.Port(0).Open(0, r.pool)
	require.NoError(t, err)
	if spec.LinkMTU == 0 {
		spec.LinkMTU = 1500
	}
	r.path, err = WrapPath(q, r.pool, spec)
	require.NoError(t, err)
	r.peer, err = l.Port(1).Open(0, r.peerPool)
	require.NoError(t, err)
	return r
}

func put(q pmd.Queue, pool *mem.Pool, frames ...[]byte) int {
	var bufs []mem.Buf
	for _, f := range frames {
		b := pool.Alloc()
		pool.Desc(b).Len = uint32(len(f))
		copy(pool.Data(b), f)
		bufs = append(bufs, b)
	}
	n := q.Tx(bufs)
	pool.FreeN(bufs)
	return n
}

func get(q pmd.Queue, pool *mem.Pool) (frames [][]byte) {
	bufs := make([]mem.Buf, 5)
	for n := q.Rx(bufs); n > 0; n = q.Rx(bufs) {
		for _, b := range bufs[:n] {
			frames = append(frames, bytes.Clone(pool.Data(b)))
		}
		pool.FreeN(bufs[:n])
	}
	return frames
}

// flow makes segments that continue each other.
type flow struct {
	t       testing.TB
	v6      bool
	vlan    bool
	seq     uint32
	ack     uint32
	window  uint16
	options []layers.TCPOption
}

func (f *flow) segment(payload []byte, change ...func(*layers.TCP)) []byte {
	tcp := &layers.TCP{SrcPort: 7, DstPort: 9, Seq: f.seq, Ack: f.ack, ACK: true, Window: f.window,
		Options: f.options}
	for _, c := range change {
		c(tcp)
	}
	f.seq += uint32(len(payload))
	f.ack++
	f.window++
	eth := &layers.Ethernet{SrcMAC: []byte{2, 0, 0, 0, 0, 2}, DstMAC: []byte{2, 0, 0, 0, 0, 1},
		EthernetType: layers.EthernetTypeIPv4}
	stack := []gopacket.SerializableLayer{eth}
	var network gopacket.SerializableLayer = &layers.IPv4{
		Version: 4, Protocol: layers.IPProtocolTCP, TTL: 64, Flags: layers.IPv4DontFragment,
		SrcIP: []byte{10, 0, 0, 2}, DstIP: []byte{10, 0, 0, 1},
	}
	if f.v6 {
		eth.EthernetType = layers.EthernetTypeIPv6
		src, dst := make([]byte, 16), make([]byte, 16)
		src[0], dst[0], src[15], dst[15] = 0xfd, 0xfd, 2, 1
		network = &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolTCP, HopLimit: 64,
			SrcIP: src, DstIP: dst}
	}
	if f.vlan {
		stack = append(stack, &layers.Dot1Q{VLANIdentifier: 5, Type: eth.EthernetType})
		eth.EthernetType = layers.EthernetTypeDot1Q
	}
	require.NoError(f.t, tcp.SetNetworkLayerForChecksum(network.(gopacket.NetworkLayer)))
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	require.NoError(f.t, gopacket.SerializeLayers(buf, opts, append(stack, network, tcp,
		gopacket.Payload(payload))...))
	return buf.Bytes()
}

// readSegment checks lengths and checksums with other code than the middlebox's and returns the TCP
// header and payload.
func readSegment(t testing.TB, frame []byte) *layers.TCP {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	require.Nil(t, p.ErrorLayer())
	tcp, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
	require.True(t, ok)
	f, ok := findTCP(frame)
	require.True(t, ok)
	require.Equal(t, len(frame), f.end, "length in the IP header")
	if !f.v6 {
		require.Zero(t, inet.Checksum(frame[f.ip:f.tcp], 0), "IP checksum")
	}
	require.Zero(t, inet.Checksum(frame[f.tcp:f.end], pseudoSum(frame, &f, f.end-f.tcp)),
		"TCP checksum")
	return tcp
}

func timestamps(val, echo uint32) []layers.TCPOption {
	data := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, val), echo)
	return []layers.TCPOption{
		{OptionType: layers.TCPOptionKindNop}, {OptionType: layers.TCPOptionKindNop},
		{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: data},
	}
}

// Whatever is cut and coalesced, the stream is the same stream, every checksum is right, and no Buf
// is lost.
func TestMiddleboxKeepsTheStream(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		r := newPathRig(t, PathSpec{Seed: seed, Coalesce: []float64{0, 0.5, 1}[seed%3],
			Split: []float64{1, 0.5, 0}[seed/3%3]})
		f := flow{t: t, v6: seed%2 == 1, vlan: seed%5 == 1, seq: math.MaxUint32 - 5000,
			options: timestamps(1, 2)}
		first := f.seq
		var sent, got []byte
		longest := 0
		for range 20 {
			var frames [][]byte
			for range 1 + rng.IntN(6) {
				payload := make([]byte, 1+rng.IntN(1300)*rng.IntN(2)+rng.IntN(100))
				for i := range payload {
					payload[i] = byte(rng.Uint32())
				}
				sent = append(sent, payload...)
				frames = append(frames, f.segment(payload))
			}
			require.Equal(t, len(frames), put(r.peer, r.peerPool, frames...))
			for _, frame := range get(r.path, r.pool) {
				tcp := readSegment(t, frame)
				require.Equal(t, first+uint32(len(got)), tcp.Seq, "seed %d", seed)
				require.NotEmpty(t, tcp.Payload)
				longest = max(longest, len(frame))
				got = append(got, tcp.Payload...)
			}
		}
		require.Equal(t, sent, got, "seed %d", seed)
		require.LessOrEqual(t, longest, 1500+18)
		require.Equal(t, r.pool.Size(), r.pool.Available())
		did := r.path.Did()
		require.Zero(t, did.Full)
		require.Equal(t, r.path.Spec().Coalesce > 0, did.Coalesced > 0, "seed %d", seed)
		require.Equal(t, r.path.Spec().Split > 0, did.Split > 0, "seed %d", seed)
	}
}

// Coalesced segments have the first one's number, the last one's ACK, window and echo, and the
// oldest timestamp; PSH and FIN stand at the end.
func TestJoinedHeader(t *testing.T) {
	r := newPathRig(t, PathSpec{Coalesce: 1})
	f := flow{t: t, seq: 100, ack: 50, window: 7, options: timestamps(10, 20)}
	a := f.segment([]byte("abc"), func(h *layers.TCP) { h.CWR = true })
	f.options = timestamps(11, 21)
	b := f.segment([]byte("defg"), func(h *layers.TCP) { h.FIN, h.PSH = true, true })
	put(r.peer, r.peerPool, a, b)
	out := get(r.path, r.pool)
	require.Len(t, out, 1)
	tcp := readSegment(t, out[0])
	require.Equal(t, "abcdefg", string(tcp.Payload))
	require.EqualValues(t, []uint32{100, 51, 8}, []uint32{tcp.Seq, tcp.Ack, uint32(tcp.Window)})
	require.True(t, tcp.FIN && tcp.PSH && tcp.CWR)
	require.Equal(t, timestamps(10, 21)[2].OptionData, tcp.Options[2].OptionData)
}

// Of a segment that is cut, CWR stands on the first piece, PSH and FIN on the last.
func TestCutFlags(t *testing.T) {
	r := newPathRig(t, PathSpec{Split: 1})
	f := flow{t: t, v6: true}
	put(r.peer, r.peerPool, f.segment(make([]byte, 500), func(h *layers.TCP) {
		h.CWR, h.PSH, h.FIN, h.ECE = true, true, true, true
	}))
	out := get(r.path, r.pool)
	require.Greater(t, len(out), 1)
	for i, frame := range out {
		tcp := readSegment(t, frame)
		last := i == len(out)-1
		require.Equal(t, []bool{i == 0, last, last, true}, []bool{tcp.CWR, tcp.PSH, tcp.FIN, tcp.ECE})
	}
}

// What does not continue the segment before it, or must not be changed, passes as it is.
func TestNotJoined(t *testing.T) {
	flip := func(at int) func([]byte) { return func(b []byte) { b[len(b)-at] ^= 1 } }
	for name, c := range map[string]struct {
		tcp   func(*layers.TCP)
		frame func([]byte)
	}{
		"gap":          {tcp: func(h *layers.TCP) { h.Seq++ }},
		"SYN":          {tcp: func(h *layers.TCP) { h.SYN = true }},
		"RST":          {tcp: func(h *layers.TCP) { h.RST = true }},
		"URG":          {tcp: func(h *layers.TCP) { h.URG = true }},
		"CWR":          {tcp: func(h *layers.TCP) { h.CWR = true }},
		"ECE":          {tcp: func(h *layers.TCP) { h.ECE = true }},
		"older ACK":    {tcp: func(h *layers.TCP) { h.Ack -= 9 }},
		"other port":   {tcp: func(h *layers.TCP) { h.SrcPort++ }},
		"options":      {tcp: func(h *layers.TCP) { h.Options = timestamps(1, 1) }},
		"bad checksum": {frame: flip(6)},
		"fragment":     {frame: func(b []byte) { b[20] |= 0x20 }},
	} {
		r := newPathRig(t, PathSpec{Coalesce: 1})
		f := flow{t: t, seq: 9}
		a := f.segment([]byte("abcdef"))
		var b []byte
		if c.tcp != nil {
			b = f.segment([]byte("ghi"), c.tcp)
		} else {
			b = f.segment([]byte("ghi"))
			c.frame(b)
		}
		put(r.peer, r.peerPool, a, b)
		require.Equal(t, [][]byte{a, b}, get(r.path, r.pool), name)
	}
	r := newPathRig(t, PathSpec{Coalesce: 1, Split: 1})
	f := flow{t: t}
	arp, ack, one := make([]byte, 42), f.segment(nil), f.segment([]byte{1})
	put(r.peer, r.peerPool, arp, ack, one)
	require.Equal(t, [][]byte{arp, ack, one}, get(r.path, r.pool))
}

// A packet above the path's MTU is lost, and reported in a way that our own ICMP code understands;
// one at it passes.
func TestPathMTU(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, vlan := range []bool{false, true} {
			r := newPathRig(t, PathSpec{MTU: 1300})
			f := flow{t: t, v6: v6, vlan: vlan, seq: 77}
			headers := 40
			if v6 {
				headers = 60
			}
			fits, large := f.segment(make([]byte, 1300-headers)), f.segment(make([]byte, 1301-headers))
			require.Equal(t, 3, put(r.path, r.pool, large, fits, large))
			require.Equal(t, [][]byte{fits}, get(r.peer, r.peerPool))
			require.EqualValues(t, 0, r.path.Deadline())
			reports := get(r.path, r.pool)
			require.Len(t, reports, 2)
			l2 := 14
			if vlan {
				l2 = 18
			}
			require.Equal(t, large[:6], reports[0][6:12], "from where it was sent to")
			require.Equal(t, large[6:12], reports[0][:6])
			require.Equal(t, large[12:l2], reports[0][12:l2])
			e := icmpError(t, reports[0][l2:], v6)
			require.Equal(t, 1300, e.Believed())
			require.EqualValues(t, 77+uint32(len(fits))-uint32(l2)-uint32(headers),
				binary.BigEndian.Uint32(e.Quoted[4:]))

			require.NoError(t, r.path.Set(PathSpec{MTU: 1300, Silent: true}))
			require.Equal(t, 1, put(r.path, r.pool, large))
			require.Empty(t, get(r.path, r.pool))
			require.Empty(t, get(r.peer, r.peerPool))
			require.NoError(t, r.path.Set(PathSpec{}))
			require.Equal(t, 1, put(r.path, r.pool, large))
			require.Equal(t, [][]byte{large}, get(r.peer, r.peerPool))
			require.Equal(t, PathCounters{TooBig: 3, Reported: 2}, r.path.Did())
			require.EqualValues(t, math.MaxInt64, r.path.Deadline())
			require.Equal(t, r.pool.Size(), r.pool.Available())
		}
	}
}

func icmpError(t *testing.T, packet []byte, v6 bool) (e inet.ICMPError) {
	var ok bool
	if v6 {
		h, payload, d := inet.ParseIPv6(packet)
		require.Zero(t, d)
		e, ok = inet.ParseICMP6Error(payload, h.Src, h.Dst)
	} else {
		_, payload, d := inet.ParseIPv4(packet, false)
		require.Zero(t, d)
		e, ok = inet.ParseICMPError(payload)
	}
	require.True(t, ok)
	return e
}

// No error is sent about an error, and a packet that may be fragmented goes on.
func TestPathMTUNotReported(t *testing.T) {
	r := newPathRig(t, PathSpec{MTU: 600})
	f := flow{t: t}
	mayFragment := f.segment(make([]byte, 800))
	mayFragment[20] &^= 0x40
	icmp := f.segment(make([]byte, 800))
	icmp[23] = inet.ProtoICMP
	icmp[34] = inet.ICMPUnreachable
	require.Equal(t, 2, put(r.path, r.pool, mayFragment, icmp))
	require.Equal(t, [][]byte{mayFragment}, get(r.peer, r.peerPool))
	require.Empty(t, get(r.path, r.pool))
	require.Equal(t, PathCounters{TooBig: 1}, r.path.Did())
}

func TestPathSpecChecked(t *testing.T) {
	pool := newPool(t, 4)
	for want, spec := range map[string]PathSpec{
		"fault: path: Coalesce is 2 and Split is 0; a probability is 0 to 1": {Coalesce: 2,
			LinkMTU: 1500},
		"fault: path: LinkMTU is 0; must be 68 to 1898, which the pool's Bufs hold": {},
		"fault: path: MTU is 20; must be 0 (any) or at least 68":                    {LinkMTU: 1500, MTU: 20},
	} {
		_, err := WrapPath(nil, pool, spec)
		require.EqualError(t, err, want)
	}
}
