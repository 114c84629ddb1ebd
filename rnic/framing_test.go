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

// What we send has markers where the sequence number, counted from the first octet after the
// start-up frame, is a multiple of 512 in arithmetic modulo 2^32: 11, 523 and 1035 when that is
// 11. The first one, zero, is what the first FPDU begins with.
//
// req: D01-5.1-3, D01-5.1-9, D01-5.1-10, D01-5.1-11, C02-7.1-1, C02-7.1-7, C02-7.1-8, C02-7.1-9
// req: 5044-4.3-4
func TestMarkersInSequenceSpace(t *testing.T) {
	_, first := sendFrom(t, 0)
	for _, start := range starts {
		t.Run(fmt.Sprintf("from %d", uint32(start)), func(t *testing.T) {
			const ticksPerNs = 4000 // RFC 6528: initial sequence numbers grow by one in 4 us
			log, got := sendFrom(t, int64(uint32(start-first))*ticksPerNs)
			require.Equal(t, start, got)
			stream := log.stream()
			bounds := fpduBounds(t, stream, startupLen, true)
			require.Equal(t, []byte{0, 0, 0, 0}, stream[startupLen:startupLen+4])
			var at []uint32
			for off := 0; startupLen+off < len(stream); off += mpa.MarkerSpacing {
				at = append(at, uint32(start)+uint32(off))
				says, is := markedAt(stream, startupLen, off, bounds)
				require.Equal(t, is, says, "FPDUPTR at sequence number %d", at[len(at)-1])
			}
			require.Greater(t, len(at), 5)
			if start == 11 {
				require.Equal(t, []uint32{11, 523, 1035}, at[:3])
			}
		})
	}
}

// sendFrom has a client send FPDUs, so much later than the rig's usual time, and returns its
// segments and the sequence number of the first octet after its start-up frame.
func sendFrom(t *testing.T, later int64) (*segmentLog, tcp.Seq) {
	t.Helper()
	r, log := logged(t, rigConfig{})
	r.time += later
	s, c := r.connect(opts{}, opts{})
	for i := range 8 {
		c.post(c.write(s, uint64(i), 100*i, 1+i*i*37))
	}
	c.await(8)
	s.postRecv(s.recvAt(98, 0, 10))
	c.post(c.send(99, 0, 10))
	s.await(1)
	require.Equal(t, c.source.Bytes()[700:700+1+49*37], s.region.Bytes()[700:700+1+49*37])
	r.close(s, c)
	return log, log.irs + 1 + startupLen
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
// req: D01-5.3-1, C02-7.3-1, C02-3.2-2, C02-7.2-1
func TestOneULPDUPerFPDU(t *testing.T) {
	for name, opt := range framings {
		t.Run(name, func(t *testing.T) {
			r, log := logged(t, rigConfig{})
			s, c := r.connect(opt, opt)
			full, err := c.qp.PayloadMax(r.ctx)
			require.NoError(t, err)
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

// What an application sees of a connection does not tell whether CRCs and markers are in use: one
// script, run over each framing on a network that loses and reorders, gives the same calls,
// completions and octets.
//
// req: D01-5.2-6, D01-5.1-2, D01-1.2-5, D01-2-5
func TestFramingIsInvisibleToTheULP(t *testing.T) {
	transcripts := map[string]string{}
	for name, opt := range framings {
		r, log := logged(t, rigConfig{})
		log.lose = func(g loggedSegment) bool { return g.sent%13 == 4 }
		s, c := r.newEnd(r.server, opt), r.newEnd(r.client, opt)
		req := r.dial(c, []byte("hello"))
		text := fmt.Sprintf("private data %q, revision %d\n", req.PrivateData(), req.Revision())
		require.NoError(t, req.Accept(r.ctx, s.qp, s.with([]byte("welcome"))))
		r.until("service", func() bool { return c.qp.State() != Connecting })
		text += fmt.Sprintf("%v %v %q\n", c.qp.State(), s.qp.State(), c.qp.PeerPrivateData())
		for i := range 20 {
			n := 1 + i*997%5000
			s.postRecv(s.recvAt(uint64(i), 0, 6000))
			c.post(c.write(s, uint64(100+i), i, n))
			c.post(c.send(uint64(200+i), 0, n))
			text += fmt.Sprintln(c.await(2), s.await(1), crc32c(s.region.Bytes()), crc32c(s.inbox.Bytes()))
		}
		r.close(s, c)
		transcripts[name] = text
		require.NotEmpty(t, fpduBounds(t, log.stream(), startupLen+5, !opt.NoMarkers),
			"what was asked for is what was sent")
	}
	for name, text := range transcripts {
		require.Equal(t, transcripts["markers"], text, name)
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
				if g.off >= startupLen && !(bounds[g.off] && bounds[g.off+len(g.data)]) {
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
			n, err := c.qp.PayloadMax(r.ctx)
			require.NoError(t, err)
			require.Equal(t, tc.want, ddp.TaggedLen+n)
			r.close(s, c)
		})
	}
}
