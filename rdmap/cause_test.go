package rdmap

import (
	"testing"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mem"
	"github.com/stretchr/testify/require"
)

// Every pair of the registries, and what is outside of them.
// req: 5040-4.8-4, 5040-4.8-5, 5040-4.8-6, 6580-3.1-1, 6580-3.2-1, 6580-3.3-1, 6581-8-1, 6581-8-2
func TestCauseTable(t *testing.T) {
	for _, c := range []struct {
		cause                Cause
		layer, errType, code uint8
		text                 string
	}{
		{CauseLocal, 0, 0, 0x00, "RDMAP local catastrophic error"},
		{0x0042, 0, 0, 0x42, "RDMAP local catastrophic error"},
		{CauseInvalidSTag, 0, 1, 0x00, "RDMAP remote protection error: invalid STag"},
		{CauseBounds, 0, 1, 0x01, "RDMAP remote protection error: base or bounds violation"},
		{CauseAccess, 0, 1, 0x02, "RDMAP remote protection error: access rights violation"},
		{CauseNotAssociated, 0, 1, 0x03,
			"RDMAP remote protection error: STag not associated with the stream"},
		{CauseWrap, 0, 1, 0x04, "RDMAP remote protection error: TO wrap"},
		{CauseCannotInvalidate, 0, 1, 0x09, "RDMAP remote protection error: STag cannot be invalidated"},
		{CauseProtection, 0, 1, 0xff, "RDMAP remote protection error: unspecified"},
		{0x0105, 0, 1, 0x05, "RDMAP remote protection error: unknown code"},
		{CauseVersion, 0, 2, 0x05, "RDMAP remote operation error: invalid RDMAP version"},
		{CauseOpcode, 0, 2, 0x06, "RDMAP remote operation error: unexpected opcode"},
		{CauseStream, 0, 2, 0x07, "RDMAP remote operation error: catastrophic error of this stream"},
		{CauseGlobal, 0, 2, 0x08, "RDMAP remote operation error: catastrophic error, global"},
		{CauseCannotInvalidateOp, 0, 2, 0x09, "RDMAP remote operation error: STag cannot be invalidated"},
		{CauseOperation, 0, 2, 0xff, "RDMAP remote operation error: unspecified"},
		{0x0202, 0, 2, 0x02, "RDMAP remote operation error: unknown code"},
		{0x0300, 0, 3, 0x00, "RDMAP error of unknown type"},
		{ddpCause(&ddp.Error{}), 1, 0, 0x00, "DDP local catastrophic error"},
		{ddpCause(&ddp.Error{Type: 1, Code: 1}), 1, 1, 0x01,
			"DDP tagged buffer error: base or bounds violation"},
		{ddpCause(&ddp.Error{Type: 2, Code: 6}), 1, 2, 0x06,
			"DDP untagged buffer error: invalid DDP version"},
		{LLPCause(LLPClosed), 2, 0, 0x01, "MPA error: TCP connection closed, terminated or lost"},
		{LLPCause(LLPCRC), 2, 0, 0x02, "MPA error: CRC does not match"},
		{LLPCause(LLPMarker), 2, 0, 0x03,
			"MPA error: marker and ULPDU length disagree on the start of an FPDU"},
		{LLPCause(LLPStartup), 2, 0, 0x04, "MPA error: invalid start-up frame"},
		{LLPCause(LLPCatastrophic), 2, 0, 0x05, "MPA error: local catastrophic error"},
		{LLPCause(LLPInsufficientIRD), 2, 0, 0x06, "MPA error: insufficient IRD resources"},
		{LLPCause(LLPNoMatchingRTR), 2, 0, 0x07, "MPA error: no matching RTR option"},
		{LLPCause(8), 2, 0, 0x08, "MPA error: unknown code"},
		{0x2101, 2, 1, 0x01, "MPA error of unknown type"},
		{0x3000, 3, 0, 0x00, "unknown layer"},
	} {
		require.Equal(t, c.cause, NewCause(c.layer, c.errType, c.code))
		require.Equal(t, [3]uint8{c.layer, c.errType, c.code},
			[3]uint8{c.cause.Layer(), c.cause.Type(), c.cause.Code()})
		require.Equal(t, c.text, c.cause.text())
	}
	require.Equal(t, "DDP tagged buffer error: base or bounds violation (layer 1, type 1, code 0x01)",
		ddpCause(&ddp.Error{Type: ddp.TypeTagged, Code: ddp.CodeBounds}).String())
	require.Equal(t, Cause(0xf123), NewCause(0xff, 0x31, 0x23), "four bits each")
}

// Whatever the memory check may say of the source of a Read.
func TestReadCause(t *testing.T) {
	require.Len(t, readCauses, int(mem.CheckAccess)+1)
	for verdict, want := range map[mem.CheckResult]Cause{
		mem.CheckInvalidSTag:   CauseInvalidSTag,
		mem.CheckBounds:        CauseBounds,
		mem.CheckNotAssociated: CauseNotAssociated,
		mem.CheckWrap:          CauseWrap,
		mem.CheckAccess:        CauseAccess,
	} {
		require.Equal(t, want, ReadCause(verdict))
	}
}
