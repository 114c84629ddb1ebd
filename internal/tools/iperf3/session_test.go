package iperf3

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/sample"
)

// Our client against our server: both count the same, in every direction, to the last octet.
func TestOursAgainstOurs(t *testing.T) {
	r := newRig(t, timeouts{})
	for _, p := range []Params{
		{Bytes: 1, Streams: 1, Length: 1},
		{Bytes: 10_000_019, Streams: 3, Length: 1000},
		{Bytes: 10_000_019, Streams: 3, Length: 100_000, Reverse: true},
		{Bytes: 10_000_019, Streams: 3, Length: 77_777, Bidir: true, NoDelay: true},
		{Blocks: 37, Streams: 2, Length: LengthMax},
		{Bytes: 5 << 20, Streams: StreamsMax, Length: 4096, Bidir: true},
		{Time: time.Second, Streams: 2, Length: LengthDefault, Bidir: true},
		{Time: time.Second, Streams: 2, Length: LengthDefault, Reverse: true},
	} {
		client, err := r.run(p)
		require.NoError(t, err)
		server := await(t, r.done, "the server's report")
		for _, out := range client.Directions() {
			sum := client.Sum(out)
			require.Equal(t, sum, mirrored(server.Sum(!out)))
			require.Equal(t, sum.SentOctets, sum.ReceivedOctets)
			require.NotZero(t, sum.SentOctets)
			if n := p.limit(); n > 0 {
				require.Equal(t, n, sum.SentOctets)
			}
		}
		require.Equal(t, len(client.Directions())*p.Streams, len(client.Streams))
		require.NotZero(t, server.CPU)
	}
	require.Empty(t, r.failed)
}

// counted counts what is written to a connection.
type counted struct {
	net.Conn
	written *atomic.Uint64
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(uint64(n))
	return n, err
}

// The first second is not counted, neither its time nor its octets. How busy the machine is does
// not matter: all times are measured here as well.
func TestOmit(t *testing.T) {
	t.Parallel()
	r := newRig(t, timeouts{})
	var written atomic.Uint64
	dial := func(ctx context.Context) (net.Conn, error) {
		c, err := r.dial(ctx)
		return counted{c, &written}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	begin := time.Now()
	rep, err := Run(
		ctx,
		ClientConfig{Dial: dial, Params: Params{Time: time.Second, Omit: time.Second, Streams: 1,
			Length: 10_000, Rate: 8e6}})
	wall := time.Since(begin).Seconds()
	require.NoError(t, err)
	server := await(t, r.done, "the server's report")
	sent, received := rep.Sum(true), server.Sum(false)
	require.GreaterOrEqual(t, sent.SentSeconds, 0.9)
	require.LessOrEqual(t, sent.SentSeconds, wall-1)
	require.NotZero(t, sent.SentOctets)
	require.NotZero(t, received.ReceivedOctets)
	first := uint64(20_000) // some blocks of the omitted second
	require.LessOrEqual(t, sent.SentOctets, written.Load()-first)
	require.LessOrEqual(t, received.ReceivedOctets, written.Load()-first)
}

// A limit is counted from the end of the omitted time on.
func TestOmitThenLimit(t *testing.T) {
	t.Parallel()
	r := newRig(t, timeouts{})
	rep, err := r.run(Params{Bytes: 1e6, Omit: time.Second, Streams: 1, Length: 1000, Rate: 8e6})
	require.NoError(t, err)
	require.InDelta(t, 1e6, float64(rep.Sum(true).SentOctets), 2000)
	await(t, r.done, "the server's report")
}

// A whole exchange with what iperf 3.12 sends, octet for octet; the server's results differ only in
// its CPU time.
func TestServerGolden(t *testing.T) {
	r := newRig(t, timeouts{})
	c := r.peer(goldenCookie)
	c.expect("\x09")
	c.send(goldenParams)
	c.expect("\x0a")
	d := r.peer(goldenCookie)
	c.expect("\x01\x02")
	d.send(strings.Repeat("x", 5000))
	c.send("\x04")
	c.expect("\x0d")
	d.send(strings.Repeat("x", 1000)) // still on its way when TEST_END came
	c.send(strings.Replace(goldenSenderResults, `2057830400`, `      6000`, 1))
	var w wireResults
	require.NoError(t, readJSON(c.conn, &w))
	require.NoError(t, w.check(1))
	require.Equal(t, number(6000), w.Streams[0].Bytes)
	require.Equal(t, number(unknown), w.HasRetransmits, "a receiver knows of none")
	require.Equal(t, "ours", w.Congestion)
	c.expect("\x0e")
	c.send("\x10")
	require.Empty(t, c.rest())
	require.Empty(t, d.rest())
	sum := await(t, r.done, "the report").Sum(false)
	require.Equal(t, uint64(6000), sum.SentOctets)
	require.Equal(t, uint64(6000), sum.ReceivedOctets)
	require.Equal(t, int64(115), sum.Retransmits)
}

// Our client with what a server of iperf 3.12 sends.
func TestClientGolden(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	type outcome struct {
		rep *Report
		err error
	}
	ended := make(chan outcome, 1)
	go func() {
		rep, err := Run(context.Background(), ClientConfig{
			Params: Params{Bytes: 5000, Streams: 1, Length: 3000, Version: "3.12"},
			Dial:   func(context.Context) (net.Conn, error) { return net.Dial("tcp4", l.Addr().String()) },
		})
		ended <- outcome{rep, err}
	}()
	accept := func() *script {
		conn, err := l.Accept()
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		return &script{t, conn}
	}
	c := accept()
	defer c.conn.Close()
	cookie := make([]byte, cookieBytes)
	_, err = io.ReadFull(c.conn, cookie)
	require.NoError(t, err)
	c.send("\x09")
	c.expect("\x00\x00\x00|" +
		`{"tcp":true,"omit":0,"time":0,"num":5000,"blockcount":0,"parallel":1,"len":3000,"pacing_timer":1000,"client_version":"3.12"}`)
	c.send("\x0a")
	d := accept()
	defer d.conn.Close()
	d.expect(string(cookie))
	c.send("\x01\x02")
	b := make([]byte, 5000)
	_, err = io.ReadFull(d.conn, b)
	require.NoError(t, err)
	c.expect("\x04")
	c.send("\x0d")
	var w wireResults
	require.NoError(t, readJSON(c.conn, &w))
	require.Equal(t, number(5000), w.Streams[0].Bytes)
	c.send(strings.Replace(goldenReceiverResults, `2052259840`, `      4999`, 1))
	c.send("\x0e")
	c.expect("\x10")
	o := await(t, ended, "the client's end")
	require.NoError(t, o.err)
	require.Equal(t, uint64(5000), o.rep.Sum(true).SentOctets)
	require.Equal(t, uint64(4999), o.rep.Sum(true).ReceivedOctets)
	require.InDelta(t, 1.042185, o.rep.Sum(true).ReceivedSeconds, 0)
	require.Empty(t, d.rest(), "no octet more than the limit")
}

// Whatever a peer does ends in one error that says what it was; the next test is served.
func TestHostileClients(t *testing.T) {
	t.Parallel()
	r := newRig(t, timeouts{message: time.Second, idle: time.Second, drain: 200 * time.Millisecond})
	started := func() (c, d *script) {
		c = r.peer(goldenCookie)
		c.expect("\x09")
		c.send(goldenParams)
		c.expect("\x0a")
		d = r.peer(goldenCookie)
		c.expect("\x01\x02")
		return c, d
	}
	ended := func() (c *script) {
		c, d := started()
		d.send("x")
		c.send("\x04")
		c.expect("\x0d")
		return c
	}
	for _, row := range sample.Of(t, 6, []struct {
		name  string
		act   func() *script
		rest  string // what the peer still gets
		cause string
	}{
		{"nothing sent", func() *script { return r.peer("") }, "", "no cookie: 0 octets of 37"},
		{"half a cookie", func() *script {
			return r.peer(goldenCookie[:20])
		}, "", "no cookie: 20 octets of 37"},
		{"no cookie", func() *script {
			return r.peer(strings.Repeat("GET / ", 7))
		}, "", "not a client of iperf3"},
		{"no parameters", func() *script {
			return r.peer(goldenCookie)
		}, "\x09\xfe\x00\x00\x00\x72\x00\x00\x00\x00", "no parameters"},
		{"enormous parameters", func() *script { return r.peer(goldenCookie + "\xff\xff\xff\xff") },
			"\x09\xfe\x00\x00\x00\x72\x00\x00\x00\x00", "a message of 4294967295 octets"},
		{"parameters cut short", func() *script { return r.peer(goldenCookie + goldenParams[:50]) },
			"\x09\xfe\x00\x00\x00\x72\x00\x00\x00\x00", "no parameters"},
		{"not JSON", func() *script { return r.peer(goldenCookie + "\x00\x00\x00\x02{]") },
			"\x09\xfe\x00\x00\x00\x72\x00\x00\x00\x00", "bad JSON"},
		{"too many streams", func() *script {
			return r.peer(goldenCookie + "\x00\x00\x00}" + strings.Replace(goldenParams[4:], `"parallel":1`,
				`"parallel":999`, 1))
		}, "\x09\xfe\x00\x00\x00\x06\x00\x00\x00\x00", "999 parallel streams"},
		{"no data connection", func() *script { return r.peer(goldenCookie + goldenParams) },
			"\x09\x0a\xfe\x00\x00\x00\xcc\x00\x00\x00\x00", "only 0 of 1 data connection came"},
		{"unknown congestion control", func() *script {
			body := strings.Replace(goldenParams[4:], `"num":0`, `"num":0,"congestion":"nosuch"`, 1)
			c := r.peer(goldenCookie + "\x00\x00\x00" + string([]byte{byte(len(body))}) + body)
			c.expect("\x09\x0a")
			r.peer(goldenCookie)
			return c
		}, "\xfe\x00\x00\x00\x86\x00\x00\x00\x00", "no such congestion control"},
		{"ends before it began", func() *script { return r.peer(goldenCookie + goldenParams + "\x04") },
			"\x09\x0a\xfe\x00\x00\x00\xcc\x00\x00\x00\x00", "TEST_END before the test began"},
		{"nothing moves", func() *script { c, _ := started(); return c },
			"\xfe\x00\x00\x00\xce\x00\x00\x00\x00", "nothing moved for 1s"},
		{"an odd state", func() *script { c, _ := started(); c.send("\x63"); return c },
			"\xfe\x00\x00\x00\x72\x00\x00\x00\x00", "state 99 on the control connection"},
		{"a data connection reset", func() *script {
			c, d := started()
			require.NoError(t, d.conn.(*net.TCPConn).SetLinger(0))
			require.NoError(t, d.conn.Close())
			return c
		}, "\xfe\x00\x00\x00\xce\x00\x00\x00\x00", ""}, // nothing moved, or its connection failed
		{"no results", func() *script {
			return ended()
		}, "\xfe\x00\x00\x00\x75\x00\x00\x00\x00", "no results"},
		{"enormous results", func() *script { c := ended(); c.send("\x7f\xff\xff\xff"); return c },
			"\xfe\x00\x00\x00\x75\x00\x00\x00\x00", "a message of 2147483647 octets"},
		{"results of another test", func() *script {
			c := ended()
			c.send(strings.Replace(goldenSenderResults, `"id":1`, `"id":7`, 1))
			return c
		}, "\xfe\x00\x00\x00\xd0\x00\x00\x00\x00", "results of stream 7"},
	}) {
		t.Run(row.name, func(t *testing.T) {
			c := row.act()
			require.Equal(t, row.rest, c.rest())
			require.ErrorContains(t, await(t, r.failed, "the error"), row.cause)
			require.Empty(t, r.failed, "one error is enough")
		})
	}
	r.requireAlive()
}

// A client that claims to have sent more than comes is not waited for without end.
func TestClaimedButNeverSent(t *testing.T) {
	t.Parallel()
	r := newRig(t, timeouts{drain: time.Second})
	c := r.peer(goldenCookie + goldenParams)
	c.expect("\x09\x0a")
	d := r.peer(goldenCookie)
	c.expect("\x01\x02")
	d.send("five!")
	c.send("\x04")
	c.expect("\x0d")
	c.send(goldenSenderResults)
	var w wireResults
	require.NoError(t, readJSON(c.conn, &w))
	require.Equal(t, number(5), w.Streams[0].Bytes)
	c.expect("\x0e")
	_ = c.conn.Close() // instead of IPERF_DONE: it has its results
	require.Equal(t, uint64(5), await(t, r.done, "the report").Sum(false).ReceivedOctets)
}

// While a test gathers its connections or runs, strangers and even data connections too many are
// told that it is busy.
func TestBusy(t *testing.T) {
	r := newRig(t, timeouts{})
	c := r.peer(goldenCookie + goldenParams)
	c.expect("\x09\x0a")
	stranger := strings.Replace(goldenCookie, "p3", "q4", 1)
	require.Equal(t, "\xff", r.peer(stranger).rest())
	require.ErrorContains(t, await(t, r.failed, "the error"), "another test is running")
	r.peer(goldenCookie)
	c.expect("\x01\x02")
	require.Equal(t, "\xff", r.peer(stranger).rest())
	_, err := r.run(Params{Bytes: 1, Streams: 1, Length: 1})
	require.ErrorIs(t, err, ErrBusy)
	for range 2 {
		require.ErrorContains(t, await(t, r.failed, "the error"), "another test is running")
	}
	_ = c.conn.Close()
	require.ErrorContains(t, await(t, r.failed, "the error"),
		"closed the control connection instead of TEST_END")
	r.requireAlive()
}

// Connections that say nothing neither keep others from being served nor outlive the server.
func TestSilentConnections(t *testing.T) {
	r := newRig(t, timeouts{message: time.Hour})
	var silent []*script
	for range pendingMax - 8 {
		silent = append(silent, r.peer(""))
	}
	r.requireAlive()
	r.stop()
	for _, s := range silent {
		require.Empty(t, s.rest())
	}
}

// Streams keep the order in which they were opened, even when their cookies come in another.
func TestStreamOrder(t *testing.T) {
	r := newRig(t, timeouts{})
	c := r.peer(goldenCookie + goldenBidirParams)
	c.expect("\x09\x0a")
	first := r.peer("") // what the client sends on
	second := r.peer(goldenCookie)
	require.Equal(t, second.conn.LocalAddr().String(), c.nextPrepared(r, first))
	c.expect("\x01\x02")
	b := make([]byte, 1)
	_, err := io.ReadFull(second.conn, b)
	require.NoError(t, err, "the server sends on the second")
	require.NoError(t, first.conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = first.conn.Read(b)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "and not on the first")
}

// nextPrepared lets the late cookie come once the early one has been taken, and returns the address
// of the connection that stands second.
func (s *script) nextPrepared(r *rig, late *script) string {
	late.send(goldenCookie)
	require.Equal(s.t, late.conn.LocalAddr().String(),
		await(s.t, r.prepared, "a data connection").RemoteAddr().String())
	return await(s.t, r.prepared, "a data connection").RemoteAddr().String()
}

// Nothing of a server or a client is left when it has returned.
func TestNoGoroutineLeft(t *testing.T) {
	r := newRig(t, timeouts{})
	c := r.peer(goldenCookie + goldenParams)
	c.expect("\x09\x0a")
	r.peer(goldenCookie)
	c.expect("\x01\x02")
	r.stop()
	require.Equal(t, "\x0b", c.rest(), "SERVER_TERMINATE")
	require.Eventually(t, func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		for _, of := range []string{"(*Server).", "(*session).", "(*transfer).", "(*control)."} {
			if bytes.Contains(stacks, []byte("iperf3."+of)) {
				return false
			}
		}
		return true
	}, patience, 10*time.Millisecond)
}

func TestClientRefusesBadParams(t *testing.T) {
	for _, p := range []Params{
		{},
		{Streams: 1, Length: 1}, // no end
		{Streams: 0, Length: 1, Bytes: 1},
		{Streams: 1, Length: 0, Bytes: 1},
		{Streams: 1, Length: 1, Time: time.Second / 2},
		{Streams: 1, Length: 1, Bytes: 1, Reverse: true, Bidir: true},
	} {
		_, err := Run(context.Background(),
			ClientConfig{Params: p, Dial: func(context.Context) (net.Conn, error) {
				t.Error("dialled")
				return nil, io.EOF
			}})
		require.Error(t, err)
	}
}

// A server that sends closes its data connections before it asks for results: a client that reads
// to their end has all.
func TestSenderEndsBeforeResults(t *testing.T) {
	r := newRig(t, timeouts{})
	body := strings.Replace(goldenParams[4:], `"num":0`, `"num":5000,"reverse":true`, 1)
	c := r.peer(goldenCookie + "\x00\x00\x00" + string([]byte{byte(len(body))}) + body)
	c.expect("\x09\x0a")
	d := r.peer(goldenCookie)
	c.expect("\x01\x02")
	c.send("\x04")
	c.expect("\x0d")
	require.LessOrEqual(t, len(d.rest()), 5000)
	// neither has given up meanwhile
	c.send(strings.Replace(goldenReceiverResults, `2052259840`, `      5000`, 1))
	var w wireResults
	require.NoError(t, readJSON(c.conn, &w))
	c.expect("\x0e")
}

// A server that was told to end begins no test with what had been a data connection of the last
// one.
func TestNoTestAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{}
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	cancel()
	started, taken := s.seat(ctx, cookie{1}, ours, 0)
	require.Nil(t, started)
	require.False(t, taken)
	started, taken = s.seat(context.Background(), cookie{1}, ours, 0)
	require.NotNil(t, started)
	require.True(t, taken)
}
