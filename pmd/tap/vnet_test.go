package tap

import (
	"encoding/binary"
	"encoding/hex"
	"testing"

	"github.com/rnicd/rnicd/mem"
	"github.com/stretchr/testify/require"
)

// native makes a header's 16-bit fields from the big-endian ones it is written with here.
func native(s string) (h [vnetLen]byte) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != vnetLen {
		panic("bad header " + s)
	}
	copy(h[:], b)
	for i := 2; i < vnetLen; i += 2 {
		binary.NativeEndian.PutUint16(h[i:], binary.BigEndian.Uint16(b[i:]))
	}
	return h
}

const good = mem.RxChecksumGood

func TestDescribe(t *testing.T) {
	for name, c := range map[string]struct {
		hdr  string
		len  uint32
		want mem.Desc
		ok   bool
	}{
		"nothing": {"0000" + "0000" + "0000" + "0000" + "0000", 60, mem.Desc{}, true},
		"checksum left out": {"0100" + "0000" + "0000" + "0022" + "0010", 52,
			mem.Desc{Flags: good, CsumStart: 34, CsumOffset: 16}, true},
		"checksum cut off": {"0100" + "0000" + "0000" + "0022" + "0010", 51,
			mem.Desc{Flags: good, CsumStart: 34, CsumOffset: 16}, false},
		"no offset": {"0100" + "0000" + "0000" + "0022" + "0000", 60,
			mem.Desc{Flags: good, CsumStart: 34}, false},
		"TCP valid only": {"0200" + "0000" + "0000" + "0000" + "0000", 60, mem.Desc{}, true},
	} {
		d := mem.Desc{Len: c.len}
		h := native(c.hdr)
		v := parseVnet(&h)
		ok := v.describe(&d)
		c.want.Len = c.len
		require.Equal(t, c.want, d, name)
		require.Equal(t, c.ok, ok, name)
	}
	h := native("0184" + "0056" + "0594" + "0036" + "0010")
	require.Equal(t, vnetHeader{needsCsum: true, gsoType: vnetGSOTCPv6, gsoSize: 1428, csumStart: 54,
		csumOffset: 16}, parseVnet(&h))
}

func TestRequest(t *testing.T) {
	v4 := make([]byte, 100)
	v4[12], v4[13] = 0x08, 0x00
	v6 := make([]byte, 100)
	v6[12], v6[13] = 0x86, 0xdd
	tagged := make([]byte, 100)
	copy(tagged[12:], []byte{0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 0x86, 0xdd})
	cwr := make([]byte, 100)
	cwr[12], cwr[34+13] = 0x08, 0x80
	const both = mem.TxChecksum | mem.TxSegment
	for name, c := range map[string]struct {
		frame []byte
		d     mem.Desc
		want  string
	}{
		"nothing": {v4, mem.Desc{CsumStart: 34, GSOSize: 9}, "00000000000000000000"},
		"checksum": {v4, mem.Desc{Flags: mem.TxChecksum, CsumStart: 34, CsumOffset: 16},
			"0100" + "0000" + "0000" + "0022" + "0010"},
		"segment": {v4, mem.Desc{Flags: both, CsumStart: 34, CsumOffset: 16, HdrLen: 66,
			GSOSize: 1448}, "0101" + "0042" + "05a8" + "0022" + "0010"},
		"segment IPv6": {v6, mem.Desc{Flags: both, CsumStart: 54, CsumOffset: 16, HdrLen: 86,
			GSOSize: 1428}, "0104" + "0056" + "0594" + "0036" + "0010"},
		"two tags": {tagged, mem.Desc{Flags: both, CsumStart: 62, CsumOffset: 16, HdrLen: 94,
			GSOSize: 1428}, "0104" + "005e" + "0594" + "003e" + "0010"},
		"CWR": {cwr, mem.Desc{Flags: both, CsumStart: 34, CsumOffset: 16, HdrLen: 54,
			GSOSize: 1448}, "0181" + "0036" + "05a8" + "0022" + "0010"},
	} {
		h := [vnetLen]byte{1, 2, 3}
		request(&h, c.frame, &c.d)
		require.Equal(t, native(c.want), h, name)
	}
	var h [vnetLen]byte
	for n := range 20 { // no frame is too short to be looked at
		request(&h, tagged[:n], &mem.Desc{Flags: both, CsumStart: 62})
	}
}
