package inet

import (
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
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

func TestEthernetGopacket(t *testing.T) {
	frame := golden(t, "arp-request")
	h, _, d := ParseEthernet(frame)
	require.Equal(t, DropNone, d)
	theirs := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy).Layer(
		layers.LayerTypeEthernet).(*layers.Ethernet)
	require.Equal(t, theirs.DstMAC.String(), h.Dst.String())
	require.Equal(t, theirs.SrcMAC.String(), h.Src.String())
	require.Equal(t, uint16(theirs.EthernetType), h.Type)
}

func TestEthernetTruncated(t *testing.T) {
	frame := golden(t, "tcp-syn")
	for n := range EthernetLen {
		_, _, d := ParseEthernet(clipped(frame[:n]))
		require.Equal(t, DropShort, d, n)
	}
	_, payload, d := ParseEthernet(clipped(frame[:EthernetLen]))
	require.Equal(t, DropNone, d)
	require.Empty(t, payload)
}

func TestEthernetDrops(t *testing.T) {
	frame := golden(t, "tcp-syn")
	frame[12], frame[13] = 0x05, 0xff // an IEEE 802.3 length
	_, _, d := ParseEthernet(frame)
	require.Equal(t, DropEtherType, d)

	frame = golden(t, "tcp-syn")
	frame[6] |= 1
	_, _, d = ParseEthernet(frame)
	require.Equal(t, DropSource, d)

	require.Panics(t, func() { new(Ethernet).Put(make([]byte, EthernetLen-1)) })
}

// The link layer tells IP of a broadcast.
func TestEthernetBroadcast(t *testing.T) {
	h, _, d := ParseEthernet(golden(t, "arp-request"))
	require.Equal(t, DropNone, d)
	require.Equal(t, Broadcast, h.Dst)
	require.True(t, h.Dst.IsGroup())
	h, _, _ = ParseEthernet(golden(t, "arp-reply"))
	require.False(t, h.Dst.IsGroup())
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
