package rnic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
)

// endsAt is a context that ends with the n-th look at Done. At that moment, or when Err asks
// first, before is run.
type endsAt struct {
	context.Context
	n      int
	before func()
}

func (c *endsAt) Done() <-chan struct{} {
	if c.n--; c.n > 0 {
		return nil
	}
	return ended().Done()
}

func (c *endsAt) Err() error {
	if c.n > 0 {
		return nil
	}
	c.before()
	return context.Canceled
}

// A context may end as the connection is given back. The one that rejects then gets it, or it is
// closed: it is never nobody's.
//
// req: D01-6.1-23
func TestRejectStreamAsItsContextEnds(t *testing.T) {
	const looks = 2 // one for the order to reject, one for the stream
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
		for _, late := range []bool{false, true} {
			c := r.newEnd(r.client, connOpts(ConnParam{KeepRejected: true}))
			req := r.dial(c, nil)
			ctx := &endsAt{Context: r.ctx, n: looks, before: func() {}}
			if late { // the stream comes between the context's end and what is done about it
				ctx.before = func() { soon(&r.driver, req.connection.Gone.C()) }
			}
			sc, err := req.RejectStream(ctx, []byte("not now"))
			if err != nil {
				require.ErrorIs(t, err, context.Canceled)
				require.Nil(t, sc)
			} else {
				require.NoError(t, sc.Close())
			}
			c.awaitClosed()
			if require.Error(t, c.qp.Err()); late {
				no := errorAs[*RejectedError](t, c.qp.Err())
				r.deadline(no.Conn)
				r.blocking(func() error {
					if _, err := no.Conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
						return fmt.Errorf("not closed: %w", err)
					}
					return nil
				})
			}
			r.until("the end", func() bool { return len(r.server.host.Live()) == 0 })
		}
	})
}

// When both have come, the stream counts.
func TestRejectStreamPrefersTheStream(t *testing.T) {
	gone := make(chan struct{})
	close(gone)
	for _, manual := range []func(){nil, func() {}} {
		a := must(Open(Config{Manual: manual}))
		for range 50 {
			require.NoError(t, a.host.Wait(ended(), gone))
		}
		require.ErrorIs(t, a.host.Wait(ended(), nil), context.Canceled)
	}
}

// The same for an Initiator that was rejected and wants the connection: neither a rejection that
// is there nor one that comes while it is given up is passed over.
func TestRejectedAsItsContextEnds(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		addr, next := r.peerAcceptsSeveral()
		for i := range 20 {
			c := r.newEnd(r.client, connOpts(ConnParam{KeepRejected: true}))
			require.NoError(t, c.qp.StartConnect(r.ctx, addr, c.conn))
			p := next()
			p.expectFrame(mpa.Request)
			p.write(unhex(t, hexRep+"6001 0000"))
			ctx := context.Context(&givenBack{r.ctx, r, c.qp})
			if i%2 == 0 {
				c.awaitClosed()
				ctx = ended()
			}
			no := errorAs[*RejectedError](t, c.qp.inService(ctx))
			require.NotNil(t, no.Conn)
			require.NoError(t, no.Conn.Close())
			p.expectFIN()
		}
	})
}

// givenBack is a context that ends as soon as q's connection has been given back.
type givenBack struct {
	context.Context
	r *rig
	q *QueuePair
}

func (c *givenBack) Done() <-chan struct{} {
	c.r.untilDone(c.q)
	return ended().Done()
}
