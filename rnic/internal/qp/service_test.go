package qp

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

func newTestShared() *Shared { return NewShared(2048, mpa.BufsMin(2048)+1, mpa.Reserve{}) }

// The engine that comes next has the same service, from which nothing of the last is left. What was
// told of the last one's end stays as it was.
func TestServiceIsTheNextEnginesOwn(t *testing.T) {
	shared := newTestShared()
	end := func(qn uint32) (*service, error) {
		r := newReceiverOf(t, shared, 0)
		v := r.service
		at := r.untagged(rdmap.OpSend, qn, 1, make([]byte, 8))
		r.arrive(at, len(r.stream))
		_, err := r.TakeEffects()
		r.Finish()
		require.Nil(t, r.service)
		require.Zero(t, r.Stats())
		r.Finish() // harmless
		return v, err
	}
	first, err := end(7)
	var told *ddp.Error
	require.ErrorAs(t, err, &told)
	was := *told
	require.EqualValues(t, 7, was.Header.QN)
	empty := service{
		room: first.room,
		send: sendHalf{wr: wq.Request{List: first.send.wr.List, Data: first.send.wr.Data}},
		recv: recvHalf{sendQ: first.recv.sendQ.Memory(4, 1)},
	}
	require.True(t, reflect.DeepEqual(empty, *first), "nothing but memory is kept")
	second, err := end(9)
	require.Same(t, first, second)
	require.Equal(t, was, *told)
	require.ErrorAs(t, err, &told)
	require.EqualValues(t, 9, told.Header.QN)
	totals, _ := shared.Totals()
	require.EqualValues(t, 1, totals.ServicesMade)
}

// An MPA error stays what it was, too.
func TestMPAErrorOutlivesItsEngine(t *testing.T) {
	shared := newTestShared()
	end := func(good int) (e *mpa.Error) {
		r := newReceiverOf(t, shared, 0)
		for msn := range good {
			r.untagged(rdmap.OpSend, rdmap.QNSend, uint32(msn+1), make([]byte, sendLen))
		}
		bad := r.untagged(rdmap.OpSend, rdmap.QNSend, uint32(good+1), make([]byte, sendLen))
		r.stream[bad+30] ^= 1
		r.arrive(0, len(r.stream))
		_, err := r.TakeEffects()
		require.ErrorAs(t, err, &e)
		r.Finish()
		return e
	}
	e := end(0)
	was := *e
	require.Equal(t, mpa.ErrCRC, was.Code)
	require.NotEqual(t, was.Offset, end(1).Offset)
	require.Equal(t, was, *e)
}

// Only so many are kept, and those that have to be made are counted.
func TestServicesKept(t *testing.T) {
	s := newTestShared()
	var taken []*service
	for range servicesKept + 1 {
		taken = append(taken, s.service())
	}
	require.EqualValues(t, servicesKept+1, s.totals.ServicesMade)
	for _, v := range taken {
		s.giveService(v)
	}
	require.Len(t, s.services, servicesKept)
	for range servicesKept + 1 {
		s.service()
	}
	require.EqualValues(t, servicesKept+2, s.totals.ServicesMade)
}
