package mpa

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/stretchr/testify/require"
)

// The captures in testdata are real traffic of Linux siw with itself. Every TCP half-connection
// is fed to ParseFrame and a Receiver in the segments that were captured, repetitions left out;
// the table says what must come out.

// half is one direction of a TCP connection.
type half struct {
	src, dst string
	start    uint32 // sequence number of the first octet
	syn, fin bool
	end      uint64 // where the FIN stands
	segs     []capturedSegment
	have     map[uint64]byte
}

type capturedSegment struct {
	off    uint64
	octets []byte
}

// add keeps the octets of a segment that are new. All runs of new octets become segments of their
// own.
func (h *half) add(seq uint32, payload []byte) error {
	for i := 0; i < len(payload); {
		off := uint64(seq-h.start) + uint64(i)
		if c, ok := h.have[off]; ok {
			if c != payload[i] {
				return fmt.Errorf("repetition of octet %d differs", off)
			}
			i++
			continue
		}
		j := i
		for ; j < len(payload); j++ {
			o := uint64(seq-h.start) + uint64(j)
			if _, ok := h.have[o]; ok {
				break
			}
			h.have[o] = payload[j]
		}
		h.segs = append(h.segs, capturedSegment{off, payload[i:j]})
		i = j
	}
	return nil
}

// left is how many octets there are without a gap.
func (h *half) left() uint64 {
	n := uint64(0)
	for _, ok := h.have[n]; ok; _, ok = h.have[n] {
		n++
	}
	return n
}

func (h *half) front(n uint64) []byte {
	b := make([]byte, 0, n)
	for i := range min(n, h.left()) {
		b = append(b, h.have[i])
	}
	return b
}

func readHalves(t *testing.T, path string) []*half {
	f := must(os.Open(path))(t)
	defer f.Close()
	pcap := must(pcapgo.NewReader(f))(t)
	byName := map[string]*half{}
	var halves []*half
	for {
		data, _, err := pcap.ReadPacketData()
		if err != nil {
			break
		}
		packet := gopacket.NewPacket(data, pcap.LinkType(), gopacket.NoCopy)
		tcp, ok := packet.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if !ok {
			continue
		}
		net := packet.NetworkLayer().NetworkFlow()
		src, dst := fmt.Sprint(net.Src(), ":", uint16(tcp.SrcPort)),
			fmt.Sprint(net.Dst(), ":", uint16(tcp.DstPort))
		h := byName[src+dst]
		if h == nil {
			h = &half{src: src, dst: dst, have: map[uint64]byte{}}
			byName[src+dst] = h
			halves = append(halves, h)
		}
		seq := tcp.Seq
		if tcp.SYN {
			h.syn, h.start = true, seq+1
			continue
		}
		require.True(t, h.syn, "%s: connection without its SYN", path)
		require.NoError(t, h.add(seq, tcp.Payload))
		if tcp.FIN {
			h.fin, h.end = true, uint64(seq-h.start)+uint64(len(tcp.Payload))
		}
	}
	return halves
}

// opcodes by RFC 5040 section 4.3; the low four bits of a ULPDU's second octet.
var opcodeNames = [16]string{"Write", "ReadReq", "ReadResp", "Send", "SendInv", "SendSE",
	"SendSEInv", "Terminate"}

// countSink counts FPDUs by opcode.
type countSink map[string]int

func (c countSink) Place(u *ULPDU) {
	second := u.Pieces[0]
	if len(second) > 1 {
		second = second[1:]
	} else {
		second = u.Pieces[1]
	}
	c[opcodeNames[second[0]&15]]++
}

func (c countSink) String() string {
	var out []string
	for name, n := range c {
		out = append(out, fmt.Sprint(name, " ", n))
	}
	sort.Strings(out)
	return strings.Join(out, ", ")
}

func describe(f Frame) string {
	bit := func(b bool, s string) string {
		if b {
			return s
		}
		return ""
	}
	return fmt.Sprintf("Rev %d [%s%s%s%s] %x", f.Rev, bit(f.Markers, "M"), bit(f.CRC, "C"),
		bit(f.Reject, "R"), bit(f.S, "S"), f.PrivateData)
}

// decodeConnection gives one line per start-up frame and direction.
func decodeConnection(t *testing.T, a, b *half) []string {
	req, nReq, err := ParseFrame(a.front(600), Request, PrivateDataMax)
	if err != nil || nReq == 0 {
		return []string{fmt.Sprintf("no Request (%d octets): %v", a.left(), err)}
	}
	lines := []string{"Request " + describe(req)}
	rep, nRep, err := ParseFrame(b.front(600), Reply, PrivateDataMax)
	require.NoError(t, err)
	if nRep == 0 {
		return append(lines, fmt.Sprintf("no Reply; FIN %t %t", a.fin, b.fin))
	}
	lines = append(lines, "Reply   "+describe(rep))
	initiator, responder := agree(req, rep), agree(rep, req)
	lines = append(lines,
		"<- "+decodeHalf(t, b, nRep, initiator.Receive),
		"-> "+decodeHalf(t, a, nReq, responder.Receive))
	return lines
}

// decodeHalf feeds what stands after the start-up frame of n octets to a Receiver.
func decodeHalf(t *testing.T, h *half, n int, mode Mode) string {
	r := newRig(t, rigConfig{Mode: mode}, nil)
	sink := countSink{}
	for _, s := range h.segs {
		octets := s.octets
		off := s.off
		if off < uint64(n) {
			skip := min(uint64(n)-off, uint64(len(octets)))
			octets, off = octets[skip:], off+skip
		}
		if len(octets) == 0 {
			continue
		}
		buf := r.pool.Alloc()
		data := r.pool.Slot(buf)[200:]
		data = data[:copy(data, octets)]
		switch v := input(&r.recv, off-uint64(n), buf, data, sink); v {
		case Done:
			r.pool.Free(buf)
		case Refused:
			t.Fatalf("refused %d octets at %d", len(octets), off)
		}
	}
	require.NoError(t, r.recv.Err())
	total := uint64(len(h.have)) - uint64(n)
	left := h.left() - uint64(n)
	require.Equal(t, total, left, "octets are missing in the capture")
	if h.fin {
		require.Equal(t, h.end, h.left(), "octets are missing before the FIN")
	}
	edge := r.recv.Edge(left)
	out := sink.String()
	if out == "" {
		out = "nothing"
	}
	if edge != total {
		out += fmt.Sprintf("; tail of %d octets", total-edge)
	} else {
		r.held(0)
	}
	r.recv.Close()
	r.held(0)
	return out
}

// What the captures hold: per connection the start-up frames, then the FPDUs by opcode of the
// Responder (<-) and of the Initiator (->). CRC is on where a frame has C. No connection was cut
// off by the end of its capture: every octet belongs to a frame or to a whole FPDU; an octet left
// over would be named as "tail".
var captured = map[string][]string{
	"ib_read_bw.pcap": {
		"Request Rev 2 [S] 00000000",
		"Reply   Rev 2 [S] 00000000",
		"<- Send 16",
		"-> Send 16",
		"Request Rev 2 [S] 00800080",
		"Reply   Rev 2 [S] 00800080",
		"<- ReadResp 30",
		"-> ReadReq 10",
	},
	"ib_send_bw.pcap": {
		"Request Rev 2 [S] 00000000",
		"Reply   Rev 2 [S] 00000000",
		"<- Send 11",
		"-> Send 11",
		"Request Rev 2 [S] 00000000",
		"Reply   Rev 2 [S] 00000000",
		"<- Write 4",
		"-> Send 30",
	},
	"ib_write_bw.pcap": {
		"Request Rev 2 [S] 00000000",
		"Reply   Rev 2 [S] 00000000",
		"<- Send 16",
		"-> Send 16",
		"Request Rev 2 [S] 00000000",
		"Reply   Rev 2 [S] 00000000",
		"<- nothing",
		"-> Write 30",
	},
	"neg_srvcrc_clistd.pcap": {
		"Request Rev 2 [S] 00010001",
		"Reply   Rev 2 [S] 00010001",
		"<- ReadReq 2, Send 4, Write 2",
		"-> ReadResp 2, Send 4",
	},
	"neg_srvstd_cliv1.pcap": {
		"Request Rev 1 [] ",
		"Reply   Rev 1 [] ",
		"<- nothing",
		"-> Send 1",
	},
	"rping.pcap": {
		"Request Rev 2 [S] 00010001",
		"Reply   Rev 2 [S] 00010001",
		"<- ReadReq 10, Send 20, Write 10",
		"-> ReadResp 10, Send 20",
	},
	"rping_crc_p2p.pcap": {
		"Request Rev 2 [CS] 8001c001",
		"Reply   Rev 2 [CS] 80018001",
		"<- ReadReq 4, Send 8, Write 12",
		"-> ReadResp 12, Send 8, Write 1",
	},
	"terminate.pcap": {
		"Request Rev 2 [S] 00010001",
		"Reply   Rev 2 [S] 00010001",
		"<- Terminate 1",
		"-> Write 1",
	},
}

// req: D01-1.2-2, D01-6.1-29
func TestCaptures(t *testing.T) {
	paths := must(filepath.Glob("testdata/captures/*.pcap"))(t)
	require.Len(t, paths, len(captured))
	for _, path := range paths {
		var got []string
		halves := readHalves(t, path)
		for i, a := range halves {
			for _, b := range halves[i+1:] {
				if a.src == b.dst && a.dst == b.src {
					got = append(got, decodeConnection(t, a, b)...)
				}
			}
		}
		require.Equal(t, captured[filepath.Base(path)], got, path)
		require.Len(t, halves, len(got)/2, "%s: a connection was not decoded", path)
	}
}

// Real Requests, answered by a Party with siw's means, give siw's Replies; and its Replies are
// understood as it meant them.
//
// req: 6581-9.3-2, 6581-9.2-3, 6581-10-1
func TestCapturedStartup(t *testing.T) {
	seen := 0
	for name := range captured {
		halves := readHalves(t, filepath.Join("testdata", "captures", name))
		for i := 0; i+1 < len(halves); i += 2 {
			req, n, err := ParseFrame(halves[i].front(600), Request, PrivateDataMax)
			if err != nil || n == 0 {
				continue
			}
			rep, n, err := ParseFrame(halves[i+1].front(600), Reply, PrivateDataMax)
			require.NoError(t, err)
			if n == 0 || rep.Reject {
				continue
			}
			theirs, _, err := rep.Enhanced()
			require.NoError(t, err)
			asked, _, err := req.Enhanced()
			require.NoError(t, err)
			siw := Party{Dialects: FramedDialects, CRC: rep.CRC, RTR: RTRWrite, IRD: DepthMax, ORD: DepthMax}
			_, private, _ := rep.Enhanced()
			mine, _, err := siw.Answer(&req, private)
			require.NoError(t, err)
			require.Equal(t, rep.Append(nil), mine.Append(nil), "%s, connection %d", name, i/2)

			us := Party{CRC: req.CRC, PeerToPeer: asked.PeerToPeer, RTR: asked.RTR, IRD: asked.IRD,
				ORD: asked.ORD}
			terms := must(us.Conclude(&req, &rep))(t)
			require.Equal(t, theirs, terms.Peer)
			if asked.PeerToPeer {
				require.Equal(t, RTRWrite, terms.RTR)
			}
			seen++
		}
	}
	require.Greater(t, seen, 8)
}
