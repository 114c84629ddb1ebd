package rnic

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
)

// What cannot be is an error that names the field. It comes before anything is sent, and changes
// nothing.
//
// req: 6581-9.2-4, 6581-9-2, 6581-5-2, D01-6.1-32
func TestConnParamThatCannotBe(t *testing.T) {
	both := map[string]ConnParam{
		"RTR 0x8 names no RTR message":              {RTR: 8},
		"IRD -1, 0 to 16382":                        {IRD: -1},
		"ORD 16384, 0 to 16382 possible":            {ORD: 0x4000},
		"UserTimeout -1ns is negative":              {UserTimeout: -1},
		"Packing 9 is neither PackNow nor PackFull": {Packing: 9},
		"PrivateData: 513 octets of private data, MPA start-up of rfc5044 carries 512": {PrivateData: make([]byte, 513)},
	}
	connect := map[string]ConnParam{
		"Dialect: dialect 9 is unknown":   {Dialect: 9},
		"Quirks.WakeUp -1ns is negative":  {Quirks: Quirks{WakeUp: -1}},
		"PeerToPeer: rfc5044 has no such": {PeerToPeer: true, Dialect: RFC5044},
		"NoMarkers and NoCRC":             {Dialect: Culley02, NoMarkers: true},
		"NoMarkers and NoCRC cannot be":   {Dialect: Culley02, NoCRC: true},
		"PeerToPeer: culley-02":           {Dialect: Culley02, PeerToPeer: true},
		"PrivateData: 1 octets":           {Dialect: Culley02, PrivateData: []byte("x")},
		"PrivateDataMax 65536":            {PrivateDataMax: 65536},
		"PrivateData: 509 octets of private data, MPA start-up of rfc6581 carries 508": {PeerToPeer: true,
			PrivateData: make([]byte, 509)},
	}
	accept := map[string]ConnParam{
		"ORDMin 2 is above ORD 1": {ORD: 1, ORDMin: 2},
		"ORDMin -1":               {ORDMin: -1},
	}
	over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
		s, c := r.newEnd(r.server, opts{}), r.newEnd(r.client, opts{})
		other, stream := r.streams()
		for _, cases := range []map[string]ConnParam{both, connect} {
			for want, conn := range cases {
				for _, err := range r.attempts(c, stream, conn) {
					require.ErrorContains(t, err, "rnic: ConnParam."+want)
					require.NotErrorAs(t, err, new(*ConnectError))
				}
				require.Equal(t, Idle, c.qp.State())
			}
		}
		r.say(stream, other, []byte("still a stream"))
		req := r.dial(c, nil)
		require.Nil(t, r.listener.Poll(), "of the others none was a request")
		for _, cases := range []map[string]ConnParam{both, accept} {
			for want, conn := range cases {
				require.ErrorContains(t, req.Accept(r.ctx, s.qp, conn), "rnic: ConnParam."+want)
				require.Equal(t, Idle, s.qp.State())
			}
		}
		require.ErrorContains(t, req.Reject(r.ctx, make([]byte, 513)), "513 octets of private data")
		require.NoError(t, req.Accept(r.ctx, s.qp, s.conn), "the request is still there")
		c.expectState(RTS)
		r.exchange(s, c)
	})
}

// attempts are what came of all ways in which c may connect.
func (r *rig) attempts(c *end, stream net.Conn, conn ConnParam) []error {
	_, err := r.client.Dial(r.ctx, r.addr(), c.qp.opt, conn)
	return []error{err, c.qp.Connect(r.ctx, r.addr(), conn), c.qp.StartConnect(r.ctx, r.addr(), conn),
		c.qp.ConnectStream(r.ctx, stream, conn)}
}

// fill takes all entries of the domain's STag table that are left.
func fill(t *testing.T, pd *ProtectionDomain) (taken []*Window) {
	t.Helper()
	for {
		w, err := pd.NewWindow()
		if err != nil {
			require.ErrorAs(t, err, new(*mem.TableFullError))
			require.NotEmpty(t, taken)
			return taken
		}
		taken = append(taken, w)
	}
}

// A connection needs an entry of the STag table. Where there is none, the QueuePair stays Idle
// and the request undecided; both go on once there is one again.
//
// req: 5042-7.1-1, 5040-8.1.1-4
func TestNoEntryForAConnection(t *testing.T) {
	over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
		s, c := r.newEnd(r.server, opts{}), r.newEnd(r.client, opts{})
		other, stream := r.streams()
		full := new(*mem.TableFullError)
		taken := fill(t, c.pd)
		for _, err := range r.attempts(c, stream, c.conn) {
			require.ErrorAs(t, err, full)
			require.ErrorContains(t, err, "rnic: queue pair's control region")
			require.NotErrorAs(t, err, new(*ConnectError))
			require.Equal(t, Idle, c.qp.State())
		}
		r.say(stream, other, []byte("still a stream"))
		taken[0].Free()
		req := r.dial(c, nil)
		taken = fill(t, s.pd)
		require.ErrorAs(t, req.Accept(r.ctx, s.qp, s.conn), full)
		require.Equal(t, Idle, s.qp.State())
		taken[0].Free()
		require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
		c.expectState(RTS)
		r.exchange(s, c)
		r.close(s, c)
		_, err := s.pd.NewWindow()
		require.NoError(t, err, "the connection has given its entry back")
	})
}

// Close and Connect meet where there is no entry: whichever comes second, Close returns and the
// QueuePair is Closed.
func TestCloseMeetsNoEntry(t *testing.T) {
	r := newRig(t, sockets, rigConfig{})
	c := r.newEnd(r.client, opts{})
	fill(t, c.pd)
	c.qp.opt.SendDepth, c.qp.opt.RecvDepth = 1, 1
	closed := 0
	for range 20_000 {
		q := must(r.client.CreateQP(c.qp.opt))
		var ended, connected error
		var calls sync.WaitGroup
		var begun atomic.Bool
		calls.Go(func() {
			begun.Store(true)
			connected = q.StartConnect(r.ctx, r.addr(), ConnParam{})
		})
		for !begun.Load() {
			yield()
		}
		ended = q.Close(r.ctx)
		calls.Wait()
		require.True(t, ended == nil || errors.Is(ended, ErrClosed), "%v", ended)
		require.Error(t, connected)
		require.True(t, isDone(q))
		require.Equal(t, Closed, q.State())
		if errors.Is(ended, ErrClosed) {
			closed++
		}
	}
	t.Logf("%d times Connect found that Close had come", closed)
}

// Abort or Disconnect of an idle QueuePair is the end of it, and Connect says so, entry or none.
func TestUnwantedWithoutAnEntry(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	c := r.newEnd(r.client, opts{})
	fill(t, c.pd)
	c.qp.Disconnect()
	err := c.qp.StartConnect(r.ctx, r.addr(), c.conn)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorAs(t, err, new(*ConnectError))
	require.Equal(t, Closed, c.qp.State())
	require.True(t, isDone(c.qp))
}

// What does not apply to an end is ignored there: it is not looked at, and nothing of it is on
// the wire.
func TestConnParamOfTheOtherEnd(t *testing.T) {
	plain := ConnParam{IRD: 2, ORD: 1, NoMarkers: true}
	connects, accepts := plain, plain
	connects.Dialect, connects.PeerToPeer, connects.KeepRejected, connects.PrivateDataMax,
		connects.Quirks.WakeUp = 99, true, true, -1, -1
	accepts.ORDMin, accepts.Quirks.SendFirst = 1<<20, true
	for _, conn := range []ConnParam{plain, connects} {
		r := newRig(t, turned, rigConfig{})
		p := r.peerDials()
		p.write(unhex(t, hexReq+"5002 0004 0002 0001"))
		r.accept(r.newEnd(r.server, opts{ConnParam: conn}))
		p.play("< " + hexRep + "5002 0004 0001 0001")
	}
	for _, conn := range []ConnParam{plain, accepts} {
		r := newRig(t, turned, rigConfig{})
		r.peerAccepts(r.newEnd(r.client, opts{ConnParam: conn})).
			play("< " + hexReq + "5002 0004 0002 0001")
	}
}

// Private data is the caller's again when Connect or Accept has returned.
func TestPrivateDataIsCopied(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	s, c := r.newEnd(r.server, opts{}), r.newEnd(r.client, opts{})
	hello := []byte("hello")
	require.NoError(t, c.qp.StartConnect(r.ctx, r.addr(), c.with(hello)))
	clear(hello)
	req := r.request()
	require.Equal(t, "hello", string(req.PrivateData()))
	_, err := c.qp.PayloadMax(ended())
	require.ErrorIs(t, err, ErrState, "start-up has not settled markers")
	grant := []byte("grant")
	require.NoError(t, req.Accept(r.ctx, s.qp, s.with(grant)))
	clear(grant)
	c.expectState(RTS)
	require.Equal(t, "grant", string(c.qp.PeerPrivateData()))
}
