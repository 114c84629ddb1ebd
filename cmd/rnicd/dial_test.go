package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

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
		{dialOptions{}, rnic.ErrStartupTimeout, "in time; what listens there may be no server of RDMA over TCP"},
		{dialOptions{}, closed, "during MPA start-up; what listens there may be no server of RDMA over TCP"},
		{dialOptions{}, stack.ErrRefused, "connection refused; is a server running there? --wait 5s waits for one"},
		{dialOptions{}, stack.ErrNoRoute, "rnic: connect to h:1: stack: no route to host"},
		{dialOptions{nic: nicOptions{pmd: "tap", dev: "rnic1"}}, stack.ErrNoRoute, "no route to host; nobody on rnic1 answers: --host-addr"},
	} {
		err := c.o.explain(context.Background(), &rnic.ConnectError{Addr: "h:1", Err: c.err}, "put to", "h:1")
		require.ErrorIs(t, err, c.err)
		require.ErrorContains(t, err, c.want)
	}
	err := (&dialOptions{}).explain(context.Background(), closed, "put to", "h:1") // of a connection that stood
	require.EqualError(t, err, "put to h:1: "+closed.Error())
}
