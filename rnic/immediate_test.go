package rnic

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rdmap"
)

// Immediate data are 8 octets in the Completion, delivered in order with Sends and after earlier
// Writes. Solicited is reported.
//
// req: 7306-6.3-1, 5040-5.3-4, 7306-4.1-2
func TestImmediateData(t *testing.T) {
	_, s, c := connected(t, opts{}, opts{})
	for i := range 4 {
		s.postRecv(s.recvAt(uint64(10+i), 20*i, 20))
	}
	data := [8]byte{1, 2, 3, 4, 5, 6, 7, 8}
	c.post(WorkRequest{Op: OpSend, Local: c.source.Slice(0, 5), Solicited: true})
	c.post(c.write(s, 2, 0, 5000))
	c.post(WorkRequest{Op: OpImmediate, Immediate: data, ID: 3, Signaled: true})
	c.post(WorkRequest{Op: OpImmediate, Immediate: [8]byte{}, ID: 4, Signaled: true, Solicited: true})
	c.post(c.send(5, 0, 6))
	s.expectCompletions(Completion{ID: 10, Op: OpRecv, Len: 5, Solicited: true},
		Completion{ID: 11, Op: OpRecv, Len: 8, WithImmediate: true, Immediate: data, Written: 5000})
	require.True(t, bytes.Equal(c.source.Bytes()[:5000], s.region.Bytes()[:5000]), "written before")
	s.expectCompletions(Completion{ID: 12, Op: OpRecv, Len: 8, WithImmediate: true, Solicited: true},
		Completion{ID: 13, Op: OpRecv, Len: 6})
	cs := c.await(4)
	require.Equal(t, []uint64{2, 3, 4, 5}, ids(t, cs))
	require.Equal(t, Completion{ID: 3, QP: c.qp.Number(), Op: OpImmediate, Len: 8}, cs[1])
}

// The buffer that immediate data use up is neither looked at nor written: it may be too short, have
// no ranges, several, or one that is not registered (any more); it may be one of a
// SharedReceiveQueue. What is not written stays usable.
func TestImmediateDataLeaveTheBufferAlone(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	for _, shared := range []bool{false, true} {
		opt := opts{}
		opt.PD = r.server.AllocPD()
		if shared {
			srq := must(r.server.CreateSRQ(SRQOptions{PD: opt.PD}))
			opt.SRQ = srq
		}
		s, c := r.connect(opt, opts{})
		paint := bytes.Repeat([]byte{canary}, 100)
		copy(s.inbox.Bytes(), paint)
		gone := must(s.pd.Register(make([]byte, 100), LocalWrite))
		for _, wr := range []WorkRequest{
			{}, s.recvAt(0, 0, 7), s.recvAt(0, 0, 100),
			{Local: s.inbox.Slice(0, 3), List: []SGE{s.inbox.Slice(10, 50)}},
			{Local: gone.Slice(0, 100)}, {Local: SGE{STag: 0x1234, Length: 8}},
		} {
			if shared {
				require.NoError(t, errOf(opt.SRQ.PostRecv(wr)))
			} else {
				s.postRecv(wr)
			}
		}
		gone.Deregister()
		for i := range 6 {
			c.post(WorkRequest{Op: OpImmediate, Immediate: [8]byte{byte(i), 9}, Signaled: true})
		}
		for i, got := range s.await(6) {
			require.Equal(t, Completion{QP: s.qp.Number(), Op: OpRecv, Len: 8,
				WithImmediate: true, Immediate: [8]byte{byte(i), 9}}, got)
		}
		require.Equal(t, paint, s.inbox.Bytes()[:100])
		c.await(6)
		if !shared {
			r.exchange(s, c)
		}
	}
}

// Written is what the peer's last Write has placed, whatever the peer says: 0 where nothing was,
// and after it was told once.
func TestImmediateDataTellWhatWasWritten(t *testing.T) {
	_, s, p := served(t, opts{})
	s.postRecv(make([]WorkRequest, 7)...)
	part := writeFPDU(s.region.STag(), s.region.Base(), "123")
	part.Last = false
	whole := writeFPDU(s.region.STag(), s.region.Base()+3, "45678")
	lie := string(bytes.Repeat([]byte{0xff}, 8))
	for i, x := range []struct {
		before []fpdu // last a Send, if send
		send   bool
		want   uint32
	}{
		{want: 0},
		{before: []fpdu{whole}, want: 5},
		{want: 0},
		{before: []fpdu{whole, whole, part, whole}, want: 8}, // of the last one only
		{before: []fpdu{whole, writeFPDU(0, 0, "")}, want: 0},
		{before: []fpdu{part, whole, sendFPDU(6, "")}, send: true, want: 8},
	} {
		msn := uint32(i + 1)
		if x.send {
			msn++
		}
		p.inject(append(x.before, messageFPDU(rdmap.OpImmediate, msn, lie))...)
		if x.send {
			s.await(1)
		}
		require.Equal(t, x.want, s.await(1)[0].Written, "case %d", i)
	}
}

// Send with Immediate is one message: its octets are in the buffer, from ranges or inline, and 4 of
// Immediate in the Completion. Both waits for a buffer and takes a shared one as a Send does.
func TestSendWithImmediate(t *testing.T) {
	for _, shared := range []bool{false, true} {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			opt := ackOpts(QPOptions{}, ConnParam{})
			sopt := ackOpts(QPOptions{PD: r.server.AllocPD()}, ConnParam{})
			if shared {
				sopt.SRQ = must(r.server.CreateSRQ(SRQOptions{PD: sopt.PD}))
			}
			s, c := r.connect(sopt, opt)
			long := c.send(1, 0, 3000)
			long.Op, long.Immediate = OpSendImmediate, [8]byte{0xca, 0xfe, 1, 2, 9, 9, 9, 9}
			c.post(long,
				WorkRequest{Op: OpSendImmediate, ID: 2, Signaled: true, Solicited: true,
					Inline: []byte("inline"), Immediate: [8]byte{0, 0, 0, 1}},
				WorkRequest{Op: OpSendImmediate, ID: 3, Signaled: true})
			r.until("not ready", func() bool { return notReady(r, c) > 0 })
			for i := range 3 {
				wr := s.recvAt(uint64(10+i), 4000*i, 4000)
				if shared {
					require.NoError(t, errOf(sopt.SRQ.PostRecv(wr)))
				} else {
					s.postRecv(wr)
				}
			}
			s.expectCompletions(
				Completion{ID: 10, Op: OpRecv, Len: 3000, WithImmediate: true, BesideSend: true,
					Immediate: [8]byte{0xca, 0xfe, 1, 2}},
				Completion{ID: 11, Op: OpRecv, Len: 6, WithImmediate: true, BesideSend: true,
					Immediate: [8]byte{0, 0, 0, 1}, Solicited: true},
				Completion{ID: 12, Op: OpRecv, WithImmediate: true, BesideSend: true})
			c.expectCompletions(Completion{ID: 1, Op: OpSendImmediate, Len: 3000},
				Completion{ID: 2, Op: OpSendImmediate, Len: 6}, Completion{ID: 3, Op: OpSendImmediate})
			require.True(t, bytes.Equal(c.source.Bytes()[:3000], s.inbox.Bytes()[:3000]))
			require.Equal(t, "inline", string(s.inbox.Bytes()[4000:4006]))
		})
	}
}
