package main

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

// What a connection that did not come about may mean, in a client's words.
func TestExplainDial(t *testing.T) {
	closed := fmt.Errorf("%w during MPA start-up", rnic.ErrPeerClosed)
	for _, c := range []struct {
		o    dialOptions
		err  error
		want string
	}{
		{dialOptions{}, rnic.ErrStartupTimeout,
			"in time; what listens there may be no server of RDMA over TCP"},
		{dialOptions{}, closed, "during MPA start-up; what listens there may be no server of " +
			"RDMA over TCP"},
		{dialOptions{}, stack.ErrReset,
			"reset by peer; what listens there may be no server of RDMA over TCP, or is full (--peer-max)"},
		{dialOptions{}, mpa.ErrKey, "wrong Key (code 4, offset 0); what listens there may be no server " +
			"of RDMA over TCP"},
		{dialOptions{}, &rnic.RejectedError{Enhanced: true},
			"(0 octets of private data); is it a server of something else?"},
		{dialOptions{}, stack.ErrRefused,
			"connection refused; is a server running there? --wait 5s waits for one"},
		{dialOptions{}, stack.ErrNoRoute, "rnic: connect to h:1: stack: no route to host"},
		{dialOptions{nic: nicOptions{pmd: "tap", dev: "rnic1"}}, stack.ErrNoRoute,
			"no route to host; no host on rnic1 answers: --host-addr"},
	} {
		err := c.o.explain(context.Background(), &rnic.ConnectError{Addr: "h:1", Err: c.err},
			"put to", "h:1")
		require.ErrorIs(t, err, c.err)
		require.ErrorContains(t, err, c.want)
	}
	// of a connection that stood
	err := (&dialOptions{}).explain(context.Background(), closed, "put to", "h:1")
	require.EqualError(t, err, "put to h:1: "+closed.Error())
}

// What a client's own time has ended, and what was explained before: said once, with the server's
// address.
func TestExplainOnce(t *testing.T) {
	o := dialOptions{timeout: time.Second}
	over, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	<-over.Done()
	dial := &rnic.ConnectError{Addr: "h:1", Err: stack.ErrTimeout}
	require.EqualError(t, o.explain(over, dial, "put to", "h:1"), "gave up after --timeout 1s: "+
		dial.Error()+"; "+nobodyAnswers)
	require.EqualError(t, o.explain(over, over.Err(), "put to", "h:1"),
		"gave up after --timeout 1s: put to h:1: context deadline exceeded")

	for _, rejected := range []*rnic.RejectedError{{Enhanced: true, PrivateData: []byte("why")},
		{Enhanced: true}} {
		err := error(&rnic.ConnectError{Addr: "h:1", Err: rejected})
		if len(rejected.PrivateData) == 0 {
			err = fmt.Errorf("%w; is it perftest's?", err)
		}
		require.Equal(t, err, o.explain(context.Background(), err, "perf with", "h:1"))
	}
}

// --wait tries again soon where nobody listens, and less and less often where somebody takes
// connections and ends them.
func TestWaitPauses(t *testing.T) {
	for _, c := range []struct {
		err   error
		tries int
	}{
		{stack.ErrRefused, 1 + int(time.Minute/redialEvery)},
		{stack.ErrReset, 1 + 5 + 29}, // 0.1, 0.2, 0.4, 0.8 and 1.6 s, then each 2 s
	} {
		synctest.Test(t, func(t *testing.T) {
			o, n := dialOptions{wait: time.Minute - redialEvery/2}, 0
			err := o.connecting(t.Context(), func() error {
				n++
				return &rnic.ConnectError{Addr: "h:1", Err: c.err}
			})
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.tries, n)
		})
	}
}
