package fault

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/rnicd/rnicd/pmd"
	"github.com/stretchr/testify/require"
)

// tcpFrame builds a frame with right checksums by another implementation.
func tcpFrame(t testing.TB, vlans int, v6 bool, options int, payload []byte) []byte {
	eth := &layers.Ethernet{SrcMAC: []byte{2, 0, 0, 0, 0, 1}, DstMAC: []byte{2, 0, 0, 0, 0, 2}}
	network := layers.EthernetTypeIPv4
	if v6 {
		network = layers.EthernetTypeIPv6
	}
	eth.EthernetType = network
	stack := []gopacket.SerializableLayer{eth}
	for i := range vlans {
		tag := &layers.Dot1Q{VLANIdentifier: uint16(i + 1), Type: network}
		if i == 0 {
			eth.EthernetType = layers.EthernetTypeDot1Q
		} else {
			stack[i].(*layers.Dot1Q).Type = layers.EthernetTypeDot1Q
		}
		stack = append(stack, tag)
	}
	tcp := &layers.TCP{SrcPort: 1, DstPort: 2, Seq: 3, Ack: 4, ACK: true, Window: 5}
	for range options {
		tcp.Options = append(tcp.Options, layers.TCPOption{OptionType: layers.TCPOptionKindNop})
	}
	if v6 {
		ip := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolTCP, HopLimit: 64,
			SrcIP: make([]byte, 16), DstIP: make([]byte, 16)}
		require.NoError(t, tcp.SetNetworkLayerForChecksum(ip))
		stack = append(stack, ip)
	} else {
		ip := &layers.IPv4{Version: 4, Protocol: layers.IPProtocolTCP, TTL: 64,
			SrcIP: []byte{10, 0, 0, 1}, DstIP: []byte{10, 0, 0, 2}}
		require.NoError(t, tcp.SetNetworkLayerForChecksum(ip))
		stack = append(stack, ip)
	}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	require.NoError(
		t, gopacket.SerializeLayers(buf, opts, append(stack, tcp, gopacket.Payload(payload))...))
	return buf.Bytes()
}

// segmentSum is the ones-complement sum of a frame's TCP segment, which the order of its words does
// not change.
func segmentSum(frame []byte, headers int) uint16 {
	seg := append([]byte{0, 0}, frame[headers:]...)
	pmd.CompleteChecksum(seg, 0, 0)
	return binary.BigEndian.Uint16(seg)
}

func TestSwapKeepsTheTCPChecksum(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		vlans, v6, options := rng.IntN(3), rng.IntN(2) == 1, 4*rng.IntN(4)
		payload := make([]byte, 4+rng.IntN(100))
		for i := range payload {
			payload[i] = byte(rng.UintN(4)) // many equal words
		}
		payload[0], payload[1], payload[2], payload[3] = 1, 2, 3, 4
		frame := tcpFrame(t, vlans, v6, options, payload)
		before := bytes.Clone(frame)
		at, ok := swapWords(frame, rng)
		require.True(t, ok, "seed %d", seed)

		headers := 14 + 4*vlans + 20
		if v6 {
			headers += 20
		}
		data := headers + 20 + options
		require.Equal(t, before[:data], frame[:data], "seed %d: a header changed", seed)
		require.Equal(t, segmentSum(before, headers), segmentSum(frame, headers), "seed %d", seed)
		differ := 0
		for i := data; i+1 < len(frame); i += 2 {
			if before[i] != frame[i] || before[i+1] != frame[i+1] {
				differ++
				require.Contains(t, at, i, "seed %d", seed)
			}
		}
		require.Equal(t, 2, differ, "seed %d: words changed", seed)
	}
}

func TestSwapUnfit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	good := tcpFrame(t, 0, false, 0, []byte{1, 2, 3, 4})
	alter := func(f func(b []byte)) []byte {
		b := bytes.Clone(good)
		f(b)
		return b
	}
	for name, frame := range map[string][]byte{
		"no payload":     tcpFrame(t, 0, false, 0, nil),
		"one word":       tcpFrame(t, 0, false, 0, []byte{1, 2, 3}),
		"equal words":    tcpFrame(t, 0, true, 0, bytes.Repeat([]byte{7, 8}, 50)),
		"three tags":     tcpFrame(t, 3, false, 0, []byte{1, 2, 3, 4}),
		"UDP":            alter(func(b []byte) { b[23] = 17 }),
		"fragment":       alter(func(b []byte) { b[21] = 1 }),
		"ARP":            alter(func(b []byte) { b[13] = 6 }),
		"IP length":      alter(func(b []byte) { b[17] = 200 }),
		"IP header":      alter(func(b []byte) { b[14] = 0x44 }),
		"IP header long": alter(func(b []byte) { b[14] = 0x4f }),
		"TCP header":     alter(func(b []byte) { b[46] = 0x40 }),
		"TCP header off": alter(func(b []byte) { b[46] = 0xf0 }),
	} {
		before := bytes.Clone(frame)
		_, ok := swapWords(frame, rng)
		require.False(t, ok, name)
		require.Equal(t, before, frame, name)
	}
	for _, whole := range [][]byte{tcpFrame(t, 0, false, 0, []byte("12345678")),
		tcpFrame(t, 2, true, 8, []byte{1, 2, 3, 4})} {
		for n := range len(whole) {
			_, ok := swapWords(bytes.Clone(whole[:n]), rng)
			require.False(t, ok, "cut at %d of %d", n, len(whole))
		}
	}
	_, ok := swapWords(good, rng)
	require.True(t, ok)
}

func FuzzSwapWords(f *testing.F) {
	f.Add(uint64(1), tcpFrame(f, 1, false, 4, []byte("abcdefgh")))
	f.Add(uint64(2), tcpFrame(f, 0, true, 0, []byte("abcdefgh")))
	f.Fuzz(func(t *testing.T, seed uint64, frame []byte) {
		before := bytes.Clone(frame)
		if _, ok := swapWords(frame, rand.New(rand.NewPCG(seed, 0))); ok == bytes.Equal(before, frame) {
			t.Fatal("said one thing and did another")
		}
	})
}

func TestFlipBits(t *testing.T) {
	counts := map[int]bool{}
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 0))
		frame := make([]byte, 14+rng.IntN(50))
		flipBits(frame, rng)
		n := 0
		for _, b := range frame {
			n += bits.OnesCount8(b)
		}
		counts[n] = true
	}
	require.Equal(t, map[int]bool{1: true, 2: true, 3: true}, counts)
	flipBits(nil, nil)
}

func TestTruncated(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	seen := map[uint32]bool{}
	for range 500 {
		n := truncated(20, rng)
		require.True(t, n >= pmd.EthernetLen && n < 20, fmt.Sprint(n))
		seen[n] = true
	}
	require.Len(t, seen, 6)
	require.EqualValues(t, 14, truncated(14, rng))
	require.EqualValues(t, 3, truncated(3, rng))
}
