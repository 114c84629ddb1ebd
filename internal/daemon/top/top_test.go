package top

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/rnicd/rnicd/internal/daemon/control"
	"github.com/rnicd/rnicd/internal/status"
	"github.com/rnicd/rnicd/rnic"
)

const patience = time.Minute

// look is a daemon with two ports after so many seconds.
func look(seconds int) *Look {
	begin := time.Unix(1_000_000, 0)
	n := uint64(seconds)
	q := status.Queue{Core: 3, Drops: map[string]uint64{"tcp/no_conn": 2, "inet/ttl": 5}}
	q.Counters.RxFrames, q.Counters.RxOctets, q.Counters.TxFrames = 1000*n, 1_500_000*n, 10*n
	q.Counters.Turns, q.Counters.EmptyTurns, q.Counters.Conns = 100*n, 75*n, 2
	q.Counters.Memory.Totals.Retransmits, q.RDMA.OutOfOrder, q.RDMA.Reassembled, q.RDMA.CRCErrors = 7,
		12345, 8, 1
	other := status.Queue{Core: -1}
	other.Counters.RxFrames, other.Counters.Conns = 5000*n, 1
	l := &Look{Daemon: &status.Daemon{
		Version: "v1", State: status.Serving, Healthy: true, Started: begin,
		At: begin.Add(time.Duration(seconds) * time.Second),
		Ports: []status.Port{
			{Name: "one", Queues: []status.Queue{q}, Refused: map[string]uint64{"backlog": 2, "dialect": 1}},
			{Name: "two", Queues: []status.Queue{other}, Refused: map[string]uint64{"backlog": 1}},
		},
		Services: []status.Service{{Name: "scratch", Type: "region", Listen: 7174, Connections: 1,
			ConnectionsMax: 64, Accepted: 3}},
	}}
	for i := range 3 {
		c := status.Connection{Port: "one", Kind: status.RDMA, Service: "scratch",
			RDMA: &rnic.ConnInfo{State: "rts", Dialect: "rfc6581", MarkersIn: true, CRC: true}}
		c.Conn.Local, c.Conn.Remote, c.Conn.State = netip.MustParseAddrPort("10.9.0.1:7174"),
			netip.MustParseAddrPort(fmt.Sprint("10.9.0.2:", 50000+i)), "ESTABLISHED"
		c.Conn.TCP.BytesIn, c.Conn.TCP.SRTTNs, c.Conn.TCP.Cwnd, c.Conn.TCP.Retransmits =
			1_000_000*n*uint64(i), 250_000, 14480, uint64(i)
		c.RDMA.Stats.Receive.OutOfOrder = 9
		l.Connections = append(l.Connections, c)
	}
	return l
}

// A port over the kernel's sockets has no queues that count its connections.
func TestFrameCountsKernelConnections(t *testing.T) {
	is := &Look{Daemon: &status.Daemon{Ports: []status.Port{{Name: "lo", Driver: "kernel",
		KernelConnections: 3}}}}
	lines := Frame(nil, is, &State{}, 80, 0)
	require.Regexp(t, `^lo +0 +3 +-`, lines[3])
}

// Two looks make rates; rows are in the order of the chosen column; no line is wider than 80
// columns, and none is beyond the screen.
func TestFrame(t *testing.T) {
	was, is := look(10), look(12)
	for _, tc := range []struct {
		state State
		want  string
	}{
		{State{}, `
rnicd v1  serving, healthy  up 12s  3 connections
ports, by port (2)
*port    qs  conn  rx/s  tx/s rxB/s txB/s  retr ahead reass  crc drops busy%
one       1     2  1.0k    10  1.5M     0     7   12k     8    1     7    25
two       1     1  5.0k     0     0     0     0     0     0    0     0     -
drops: inet/ttl 5, tcp/no_conn 2
refused: backlog 3, dialect 1`},
		{State{View: Queues, Sort: [viewMax]int{Queues: 4}}, `
rnicd v1  serving, healthy  up 12s  3 connections
queues, by rx/s (2)
port      q core conn *rx/s  tx/s rxB/s txB/s  retr ahead reass  crc drops busy%
two       0    -    1  5.0k     0     0     0     0     0     0    0     0     -
one       0    3    2  1.0k    10  1.5M     0     7   12k     8    1     7    25
drops: inet/ttl 5, tcp/no_conn 2
refused: backlog 3, dialect 1`},
		{State{View: Connections, Sort: [viewMax]int{Connections: 3}, Row: 1}, `
rnicd v1  serving, healthy  up 12s  3 connections
connections, by inB/s (3)
remote                service state   *inB/ outB/s    rtt  cwnd retr ahead reass
10.9.0.2:50001        scratch rts      1.0M      0  250us   14k    1     9     0
10.9.0.2:50000        scratch rts         0      0  250us   14k    0     9     0`},
	} {
		lines := Frame(was, is, &tc.state, 80, 0)
		require.Equal(t, strings.TrimPrefix(tc.want, "\n"), strings.Join(lines, "\n"))
		for _, l := range lines {
			require.LessOrEqual(t, len(l), 80)
		}
		require.Len(t, Frame(was, is, &tc.state, 80, 4), 4)
	}
	rogue := *is.Daemon // a daemon's text moves no cursor
	rogue.Version = "\x1b[2J"
	require.Contains(t, Frame(nil, &Look{Daemon: &rogue}, &State{}, 80, 0)[0],
		`rnicd \x1b[2J  serving`)
	first := strings.Join(Frame(nil, is, &State{}, 80, 0), "\n")
	require.Contains(t, first, "one       1     2     -     -     -     -     7",
		"no rates at the first look")
	detail := strings.Join(Frame(was, is, &State{View: Connections, Detail: true, Row: 2}, 0, 0), "\n")
	require.Contains(t, detail, "established 10.9.0.1:7174 -> 10.9.0.2:50002  port:one queue:0 rdma "+
		"service:scratch\n")
	require.Contains(t, detail, "rdma rts rfc6581 markers:in crc:true\n")
	var out bytes.Buffer
	WriteStatus(&out, is.Daemon)
	require.Contains(t, out.String(),
		"scratch      region      7174      1 of 64         3        0       0\n")
	for n, want := range map[float64]string{0: "0", 999: "999", 999.6: "1.0k", 9949: "9.9k",
		9950: "10k", 123e6: "123M", 5e18: "5000P"} {
		require.Equal(t, want, Number(n))
	}
}

func TestKeys(t *testing.T) {
	require.Equal(t, []string{keyUp, "n", keyRight, keyEnter, keyEnd},
		keysOf([]byte("\x1b[An\x1bOC\r\x03")))
	require.Equal(t, []string{"["}, keysOf([]byte("\x1b[")))
	s := State{}
	for range s.View.columns(look(1)) {
		s.key("s", look(1))
	}
	require.Zero(t, s.Sort[Ports])
	s.key(keyLeft, look(1))
	require.Equal(t, s.View.columns(look(1))-1, s.Sort[Ports])
	s.key("n", look(1))
	s.key(keyEnter, look(1))
	require.True(t, s.Detail)
	s.key("p", look(1))
	require.Equal(t, State{Sort: s.Sort}, s)
}

// switchLook is a switch with an uplink and two programs after so many seconds.
func switchLook(seconds int) *Look {
	begin := time.Unix(1_000_000, 0)
	n := uint64(seconds)
	return &Look{Switch: &status.Switch{
		Kind: status.KindSwitch, Version: "v1", Healthy: true, Started: begin,
		At: begin.Add(time.Duration(seconds) * time.Second), Refused: 4,
		Threads: []status.SwitchThread{{Core: 2, Turns: 100 * n, BusyTurns: 25 * n, Frames: 3000 * n,
			Lookups: 10 * n, BufsFree: 4000, Bufs: 4096, Drops: map[string]uint64{"wire-full": 2 * n}}},
		Uplinks: []status.SwitchPort{{Name: "nic", Queue: 1, Thread: 0, Received: 2000 * n,
			ReceivedB: 3_000_000 * n, Device: map[string]uint64{"rx no buf": 5}}},
		Programs: []status.SwitchPort{
			{Name: "one", Attached: true, Sent: 1500 * n, SentB: 2_250_000 * n, Waiting: 7, WaitMax: 512,
				Throttled: 3 * n, Drops: map[string]uint64{"full": 20 * n, "spoofed-mac": 3},
				Program: &status.SwitchProgram{Addresses: []string{"10.9.0.1"}, PID: 801, UID: 998, GID: 998,
					Client: "rnicd"}},
			{Name: "two", Thread: 0, Rings: map[string]uint64{"index": n},
				Program: &status.SwitchProgram{Addresses: []string{"10.9.0.2"}}},
		},
	}}
}

// A switch is shown by port and by thread, with rates, and drops by reason; one port in full. No
// line is wider than 80 columns.
func TestFrameOfSwitch(t *testing.T) {
	was, is := switchLook(10), switchLook(12)
	for _, tc := range []struct {
		state State
		want  string
	}{
		{State{Sort: [viewMax]int{Ports: 4}}, `
rnicd switch v1  healthy  up 12s  1 of 2 attached  4 refused
ports, by tx/s (3)
port              thr     state  rx/s *tx/s rxB/s txB/s wait throt/s drop/s
one                 0  attached     0  1.5k     0  2.2M    7       3     20
nic#1               0    uplink  2.0k     0  3.0M     0    0       0      0
two                 0  detached     0     0     0     0    0       0      1
drops: full 240, ring index 12, device rx no buf 5, spoofed-mac 3
drops a second: full 20, ring index 1`},
		{State{View: Queues}, `
rnicd switch v1  healthy  up 12s  1 of 2 attached  4 refused
threads, by thread (1)
*thread  core frames/s lookup/s copies/s answer/s  free    of drop/s busy%
0           2     3.0k       10        0        0  4000  4096      2    25
drops: wire-full 24
drops a second: wire-full 2`},
		{State{Detail: true, Row: 1}, `
rnicd switch v1  healthy  up 12s  1 of 2 attached  4 refused
one  thread 0  0 frames from it, 18000 to it, 7 of 512 wait
10.9.0.1
pid 801 uid 998 gid 998 "rnicd"
dropped: full 240, spoofed-mac 3
drops a second: full 20`},
	} {
		lines := Frame(was, is, &tc.state, 80, 0)
		require.Equal(t, strings.TrimPrefix(tc.want, "\n"), strings.Join(lines, "\n"))
	}
	require.Contains(t, strings.Join(Frame(nil, is, &State{}, 80, 0), "\n"),
		"one                 0  attached     -     -     -     -    7       -      -")
	is.Switch.Healthy, is.Switch.Error, is.Switch.Programs = false, "core 0 does not turn", nil
	require.Contains(t, strings.Join(Frame(was, is, &State{}, 80, 0), "\n"),
		"A THREAD STANDS STILL  up 12s  0 of 0 attached  4 refused\nno counters: core 0 does not turn")
	s := State{}
	s.key("n", is)
	require.Equal(t, Ports, s.View, "a switch has no connections")
	s.key(keyEnter, is)
	require.True(t, s.Detail)
}

// A switch that answers is asked for its ports, never for connections.
func TestAskOfSwitch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	server, err := control.Listen(path, 0o600)
	require.NoError(t, err)
	defer server.Close()
	server.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		control.Reply(w, switchLook(10).Switch)
	})
	server.Serve()
	c := control.NewClient(path)
	defer c.Close()
	l, err := Ask(t.Context(), c, Queues, nil)
	require.NoError(t, err)
	require.Len(t, l.Switch.Programs, 2)
	_, err = Ask(t.Context(), c, Connections, nil)
	require.ErrorContains(t, err, "which has no connections")
	p := newPTY(t, 80, 24)
	ended := make(chan error, 1)
	go func() { ended <- Run(t.Context(), c, State{}, nil, time.Hour, p.slave, p.slave) }()
	at := p.await(t, 0, "ports, by port (3)")
	write(t, p, "n")
	write(t, p, "c")
	p.await(t, at, "threads, by thread (1)")
	write(t, p, "q")
	require.NoError(t, <-ended)
}

// pty is a terminal, and what was written to it.
type pty struct {
	master, slave *os.File
	mu            sync.Mutex
	text          strings.Builder
	more          chan struct{}
}

func newPTY(t *testing.T, width, height int) *pty {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = master.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = slave.Close() })
	p := &pty{master: master, slave: slave, more: make(chan struct{})}
	p.resize(t, width, height)
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			if err != nil {
				return
			}
			p.mu.Lock()
			p.text.Write(b[:n])
			close(p.more)
			p.more = make(chan struct{})
			p.mu.Unlock()
		}
	}()
	return p
}

func (p *pty) resize(t *testing.T, width, height int) {
	require.NoError(t, unix.IoctlSetWinsize(int(p.master.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Col: uint16(width), Row: uint16(height)}))
}

// await waits for a text after what was seen before, and returns all up to it.
func (p *pty) await(t *testing.T, after int, want string) int {
	t.Helper()
	late := time.After(patience)
	for {
		p.mu.Lock()
		text, more := p.text.String(), p.more
		p.mu.Unlock()
		if i := strings.Index(text[after:], want); i >= 0 {
			return after + i + len(want)
		}
		select {
		case <-more:
		case <-late:
			require.Failf(t, "not shown", "%q in %q", want, text[after:])
		}
	}
}

// daemonFor answers as a daemon does.
func daemonFor(t *testing.T) (*control.Server, *control.Client) {
	path := filepath.Join(t.TempDir(), "control.sock")
	s, err := control.Listen(path, 0o600)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	s.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		control.Reply(w, look(10).Daemon)
	})
	s.HandleFunc("GET /v1/connections", func(w http.ResponseWriter, _ *http.Request) {
		for _, c := range look(10).Connections {
			_ = json.NewEncoder(w).Encode(c)
		}
	})
	s.Serve()
	c := control.NewClient(path)
	t.Cleanup(c.Close)
	return s, c
}

// On a terminal keys choose what is shown, a changed size is followed, and on every way out the
// terminal is as it was: q, the end of ctx, a signal, and a daemon that ends.
func TestRun(t *testing.T) {
	ways := map[string]func(t *testing.T, p *pty, s *control.Server, cancel func()){
		"q":   func(t *testing.T, p *pty, _ *control.Server, _ func()) { write(t, p, "q") },
		"ctx": func(_ *testing.T, _ *pty, _ *control.Server, cancel func()) { cancel() },
		"signal": func(t *testing.T, _ *pty, _ *control.Server, _ func()) {
			require.NoError(t, unix.Kill(os.Getpid(), unix.SIGTERM))
		},
		"daemon": func(t *testing.T, p *pty, s *control.Server, _ func()) {
			require.NoError(t, s.Close())
			write(t, p, "p") // it asks at once
		},
	}
	for name, leave := range ways {
		t.Run(name, func(t *testing.T) {
			s, c := daemonFor(t)
			p := newPTY(t, 80, 24)
			before, err := term.GetState(int(p.slave.Fd()))
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- Run(ctx, c, State{}, nil, time.Hour, p.slave, p.slave) }()
			at := p.await(t, 0, altScreen)
			at = p.await(t, at, "ports, by port (2)")
			at = p.await(t, at, Keys)
			write(t, p, "n")
			at = p.await(t, at, "connections, by remote (3)")
			write(t, p, "\r")
			at = p.await(t, at, "rdma rts rfc6581")
			write(t, p, "\r")
			at = p.await(t, at, "10.9.0.2:50002")
			p.resize(t, 20, 4)
			require.NoError(t, unix.Kill(os.Getpid(), unix.SIGWINCH))
			at = p.await(t, at, clearBelow)
			at = p.await(t, at, "remote   "[:9])
			p.mu.Lock()
			last := p.text.String()[strings.LastIndex(p.text.String()[:at], home):]
			p.mu.Unlock()
			require.LessOrEqual(t, strings.Count(last, "\r\n"), 3)
			leave(t, p, s, cancel)
			err = <-ended
			if name == "daemon" {
				require.ErrorContains(t, err, "no daemon answers")
			} else {
				require.NoError(t, err)
			}
			p.await(t, at, mainScreen)
			after, err := term.GetState(int(p.slave.Fd()))
			require.NoError(t, err)
			require.Equal(t, before, after)
		})
	}
	_, c := daemonFor(t)
	file, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer file.Close()
	require.ErrorContains(t, Run(context.Background(), c, State{}, nil, time.Hour, file, file),
		"needs a terminal; --once prints one look")
}

func write(t *testing.T, p *pty, keys string) {
	_, err := p.master.WriteString(keys)
	require.NoError(t, err)
}
