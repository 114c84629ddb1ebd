package rnic

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/tcp"
)

// starts are sequence numbers where MPA's stream begins: the drafts' example, then some from
// which 2^32 is soon reached: right after the first marker and within it, at a later marker and
// within one, between two; and one far from it.
var starts = []tcp.Seq{11, 1<<32 - 4, 1<<32 - 2, 1<<32 - 1024, 1<<32 - 1022, 1<<32 - 700, 1 << 31}

// markedAt is where a marker that begins at octet off of MPA's stream says its FPDU's
// ULPDU_Length is; bounds are of that stream, which begins at base.
func markedAt(stream []byte, base, off int, bounds map[int]bool) (says, is int) {
	begin := base + off
	for !bounds[begin] {
		begin--
	}
	says = int(binary.BigEndian.Uint16(stream[base+off+2:]))
	if is = begin - base; is == off {
		return says, 0
	} else if is%mpa.MarkerSpacing == 0 {
		is += mpa.MarkerLen
	}
	return says, off - is
}

// Markers locate FPDUs in what comes out of order wherever the peer's sequence numbers begin: all
// but the first segment come, in any order, and are placed; the first one fills the gap.
//
// req: D01-5.1-5, D01-5.1-10, D01-5.1-11, C02-7.1-3, C02-7.1-8, C02-7.1-9, 5044-4.3-3, D01-5.4-4
// req: C02-7.4-4
func TestMarkersLocateAcrossSequenceWrap(t *testing.T) {
	for i, start := range starts {
		t.Run(fmt.Sprintf("from %d", uint32(start)), func(t *testing.T) {
			h := newSegmentRig(t, segmentRigConfig{bufs: 1024, connsMax: 8})
			iss := start - 1 - startupLen
			h.iss = &iss
			s := h.newEnd(opts{})
			memory := make([]byte, 8000)
			region := must(s.pd.Register(memory, RemoteWrite))
			c := h.startUp(4000, 1460, s)
			require.Equal(t, start, c.seq(len(c.stream)), "where MPA begins")
			var ends []int
			want := randomBytes(7, len(memory))
			for at := 0; at < len(want); at += 1000 { // each FPDU has a marker in it
				ends = append(ends, len(c.stream))
				c.say(writeFPDU(region.STag(), region.Base()+uint64(at), want[at:at+1000]))
			}
			ends = append(ends, len(c.stream))
			if start == 11 {
				for _, seq := range []tcp.Seq{11, 523, 1035} {
					at := seq.Sub(c.seq(0))
					require.Equal(t, []byte{0, 0}, c.stream[at:at+2], "a marker at %d", seq)
				}
			}
			order := rand.New(rand.NewPCG(uint64(i), 3)).Perm(len(ends) - 2)
			for _, k := range order {
				c.sendOctets(ends[k+1], ends[k+2], 0)
				h.turn(time.Millisecond)
			}
			require.Equal(t, want[1000:], memory[1000:], "placed beyond the gap")
			require.EqualValues(t, len(want)-1000, s.qp.engine.Stats().Placed.OutOfOrder)
			require.Zero(t, s.qp.engine.Stats().WritesRecvd, "delivered")
			c.sendOctets(ends[0], ends[1], 0)
			h.turns(2, time.Millisecond)
			require.Equal(t, want, memory)
			require.EqualValues(t, len(ends)-1, s.qp.engine.Stats().WritesRecvd)
			require.Equal(t, len(c.stream), c.place(), "acknowledged")
		})
	}
}

// Each ULPDU is one FPDU, and each FPDU one ULPDU: as many as DDP made, of its sizes, in its order.
//
// req: D01-5.3-1, C02-7.3-1, C02-3.2-2, C02-7.2-1, 5044-3-1, D01-3.2-2, DDP-7.2-2, D01-5.3.2-5
func TestOneULPDUPerFPDU(t *testing.T) {
	for name, opt := range framings {
		t.Run(name, func(t *testing.T) {
			r, log := logged(t, rigConfig{})
			s, c := r.connect(opt, opt)
			full := must(c.qp.PayloadMax(r.ctx))
			var want []int
			for i, n := range []int{1, 2, 3, 0, 400, full, full + 1, 3 * full, 7} {
				c.post(c.write(s, uint64(i), 0, n))
				for ; n > full; n -= full {
					want = append(want, ddp.TaggedLen+full)
				}
				want = append(want, ddp.TaggedLen+n)
			}
			c.await(9)
			r.close(s, c)
			stream := log.stream()
			bounds := fpduBounds(t, stream, startupLen, !opt.NoMarkers)
			var got []int
			for at, begin := startupLen, startupLen; at < len(stream); begin = at {
				for at++; !bounds[at]; at++ {
				}
				head := begin
				if !opt.NoMarkers && (begin-startupLen)%mpa.MarkerSpacing == 0 {
					head += mpa.MarkerLen
				}
				got = append(got, int(binary.BigEndian.Uint16(stream[head:])))
				crc := uint32(0)
				if !opt.NoCRC {
					crc = crc32c(stream[begin : at-mpa.CRCLen])
				}
				require.Equal(t, crc, binary.LittleEndian.Uint32(stream[at-mpa.CRCLen:]),
					"CRC of FPDU at %d", begin)
			}
			require.Equal(t, want, got)
		})
	}
}

// FPDUs begin with segments as long as one of the least MULPDU fits into a segment, and where it
// does not, by four octets, some do not.
//
// req: D01-3.2-1, C02-5.2-1, C02-7.3.2-7, D01-5.3.2-8
func TestAlignmentNeedsAnEMSSThatHoldsAnFPDU(t *testing.T) {
	const least = mpa.MULPDUMin + 2 + mpa.HeaderLen + mpa.CRCLen // with 2 of PAD, no marker
	for mss, aligned := range map[int]bool{least: true, least - 4: false} {
		t.Run(fmt.Sprintf("MSS %d", mss), func(t *testing.T) {
			r, log := logged(t, rigConfig{tcp: tcp.Config{MSS: mss, NoTimestamps: true}})
			s, c := r.connect(unmarked, unmarked)
			require.Equal(t, mss, c.qp.end.Connection.Load().Transport.EMSS())
			r.sendAndWrite(s, c, 4000)
			r.close(s, c)
			bounds := fpduBounds(t, log.stream(), startupLen, false)
			unaligned := 0
			for _, g := range log.segs {
				require.LessOrEqual(t, len(g.data), mss)
				if g.off >= startupLen && !g.aligned(bounds) {
					unaligned++
				}
			}
			require.Equal(t, aligned, unaligned == 0, "%d segments are not aligned", unaligned)
		})
	}
}

// MULPDU is the formula's for the room that TCP's options leave.
//
// req: 5044-4.5-1, C02-5.2-2, C02-7.3.2-1, C02-7.3.2-5, D01-5.3.2-1, D01-5.3.2-3
func TestMULPDUFollowsTCPOptions(t *testing.T) {
	for _, tc := range []struct {
		name    string
		cfg     tcp.Config
		markers bool
		want    int
	}{
		{"timestamps, markers", tcp.Config{}, true, 1430},
		{"timestamps", tcp.Config{}, false, 1442},
		{"no options, markers", tcp.Config{NoTimestamps: true}, true, 1442},
		{"no options", tcp.Config{NoTimestamps: true}, false, 1454},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, turned, rigConfig{tcp: tc.cfg})
			s, c := r.connect(connOpts(ConnParam{NoMarkers: !tc.markers}), opts{})
			n := must(c.qp.PayloadMax(r.ctx))
			require.Equal(t, tc.want, ddp.TaggedLen+n)
			r.close(s, c)
		})
	}
}
