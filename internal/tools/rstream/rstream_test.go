package rstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const patience = 30 * time.Second

// rig is a Server on the kernel's TCP: the test does not care what its stream is.
type rig struct {
	t       *testing.T
	ctx     context.Context
	addr    string
	served  chan Served
	refused chan string
}

func newRig(t *testing.T, s Server) *rig {
	t.Helper()
	r := &rig{t: t, served: make(chan Served, 16), refused: make(chan string, 16)}
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(context.Background(), patience)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r.addr = l.Addr().String()
	s.Done = func(s Served) { r.served <- s }
	s.Refused = func(_ netip.AddrPort, why string) { r.refused <- why }
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(r.ctx, l); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); serving.Wait() })
	return r
}

func (r *rig) dialFrom(from string) func(context.Context) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return func(ctx context.Context) (net.Conn, error) { return d.DialContext(ctx, "tcp", r.addr) }
}

func (r *rig) run(p Plan, e End) ([]Result, error) {
	var got []Result
	err := Client(r.ctx, r.dialFrom("127.0.0.1"), p, e, func(res Result) { got = append(got, res) })
	return got, err
}

func (r *rig) result() Served {
	r.t.Helper()
	select {
	case s := <-r.served:
		return s
	case <-r.ctx.Done():
		require.FailNow(r.t, "the server says nothing")
		return Served{}
	}
}

// Both ends measure the same, and what one sent the other has, one client after the other.
func TestCustom(t *testing.T) {
	plan := Plan{Size: 3001, Transfers: 7, Iterations: 5}
	r := newRig(t, Server{Plan: plan, Verify: true, Idle: patience})
	for range 3 {
		got, err := r.run(plan, End{Verify: true})
		require.NoError(t, err)
		s := r.result()
		require.NoError(t, s.Err)
		require.Equal(t, "127.0.0.1", s.Remote.Addr().String())
		for _, res := range [][]Result{got, s.Results} {
			require.Len(t, res, 1)
			require.Equal(t, Test{"custom", 3001, 7, 5}, res[0].Test)
			require.Positive(t, res[0].Took)
		}
	}
}

// What rstream measures by itself is what it measures: names, sizes, counts, connections.
func TestStandard(t *testing.T) {
	both := Plan{}.Connections()
	require.Equal(t, [][]Test{
		{{"64_lat", 64, 1, 100000}, {"4k_lat", 4096, 1, 10000}, {"64k_lat", 65536, 1, 1000},
			{"1m_lat", 1 << 20, 1, 100}},
		{{"64_bw", 64, 100000, 1}, {"4k_bw", 4096, 10000, 1}, {"64k_bw", 65536, 1000, 1},
			{"1m_bw", 1 << 20, 100, 1}},
	}, both)
	all := Standard(true)
	require.Len(t, all, 33)
	require.Equal(t, []int{64, 128, 192, 256, 384}, all[:5])
	require.Equal(t, []int{3 << 20, 4 << 20, 6 << 20}, all[30:])
	require.Equal(t, [][]Test{{Custom(5, 1000, 1)}}, Plan{Size: 5}.Connections())
	require.Equal(t, [][]Test{{Custom(1000, 1000, 9)}}, Plan{Iterations: 9}.Connections())
	require.Equal(t, "1.5k_lat", Latency(1536).Name)
}

// A line looks like rstream's, whose own for the same figures is this.
func TestLine(t *testing.T) {
	for want, r := range map[string]Result{
		"custom    1000    1k      1       1.9m        0.04s      0.43      18.71": {Custom(1000, 1000, 1), 37420 * time.Microsecond},
		"64_lat    64      1       100k    12m         5.84s      0.02      29.20": {Latency(64),
			5840 * time.Millisecond},
		"1m_bw     1m      100     1       200m        0.17s      9.93     844.77": {Bandwidth(1 << 20),
			168954 * time.Microsecond},
	} {
		require.Equal(t, want, r.String())
	}
	require.Equal(t, "2b", decimal(2e9))
	require.Equal(t, "1.5g", binary(3<<29))
}

// Ends that were told different things say so, and the server serves on.
func TestDifferent(t *testing.T) {
	plan := Plan{Size: 1000, Transfers: 10, Iterations: 1}
	for name, tc := range map[string]struct {
		client Plan
		end    End
		want   error
	}{
		"fewer": {Plan{Size: 1000, Transfers: 5, Iterations: 1}, End{Idle: 100 * time.Millisecond},
			ErrVanished},
		"more": {Plan{Size: 1000, Transfers: 20, Iterations: 1}, End{Idle: 100 * time.Millisecond},
			nil},
		"unchecked": {plan, End{}, new(MismatchError)},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Server{Plan: plan, Verify: true, Idle: patience})
			e := tc.end
			e.Verify = name != "unchecked"
			_, _ = r.run(tc.client, e)
			err := r.result().Err
			require.Error(t, err)
			if mismatch := new(MismatchError); errors.As(tc.want, &mismatch) {
				require.ErrorAs(t, err, &mismatch)
			} else if tc.want != nil {
				require.ErrorIs(t, err, tc.want)
			}
			_, err = r.run(plan, End{Verify: true})
			require.NoError(t, err)
			require.NoError(t, r.result().Err)
		})
	}
}

// A client that goes on where the test ends is reported, and one that stays is not waited for.
func TestLastWord(t *testing.T) {
	plan := Plan{Size: 100, Transfers: 1, Iterations: 1}
	r := newRig(t, Server{Plan: plan, Idle: patience})
	c, err := r.dialFrom("127.0.0.1")(r.ctx)
	require.NoError(t, err)
	e := End{Client: true}
	_, err = e.Run(c, Custom(100, 1, 1))
	require.NoError(t, err)
	_, err = c.Write([]byte("more"))
	require.NoError(t, err)
	require.ErrorIs(t, r.result().Err, errMore)
	require.NoError(t, c.Close())

	c, err = r.dialFrom("127.0.0.1")(r.ctx)
	require.NoError(t, err)
	defer c.Close()
	_, err = e.Run(c, Custom(100, 1, 1))
	require.NoError(t, err)
	n, err := c.Read(make([]byte, 1)) // the server closes, when it has waited
	require.Zero(t, n)
	require.Equal(t, io.EOF, err)
	require.NoError(t, r.result().Err)
}

// A client that says nothing, or does not come again, is given up; one from elsewhere is sent away
// meanwhile.
func TestClients(t *testing.T) {
	r := newRig(t, Server{Plan: Plan{Size: 100}, Idle: 50 * time.Millisecond})
	c, err := r.dialFrom("127.0.0.1")(r.ctx)
	require.NoError(t, err)
	defer c.Close()
	require.Equal(t, &SilenceError{50 * time.Millisecond}, r.result().Err)

	s := Server{Idle: 200 * time.Millisecond}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	refused := make(chan string, 1)
	s.Refused = func(_ netip.AddrPort, why string) { refused <- why }
	client, stranger := netip.MustParseAddrPort("127.0.0.1:1"), make(chan net.Conn)
	go func() {
		a, b := net.Pipe()
		_ = b.Close()
		select {
		case stranger <- a:
		case <-ctx.Done():
		}
	}()
	_, err = s.next(ctx, client, stranger)
	require.ErrorIs(t, err, errNoSecond)
	require.Equal(t, "127.0.0.1 is being served, one client at a time", <-refused)
	cancel()
	_, err = s.next(ctx, client, stranger)
	require.ErrorIs(t, err, context.Canceled)
}

// A transfer may take as long as it likes while something of it moves, in either direction; when
// nothing does the end comes, no sooner than it was told and an eighth later at the most.
func TestIdle(t *testing.T) {
	const idle, pieces = 16 * time.Second, 12
	for name, reading := range map[string]bool{"reading": true, "writing": false} {
		for pause := idle / 3; pause < idle; pause += idle/10 + 7 {
			t.Run(fmt.Sprint(name, pause), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a, b := net.Pipe()
					defer a.Close()
					defer b.Close()
					var last time.Time
					go func() {
						piece := make([]byte, 10)
						for range pieces {
							<-time.After(pause)
							last = time.Now()
							if reading {
								_, _ = b.Write(piece)
							} else {
								_, _ = io.ReadFull(b, piece)
							}
						}
					}()
					e, begin := End{Idle: idle}, time.Now()
					transfer := e.send
					if reading {
						transfer = e.receive
					}
					require.NoError(t, transfer(a, make([]byte, 10*(pieces-1))))
					err := transfer(a, make([]byte, 11))
					require.Equal(t, &SilenceError{idle}, err)
					require.Equal(t, pieces*pause, last.Sub(begin))
					require.GreaterOrEqual(t, time.Since(last), idle)
					require.LessOrEqual(t, time.Since(last), idle+idle/8)
				})
			})
		}
	}
}

// What ends a connection is said without the addresses, which stand before it already; a peer that
// is gone is one in either direction.
func TestEnded(t *testing.T) {
	e := End{Idle: time.Second}
	op := func(err error) error { return &net.OpError{Op: "write", Err: err} }
	for _, tc := range []struct{ err, want error }{
		{nil, nil}, {io.EOF, ErrVanished}, {op(syscall.EPIPE), ErrVanished},
		{op(os.NewSyscallError("write", syscall.EPIPE)), ErrVanished},
		{op(os.ErrDeadlineExceeded), &SilenceError{time.Second}},
		{op(io.ErrClosedPipe), io.ErrClosedPipe}, {io.ErrClosedPipe, io.ErrClosedPipe},
	} {
		require.Equal(t, tc.want, e.ended(tc.err))
	}
}

// Two connections, as rstream makes them, and the same count over both.
func TestTwoConnections(t *testing.T) {
	r := newRig(t, Server{Idle: patience})
	var results []Result
	e := End{Client: true, Verify: true}
	server := End{Verify: true}
	for _, tests := range [][]Test{{Custom(5, 3, 2), Custom(300, 1, 1)}, {Custom(70, 2, 2)}} {
		a, b := net.Pipe()
		var both sync.WaitGroup
		both.Go(func() {
			if err := server.Tests(r.ctx, b, tests, nil); err != nil {
				t.Error(err)
			}
		})
		require.NoError(t, e.Tests(r.ctx, a, tests, func(res Result) { results = append(results, res) }))
		both.Wait()
	}
	require.Len(t, results, 3)
	require.NotZero(t, e.sent)
}

// What cannot be is refused, and an end that is interrupted says so.
func TestRefused(t *testing.T) {
	var e End
	for _, bad := range []Test{Custom(0, 1, 1), Custom(1, 0, 1), Custom(1, 1, 0),
		Custom(SizeMax+1, 1, 1), Custom(1, CountMax+1, 1), Custom(1, 1, CountMax+1)} {
		_, err := e.Run(nil, bad)
		require.ErrorContains(t, err, "want 1 to")
	}
	a, b := net.Pipe()
	defer b.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, e.Tests(ctx, a, []Test{Custom(1, 1, 1)}, nil), context.Canceled)
}
