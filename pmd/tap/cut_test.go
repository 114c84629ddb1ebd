package tap

import (
	"encoding/binary"
	"testing"

	"github.com/rnicd/rnicd/mem"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestLargeFrameThatIsNoneIsCounted(t *testing.T) {
	ours, kernel := pipe(t)
	q, pool := newQueue(t, ours, 64, 1500)
	s := spec{flags: flagACK, payload: someOctets[:5000]}
	frame, start, offset := s.build()
	good := s.vnet(start, offset, 1000)
	field := func(at int, v uint16) []byte {
		h := append([]byte(nil), good...)
		binary.NativeEndian.PutUint16(h[at:], v)
		return h
	}
	octet := func(b []byte, at int, v byte) []byte {
		b = append([]byte(nil), b...)
		b[at] = v
		return b
	}
	udp := spec{udp: true, payload: someOctets[:5000]}
	udpFrame, udpStart, udpOffset := udp.build()
	udpHeader := octet(udp.vnet(udpStart, udpOffset, 1000), 1, vnetGSOTCPv4)
	bufs := make([]mem.Buf, 8)
	for name, c := range map[string]struct{ header, frame []byte }{
		"TCP said to be UDP":       {octet(good, 1, vnetGSOUDP), frame},
		"UDP said to be TCP":       {udpHeader, udpFrame},
		"IPv4 said to be IPv6":     {octet(good, 1, vnetGSOTCPv6), frame},
		"gso_type unknown":         {octet(good, 1, 3), frame},
		"no checksum asked for":    {octet(good, 0, 0), frame},
		"gso_size 0":               {field(4, 0), frame},
		"csum_start of no header":  {field(6, 33), frame},
		"csum_start after the end": {field(6, 65535), frame},
		"csum_offset of nothing":   {field(8, 12), frame},
		"headers end after frame":  {good, frame[:53]},
		"shorter than IP says":     {good, frame[:4000]},
		"TCP header too short":     {good, octet(frame, 46, 0x40)},
		"IPv4 header too short":    {good, octet(frame, 14, 0x44)},
		"no IP":                    {good, octet(frame, 12, 9)},
		"nothing but tags": {good,
			[]byte("123456123456\x81\x00\x00\x01\x81\x00\x00\x01\x81\x00\x00\x01\x81\x00")},
		"no frame":      {good, nil},
		"half a header": {good[:5], nil},
	} {
		before := q.Counters().RxErrors
		give(t, kernel, c.header, c.frame)
		require.Zero(t, q.Rx(bufs), name)
		require.EqualValues(t, before+1, q.Counters().RxErrors, name)
	}
	before := q.Counters().RxTooLong
	give(t, kernel, field(4, 1469), frame) // 54+1469 octets, MTU 1500 and two tags are 1522
	require.Zero(t, q.Rx(bufs))
	require.EqualValues(t, before+4, q.Counters().RxTooLong)
	give(t, kernel, good, frame)
	wantSegments(t, q, pool, bufs, s.segments(1000))
}

// Bufs are taken in advance while large frames come, and given back when none did for a while.
func TestIdleQueueKeepsNoBufs(t *testing.T) {
	ours, kernel := pipe(t)
	q, pool := newQueue(t, ours, 256, 1500)
	s := spec{flags: flagACK, payload: someOctets[:60000]}
	bufs := make([]mem.Buf, 64)
	for range 2 {
		s.give(t, kernel, 1400)
		wantSegments(t, q, pool, bufs, s.segments(1400))
	}
	require.Equal(t, q.scatter.share, 64)
	require.Equal(t, 256-q.scatter.n, pool.Available())
	require.Greater(t, q.scatter.n, 40)
	for range wideReads {
		require.Zero(t, q.Rx(bufs))
	}
	require.Equal(t, 256, pool.Available())
}

// The octets of a frame laid out as the last one was are not touched again: only headers are
// written.
func TestExpectedFrameIsNotMoved(t *testing.T) {
	ours, kernel := pipe(t)
	q, pool := newQueue(t, ours, 256, 1500)
	s := spec{flags: flagACK, tcpOpt: 12, payload: someOctets[:1448*20]}
	bufs := make([]mem.Buf, 64)
	for range 2 {
		s.give(t, kernel, 1448)
		wantSegments(t, q, pool, bufs, s.segments(1448))
	}
	require.True(t, q.scatter.refill())
	armed := append([]mem.Buf(nil), q.scatter.armed[:20]...)
	s.give(t, kernel, 1448)
	require.Equal(t, 20, q.Rx(bufs[:20]))
	require.Equal(t, armed, bufs[:20], "each segment is in the Buf it was read into")
	for _, b := range bufs[:20] {
		require.EqualValues(t, payloadAt-66, pool.Desc(b).Off)
	}
}

func TestOffloadDoesNotAllocate(t *testing.T) {
	ours, kernel := pipe(t)
	q, pool := newQueue(t, ours, 256, 1500)
	var messages [][][]byte
	for i, size := range []int{1448, 1400, 1448, 900} {
		s := spec{flags: flagACK, tcpOpt: 4 * i, payload: someOctets[:60000]}
		frame, start, offset := s.build()
		messages = append(messages, [][]byte{s.vnet(start, offset, size), frame})
	}
	bufs, sink := make([]mem.Buf, 32), make([]byte, 1<<17)
	i, got := 0, 0
	allocs := testing.AllocsPerRun(50, func() {
		m := messages[i%len(messages)]
		i++
		if _, err := unix.Writev(kernel, m); err != nil {
			panic(err)
		}
		for n := len(bufs); n == len(bufs); {
			n = q.Rx(bufs)
			for _, b := range bufs[:n] {
				pool.Desc(b).Flags = mem.TxChecksum
			}
			if q.Tx(bufs[:n]) != n {
				panic("pipe is full")
			}
			pool.FreeN(bufs[:n])
			got += n
			for {
				if _, err := unix.Read(kernel, sink); err != nil {
					break
				}
			}
		}
	})
	// The test's own Writev allocates its vector.
	require.LessOrEqual(t, allocs, float64(writevAllocs(t, kernel, ours, messages[0])))
	require.Greater(t, got, 50*40)
}

func writevAllocs(t testing.TB, kernel, ours int, m [][]byte) int {
	sink := make([]byte, 1<<17)
	return int(testing.AllocsPerRun(10, func() {
		_, _ = unix.Writev(kernel, m)
		_, _ = unix.Read(ours, sink)
	}))
}
