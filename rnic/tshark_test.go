package rnic

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/rdmap"
)

// recorder is a Queue that writes down the frames that leave a host, into a log which both hosts
// share.
type recorder struct {
	pmd.Queue
	pool   *mem.Pool
	frames *[][]byte
}

func (q *recorder) Tx(bufs []mem.Buf) int {
	n := q.Queue.Tx(bufs)
	for _, b := range bufs[:n] {
		*q.frames = append(*q.frames, append([]byte(nil), q.pool.Data(b)...))
	}
	return n
}

// Another implementation reads what we send, both ways, one FPDU a segment and without markers:
// start-up frames, each FPDU's length and CRC, each DDP header, each RDMAP opcode; and it finds
// no CRC wrong but one that is.
//
// req: D01-1.2-2, C02-3.2-2, D01-4-1, C02-6-1, D01-5.2-11, C02-7.2-2, C02-7.2-1, C02-7.2-6
func TestTsharkReadsWhatWeSend(t *testing.T) {
	netlab.NeedTshark(t)
	var frames [][]byte
	r := newRig(t, turned, rigConfig{wrap: func(_ int, q pmd.Queue, pool *mem.Pool) pmd.Queue {
		return &recorder{q, pool, &frames}
	}})
	opt := unmarked
	s, c := r.connect(opt, opt)
	for i, n := range []int{0, 1, 2, 3, 4, 5, 100, 1000, 1428, 1429, 5000} {
		for _, x := range [2][2]*end{{c, s}, {s, c}} {
			x[1].postRecv(x[1].recvAt(uint64(i), 0, 6000))
			x[0].post(x[0].write(x[1], 1, 10*i, n))
			x[0].await(1) // so that nothing shares a segment
			x[0].post(x[0].send(2, i, n))
			x[0].await(1)
			x[1].await(1)
		}
	}
	// a Terminate answers it
	c.post(WorkRequest{Op: OpWrite, Local: c.source.Slice(0, 9), RemoteSTag: 1})
	awaitClosed(c, s)

	want := describeFPDUs(t, frames)
	fields := []string{
		"iwarp_mpa.ulpdulength", "iwarp_ddp.tagged_flag", "iwarp_ddp.last_flag", "iwarp_ddp.dv",
		"iwarp_rdma.version",
		"iwarp_rdma.opcode", "iwarp_ddp.stag", "iwarp_ddp.tagged_offset", "iwarp_ddp.qn", "iwarp_ddp.msn",
		"iwarp_ddp.mo"}
	path := netlab.WritePcap(t, frames, time.Microsecond)
	rows, text := netlab.MPA(t, path, fields...)
	var got []string
	for _, row := range rows {
		got = append(got, strings.Join(row, ","))
	}
	require.Equal(t, want, got)
	require.Contains(t, want[len(want)-1], ",0x07,", "the Terminate")
	require.Equal(t, len(want), strings.Count(text, "(Good CRC32)"), "good CRCs")
	require.NotContains(t, text, "Bad")
	require.Equal(t, 1, strings.Count(text, "Request frame header"))
	require.Equal(t, 1, strings.Count(text, "Reply frame header"))
	require.NotContains(t, text, "Malformed")

	spoilt := frames[len(frames)/2] // one octet of payload, or the next frame's that has some
	for i := len(frames) / 2; len(spoilt) < 500; i++ {
		spoilt = frames[i]
	}
	spoilt[200] ^= 1
	_, text = netlab.MPA(t, netlab.WritePcap(t, frames, time.Microsecond), fields...)
	require.Equal(t, len(want)-1, strings.Count(text, "(Good CRC32)"))
	require.Equal(t, 1, strings.Count(text, "(Bad CRC32"))
}

// describeFPDUs says of each frame with an FPDU what tshark is to say.
func describeFPDUs(t *testing.T, frames [][]byte) (all []string) {
	t.Helper()
	for _, f := range frames {
		p := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.NoCopy)
		segment, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if !ok || len(segment.Payload) == 0 || string(segment.Payload[:3]) == "MPA" {
			continue
		}
		b := segment.Payload
		n := int(b[0])<<8 | int(b[1])
		require.Equal(t, (2+n+3)&^3+mpa.CRCLen, len(b), "one FPDU a segment")
		h, _, ok := ddp.Parse(b[2 : 2+n])
		require.True(t, ok)
		version, op := rdmap.ParseControl(h.ULP)
		text := fmt.Sprintf("%d,%d,%d,%d,%d,0x%02x", n, digit(h.Tagged), digit(h.Last), h.Version,
			version, uint8(op))
		if h.Tagged {
			text += fmt.Sprintf(",0x%08x,0x%016x,,,", uint32(h.STag), h.TO)
		} else {
			text += fmt.Sprintf(",,,%d,%d,%d", h.QN, h.MSN, h.MO)
		}
		all = append(all, text)
	}
	return all
}

func digit(b bool) int {
	if b {
		return 1
	}
	return 0
}
