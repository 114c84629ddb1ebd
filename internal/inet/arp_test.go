package inet

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Linux's request and reply are what ours would be, octet for octet.
// req: 826-3
func TestARPGolden(t *testing.T) {
	asker, router := mac(t, "02:00:00:00:00:0a"), mac(t, "02:00:00:00:00:01")
	askerIP, routerIP := ip4(10, 9, 1, 10), ip4(10, 9, 1, 1)

	frame := golden(t, "arp-request")
	request, d := ParseARP(frame[14:])
	require.Equal(t, DropNone, d)
	require.Equal(t, ARP{Op: 1, SenderMAC: asker, SenderIP: askerIP, TargetIP: routerIP}, request)

	ours := RequestARP(asker, askerIP, routerIP)
	b := make([]byte, EthernetLen+ARPLen)
	(&Ethernet{Dst: Broadcast, Src: asker, Type: EtherTypeARP}).Put(b)
	ours.Put(b[EthernetLen:])
	require.Equal(t, frame, b)

	frame = golden(t, "arp-reply")
	reply, d := ParseARP(frame[14:])
	require.Equal(t, DropNone, d)
	require.Equal(t, reply, request.Reply(router))
	(&Ethernet{Dst: reply.TargetMAC, Src: router, Type: EtherTypeARP}).Put(b)
	reply.Put(b[EthernetLen:])
	require.Equal(t, frame, b)
}

// req: 826-4
func TestARPMalformed(t *testing.T) {
	good := golden(t, "arp-reply")[14:]
	for n := range ARPLen {
		_, d := ParseARP(clipped(good[:n]))
		require.Equal(t, DropShort, d, n)
	}
	_, d := ParseARP(append(clipped(good), make([]byte, 18)...))
	require.Equal(t, DropNone, d, "Ethernet padding")
	for at, field := range []string{"hrd", "hrd", "pro", "pro", "hln", "pln"} {
		for bit := range 8 {
			b := append([]byte{}, good...)
			b[at] ^= 1 << bit
			_, d := ParseARP(b)
			require.Equal(t, DropBadARP, d, field)
		}
	}
}

func TestARPSender(t *testing.T) {
	good := golden(t, "arp-reply")[14:]
	for name, c := range map[string]struct {
		at   int
		put  []byte
		want Drop
	}{
		"broadcast MAC":     {8, Broadcast[:], DropSource},
		"multicast MAC":     {8, []byte{1, 0, 0x5e, 0, 0, 1}, DropSource},
		"zero MAC":          {8, make([]byte, 6), DropSource},
		"broadcast address": {14, []byte{255, 255, 255, 255}, DropSource},
		"multicast address": {14, []byte{224, 0, 0, 1}, DropSource},
		"loopback address":  {14, []byte{127, 0, 0, 1}, DropSource},
		"probe (RFC 5227)":  {14, []byte{0, 0, 0, 0}, DropNone},
		"operation 9":       {7, []byte{9}, DropNone},
	} {
		b := append([]byte{}, good...)
		copy(b[c.at:], c.put)
		_, d := ParseARP(b)
		require.Equal(t, c.want, d, name)
	}
}

func FuzzParseARP(f *testing.F) {
	f.Add(golden(f, "arp-request")[14:])
	f.Add(golden(f, "arp-reply")[14:])
	f.Fuzz(func(t *testing.T, b []byte) {
		a, d := ParseARP(clipped(b))
		if d != DropNone {
			return
		}
		out := make([]byte, ARPLen)
		a.Put(out)
		require.Equal(t, b[:ARPLen], out)
		n := NewNeighbours[int](NeighbourConfig{EntriesMax: 4})
		_, answer, _ := n.Input(0, &a, ip4(10, 0, 0, 1), MAC{2})
		require.Equal(t, answer, a.Op == ARPRequest && a.TargetIP == ip4(10, 0, 0, 1) &&
			a.SenderIP != a.TargetIP)
	})
}
