package rnic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// An RTR message that is a Send takes none of the receive buffers: as many Sends may follow in
// its segment as were posted.
func TestSendsRightAfterTheRTRSend(t *testing.T) {
	for _, depth := range []int{1, 3, 4} {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			s := r.newEnd(r.server,
				opts{QPOptions: QPOptions{RecvDepth: depth}, ConnParam: ConnParam{NoMarkers: true}})
			for i := range depth {
				wr := s.recvAt(uint64(i+1), 16*i, 4)
				wr.List = []SGE{s.inbox.Slice(16*i+8, 8)}
				s.postRecv(wr)
			}
			p := r.acceptRTR(s, mpa.RTRSend)
			burst := []fpdu{sendFPDU(1, "")}
			for i := range depth {
				burst = append(burst, sendFPDU(uint32(i+2), "message"))
			}
			p.inject(burst...)
			for i, c := range s.await(depth) {
				require.Equal(t, Completion{ID: uint64(i + 1), QP: s.qp.Number(), Op: OpRecv, Len: 7}, c,
					"%v", s.qp.Err())
				require.Equal(t, "mess\x00\x00\x00\x00age\x00", string(s.inbox.Bytes()[16*i:][:12]))
			}
		})
	}
}

// A Send that comes first and is no RTR message is the ULP's, into the ULP's first buffer: one
// with octets, one that is not whole, one that does more than send.
func TestFirstSendIsNoRTR(t *testing.T) {
	long, event, part, rest := sendOf(1), sendOf(1), sendOf(1), sendOf(1)
	event.ULP = rdmap.Control(1, rdmap.OpSendSE)
	part.Last = false
	for _, tc := range []struct {
		name string
		say  []fpdu
		want Completion
	}{
		{"octets", []fpdu{{long, []byte("hello")}}, Completion{Len: 5}},
		{"event", []fpdu{{event, nil}}, Completion{Solicited: true}},
		{"more to come", []fpdu{{part, nil}, {rest, []byte("hello")}}, Completion{Len: 5}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true}})
				s.postRecv(s.recvAt(7, 0, 16))
				p := r.acceptRTR(s, mpa.AllRTR)
				p.inject(tc.say...)
				tc.want.ID, tc.want.QP, tc.want.Op = 7, s.qp.Number(), OpRecv
				s.expectCompletions(tc.want)
				require.EqualValues(t, 1, r.stats(s.qp).MessagesRecvd)
			})
		})
	}
}

// An empty Send with another number is no RTR message either: start-up's own buffer would take
// the place of the one that it lacks.
func TestFirstSendHasAnotherNumber(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true}})
		s.postRecv(s.recvAt(7, 0, 16))
		p := r.acceptRTR(s, mpa.AllRTR)
		p.inject(sendFPDU(2, ""))
		p.expectTerminateFor(rdmap.NewCause(rdmap.LayerDDP, ddp.TypeUntagged, ddp.CodeNoBuffer))
		p.closeSend()
		s.expectCompletions(Completion{ID: 7, Op: OpRecv, Status: Flushed})
	})
}

// What looks like an RTR Send and cannot be placed ends the stream while start-up's own buffer is
// posted. That one has no Completion; the ULP's were not touched by the error, and are flushed.
func TestHiddenBufferAtTheEnd(t *testing.T) {
	queue, offset := sendOf(1), sendOf(1)
	queue.QN = 1
	offset.MO = 4
	for name, h := range map[string]ddp.Header{"another queue": queue, "an offset": offset} {
		t.Run(name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true}})
				for i := range 3 {
					s.postRecv(s.recvAt(uint64(7+i), 16*i, 16))
				}
				p := r.acceptRTR(s, mpa.RTRSend)
				p.inject(fpdu{h, nil})
				p.untilEnded()
				p.closeSend()
				s.awaitClosed()
				require.Error(t, s.qp.Err())
				s.poll()
				var want []Completion
				for i := range 3 {
					want = append(want, Completion{ID: uint64(7 + i), QP: s.qp.Number(), Op: OpRecv,
						Status: Flushed})
				}
				require.Equal(t, want, s.done)
				require.Zero(t, s.cq.q.Promised())
			})
		})
	}
}
