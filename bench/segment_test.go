package bench

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

const (
	segmentPort    = 7174
	segmentMTU     = 1500
	segmentPayload = segmentMTU - inet.IPv4Len - segmentTCPLen
	segmentTCPLen  = 20 + 12 // with timestamps
	segmentTCPAt   = inet.EthernetLen + inet.IPv4Len
)

var (
	segmentOurs  = netip.MustParsePrefix("10.9.0.1/24")
	segmentTheir = inet.AddrFrom(netip.MustParseAddr("10.9.0.2"))
	segmentMACs  = [2]inet.MAC{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}} // ours, theirs
)

// feeder is a device that costs next to nothing: it writes the headers of the next segments of one
// connection into Bufs, whose payload is whatever is there, and looks at nothing that is sent but,
// before the first segment, our sequence number. It has verified the checksums of what comes and
// would complete those of what goes, as a NIC does.
type feeder struct {
	pool    *mem.Pool
	scripts [][]byte // frames that come first, one a Turn
	header  []byte   // of a data segment; the sequence number grows
	seq     uint32
	ready   int    // data segments that wait
	sent    uint64 // frames
	last    []byte // the frame sent last, its headers
}

func (f *feeder) Counters() pmd.Counters { return pmd.Counters{} }

func (f *feeder) Rx(bufs []mem.Buf) int {
	if len(f.scripts) > 0 {
		bufs[0] = f.frame(f.scripts[0], len(f.scripts[0]))
		f.scripts = f.scripts[1:]
		return 1
	}
	n := min(f.ready, len(bufs))
	for i := range bufs[:n] {
		binary.BigEndian.PutUint32(f.header[segmentTCPAt+4:], f.seq)
		f.seq += segmentPayload
		bufs[i] = f.frame(f.header, len(f.header)+segmentPayload)
	}
	f.ready -= n
	return n
}

// frame is a Buf of size octets that begins with b.
func (f *feeder) frame(b []byte, size int) mem.Buf {
	buf := f.pool.Alloc()
	if buf == mem.NoBuf {
		panic("bench: the Poller keeps Bufs")
	}
	d := f.pool.Desc(buf)
	d.Len, d.Flags = uint32(size), mem.RxChecksumGood
	copy(f.pool.Data(buf), b)
	return buf
}

func (f *feeder) Tx(bufs []mem.Buf) int {
	f.sent += uint64(len(bufs))
	f.last = f.last[:copy(f.last[:cap(f.last)], f.pool.Data(bufs[len(bufs)-1]))]
	return len(bufs)
}

// headers writes Ethernet, IPv4 and TCP headers from the peer to us.
func (f *feeder) headers(seq, ack uint32, flags byte, options []byte, payload int) []byte {
	tcpLen := 20 + len(options)
	b := make([]byte, segmentTCPAt+tcpLen)
	eth := inet.Ethernet{Dst: segmentMACs[0], Src: segmentMACs[1], Type: inet.EtherTypeIPv4}
	eth.Put(b)
	ip := inet.IPv4{
		DF: true, TTL: 64, Proto: inet.ProtoTCP, Src: segmentTheir,
		Dst:    inet.AddrFrom(segmentOurs.Addr()),
		HdrLen: inet.IPv4Len, TotalLen: inet.IPv4Len + tcpLen + payload,
	}
	ip.Put(b[inet.EthernetLen:])
	h := b[segmentTCPAt:]
	binary.BigEndian.PutUint16(h[0:], 40000)
	binary.BigEndian.PutUint16(h[2:], segmentPort)
	binary.BigEndian.PutUint32(h[4:], seq)
	binary.BigEndian.PutUint32(h[8:], ack)
	h[12], h[13] = byte(tcpLen/4<<4), flags
	binary.BigEndian.PutUint16(h[14:], 65535)
	copy(h[20:], options)
	return b
}

// arp is the peer's request for our address: afterwards we know its MAC.
func (f *feeder) arp() []byte {
	b := make([]byte, inet.EthernetLen+inet.ARPLen)
	eth := inet.Ethernet{Dst: inet.Broadcast, Src: segmentMACs[1], Type: inet.EtherTypeARP}
	eth.Put(b)
	a := inet.ARP{Op: 1, SenderMAC: segmentMACs[1], SenderIP: segmentTheir,
		TargetIP: inet.AddrFrom(segmentOurs.Addr())}
	a.Put(b[inet.EthernetLen:])
	return b
}

// counter is an Upper that takes what comes and does nothing with it.
type counter struct {
	testhost.Upper
	edge uint64
}

func (u *counter) Edge(edge uint64) { u.edge = edge }

// fed is a Poller with one open connection, fed by hand.
func fed(t testing.TB) (*stack.Poller, *feeder, *counter) {
	t.Helper()
	const bufs, stride = 256, 2048
	pool, err := mem.NewPool(hugepages.Heap(bufs*stride+4096),
		mem.PoolConfig{Bufs: bufs, Stride: stride})
	require.NoError(t, err)
	f := &feeder{pool: pool, last: make([]byte, 0, 128)}
	p, err := stack.New(stack.Config{
		Name: "fed", Queue: f, Pool: pool, Caps: pmd.Caps{MTU: segmentMTU, Queues: 1, RxChecksum: true,
			TxChecksum: true},
		MAC: segmentMACs[0], Addr: segmentOurs, NoDAD: true, NoAnnounce: true, ConnsMax: 16, Core: -1,
		TCP: tcp.Config{ReceiveWindow: 1 << 20},
	})
	require.NoError(t, err)
	u := &counter{}
	require.NoError(t, p.Listen(segmentPort, 1, func(*stack.Conn) stack.Upper { return u }))
	// RFC 9293 section 3.1, RFC 7323, RFC 2018: MSS 1460, SACK permitted, timestamp 1, window scale
	// 7.
	syn := []byte{2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7}
	const iss = 1000
	f.scripts = [][]byte{f.arp(), f.headers(iss, 0, 0x02, syn, 0)}
	p.Turn()
	p.Turn()
	require.Greater(t, len(f.last), segmentTCPAt+20)
	require.Equal(t, byte(0x12), f.last[segmentTCPAt+13], "a SYN-ACK")
	ack := binary.BigEndian.Uint32(f.last[segmentTCPAt+4:]) + 1
	timestamp := []byte{1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0}
	f.header, f.seq = f.headers(iss+1, ack, 0x10, timestamp, segmentPayload), iss+1
	f.feed(p, 1)
	require.Equal(t, uint64(segmentPayload), u.edge, "the connection is open")
	return p, f, u
}

// feed lets n segments come in one burst.
func (f *feeder) feed(p *stack.Poller, n int) {
	f.ready = n
	p.Turn()
}

// What is fed is received, acknowledged at least every second segment or once a Turn, and costs no
// allocation.
func TestSegmentCostIsOfWholeSegments(t *testing.T) {
	for _, burst := range []int{1, 2, 32} {
		p, f, u := fed(t)
		edge, sent := u.edge, f.sent
		const turns = 200
		allocs := testing.AllocsPerRun(turns, func() { f.feed(p, burst) })
		require.Zero(t, allocs, "burst %d", burst)
		n := uint64(turns + 1) // AllocsPerRun warms up once
		require.Equal(t, n*uint64(burst)*segmentPayload, u.edge-edge, "burst %d", burst)
		want := n
		if burst == 1 {
			want /= 2
		}
		require.GreaterOrEqual(t, f.sent-sent, want, "burst %d: ACKs", burst)
		ack := binary.BigEndian.Uint32(f.last[segmentTCPAt+8:])
		require.InDelta(t, f.seq, ack, segmentPayload, "burst %d", burst)
	}
}

// BenchmarkSegmentCost is what one data segment costs from Rx to the ACK's Tx, without payload
// work: Ethernet, IPv4 and TCP decoded, found, accepted, committed, acknowledged. When the clock
// has stopped, all of them must have been received and acknowledged. The mark: 150 ns, no
// allocation.
func BenchmarkSegmentCost(b *testing.B) {
	for _, burst := range []int{1, 2, 8, 32} {
		b.Run(fmt.Sprintf("burst=%d", burst), func(b *testing.B) {
			p, f, u := fed(b)
			edge, sent := u.edge, f.sent
			b.ReportAllocs()
			b.ResetTimer()
			n := 0
			for ; n < b.N; n += burst {
				f.feed(p, burst)
			}
			b.StopTimer()
			require.Equal(b, uint64(n)*segmentPayload, u.edge-edge, "octets received")
			require.InDelta(b, f.seq, binary.BigEndian.Uint32(f.last[segmentTCPAt+8:]), segmentPayload,
				"acknowledged")
			b.ReportMetric(float64(f.sent-sent)/float64(b.N), "ACKs/op")
		})
	}
}
