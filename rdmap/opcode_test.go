package rdmap

import (
	"testing"

	"github.com/rnicd/rnicd/ddp"
	"github.com/stretchr/testify/require"
)

// req: 5040-4.1-1, 5040-4.1-2, 5040-4.1-3
func TestControl(t *testing.T) {
	for _, c := range []struct {
		wire    uint8
		version uint8
		op      Opcode
	}{
		{0x43, 1, OpSend}, {0x03, 0, OpSend}, {0x40, 1, OpWrite}, {0x00, 0, OpWrite},
		{0x41, 1, OpReadRequest},
		{0x42, 1, OpReadResponse}, {0x44, 1, OpSendInv}, {0x45, 1, OpSendSE}, {0x46, 1, OpSendSEInv},
		{0x47, 1, OpTerminate}, {0x07, 0, OpTerminate}, {0xcf, 3, 15}, {0x8f, 2, 15},
	} {
		require.Equal(t, c.wire, Control(c.version, c.op))
		for _, reserved := range []uint8{0x00, 0x10, 0x20, 0x30} {
			version, op := ParseControl(c.wire | reserved)
			require.Equal(t, c.version, version)
			require.Equal(t, c.op, op)
		}
	}
}

// Figure 4 of RFC 5040, Figure 2 of RFC 7306.
// req: 5040-4.1-4, 5040-4.1-5, 5040-3.1-2, 5040-5.1-1, 5040-5.2.1-1, 5040-5.2.2-1, 5040-5.3-1
// req: 5040-5.4-1, 6580-3.4-1, 7306-4.1-2, 7306-4-2
func TestOpcodeTable(t *testing.T) {
	type row struct {
		name                   string
		tagged                 bool
		qn                     uint32
		invalidates, solicited bool
	}
	for op, want := range []row{
		0: {"RDMA Write", true, 0, false, false},
		1: {"RDMA Read Request", false, 1, false, false},
		2: {"RDMA Read Response", true, 0, false, false},
		3: {"Send", false, 0, false, false},
		4: {"Send with Invalidate", false, 0, true, false},
		5: {"Send with Solicited Event", false, 0, false, true},
		6: {"Send with Solicited Event and Invalidate", false, 0, true, true},
		7: {"Terminate", false, 2, false, false},

		8:  {"Immediate Data", false, 0, false, false},
		9:  {"Immediate Data with Solicited Event", false, 0, false, true},
		10: {"Atomic Request", false, 1, false, false},
		11: {"Atomic Response", false, 3, false, false},
	} {
		op := Opcode(op)
		require.Equal(t, want, row{op.String(), op.tagged(), op.qn(), op.Invalidates(), op.Solicited()})
		require.True(t, op.valid())
		require.Equal(t, op == 8 || op == 9, op.Immediate())
		require.Equal(t, ddp.Header{Tagged: want.tagged, QN: want.qn, ULP: 0x40 | uint8(op)},
			op.Header(1))
	}
	for op := Opcode(14); op != 0; op++ {
		require.False(t, op.valid(), "%d", op)
		require.Equal(t, "reserved opcode", op.String())
	}
}

// The STag to invalidate stands in octets 2 to 5 of the DDP header.
// req: 5040-4.1-6, 5040-5.3-6
func TestSendWithInvalidateBytes(t *testing.T) {
	for op, control := range map[Opcode]string{OpSendInv: "0044", OpSendSEInv: "0046"} {
		h := op.Header(1)
		h.ULP32 = 0x01020304
		out := make([]byte, h.Len())
		h.Put(out)
		require.Equal(t, unhex(t, control+"01020304 00000000 00000000 00000000"), out)
	}
}

// Every version, opcode, T flag and queue against the figures, written out once more. RFC 7306's
// opcodes have RV 1 only.
// req: 5040-7.2-2, 5040-7.2-3, 5040-4.1-7, 7306-1.1-2, 7306-4.1-1, 7306-8.2-1
func TestCheck(t *testing.T) {
	legal := map[[3]uint32]bool{ // opcode, tagged, QN
		{0, 1, 0}: true, {2, 1, 0}: true,
		{1, 0, 1}: true, {3, 0, 0}: true, {4, 0, 0}: true, {5, 0, 0}: true, {6, 0, 0}: true,
		{7, 0, 2}: true,
		{8, 0, 0}: true, {9, 0, 0}: true, {10, 0, 1}: true, {11, 0, 3}: true,
	}
	for version := range uint8(2) {
		for rv := range uint8(4) {
			for code := range uint8(16) {
				for _, tagged := range []bool{false, true} {
					for _, qn := range []uint32{0, 1, 2, 3, 0xffffffff} {
						if tagged && qn != 0 {
							continue // no such field
						}
						h := ddp.Header{Tagged: tagged, QN: qn, ULP: rv<<6 | 0x30 | code, ULP32: 0xdeadbeef}
						op, cause, ok := Check(&h, version)
						require.Equal(t, Opcode(code), op)
						want, wantOK := Cause(0), true
						if rv != version {
							want, wantOK = 0x0205, false
						} else if t := map[bool]uint32{true: 1}[tagged]; !legal[[3]uint32{uint32(code), t, qn}] ||
							code > 7 && version == 0 {
							want, wantOK = 0x0206, false
						}
						require.Equal(t, wantOK, ok, "%+v", h)
						require.Equal(t, want, cause, "%+v", h)
					}
				}
			}
		}
	}
}

func TestCheckAllocs(t *testing.T) {
	h := OpSend.Header(1)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, _, ok := Check(&h, 1); !ok {
			t.Fatal("refused")
		}
	}))
}
