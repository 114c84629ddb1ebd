package rnic

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// noDescriptors takes all that this process may have, and returns a function that gives the first n
// of them back.
func noDescriptors(t *testing.T) (give func(n int)) {
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	var all []int
	take := func() (err error) {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		if err == nil {
			all = append(all, fd)
		}
		return err
	}
	require.NoError(t, take())
	few := limit
	few.Cur = uint64(all[0]) + 64
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	for take() == nil {
	}
	give = func(n int) {
		for _, fd := range all[:n] {
			require.NoError(t, unix.Close(fd))
		}
		all = all[n:]
	}
	t.Cleanup(func() {
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
		give(len(all))
	})
	return give
}

// A listener over sockets for which there are no descriptors asks again, later each time, and tells
// so. It goes on when there are some, also when it got one that did not do.
func TestListenerWithoutDescriptors(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	a := must(Open(Config{}))
	defer a.Close(ctx)
	failures := make(chan error, 64)
	l := must(a.Listen(ctx, "127.0.0.1:0", ListenOptions{OnFailure: func(f ConnFailure) {
		failures <- f.Err
	}}))
	cq := must(a.CreateCQ(64))
	opt := QPOptions{PD: a.AllocPD(), SendCQ: cq, RecvCQ: cq, SendDepth: 4, RecvDepth: 4}
	peer := must(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	defer unix.Close(peer)

	give := noDescriptors(t)
	to := &unix.SockaddrInet4{Port: int(l.Addr().Port()), Addr: l.Addr().Addr().As4()}
	began := time.Now()
	require.NoError(t, unix.Connect(peer, to))
	for range 4 {
		require.ErrorIs(t, <-failures, unix.EMFILE)
	}
	require.GreaterOrEqual(t, time.Since(began), (5+10+20)*time.Millisecond)
	require.GreaterOrEqual(t, a.StartupCounters().Refused.System, uint64(4))
	_, err := a.Dial(ctx, l.Addr().String(), opt, ConnParam{})
	require.ErrorIs(t, err, unix.EMFILE)
	_, err = a.Listen(ctx, "127.0.0.1:0", ListenOptions{})
	require.ErrorIs(t, err, unix.EMFILE)

	give(1) // it is accepted, and reset: there is none to go on with
	_, _, err = unix.Recvfrom(peer, make([]byte, 1), 0)
	require.ErrorIs(t, err, unix.ECONNRESET)

	give(32)
	accepted := make(chan error, 1)
	go func() {
		accepted <- func() error {
			req, err := l.Accept(ctx)
			if err != nil {
				return err
			}
			qp, err := a.CreateQP(opt)
			if err != nil {
				return err
			}
			return req.Accept(ctx, qp, ConnParam{})
		}()
	}()
	qp := must(a.Dial(ctx, l.Addr().String(), opt, ConnParam{}))
	require.NoError(t, <-accepted)
	qp.Abort()
	l.Close()
}
