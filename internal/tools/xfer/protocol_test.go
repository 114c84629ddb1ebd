package xfer

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func unhex(t testing.TB, s string) []byte {
	return must(hex.DecodeString(strings.ReplaceAll(s, " ", "")))(t)
}

var digest = [digestLen]byte{0: 0xd0, 31: 0xdf}

const digestHex = "d0" + "000000000000000000000000000000000000000000000000000000000000" + "df"

// messages are all there are, with their octets and who reads them.
var messages = []struct {
	name  string
	value any
	bytes string
	parse func(b []byte) (any, error)
}{
	{
		"request", request{op: OpPut, length: 0x0102030405060708}, "524e4350 01 01 0000 0102030405060708",
		func(b []byte) (any, error) { return wrap(parseRequest(b)) },
	},
	{
		"grant", grant{stag: 0xaabbccdd, to: 0x1122334455667788, length: 9},
		"524e4347 01 000000 aabbccdd 1122334455667788 0000000000000009",
		func(b []byte) (any, error) { return wrap(parseGrant(b)) },
	},
	{
		"finish", finish{length: 0x10, digest: digest}, "524e4346 00000000 0000000000000010" + digestHex,
		func(b []byte) (any, error) { return wrap(parseFinish(b)) },
	},
	{
		"answer", answer{
			match: true, digest: digest, length: 1, wireNs: 2, hashNs: 3,
			counters: Counters{Direct: 4, Reassembled: 5, OutOfOrder: 6, SegmentsIn: 7, Retransmits: 8},
		},
		"524e4341 01000000" + digestHex +
			"0000000000000001 0000000000000002 0000000000000003 0000000000000004" +
			"0000000000000005 0000000000000006 0000000000000007 0000000000000008" + strings.Repeat("00", 24),
		func(b []byte) (any, error) { return wrap(parseAnswer(b)) },
	},
}

func wrap[T any](v T, err error) (any, error) { return v, err }

func marshal(v any) []byte {
	switch v := v.(type) {
	case request:
		return v.marshal()
	case grant:
		return v.marshal()
	case finish:
		return v.marshal(dirty(finishLen))
	case answer:
		return v.marshal(dirty(answerLen))
	}
	panic("unknown message")
}

// dirty is a buffer that was used before, with room after.
func dirty(n int) []byte { return []byte(strings.Repeat("\xee", n+3)) }

func TestMessagesGolden(t *testing.T) {
	for _, m := range messages {
		t.Run(m.name, func(t *testing.T) {
			want := unhex(t, m.bytes)
			require.Equal(t, want, marshal(m.value))
			got := must(m.parse(want))(t)
			require.Equal(t, m.value, got)
		})
	}
}

// Neither a part of a message nor one with octets after it is taken for it, nor one of another
// kind.
func TestMessagesMalformed(t *testing.T) {
	for _, m := range messages {
		whole := unhex(t, m.bytes)
		for n := range whole {
			require.ErrorIs(t, errOf(m.parse(whole[:n])), errMalformed, "%s cut to %d", m.name, n)
		}
		_, err := m.parse(append(whole[:len(whole):len(whole)], 0))
		require.ErrorIs(t, err, errMalformed)
		for i := range 4 {
			b := append([]byte(nil), whole...)
			b[i] ^= 0x20
			require.ErrorIs(t, errOf(m.parse(b)), errMalformed)
		}
	}
}

func TestRequestNotServed(t *testing.T) {
	b := request{op: OpPut}.marshal()
	b[4] = 2
	_, err := parseRequest(b)
	require.EqualError(t, err, "xfer: protocol version 2, this server speaks 1")
	_, err = parseRequest(request{op: 3}.marshal())
	require.EqualError(t, err, "xfer: operation 3 is not served")
	g := grant{}.marshal()
	g[4] = 2
	require.ErrorIs(t, errOf(parseGrant(g)), errMalformed)
}

// An answer says "match" with 1 only.
func TestAnswerMatch(t *testing.T) {
	b := answer{}.marshal(make([]byte, answerLen))
	for v := range 256 {
		b[4] = byte(v)
		a := must(parseAnswer(b))(t)
		require.Equal(t, v == 1, a.match)
	}
}

// FuzzMessages: whatever parses is, marshalled again, what was parsed, reserved octets aside.
func FuzzMessages(f *testing.F) {
	for _, m := range messages {
		f.Add(unhex(f, m.bytes))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range messages {
			v, err := m.parse(b)
			if err != nil {
				continue
			}
			again := must(m.parse(marshal(v)))(t)
			require.Equal(t, v, again)
		}
	})
}
