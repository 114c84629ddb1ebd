package peer

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/testnic"
	"github.com/rnicd/rnicd/rnic"
)

// A place is waited for, and had as soon as another one leaves; not for ever, and not longer than
// the context lasts.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPlaces(2)
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, p.Take(ctx))
		require.NoError(t, p.Take(ctx))
		begin := time.Now()
		require.EqualError(t, p.Take(ctx),
			"2 other clients are being served, and no more at a time; try again later")
		require.Equal(t, placeWait, time.Since(begin))

		begin = time.Now()
		time.AfterFunc(placeWait/2, p.Leave)
		require.NoError(t, p.Take(ctx))
		require.Equal(t, placeWait/2, time.Since(begin))

		cancel()
		require.ErrorIs(t, p.Take(ctx), context.Canceled)
	})
}

// A peer is given up when it has been silent for the limit, never before, and an eighth of it later
// at the most; wherever in between it had moved last.
func TestWatch(t *testing.T) {
	const limit = 1600 * time.Millisecond
	silent := errors.New("silent")
	for last := time.Duration(0); last < 2*limit; last += 37 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			ctx, stop := Watch(t.Context(), limit, silent, func(context.Context) (time.Duration, error) {
				return min(time.Since(begin), last), nil
			})
			defer stop()
			<-ctx.Done()
			require.Equal(t, silent, context.Cause(ctx))
			quiet := time.Since(begin) - last
			require.GreaterOrEqual(t, quiet, limit)
			require.LessOrEqual(t, quiet, limit+limit/8)
		})
	}
}

// A peer is not given up while it moves, while its movement cannot be told, or after stop.
func TestWatchEnds(t *testing.T) {
	const limit = time.Second
	synctest.Test(t, func(t *testing.T) {
		n := 0
		ctx, stop := Watch(t.Context(), limit, errors.New("silent"), func(context.Context) (int, error) {
			n++
			return n / looks, nil
		})
		<-time.After(100 * limit)
		require.NoError(t, ctx.Err())
		stop()
		require.Equal(t, context.Canceled, context.Cause(ctx))
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := Watch(t.Context(), limit, errors.New("silent"), func(context.Context) (int, error) {
			return 0, rnic.ErrClosed
		})
		<-time.After(100 * limit)
		require.NoError(t, ctx.Err())
		stop()
	})
}

// A refusal is read as it was said, cut where it is longer than a Reply has room for; what is none
// stays what it was.
func TestRefusal(t *testing.T) {
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		l, err := devs[1].Listen(t.Context(), ":0", rnic.ListenOptions{})
		require.NoError(t, err)
		defer l.Close()
		for _, why := range []string{"", "no room", strings.Repeat("x", textMax+200)} {
			said := make(chan string, 1)
			go func() {
				req, err := l.Accept(t.Context())
				if err != nil {
					said <- err.Error()
					return
				}
				Refuse(t.Context(), req, why, func(_ netip.AddrPort, why string) { said <- why })
			}()
			err := connect(t, devs[0], testnic.Dialable(l.Addr()))
			var no *RefusedError
			require.ErrorAs(t, Refusal("test", err), &no)
			require.EqualError(t, no, "test: the server refused: "+why[:min(len(why), textMax)])
			require.Equal(t, why, <-said)
		}
	})
	require.EqualError(t, &RefusedError{What: "test", Text: "\x1b[2J\xff"},
		`test: the server refused: \x1b[2J\xff`)
	for _, err := range []error{
		nil, errors.New("other"), &rnic.RejectedError{}, &rnic.RejectedError{PrivateData: []byte("RNC")},
		&rnic.RejectedError{PrivateData: []byte("other")},
	} {
		require.Equal(t, err, Refusal("test", err))
	}
}

// connect returns Connect's error.
func connect(t *testing.T, dev *rnic.Adapter, addr string) error {
	cq, err := dev.CreateCQ(8)
	require.NoError(t, err)
	qp, err := dev.CreateQP(rnic.QPOptions{PD: dev.AllocPD(), SendCQ: cq, RecvCQ: cq, SendDepth: 1,
		RecvDepth: 1})
	require.NoError(t, err)
	defer Release(qp, nil)
	return qp.Connect(t.Context(), addr, rnic.ConnParam{})
}
