package ddp

import (
	"testing"

	"github.com/rnicd/rnicd/mem"
	"github.com/stretchr/testify/require"
)

// req: DDP-9.2-1, DDP-9.2-2, DDP-9.2-14, 5041-7.2-1, 6580-3.2-1
func TestErrorNumbers(t *testing.T) {
	for _, c := range []struct {
		errType, code uint8
		want          string
	}{
		{0, 0x00, "local catastrophic error"},
		{1, 0x00, "tagged buffer error: invalid STag"},
		{1, 0x01, "tagged buffer error: base or bounds violation"},
		{1, 0x02, "tagged buffer error: STag not associated with the stream"},
		{1, 0x03, "tagged buffer error: TO wrap"},
		{1, 0x04, "tagged buffer error: invalid DDP version"},
		{1, 0x05, "tagged buffer error: unknown code"},
		{2, 0x00, "untagged buffer error: unknown code"},
		{2, 0x01, "untagged buffer error: invalid QN"},
		{2, 0x02, "untagged buffer error: invalid MSN: no buffer available"},
		{2, 0x03, "untagged buffer error: invalid MSN: range is not valid"},
		{2, 0x04, "untagged buffer error: invalid MO"},
		{2, 0x05, "untagged buffer error: message too long for the available buffer"},
		{2, 0x06, "untagged buffer error: invalid DDP version"},
		{2, 0xff, "untagged buffer error: unknown code"},
		{3, 0x00, "error of the lower layer"},
		{4, 0x00, "unknown error type"},
	} {
		require.Equal(t, c.want, ErrorText(c.errType, c.code), "%d/%02x", c.errType, c.code)
	}
}

func TestErrorString(t *testing.T) {
	e := &Error{Type: TypeTagged, Code: CodeWrap, SegmentLen: 1460,
		Header: Header{Tagged: true, Version: 1, STag: 0xbeef00, TO: 1<<64 - 1}}
	require.EqualError(t, e, "ddp: tagged buffer error: TO wrap (type 1, code 0x03), segment of "+
		"1460 octets: "+
		"STag 0x00beef00, TO 0xffffffffffffffff, version 1")
	e = &Error{Type: TypeUntagged, Code: CodeInvalidQN, SegmentLen: 18, Header: Header{QN: 7, MSN: 1}}
	require.EqualError(t, e, "ddp: untagged buffer error: invalid QN (type 2, code 0x01), segment "+
		"of 18 octets: "+
		"QN 7, MSN 1, MO 0, version 0")
	e = &Error{SegmentLen: 3, Truncated: true}
	require.EqualError(t, e, "ddp: local catastrophic error (type 0, code 0x00), segment of 3 "+
		"octets is too short for a header")
}

// Every verdict of the memory check has its code.
func TestTaggedCodeTable(t *testing.T) {
	require.Len(t, taggedCode, int(mem.CheckAccess)+1)
	require.Equal(t, [...]uint8{codeTaggedAccepted, 0x00, 0x01, 0x02, 0x03, 0x00}, taggedCode)
}
