package mpa

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	hexRequest = "4D 50 41 20 49 44 20 52 65 71 20 46 72 61 6D 65"
	hexReply   = "4D 50 41 20 49 44 20 52 65 70 20 46 72 61 6D 65"
)

var goldenFrames = []struct {
	name, hex string
	f         Frame
}{
	{"Request, Rev 1, CRC", hexRequest + "40 01 0000", Frame{Kind: Request, CRC: true, Rev: 1}},
	{"Request, Rev 0, markers and CRC", hexRequest + "C0 00 0003 616263",
		Frame{Kind: Request, Markers: true, CRC: true, PrivateData: []byte("abc")}},
	{"Request of siw, Rev 2", hexRequest + "10 02 0004 80010001",
		Frame{Kind: Request, S: true, Rev: 2, PrivateData: []byte{0x80, 1, 0, 1}}},
	{"Reply, Rev 1, rejected", hexReply + "20 01 0000", Frame{Kind: Reply, Reject: true, Rev: 1}},
	{"Reply, Rev 1, all", hexReply + "E0 01 0001 7A",
		Frame{Kind: Reply, Markers: true, CRC: true, Reject: true, Rev: 1, PrivateData: []byte("z")}},
}

// req: D01-6.1.1-1, D01-6.1.1-2, D01-6.1.1-3, D01-6.1.1-15, D01-6.1.1-16, 5044-7.1.1-1
func TestGoldenStartupFrames(t *testing.T) {
	for _, g := range goldenFrames {
		b := unhex(t, g.hex)
		require.Equal(t, append([]byte{9}, b...), g.f.Append([]byte{9}), g.name)
		f, n, err := ParseFrame(append(b, 1, 2, 3), g.f.Kind, PrivateDataMax)
		require.NoError(t, err, g.name)
		require.Equal(t, len(b), n, g.name)
		require.Equal(t, g.f, f, g.name)
		for cut := range b {
			_, n, err := ParseFrame(b[:cut], g.f.Kind, PrivateDataMax)
			require.NoError(t, err, "%s cut at %d", g.name, cut)
			require.Zero(t, n)
		}
	}
}

// Four octets say that a Request or a Reply begins; fewer do not.
func TestBeginsFrame(t *testing.T) {
	for _, kind := range []FrameKind{Request, Reply} {
		b := (&Frame{Kind: kind, Rev: 1}).Append(nil)
		for n := range len(b) {
			require.Equal(t, n >= 4, BeginsFrame(b[:n]), n)
		}
		for i := range keyLen {
			bad := append([]byte(nil), b...)
			bad[i] ^= 0x20
			require.False(t, BeginsFrame(bad), i)
		}
	}
}

// A wrong Key is reported with the octet that shows it.
//
// req: D01-6.1-26, D01-6.1.1-4, D01-6.1.1-5, D01-6.1.2-2
func TestWrongKey(t *testing.T) {
	for _, kind := range []FrameKind{Request, Reply} {
		good := (&Frame{Kind: kind, Rev: 1}).Append(nil)
		for i := range 16 {
			bad := append([]byte(nil), good...)
			bad[i] ^= 0x20
			_, n, err := ParseFrame(bad[:i], kind, 512)
			require.NoError(t, err)
			require.Zero(t, n)
			_, _, err = ParseFrame(bad[:i+1], kind, 512)
			require.ErrorIs(t, err, ErrKey)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, ErrStartup, e.Code)
			require.EqualValues(t, i, e.Offset)
		}
	}
	_, _, err := ParseFrame([]byte("GET / HTTP/1.1"), Request, 512)
	require.ErrorIs(t, err, ErrKey)
}

// req: D01-6.1-30, D01-6.1-10
func TestBothInitiate(t *testing.T) {
	request := (&Frame{Kind: Request, Rev: 1}).Append(nil)
	for cut := 10; cut <= len(request); cut++ {
		_, _, err := ParseFrame(request[:cut], Reply, 512)
		require.ErrorIs(t, err, ErrBothInitiate)
		require.False(t, errors.Is(err, ErrKey))
	}
	reply := (&Frame{Kind: Reply, Rev: 1}).Append(nil)
	_, _, err := ParseFrame(reply, Request, 512)
	require.ErrorIs(t, err, ErrBothRespond)
	request[12] = 'x'
	_, _, err = ParseFrame(request, Reply, 512)
	require.ErrorIs(t, err, ErrKey)
}

// DECISIONS 9: 512 at Rev 1 and up, the application's buffer at Rev 0.
//
// req: D01-6.1-32, D01-6.1-33, 5044-7.1.1-7, D01-6.1.1-17
func TestPrivateDataLimits(t *testing.T) {
	for _, c := range []struct {
		rev         uint8
		length, max int
		ok          bool
	}{
		{0, 512, 512, true}, {0, 513, 512, false}, {0, 65535, 65535, true}, {1, 512, 512, true},
		{1, 512, 65535, true},
		{1, 513, 65535, false}, {2, 512, 512, true}, {2, 513, 65535, false}, {1, 100, 99, true},
		{2, 5, 0, true}, {0, 100, 99, false},
		{1, 0, 0, true},
	} {
		b := (&Frame{Kind: Request, Rev: c.rev}).Append(nil)
		b[18], b[19] = byte(c.length>>8), byte(c.length)
		_, n, err := ParseFrame(b[:19], Request, c.max)
		require.NoError(t, err)
		require.Zero(t, n)
		_, n, err = ParseFrame(b, Request, c.max)
		if !c.ok {
			require.ErrorIs(t, err, ErrPrivateData, "%+v", c)
			continue
		}
		require.NoError(t, err, "%+v", c)
		if c.length > 0 {
			require.Zero(t, n)
		}
		f, n, err := ParseFrame(append(b, make([]byte, c.length)...), Request, c.max)
		require.NoError(t, err)
		require.Equal(t, FrameLen+c.length, n)
		require.Len(t, f.PrivateData, c.length)
	}
}

// Reserved bits, and R in a Request, are not looked at and never sent.
//
// req: D01-6.1.1-10, D01-6.1.1-12, D01-6.1.1-11
func TestReservedBits(t *testing.T) {
	b := unhex(t, hexRequest+"2F 01 0000")
	f, _, err := ParseFrame(b, Request, 512)
	require.NoError(t, err)
	require.Equal(t, Frame{Kind: Request, Rev: 1}, f)
	f.Reject = true
	require.Equal(t, unhex(t, hexRequest+"00 01 0000"), f.Append(nil))
	b = unhex(t, hexReply+"2F 01 0000")
	f, _, err = ParseFrame(b, Reply, 512)
	require.NoError(t, err)
	require.True(t, f.Reject)
}

func TestAppendPanics(t *testing.T) {
	require.Panics(t, func() {
		(&Frame{Kind: Request, Rev: 1, PrivateData: make([]byte, 513)}).Append(nil)
	})
	require.Panics(t, func() { (&Frame{Kind: Request, PrivateData: make([]byte, 65536)}).Append(nil) })
	require.Panics(t, func() { (&Frame{Rev: 1}).Append(nil) })
	require.NotPanics(t, func() {
		(&Frame{Kind: Request, PrivateData: make([]byte, 65535)}).Append(nil)
	})
}

func TestErrorText(t *testing.T) {
	require.EqualError(t, &Error{Code: ErrStartup, Offset: 9, What: ErrKey.What},
		"mpa: start-up frame has the wrong Key (code 4, offset 9)")
}
