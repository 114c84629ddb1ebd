package daemon

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/daemon/metrics"
	"github.com/rnicd/rnicd/internal/daemon/top"
	"github.com/rnicd/rnicd/internal/status"
	"github.com/rnicd/rnicd/internal/tools/bytestream"
	"github.com/rnicd/rnicd/internal/tools/perf"
	"github.com/rnicd/rnicd/internal/tools/perf/pair"
	"github.com/rnicd/rnicd/internal/tools/xfer"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// put writes n octets into a region.
func (r *rig) put(dev *rnic.Adapter, addr string, n int) error {
	data := bytes.Repeat([]byte("0123456789"), n/10+1)[:n]
	_, err := xfer.Put(r.ctx, xfer.PutConfig{Adapter: dev, Addr: addr, Source: bytes.NewReader(data),
		Length: uint64(n)})
	return err
}

// measure reads so often, 100 octets each time, of a service of type perf.
func (r *rig) measure(addr string, reads int) error {
	_, err := pair.Run(r.ctx, pair.ClientConfig{Adapter: r.dev, Addr: addr,
		Test: perf.Test{Op: perf.Read, Latency: true, Size: 100, Iterations: reads}})
	return err
}

// measuring has a client measure until end is called, and returns when it is connected.
func (r *rig) measuring(addr string) (qp *rnic.QueuePair, end func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.ctx)
	connected, ended := make(chan *rnic.QueuePair, 1), make(chan error, 1)
	go func() {
		_, err := pair.Run(ctx, pair.ClientConfig{Adapter: r.dev, Addr: addr,
			Test:      perf.Test{Op: perf.Read, Latency: true, Size: 100, Duration: time.Hour},
			Connected: func(qp *rnic.QueuePair) { connected <- qp }})
		ended <- err
	}()
	select {
	case qp = <-connected:
	case err := <-ended:
		require.NoError(r.t, err)
	}
	return qp, func() {
		cancel()
		require.Error(r.t, <-ended)
	}
}

// everyService is the configuration of one service of each type (testdata/services.toml), with a
// file.
func everyService(t *testing.T, file string) string {
	t.Helper()
	text := must(os.ReadFile("testdata/services.toml"))(t)
	return strings.NewReplacer("path = \"FILE\"", fmt.Sprintf("path = %q\npage = \"normal\"", file),
		"\"SIZE\"", "\"1MiB\"\npage = \"normal\"").Replace(string(text))
}

// dial connects our TCP to the daemon's.
func (r *rig) dial(ctx context.Context, tcp int) (net.Conn, error) {
	d := stream.Dialer{Pollers: r.client.Pollers()}
	return d.DialContext(ctx, "tcp", at(tcp))
}

// session runs one end of a byte stream to a service.
func (r *rig) session(tcp int, mode string) error {
	c, err := r.dial(r.ctx, tcp)
	if err != nil {
		return err
	}
	defer c.Close()
	s := bytestream.Session{Conn: c, Length: 4096, Idle: patience, Bytes: 100_000}
	return s.Run(r.ctx, mode)
}

// clients is a client for each of everyService's, by the service's name.
func (r *rig) clients(content []byte) map[string]func() error {
	return map[string]func() error{
		"scratch": func() error { return r.put(r.dev, at(7174), 500_000) },
		"image": func() error {
			var got bytes.Buffer
			_, err := xfer.Get(r.ctx,
				xfer.GetConfig{Adapter: r.dev, Addr: at(7000), Begin: func(uint64) (io.Writer, error) {
					return &got, nil
				}})
			if err == nil && !bytes.Equal(got.Bytes(), content) {
				return fmt.Errorf("%d octets that are not the file's", got.Len())
			}
			return err
		},
		"measure": func() error {
			_, err := pair.Run(r.ctx,
				pair.ClientConfig{Adapter: r.dev, Addr: at(7175),
					Test: perf.Test{Op: perf.Read, Size: 5000, Iterations: 50}})
			return err
		},
		"sink":   func() error { return r.session(7002, "source") },
		"source": func() error { return r.session(7003, "sink") },
		"echo":   func() error { return r.session(7004, "source") },
	}
}

// One daemon serves every type of service at the same time, each to a client of its kind.
func TestEveryService(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	content := bytes.Repeat([]byte("what is served "), 5000)
	require.NoError(t, os.WriteFile(path, content, 0o600))
	r := start(t, everyService(t, path))
	require.Len(t, r.d.Services(), 6)
	clients := r.clients(content)
	for round := range 2 {
		ends := make(chan error, len(clients))
		for name, client := range clients {
			go func() {
				if err := client(); err != nil {
					ends <- fmt.Errorf("%s: %w", name, err)
					return
				}
				ends <- nil
			}()
		}
		for range clients {
			require.NoError(t, <-ends)
		}
		for name := range clients {
			r.log.await(t, round+1, "level=INFO msg=served service="+name+" remote=10.9.0.2:")
		}
	}
	bad, _ := r.log.lines("msg=(failed|refused)")
	require.Empty(t, bad)
	r.awaitConnections(0)
	require.Len(t, r.d.Pollers(), 1)
	require.Equal(t, "cable", r.d.Pollers()[0].Port)
}

// One region is served on several ports, over our TCP and over the kernel's: no two clients get the
// same octets of it, and one port's clients leave no room to the other's.
func TestOneRegionOnTwoPorts(t *testing.T) {
	tcp := freePort(t)
	r := start(t, fmt.Sprintf(`
[[port]]
name = "lo"
driver = "kernel"
addresses = ["127.0.0.1"]
[[service]]
name = "scratch"
type = "region"
size = "1MiB"
page = "normal"
listen = %d
`, tcp))
	sockets := must(rnic.Open(rnic.Config{}))(t)
	defer func() { require.NoError(t, closeAdapter(sockets)) }()
	require.NoError(t, r.put(sockets, fmt.Sprint("127.0.0.1:", tcp), 1<<20))
	require.NoError(t, r.put(r.dev, at(tcp), 1<<20))
	hold, held := io.Pipe() // the transfer begins, and has the region
	first := make(chan error, 1)
	go func() {
		_, err := xfer.Put(r.ctx, xfer.PutConfig{Adapter: r.dev, Addr: at(tcp), Source: hold,
			Length: 1 << 20})
		first <- err
	}()
	must(held.Write([]byte("x")))(t)
	err := r.put(sockets, fmt.Sprint("127.0.0.1:", tcp), 1000)
	require.ErrorContains(t, err,
		"the server refused: no room for 1000 octets while 1 other transfers run; try again later")
	must(held.Write(make([]byte, 1<<20-1)))(t)
	require.NoError(t, <-first)
}

// freePort is a TCP port of the kernel's that is not in use.
func freePort(t *testing.T) int {
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// A client that is not allowed, or beyond the limit, is told so and counted.
func TestAdmission(t *testing.T) {
	r := start(t, `
[[service]]
name = "others"
type = "perf"
listen = 7001
allow = ["10.8.0.0/16", "10.9.0.3"]
[[service]]
name = "ours"
type = "region"
size = "64KiB"
page = "normal"
listen = 7002
allow = ["10.9.0.0/30"]
connections = 3
peer_connections = 2
[[service]]
name = "one"
type = "region"
size = "64KiB"
page = "normal"
listen = 7003
connections = 1
[[service]]
name = "streams"
type = "stream"
listen = 7004
mode = "echo"
allow = ["fd09::/64"]
[[service]]
name = "quota"
type = "region"
size = "64KiB"
quota = "16KiB"
page = "normal"
`)
	require.ErrorContains(t, r.measure(at(7001), 1),
		"the server refused: 10.9.0.2 is in none of the networks that are served")
	r.log.await(t, 1, "level=WARN msg=refused service=others remote=10.9.0.2:")
	c, err := (&stream.Dialer{Pollers: r.client.Pollers()}).DialContext(r.ctx, "tcp", at(7004))
	if err == nil {
		_, err = c.Read(make([]byte, 1))
		_ = c.Close()
	}
	require.Error(t, err)
	r.log.await(t, 1, "level=WARN msg=refused service=streams remote=10.9.0.2:")
	require.NoError(t, r.put(r.dev, at(7174), 16<<10))
	require.ErrorContains(t, r.put(r.dev, at(7174), 16<<10+1), "a client may hold 16384 of the region")
	r.awaitConnections(0)

	end := r.holding(at(7002), 2)
	require.ErrorContains(t, r.put(r.dev, at(7002), 1000),
		"2 clients at your address are being served, and no more of one at a time; try again later")
	require.Len(t, r.d.Connections(), 2)
	end()
	end = r.holding(at(7003), 1)
	require.ErrorContains(t, r.put(r.dev, at(7003), 1000),
		"1 other clients are being served, and no more at a time; try again later")
	end()
	// Each is counted by its cause; the port has them too, where they came as far as start-up.
	r.log.await(t, 5, "level=WARN msg=refused")
	got := r.d.Status(r.ctx)
	for name, want := range map[string]map[string]uint64{
		"others": {"allow": 1}, "streams": {"allow": 1}, "quota": {"request": 1},
		"ours": {"peer_connections": 1}, "one": {"connections": 1},
	} {
		for _, s := range got.Services {
			if s.Name == name {
				require.Equal(t, want, s.RefusedBy, name)
				require.EqualValues(t, 1, s.Refused, name)
			}
		}
	}
	require.Equal(t, map[string]uint64{"rejected": 4}, got.Ports[0].Refused,
		"a stream knows no start-up")
	w := httptest.NewRecorder()
	metrics.Handler(metrics.Collector{Status: r.d.Status}).ServeHTTP(
		w, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{
		`rnicd_service_refused_total{cause="peer_connections",service="ours"} 1`,
		`rnicd_service_refused_total{cause="allow",service="ours"} 0`,
		`rnicd_startups_refused_total{cause="rejected",port="` + got.Ports[0].Name + `"} 4`,
		`rnicd_startups_refused_total{cause="dialect",port="` + got.Ports[0].Name + `"} 0`,
	} {
		require.Contains(t, w.Body.String(), line+"\n")
	}
	var shown strings.Builder
	top.WriteStatus(&shown, got)
	require.Contains(t, shown.String(), "\nrefused: rejected 4\n")
	require.Regexp(t, `\nours .*\n  refused: peer_connections 1\n`, shown.String())
}

// Of Pollers the port says what they refused at their limits, before there was a start-up.
func TestRefusedByPollers(t *testing.T) {
	q := status.Queue{}
	q.Counters.Own[stack.DropConnMax], q.Counters.Own[stack.DropPeerMax] = 3, 4
	p := status.Port{Queues: []status.Queue{q, q},
		Startup: rnic.StartupCounters{Refused: rnic.StartupRefusals{PeerConnections: 1, Timeout: 5}}}
	p.SumRefused()
	require.Equal(t, map[string]uint64{"connections": 6, "peer connections": 9, "timeout": 5},
		p.Refused)
}

// source is a file of zeros that can be read when go is closed, and says when it is to be read.
type source struct {
	asked, go_ chan struct{}
	once       sync.Once
}

func (s *source) Read(b []byte) (int, error) {
	s.once.Do(func() { close(s.asked) })
	<-s.go_
	clear(b)
	return len(b), nil
}

// holding has n clients begin to put into a region, and returns when all are served. They go on
// when end is called, which waits for them and says what became of each.
func (r *rig) holding(addr string, n int) (end func() []error) {
	r.t.Helper()
	ends, goOn := make(chan error, n), make(chan struct{})
	open := sync.OnceFunc(func() { close(goOn) })
	r.t.Cleanup(open)
	for range n {
		s := &source{asked: make(chan struct{}), go_: goOn}
		go func() {
			_, err := xfer.Put(r.ctx, xfer.PutConfig{Adapter: r.dev, Addr: addr, Source: s, Length: 1000})
			ends <- err
		}()
		select {
		case <-s.asked:
		case err := <-ends:
			require.NoError(r.t, err)
		}
	}
	return func() (all []error) {
		open()
		for range n {
			all = append(all, <-ends)
		}
		r.awaitConnections(0)
		return all
	}
}

// awaitConnections waits until the daemon has n: a client's call may return before the daemon has
// ended its end.
func (r *rig) awaitConnections(n int) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		return len(r.d.Connections()) == n
	}, patience, time.Millisecond)
}

// region is a service that clients put into.
const region = `
[[service]]
name = "region"
type = "region"
size = "1MiB"
page = "normal"
`

// A drain takes no new connections, and waits for those that there are.
func TestDrainWaits(t *testing.T) {
	r := start(t, region+"[limits]\ndrain = \"1h\"\n")
	end := r.holding(at(7174), 2)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		r.d.Drain(r.ctx)
	}()
	region := r.d.Services()[0]
	require.Eventually(t, func() bool {
		region.mu.Lock()
		defer region.mu.Unlock()
		return region.retired
	}, patience, time.Millisecond)
	require.Error(t, r.put(r.dev, at(7174), 1000))
	require.Len(t, r.d.Connections(), 2, "which can be looked at meanwhile")
	select {
	case <-drained:
		t.Fatal("it did not wait")
	default:
	}
	for _, err := range end() {
		require.NoError(t, err)
	}
	<-drained
	require.Empty(t, r.d.listeners)
	require.Contains(t, r.log.await(t, 1, "msg=drained"), "reset=0")
	_, err := r.d.Reload(r.ctx, r.parse(cable))
	require.ErrorIs(t, err, ErrEnding)
}

// When its time is over, or it is told to, a drain resets what is left.
func TestDrainIsBounded(t *testing.T) {
	for name, limit := range map[string]string{"its time": "50ms", "told": "1h"} {
		t.Run(name, func(t *testing.T) {
			r := start(t, region+"[limits]\ndrain = \""+limit+"\"\n")
			end := r.holding(at(7174), 2)
			ctx, cancel := context.WithCancel(r.ctx)
			if name == "told" {
				cancel()
			}
			begin := time.Now()
			r.d.Drain(ctx)
			require.Less(t, time.Since(begin), patience/2)
			cancel()
			for _, err := range end() {
				require.Error(t, err)
			}
			require.Contains(t, r.log.await(t, 1, "msg=drained"), "reset=2")
		})
	}
}

// A connection that a drain has reset is told as that, and is no failure.
func TestDrainTellsOfWhatItReset(t *testing.T) {
	port := freePort(t)
	r := start(t, fmt.Sprintf(`
[[port]]
name = "lo"
driver = "kernel"
addresses = ["127.0.0.1"]
[[service]]
name = "echo"
type = "stream"
mode = "echo"
ports = ["lo"]
listen = %d
[limits]
drain = "1ms"
`, port))
	c := must(net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)))(t)
	defer c.Close()
	must(io.WriteString(c, "a"))(t)
	must(io.ReadFull(c, make([]byte, 1)))(t)
	var counted int
	for _, p := range r.d.Status(r.ctx).Ports {
		counted += p.KernelConnections
	}
	require.Equal(t, 1, counted)
	echo := r.d.Services()[0]
	r.d.Drain(r.ctx)
	r.log.await(t, 1, `level=INFO msg="reset at the end of the drain" .*remote=127.0.0.1:`)
	require.Zero(t, echo.Failed.Load())
}

// A daemon that cannot start gives everything back, and says what was in the way.
func TestStartAllOrNothing(t *testing.T) {
	taken := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	free := freePort(t)
	r := start(t, "")
	text := fmt.Sprintf(`
[[port]]
name = "lo"
driver = "kernel"
addresses = ["127.0.0.1"]
[[service]]
name = "a"
type = "perf"
listen = %d
[[service]]
name = "b"
type = "perf"
listen = %d
`, free, taken.Addr().(*net.TCPAddr).Port)
	_, err := Start(r.ctx, r.parse(text), Options{Log: r.log})
	require.ErrorContains(t, err, `service "b" on port "lo": rnic: listen on "127.0.0.1:`)
	l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", free))
	require.NoError(t, err, "it was given back")
	require.NoError(t, l.Close())
}
