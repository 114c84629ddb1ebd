package inet

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// req: 1122-2.3.3-1
func TestEthernetGolden(t *testing.T) {
	frame := golden(t, "tcp-syn")
	h, payload, d := ParseEthernet(frame)
	require.Equal(t, DropNone, d)
	require.Equal(t, Ethernet{Dst: mac(t, "02:00:00:00:00:01"), Src: mac(t, "02:00:00:00:00:0a"),
		Type: EtherTypeIPv4}, h)
	require.Equal(t, frame[14:], payload)

	var b [EthernetLen]byte
	h.Put(b[:])
	require.Equal(t, frame[:14], b[:])
}

func TestEthernetDrops(t *testing.T) {
	frame := golden(t, "tcp-syn")
	for n := range EthernetLen {
		_, _, d := ParseEthernet(clipped(frame[:n]))
		require.Equal(t, DropShort, d, n)
	}
	_, payload, d := ParseEthernet(clipped(frame[:EthernetLen]))
	require.Equal(t, DropNone, d)
	require.Empty(t, payload)
	frame[12], frame[13] = 0x05, 0xff // an IEEE 802.3 length
	_, _, d = ParseEthernet(frame)
	require.Equal(t, DropEtherType, d)
	frame = golden(t, "tcp-syn")
	frame[6] |= 1
	_, _, d = ParseEthernet(frame)
	require.Equal(t, DropSource, d)
	require.Panics(t, func() { new(Ethernet).Put(make([]byte, EthernetLen-1)) })
}

func FuzzParseEthernet(f *testing.F) {
	for _, frame := range goldens(f) {
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, payload, d := ParseEthernet(clipped(b))
		if d != DropNone {
			require.Nil(t, payload)
			return
		}
		out := make([]byte, EthernetLen)
		h.Put(out)
		require.Equal(t, b, append(out, payload...))
	})
}
