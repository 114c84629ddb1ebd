package rdmap

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
)

// The immediate data stands in octets 2 to 5 of the DDP header.
func TestSendWithImmediateBytes(t *testing.T) {
	for op, control := range map[Opcode]string{OpSendImm: "004c", OpSendImmSE: "004d"} {
		h := op.Header(Extensions)
		h.ULP32 = 0x01020304
		out := make([]byte, h.Len())
		h.Put(out)
		require.Equal(t, unhex(t, control+"01020304 00000000 00000000 00000000"), out)
		require.True(t, op.HasImmediate() && op.IsRequest() && !op.Invalidates() && !op.Immediate())
		require.Equal(t, op == OpSendImmSE, op.Solicited())
	}
	require.Equal(t, "Send with Immediate, Send with Immediate and Solicited Event",
		OpSendImm.String()+", "+OpSendImmSE.String())
}

// Sends with Immediate are valid in acknowledged mode, untagged and for queue 0; all else is as
// without the mode.
func TestCheckAcknowledged(t *testing.T) {
	for version := range uint8(2) {
		for control := range uint16(256) {
			for _, h := range []ddp.Header{{Tagged: true}, {QN: 0}, {QN: 1}, {QN: 2}, {QN: 3}, {QN: 4}} {
				h.ULP = uint8(control)
				op, cause, ok := Check(&h, version)
				rv, code := ParseControl(h.ULP)
				own := code == 12 || code == 13
				require.False(t, own && ok, "without the mode %+v", h)
				op2, cause2, ok2 := CheckAcknowledged(&h, version)
				require.Equal(t, op, op2)
				require.Equal(t, ok || own && rv == 1 && version == 1 && !h.Tagged && h.QN == 0, ok2, "%+v", h)
				if ok2 == ok {
					require.Equal(t, cause, cause2)
				}
			}
		}
	}
}
