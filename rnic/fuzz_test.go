package rnic

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/rdmap"
)

// streamSeeds are scripts for FuzzStream.
func streamSeeds(f *testing.F) {
	ulpdu := func(flags byte, b ...byte) []byte { return append([]byte{byte(len(b)), flags}, b...) }
	tagged := func(control byte, to uint64, payload string) []byte {
		b := append([]byte{0xc1, control, 0, 0, 0, 0}, binary.BigEndian.AppendUint64(nil, to)...)
		return append(b, payload...)
	}
	untagged := func(control byte, qn, msn, mo uint32, payload string) []byte {
		b := []byte{0x41, control, 0, 0, 0, 0}
		for _, v := range []uint32{qn, msn, mo} {
			b = binary.BigEndian.AppendUint32(b, v)
		}
		return append(b, payload...)
	}
	f.Add(true, ulpdu(1, tagged(0x40, 10, "hello")...))
	f.Add(false, append(ulpdu(1, tagged(0x40, regionBytes-4, "ends")...),
		ulpdu(0, untagged(0x43, 0, 1, 0, "message")...)...))
	f.Add(true, ulpdu(1, tagged(0x40, 1<<64-2, "wraps")...))
	f.Add(true, ulpdu(1, tagged(0x40, regionBytes-2, "too far")...))
	f.Add(false, ulpdu(2, untagged(0x43, 0, 1, 0, "bad CRC")...))
	f.Add(false, append(ulpdu(0, untagged(0x43, 0, 2, 0, "second first")...),
		ulpdu(0, untagged(0x43, 0, 1, 0, "")...)...))
	f.Add(
		true, ulpdu(0, untagged(rdmap.Control(1, rdmap.OpTerminate), 2, 1, 0, "\x11\x01\x00\x00")...))
	read := make([]byte, rdmap.ReadRequestLen)
	(&rdmap.ReadRequest{SinkSTag: 1, Size: 20}).Put(read)
	add := make([]byte, rdmap.AtomicRequestLen)
	(&rdmap.AtomicRequest{Data: 1, TO: 8}).Put(add)
	f.Add(true, append(ulpdu(4, untagged(0x41, 1, 1, 0, string(read))...),
		ulpdu(8, untagged(0x4a, 1, 2, 0, string(add))...)...))
	f.Add(false, ulpdu(4, untagged(0x41, 1, 3, 0, string(read))...))
	f.Add(false, ulpdu(0, untagged(0x48, 0, 1, 0, "8 octets")...))
	f.Add(false, ulpdu(0, tagged(0x42, 0, "nobody asked")...))
	f.Add(true, []byte{0, 0, 0, 0})
}

// FuzzStream sends a Responder any ULPDUs. Each is one octet of length, one of flags, and its
// octets. Flags: 1 puts the region's STag into a tagged header, 2 damages the CRC, 4 and 8 put
// the STag of a readable region into a Read Request or an Atomic Request. Nothing outside the
// regions changes, every receive buffer completes once, and no Buf is lost.
func FuzzStream(f *testing.F) {
	streamSeeds(f)
	f.Fuzz(func(t *testing.T, markers bool, script []byte) {
		r := newRig(t, turned, rigConfig{pool: 128})
		s := r.newEnd(r.server, connOpts(ConnParam{NoMarkers: !markers, IRD: 2, ORD: 2}))
		guarded := bytes.Repeat([]byte{canary}, 3*64)
		shared := must(s.pd.Register(guarded[64:128], RemoteRead|RemoteWrite))
		s.postRecvs(4, 16)
		p, _ := r.peerConnects(s, false)
		for len(script) >= 2 {
			n, flags := min(int(script[0]), len(script)-2), script[1]
			u := append([]byte(nil), script[2:2+n]...)
			script = script[2+n:]
			if flags&1 != 0 && n >= 6 {
				binary.BigEndian.PutUint32(u[2:], uint32(s.region.STag()))
			}
			if flags&4 != 0 && n >= ddp.UntaggedLen+rdmap.ReadRequestLen {
				binary.BigEndian.PutUint32(u[ddp.UntaggedLen+16:], uint32(shared.STag()))
			}
			if flags&8 != 0 && n >= ddp.UntaggedLen+rdmap.AtomicRequestLen {
				binary.BigEndian.PutUint32(u[ddp.UntaggedLen+8:], uint32(shared.STag()))
			}
			b := make([]byte, p.tx.Size(n))
			p.tx.Put(b, [][]byte{u})
			if flags&2 != 0 {
				b[len(b)-1] ^= 1
			}
			p.write(b)
		}
		p.closeSend()
		s.awaitClosed()
		s.unharmed(t)
		outside := append(bytes.Clone(guarded[:64]), guarded[128:]...)
		require.Equal(t, bytes.Repeat([]byte{canary}, 128), outside)
		for i := range 64 {
			require.Equal(t, canary, int(s.guarded[i]))
		}
		count := map[uint64]int{}
		for _, c := range s.await(4) {
			require.Equal(t, OpRecv, c.Op)
			require.LessOrEqual(t, c.Len, uint32(16))
			count[c.ID]++
		}
		require.Equal(t, map[uint64]int{0: 1, 1: 1, 2: 1, 3: 1}, count)
		for _, b := range s.inbox.Bytes()[64:] {
			if b != 0 {
				t.Fatal("octets after the receive buffers were written")
			}
		}
		require.Zero(t, s.cq.promised())
		r.until("all Bufs", func() bool { h := r.hosts[0]; return h.pool.Available() >= h.pool.Size()-1 })
	})
}
