package rdmap

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
)

var reliabilityGolden = []struct {
	name  string
	msg   Reliability
	bytes [ReliabilityLen]byte
}{
	{"acknowledge", Reliability{Kind: Acknowledge, Count: 0x01020304},
		[ReliabilityLen]byte{1, 0, 0, 0, 1, 2, 3, 4}},
	{"not ready", Reliability{Kind: NotReady, Timer: 31, Tries: 8, Count: 5, SendMSN: 0x0a0b0c0d,
		ReadMSN: 7}, [ReliabilityLen]byte{2, 31, 8, 0, 0, 0, 0, 5, 10, 11, 12, 13, 0, 0, 0, 7}},
	{"resume", Reliability{Kind: Resume, Count: 0xffffffff},
		[ReliabilityLen]byte{3, 0, 0, 0, 255, 255, 255, 255}},
}

func TestReliabilityGolden(t *testing.T) {
	for _, g := range reliabilityGolden {
		t.Run(g.name, func(t *testing.T) {
			var b [ReliabilityLen]byte
			g.msg.Put(b[:])
			require.Equal(t, g.bytes, b)
			got, ok := ParseReliability(b[:])
			require.True(t, ok)
			require.Equal(t, g.msg, got)
			for n := range ReliabilityLen {
				_, ok := ParseReliability(b[:n])
				require.False(t, ok)
			}
			_, ok = ParseReliability(append(b[:], 0))
			require.False(t, ok)
		})
	}
}

// What a kind leaves unused is zero, and there are three kinds and 32 timers.
func TestReliabilityIsStrict(t *testing.T) {
	for _, g := range reliabilityGolden {
		unused := []int{3}
		if g.msg.Kind != NotReady {
			unused = append(unused, 1, 2, 8, 11, 12, 15)
		}
		for _, at := range unused {
			b := g.bytes
			b[at] = 1
			_, ok := ParseReliability(b[:])
			require.False(t, ok, "%s, octet %d", g.name, at)
		}
		for _, kind := range []byte{0, 4, 255} {
			b := g.bytes
			b[0] = kind
			_, ok := ParseReliability(b[:])
			require.False(t, ok)
		}
	}
	b := reliabilityGolden[1].bytes
	b[1] = 32
	_, ok := ParseReliability(b[:])
	require.False(t, ok)
	b[1], b[2] = 31, 9
	_, ok = ParseReliability(b[:])
	require.False(t, ok)
}

// Only one whole segment on queue 4 is one, and to Check it is a reserved opcode.
func TestIsReliability(t *testing.T) {
	h := ddp.Header{Last: true, QN: QNReliability, MSN: 1, Version: 1, ULP: Control(1, OpReliability)}
	require.True(t, IsReliability(&h, 1))
	require.False(t, IsReliability(&h, 0))
	for name, change := range map[string]func(*ddp.Header){
		"tagged":        func(h *ddp.Header) { h.Tagged = true },
		"queue":         func(h *ddp.Header) { h.QN = QNAtomic },
		"not last":      func(h *ddp.Header) { h.Last = false },
		"in the middle": func(h *ddp.Header) { h.MO = 1 },
		"opcode":        func(h *ddp.Header) { h.ULP = Control(1, OpSend) },
	} {
		other := h
		change(&other)
		require.False(t, IsReliability(&other, 1), name)
	}
	_, cause, ok := Check(&h, 1)
	require.False(t, ok)
	require.Equal(t, CauseOpcode, cause)
}

func TestRNRTimes(t *testing.T) {
	require.Equal(t, 655360*time.Microsecond, RNRTime(0))
	require.Equal(t, 10*time.Microsecond, RNRTime(1))
	require.Equal(t, 640*time.Microsecond, RNRTime(12))
	require.Equal(t, 491520*time.Microsecond, RNRTime(31))
	for code := range uint8(32) {
		require.Equal(t, code, RNRCode(RNRTime(code)))
	}
	require.EqualValues(t, 1, RNRCode(0))
	require.EqualValues(t, 5, RNRCode(41*time.Microsecond))
	require.EqualValues(t, 0, RNRCode(time.Hour))
}

// Whatever parses is what is put.
func FuzzReliability(f *testing.F) {
	for _, g := range reliabilityGolden {
		f.Add(g.bytes[:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, ok := ParseReliability(b)
		if !ok {
			return
		}
		var again [ReliabilityLen]byte
		r.Put(again[:])
		require.Equal(t, b, again[:])
		require.Positive(t, RNRTime(r.Timer))
	})
}
