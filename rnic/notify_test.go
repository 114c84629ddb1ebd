package rnic

import (
	"context"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rdmap"
)

func (q *CompletionQueue) put(t testing.TB, c Completion) {
	require.True(t, q.q.Reserve(1))
	q.q.Push(c)
}

func isReady(q *CompletionQueue) bool {
	select {
	case <-q.Ready():
		return true
	default:
		return false
	}
}

// What each kind of arming wakes for, once.
func TestArm(t *testing.T) {
	plain, solicited, failed := Completion{}, Completion{Solicited: true}, Completion{Status: Flushed}
	for _, tc := range []struct {
		name  string
		arm   []Notification
		push  []Completion
		ready bool
	}{
		{"not armed", nil, []Completion{plain, solicited, failed}, false},
		{"any", []Notification{NextCompletion}, []Completion{plain}, true},
		{"solicited only, plain", []Notification{NextSolicited}, []Completion{plain, plain}, false},
		{"solicited only, solicited", []Notification{NextSolicited}, []Completion{plain, solicited},
			true},
		{"solicited only, failed", []Notification{NextSolicited}, []Completion{plain, failed}, true},
		{"any added", []Notification{NextSolicited, NextCompletion}, []Completion{plain}, true},
		{"any stays", []Notification{NextCompletion, NextSolicited}, []Completion{plain}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := newTestCQ(t, 8)
			for _, n := range tc.arm {
				q.Arm(n)
			}
			require.False(t, isReady(q), "nothing has come")
			for _, c := range tc.push {
				q.put(t, c)
			}
			require.Equal(t, tc.ready, isReady(q))
			q.put(t, solicited)
			require.Equal(t, len(tc.arm) > 0 && !tc.ready, isReady(q), "once")
			q.Arm(NextSolicited)
			require.True(t, isReady(q), "there is something to poll")
		})
	}
}

// Both waits return for a completion that was there before, for one that comes later, and when
// their context ends. WaitSolicited lets plain completions gather.
func TestWaits(t *testing.T) {
	for _, solicited := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q := newTestCQ(t, 8)
			wait := map[bool]func(context.Context) error{false: q.Wait, true: q.WaitSolicited}[solicited]
			require.ErrorIs(t, wait(ended()), context.Canceled)
			q.put(t, Completion{})
			require.NoError(t, wait(ended()), "there is something")
			require.Equal(t, 1, q.Poll(make([]Completion, 8)))
			woken := make(chan error, 1)
			go func() { woken <- wait(t.Context()) }()
			for id := range uint64(2) {
				synctest.Wait()
				if !solicited {
					break
				}
				q.put(t, Completion{ID: id})
			}
			synctest.Wait()
			require.Empty(t, woken, "woken by what it does not wait for")
			q.put(t, Completion{ID: 2, Solicited: solicited})
			require.NoError(t, <-woken)
			require.Equal(t, map[bool]int{false: 1, true: 3}[solicited], q.Poll(make([]Completion, 8)))
			require.ErrorIs(t, wait(ended()), context.Canceled)
		})
	}
}

// Completions of one segment are published together: an urgent one among them wakes, wherever it
// stands.
func TestSolicitedEventAmongOthers(t *testing.T) {
	for urgent := range 3 {
		h := newSegmentRig(t, segmentRigConfig{bufs: 512})
		pd := h.adapter.AllocPD()
		s := h.newEnd(qpOpts(QPOptions{PD: pd}))
		p := newPool(t, pd, 3, 3)
		for i := range 3 {
			s.postRecv(WorkRequest{ID: uint64(i), Local: p.inbox.Slice(i*poolSlot, poolSlot)})
		}
		c := h.startUp(3000, 1460, s)
		s.cq.Arm(NextSolicited)
		var sends []fpdu
		for i := range 3 {
			sends = append(sends, sendFPDU(uint32(i+1), []byte{1}))
		}
		sends[urgent].ULP = rdmap.Control(1, rdmap.OpSendSE)
		c.inject(sends...)
		h.turn(time.Microsecond)
		require.Equal(t, 3, s.cq.q.Waiting())
		require.True(t, isReady(s.cq), "message %d of 3", urgent+1)
	}
}

// Wait does not return for a completion that a producer has taken a place for and not filled in:
// Poll would find none.
func TestWaitAwaitsWhatIsFilledIn(t *testing.T) {
	dev := must(Open(Config{}))
	cq := must(dev.CreateCQ(4))
	places := reflect.ValueOf(&cq.ring).Elem().FieldByName("tail")
	(*atomic.Uint64)(unsafe.Pointer(places.UnsafeAddr())).Add(1)
	require.Equal(t, 1, cq.q.Waiting())
	require.Zero(t, cq.Poll(make([]Completion, 1)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, wait := range []func(context.Context) error{cq.Wait, cq.WaitSolicited} {
		require.ErrorIs(t, wait(ctx), context.Canceled)
	}
}
