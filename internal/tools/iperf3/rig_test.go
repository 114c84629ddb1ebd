package iperf3

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience bounds every wait. It is generous: the machine may be busy.
const patience = 60 * time.Second

// await receives within patience.
func await[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		require.FailNow(t, "waited in vain", "for %s", what)
		panic("unreachable")
	}
}

// rig is a Server on the kernel's loopback.
type rig struct {
	t        *testing.T
	addr     string
	began    chan Params
	prepared chan net.Conn // a data connection that came
	done     chan *Report
	failed   chan error
	stop     func() // ends Serve and waits for it
}

// prepared tells of every data connection; it knows nothing of TCP.
type tellPrepared chan<- net.Conn

func (p tellPrepared) Prepare(c net.Conn, params Params) error {
	p <- c
	if params.Congestion == "nosuch" {
		return errors.New("no such congestion control")
	}
	return nil
}

func (p tellPrepared) Info(net.Conn) Info { return Info{Retransmits: 7, Congestion: "ours"} }

func newRig(t *testing.T, wait timeouts) *rig {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	r := &rig{
		t: t, addr: l.Addr().String(), began: make(chan Params, 1024),
		prepared: make(chan net.Conn, 1024),
		done:     make(chan *Report, 1024), failed: make(chan error, 1024),
	}
	s := NewServer(ServerConfig{
		Transport: tellPrepared(r.prepared),
		Began:     func(_ net.Addr, p Params) { r.began <- p },
		Done:      func(rep *Report) { r.done <- rep },
		Failed:    func(_ net.Addr, err error) { r.failed <- err },
	})
	s.wait = wait.orDefault()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, await(t, served, "the end of Serve"))
	})
	t.Cleanup(r.stop)
	return r
}

func (r *rig) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp4", r.addr)
}

// peer dials and writes, for scripts.
func (r *rig) peer(send string) *script { return newScript(r.t, r.addr, send) }

// run runs a test of our own client.
func (r *rig) run(p Params) (*Report, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return Run(ctx, ClientConfig{Params: p, Dial: r.dial})
}

// requireAlive runs a whole test: whatever happened before, the server lives on.
func (r *rig) requireAlive() {
	r.t.Helper()
	rep, err := r.run(Params{Bytes: 1 << 20, Streams: 2, Length: 64 << 10})
	require.NoError(r.t, err)
	require.Equal(r.t, uint64(1<<20), rep.Sum(true).ReceivedOctets)
	require.Equal(r.t, rep.Sum(true), mirrored(await(r.t, r.done, "the server's report").Sum(false)))
}

func mirrored(s StreamReport) StreamReport {
	s.Sends = !s.Sends
	return s
}

// script is a peer that sends octets of the test's making.
type script struct {
	t    *testing.T
	conn net.Conn
}

func newScript(t *testing.T, addr, send string) *script {
	t.Helper()
	conn, err := net.DialTimeout("tcp4", addr, patience)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	s := &script{t, conn}
	s.send(send)
	return s
}

func (s *script) send(text string) {
	s.t.Helper()
	_, err := io.WriteString(s.conn, text)
	require.NoError(s.t, err)
}

// expect reads exactly text.
func (s *script) expect(text string) {
	s.t.Helper()
	b := make([]byte, len(text))
	n, err := io.ReadFull(s.conn, b)
	require.NoError(s.t, err, "after %q", b[:n])
	require.Equal(s.t, text, string(b))
}

// rest reads to the end, whatever kind of end it is.
func (s *script) rest() string {
	s.t.Helper()
	b, err := io.ReadAll(s.conn)
	require.False(s.t, errors.Is(err, context.DeadlineExceeded), "the connection does not end")
	var timeout net.Error
	require.False(s.t, errors.As(err, &timeout) && timeout.Timeout(), "the connection does not end")
	return string(b)
}

// program is a started iperf3.
type program struct {
	cmd    *exec.Cmd
	out    bytes.Buffer
	exited chan error
}

func startIperf3(t *testing.T, args ...string) *program {
	t.Helper()
	path, err := exec.LookPath("iperf3")
	require.NoError(t, err, "scripts/deps.sh test installs it")
	p := &program{cmd: exec.Command(path, args...), exited: make(chan error, 1)}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	require.NoError(t, p.cmd.Start())
	over := make(chan struct{})
	go func() {
		p.exited <- p.cmd.Wait()
		close(over)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-over
	})
	return p
}

// wait waits for the end and returns what was printed.
func (p *program) wait(t *testing.T) (string, error) {
	t.Helper()
	err := await(t, p.exited, "the end of iperf3")
	return p.out.String(), err
}

// realReport is what the tests look at of iperf3 -J.
type realReport struct {
	Error string `json:"error"`
	End   struct {
		Sent         realSum `json:"sum_sent"`
		Received     realSum `json:"sum_received"`
		BackSent     realSum `json:"sum_sent_bidir_reverse"`
		BackReceived realSum `json:"sum_received_bidir_reverse"`
	} `json:"end"`
	ServerOutput string `json:"server_output_text"`
}

type realSum struct {
	Bytes       uint64  `json:"bytes"`
	Seconds     float64 `json:"seconds"`
	Retransmits *int64  `json:"retransmits"`
}

func parseReal(t *testing.T, out string) (r realReport) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(out), &r), "%s", out)
	return r
}

// client runs iperf3 against the rig.
func (r *rig) client(args ...string) *program {
	r.t.Helper()
	_, port, err := net.SplitHostPort(r.addr)
	require.NoError(r.t, err)
	return startIperf3(r.t, append([]string{"-c", "127.0.0.1", "-p", port}, args...)...)
}

// realServer starts iperf3 -s for one test and returns how to reach it.
func realServer(t *testing.T, args ...string) (*program, func(context.Context) (net.Conn, error)) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	p := startIperf3(t, append([]string{"-s", "-1", "-p", strconv.Itoa(port)}, args...)...)
	return p, func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		for {
			c, err := d.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
			if !errors.Is(err, syscall.ECONNREFUSED) {
				return c, err
			}
			select { // it is just starting
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}
