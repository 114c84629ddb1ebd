package rnic

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What a QueuePair does not permit its peer ends the connection as an access violation, whatever
// the STag grants; what it permits is done, and what it is permitted again.
func TestPermitPeer(t *testing.T) {
	const everything = PeerWrites | PeerReads | PeerAtomics
	for _, x := range []struct {
		name string
		op   Opcode
		may  PeerAccess
	}{
		{"Write", OpWrite, PeerWrites}, {"Read", OpRead, PeerReads},
		{"atomic", OpFetchAdd, PeerAtomics},
	} {
		t.Run(x.name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				s, c := r.connect(serving(4), asking(4))
				m := r.readable(s, regionBytes, RemoteRead|RemoteWrite)
				before := append([]byte(nil), m.Bytes()...)
				request := func(off int) WorkRequest {
					wr := as(x.op, c.readFrom(m, 1, off, 8))
					if x.op == OpWrite {
						wr.Local = c.source.Slice(0, 8)
					}
					if x.op == OpFetchAdd {
						wr.Local, wr.Add = SGE{}, 1
					}
					return wr
				}
				for _, may := range []PeerAccess{x.may, everything} {
					s.qp.Permit(0)
					s.qp.Permit(may)
					c.post(request(0))
					require.Equal(t, Success, c.await(1)[0].Status)
					// an empty one needs no right; the answer comes after the first
					c.post(as(OpRead, WorkRequest{RemoteSTag: 1, Signaled: true}))
					c.await(1)
				}
				s.qp.Permit(everything &^ x.may)
				c.post(request(64))
				s.awaitClosed()
				c.awaitClosed()
				require.Equal(t, before[8:], m.Bytes()[8:])
				if x.op != OpWrite {
					require.Equal(t, RemoteAccess, c.await(1)[0].Status)
				}
				var end *TerminateError
				require.ErrorAs(t, s.qp.Err(), &end)
				layer, errType, _ := end.Control()
				want := [2]uint8{0, 1} // RDMAP, remote protection
				if x.op == OpWrite {
					want = [2]uint8{1, 1} // DDP, Tagged buffer
				}
				require.Equal(t, want, [2]uint8{layer, errType})
				require.ErrorAs(t, c.qp.Err(), &end)
				require.True(t, end.Remote)
				layer, errType, _ = end.Control()
				require.Equal(t, want, [2]uint8{layer, errType})
			})
		})
	}
}

// A region's rights change, and its STag does not.
func TestPermitRegion(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s, c := r.connect(serving(4), asking(4))
		m := r.readable(s, 100, RemoteWrite)
		stag := m.STag()
		require.NoError(t, m.Permit(RemoteRead, 0))
		require.Equal(t, stag, m.STag())
		require.Equal(t, RemoteRead, m.Access())
		c.post(as(OpRead, c.readFrom(m, 1, 0, 8)))
		require.Equal(t, Success, c.await(1)[0].Status)
		require.Equal(t, m.Bytes()[:8], c.inbox.Bytes()[:8])
		require.NoError(t, m.Permit(RemoteWrite, 0))
		c.post(as(OpRead, c.readFrom(m, 2, 0, 8)))
		require.Equal(t, RemoteAccess, c.await(1)[0].Status)
		require.Error(t, m.Permit(1<<7, 0))
		require.Equal(t, RemoteWrite, m.Access())
	})
}

// What a WorkSource refuses completes in its turn, with the status that it says, and ends the
// connection.
func TestRefuse(t *testing.T) {
	for _, st := range []Status{LocalLength, LocalOperation, LocalProtection} {
		over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
			src := &selective{status: st}
			opt := opts{}
			opt.Source = src
			c := r.newEnd(r.client, opt)
			s, _ := r.connectEnds(r.newEnd(r.server, opts{}), c)
			src.add(&src.sends, c.write(s, 1, 0, 5000), WorkRequest{ID: refusedID, Op: OpSend},
				c.write(s, 3, 5000, 100))
			c.qp.Doorbell()
			got := c.await(3)
			require.Equal(t, Completion{ID: 1, QP: c.qp.Number(), Op: OpWrite, Len: 5000}, got[0])
			require.Equal(t, Completion{ID: refusedID, QP: c.qp.Number(), Op: OpSend, Status: st},
				got[1])
			require.Equal(t, [2]any{uint64(3), Flushed}, [2]any{got[2].ID, got[2].Status})
			c.awaitClosed()
			s.awaitClosed()
		})
	}
}

const refusedID = 2

// selective is queues that refuse the request of refusedID.
type selective struct {
	queues
	status Status
}

func (s *selective) Sends(f Feed) {
	s.take(&s.sends, func(wr *WorkRequest) error {
		if wr.ID == refusedID {
			return f.Refuse(wr, s.status)
		}
		return f.Send(wr)
	})
}
