package iperf3

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/sample"
)

// Both ends report the same octets, in each direction: Debian's iperf3 as client, ours as server.
func TestRealClient(t *testing.T) {
	r := newRig(t, timeouts{})
	const all = 8 << 20
	for _, row := range sample.Of(t, 4, []struct {
		name  string
		args  []string
		exact uint64 // octets that must have arrived each way, 0: as many as it happens
		whole bool   // all that was sent has arrived
	}{
		{"octets", []string{"-n", "8M"}, all, true},
		{"octets on four streams", []string{"-n", "8M", "-P", "4"}, all, true},
		{"octets back", []string{"-n", "8M", "-R"}, all, true},
		{"octets back on four streams", []string{"-n", "8M", "-R", "-P", "4"}, all, true},
		{"blocks", []string{"-k", "1000", "-l", "999"}, 999000, true},
		{"time", []string{"-t", "1"}, 0, true},
		{"time back", []string{"-t", "1", "-R"}, 0, false}, // iperf3 stops counting at TEST_END
		{"both ways", []string{"-t", "1", "--bidir", "-P", "2"}, 0, false},
		{"omit", []string{"-t", "1", "-O", "1", "-b", "80M"}, 0, false},
		{"small blocks without delay", []string{"-n", "100K", "-l", "100", "-N"}, 102400, true},
	}) {
		t.Run(row.name, func(t *testing.T) {
			begin := time.Now()
			out, err := r.client(append(row.args, "-J")...).wait(t)
			wall := time.Since(begin)
			require.NoError(t, err, "%s", out)
			theirs := parseReal(t, out)
			require.Empty(t, theirs.Error)
			ours := await(t, r.done, "our report")
			out1 := ours.Directions()[0]
			if ours.Params.Bidir {
				out1 = false // iperf3's first sums are of what the client sends
				back := ours.Sum(true)
				require.Equal(t, theirs.End.BackSent.Bytes, back.SentOctets)
				require.Equal(t, theirs.End.BackReceived.Bytes, back.ReceivedOctets)
				require.NotZero(t, back.ReceivedOctets)
			}
			sum := ours.Sum(out1)
			require.Equal(t, theirs.End.Sent.Bytes, sum.SentOctets)
			require.Equal(t, theirs.End.Received.Bytes, sum.ReceivedOctets)
			require.NotZero(t, sum.ReceivedOctets)
			if row.whole {
				require.Equal(t, sum.SentOctets, sum.ReceivedOctets)
			}
			if row.exact != 0 {
				require.Equal(t, row.exact, sum.ReceivedOctets)
			}
			if ours.Params.Time > 0 {
				require.GreaterOrEqual(t, sum.SentSeconds, 0.1) // iperf3 ends on its own timer
				require.LessOrEqual(t, sum.SentSeconds, (wall - ours.Params.Omit).Seconds())
			}
		})
	}
	require.Empty(t, r.failed)
}

// Ours as client, Debian's iperf3 as server. iperf3's server prints only what it counted itself.
func TestRealServer(t *testing.T) {
	const all = 8 << 20
	for _, row := range sample.Of(t, 3, []struct {
		name string
		p    Params
		// all that was sent has arrived: a server of iperf3 does not count what it has not read by
		// TEST_END
		whole bool
	}{
		{"octets", Params{Bytes: all, Streams: 1}, false},
		{"octets on four streams", Params{Bytes: all, Streams: 4}, false},
		{"octets back", Params{Bytes: all, Streams: 1, Reverse: true}, true},
		{"octets back on four streams", Params{Bytes: all, Streams: 4, Reverse: true}, true},
		{"blocks", Params{Blocks: 1000, Streams: 1, Length: 999}, false},
		{"time", Params{Time: time.Second, Streams: 1, Congestion: "reno", NoDelay: true}, false},
		{"time back", Params{Time: time.Second, Streams: 2, Reverse: true, Rate: 400e6}, true},
		{"both ways", Params{Bytes: all, Streams: 2, Bidir: true}, false},
		{"omit", Params{Time: time.Second, Omit: time.Second, Streams: 1, Reverse: true, Rate: 80e6},
			false},
	}) {
		t.Run(row.name, func(t *testing.T) {
			if row.p.Length == 0 {
				row.p.Length = LengthDefault
			}
			prog, dial := realServer(t, "-J")
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			ours, err := Run(ctx, ClientConfig{Params: row.p, Dial: dial})
			require.NoError(t, err)
			out, err := prog.wait(t)
			require.NoError(t, err, "%s", out)
			theirs := parseReal(t, out)
			sum := ours.Sum(ours.Directions()[0])
			require.NotZero(t, sum.SentOctets)
			switch {
			case row.p.Bidir:
				require.Equal(t, uint64(all), sum.SentOctets)
				require.Equal(t, theirs.End.Received.Bytes, sum.ReceivedOctets)
				back := ours.Sum(false)
				require.Equal(t, theirs.End.BackSent.Bytes, back.SentOctets)
				require.Equal(t, back.SentOctets, back.ReceivedOctets, "we read to the end")
			case row.p.Reverse:
				require.Equal(t, theirs.End.Sent.Bytes, sum.SentOctets)
			default:
				require.Equal(t, theirs.End.Received.Bytes, sum.ReceivedOctets)
				require.LessOrEqual(t, sum.ReceivedOctets, sum.SentOctets)
				if n := row.p.limit(); n > 0 {
					require.Equal(t, n, sum.SentOctets)
				}
			}
			if row.whole {
				require.Equal(t, sum.SentOctets, sum.ReceivedOctets)
			}
			if row.p.Rate != 0 {
				require.InEpsilon(t, float64(row.p.Rate)*float64(row.p.Streams),
					BitsPerSecond(sum.SentOctets, sum.SentSeconds), 0.5)
			}
		})
	}
}

// Our JSON has the numbers of iperf3 -J under the same keys.
func TestJSONLikeIperf3(t *testing.T) {
	r := newRig(t, timeouts{})
	out, err := r.client("-n", "4M", "--bidir", "-P", "2", "-J").wait(t)
	require.NoError(t, err, "%s", out)
	theirs := parseReal(t, out)
	var b bytes.Buffer
	require.NoError(t, await(t, r.done, "our report").WriteJSON(&b))
	require.Equal(t, 1, bytes.Count(b.Bytes(), []byte("\n")))
	ours := parseReal(t, b.String())
	require.Equal(t, theirs.End.Sent.Bytes, ours.End.Sent.Bytes)
	require.Equal(t, theirs.End.Received.Bytes, ours.End.Received.Bytes)
	require.Equal(t, theirs.End.BackSent.Bytes, ours.End.BackSent.Bytes)
	require.Equal(t, theirs.End.BackReceived.Bytes, ours.End.BackReceived.Bytes)
	require.Equal(t, int64(14), *ours.End.BackSent.Retransmits,
		"of two senders, as our transport says")
	require.Equal(t, int64(14), *theirs.End.BackSent.Retransmits)

	// Every key of ours stands in iperf3's report too, in what the two have in common.
	type keys struct {
		Start struct {
			Test map[string]any `json:"test_start"`
		} `json:"start"`
		End map[string]any `json:"end"`
	}
	var ourKeys, theirKeys keys
	require.NoError(t, json.Unmarshal(b.Bytes(), &ourKeys))
	require.NoError(t, json.Unmarshal([]byte(out), &theirKeys))
	for key := range ourKeys.End {
		require.Contains(t, theirKeys.End, key)
	}
	delete(ourKeys.Start.Test, "bidir") // 3.13 and later
	for key := range ourKeys.Start.Test {
		require.Contains(t, theirKeys.Start.Test, key)
	}
}

func TestServerOutput(t *testing.T) {
	r := newRig(t, timeouts{})
	out, err := r.client("-n", "128K", "-J", "--get-server-output").wait(t)
	require.NoError(t, err, "%s", out)
	require.Contains(t, parseReal(t, out).ServerOutput, "rnicd received 131072 octets")
	await(t, r.done, "our report")

	prog, dial := realServer(t)
	p := Params{Bytes: 64 << 10, Streams: 1, Length: 1000, ServerOutput: true}
	rep, err := Run(context.Background(), ClientConfig{Params: p, Dial: dial})
	require.NoError(t, err)
	require.Contains(t, rep.ServerOutput, "Accepted connection from 127.0.0.1")
	_, err = prog.wait(t)
	require.NoError(t, err)
}

// The stock client prints what it was refused for, and the next test is served.
func TestRealClientRefused(t *testing.T) {
	r := newRig(t, timeouts{})
	for _, row := range []struct {
		args        []string
		says, cause string
	}{
		{[]string{"-u", "-t", "1"}, "protocol does not exist", "the client wants UDP"},
		{[]string{"--sctp", "-t", "1"}, "no SCTP support available", "the client wants SCTP"},
	} {
		out, err := r.client(row.args...).wait(t)
		require.Error(t, err)
		require.Contains(t, out, row.says)
		require.ErrorContains(t, await(t, r.failed, "our error"), row.cause)
	}
	r.requireAlive()
}

func TestRealClientBusy(t *testing.T) {
	r := newRig(t, timeouts{})
	first := r.client("-t", "60")
	await(t, r.prepared, "a data connection")
	out, err := r.client("-t", "1").wait(t)
	require.Error(t, err)
	require.Contains(t, out, "the server is busy running a test")
	require.ErrorContains(t, await(t, r.failed, "our error"), "another test is running")

	require.NoError(t, first.cmd.Process.Signal(syscall.SIGINT))
	require.ErrorIs(t, await(t, r.failed, "our error"), ErrTerminated)
	_, _ = first.wait(t)
	r.forget()
	r.requireAlive()
}

// forget forgets the data connections so far.
func (r *rig) forget() {
	for len(r.prepared) > 0 {
		<-r.prepared
	}
}

// A client that is killed in the middle, in either direction, ends its test at once and nothing
// else.
func TestRealClientKilled(t *testing.T) {
	r := newRig(t, timeouts{})
	for _, args := range [][]string{{"-t", "60", "-P", "2"}, {"-t", "60", "-P", "2", "-R"},
		{"-t", "60", "--bidir"}} {
		c := r.client(args...)
		await(t, r.prepared, "a data connection")
		await(t, r.prepared, "a data connection")
		require.NoError(t, c.cmd.Process.Kill())
		require.ErrorContains(t, await(t, r.failed, "our error"), "control connection")
		_, _ = c.wait(t)
		r.requireAlive()
		r.forget()
	}
}

// Interrupting our server ends the stock client with its own words.
func TestServerStopped(t *testing.T) {
	r := newRig(t, timeouts{})
	c := r.client("-t", "60", "-R")
	await(t, r.prepared, "a data connection")
	r.stop()
	out, err := c.wait(t)
	require.Error(t, err)
	require.Contains(t, out, "the server has terminated")
	require.ErrorIs(t, await(t, r.failed, "our error"), context.Canceled)
}

// Interrupting our client ends its test at the stock server, and says so there.
func TestClientInterrupted(t *testing.T) {
	prog, dial := realServer(t)
	ctx, cancel := context.WithCancel(context.Background())
	wrote := make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() {
		_, err := Run(ctx, ClientConfig{
			Params: Params{Time: time.Minute, Streams: 1, Length: 1000},
			Dial: func(ctx context.Context) (net.Conn, error) {
				c, err := dial(ctx)
				return tellWrote{c, wrote}, err
			},
		})
		ended <- err
	}()
	await(t, wrote, "a block")
	cancel()
	require.ErrorIs(t, await(t, ended, "the client's end"), context.Canceled)
	out, _ := prog.wait(t)
	require.Contains(t, out, "the client has terminated")
}

// tellWrote tells of blocks.
type tellWrote struct {
	net.Conn
	wrote chan<- struct{}
}

func (c tellWrote) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if n == 1000 {
		select {
		case c.wrote <- struct{}{}:
		default:
		}
	}
	return n, err
}
