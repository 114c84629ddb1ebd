package iperf3

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What iperf 3.12 (Debian 12) sends, taken from the wire.
const (
	goldenCookie = "p3e5asue3ecnvkldiwbmimydo4g5e75s5zz7\x00"
	goldenParams = "\x00\x00\x00{" +
		`{"tcp":true,"omit":0,"time":1,"num":0,"blockcount":0,"parallel":1,"len":131072,"pacing_timer":1000,"client_version":"3.12"}`
	goldenManyParams = "\x00\x00\x01\x02" +
		`{"tcp":true,"omit":1,"time":1,"num":0,"blockcount":0,"MSS":1400,"nodelay":true,"parallel":2,"reverse":true,` +
		`"window":102400,"len":131072,"bandwidth":1000000,"pacing_timer":1000,"title":"hello","congestion":"reno",` +
		`"get_server_output":1,"client_version":"3.12"}`
	goldenBidirParams = "\x00\x00\x00\x96" +
		`{"tcp":true,"omit":0,"time":0,"num":1048576,"blockcount":0,"parallel":1,"bidirectional":true,"len":131072,` +
		`"pacing_timer":1000,"client_version":"3.12"}`
	goldenUDPParams = "\x00\x00\x00\x8e" +
		`{"udp":true,"omit":0,"time":1,"num":0,"blockcount":0,"parallel":1,"len":32768,"bandwidth":1048576,` +
		`"pacing_timer":1000,"client_version":"3.12"}`
	goldenSenderResults = "\x00\x00\x01\x1e" +
		`{"cpu_util_total":29.106741948735586,"cpu_util_user":0.3710603498514421,"cpu_util_system":28.73529945640232,` +
		`"sender_has_retransmits":1,"congestion_used":"bbr","streams":[{"id":1,"bytes":2057830400,"retransmits":115,` +
		`"jitter":0,"errors":0,"packets":0,"start_time":0,"end_time":1.000057}]}`
	goldenReceiverResults = "\x00\x00\x01B" +
		`{"cpu_util_total":33.9615291246998,"cpu_util_user":0.21320468129162506,"cpu_util_system":33.748228491706413,` +
		`"sender_has_retransmits":18446744073709551615,"congestion_used":"bbr","streams":[{"id":1,"bytes":2052259840,` +
		`"retransmits":18446744073709551615,"jitter":0,"errors":0,"packets":0,"start_time":0,"end_time":1.042185}]}`
)

func TestCookie(t *testing.T) {
	c, err := readCookie(strings.NewReader(goldenCookie))
	require.NoError(t, err)
	require.Equal(t, goldenCookie, string(c[:]))

	ours := newCookie()
	again, err := readCookie(bytes.NewReader(ours[:]))
	require.NoError(t, err)
	require.Equal(t, ours, again)
	require.NotEqual(t, ours, newCookie())
}

func TestCookieRefusesWhatIsNone(t *testing.T) {
	for n := range goldenCookie {
		_, err := readCookie(strings.NewReader(goldenCookie[:n]))
		require.ErrorContains(t, err, "no cookie", "%d octets", n)
	}
	for _, text := range []string{
		"GET / HTTP/1.1\r\nHost: 127.0.0.1:5201\r\n\r\n", // what a browser sends
		strings.Repeat("\x00", cookieBytes),
		strings.Repeat("a", cookieBytes),
		strings.Repeat("\xff", cookieBytes-1) + "\x00",
	} {
		_, err := readCookie(strings.NewReader(text))
		require.ErrorContains(t, err, "not a client of iperf3", "%q", text)
	}
}

func TestResultsGolden(t *testing.T) {
	var w wireResults
	require.NoError(t, readJSON(strings.NewReader(goldenReceiverResults), &w))
	require.NoError(t, w.check(1))
	require.Equal(t, uint64(2052259840), uint64(w.Streams[0].Bytes))
	require.Equal(t, int64(unknown), w.Streams[0].retransmits(), "-1 is printed as unsigned")
	require.InDelta(t, 1.042185, float64(w.Streams[0].End), 0)
	require.InDelta(t, 33.96, w.cpu().Total, 0.01)

	w = wireResults{}
	require.NoError(t, readJSON(strings.NewReader(goldenSenderResults), &w))
	require.NoError(t, w.check(1))
	require.Equal(t, int64(115), w.Streams[0].retransmits())
}

// What we send is what cJSON reads by name; ours must come back as it was.
func TestResultsRoundTrip(t *testing.T) {
	in := wireResults{CPUTotal: 12.5, HasRetransmits: 1, Congestion: "cubic", ServerOutput: "x\n",
		Streams: []wireStream{
			{ID: 1, Bytes: 1 << 52, Retransmits: 3, End: 10.5},
			{ID: 3, Bytes: 7, Retransmits: unknown, End: 10.5},
		}}
	b, err := appendJSON(nil, in)
	require.NoError(t, err)
	require.Contains(t, string(b), `"bytes":4503599627370496,`, "not with an exponent")
	require.Contains(t, string(b), `"retransmits":-1,`)
	var out wireResults
	require.NoError(t, readJSON(bytes.NewReader(b), &out))
	require.Equal(t, in, out)
}

func TestResultsRefused(t *testing.T) {
	good := func() wireResults {
		return wireResults{Streams: []wireStream{{ID: 1, Bytes: 5, End: 1}, {ID: 3, Bytes: 5, End: 1}}}
	}
	w := good()
	require.NoError(t, w.check(2))
	for name, spoil := range map[string]func(w *wireResults){
		"one too few":      func(w *wireResults) { w.Streams = w.Streams[:1] },
		"one too many":     func(w *wireResults) { w.Streams = append(w.Streams, wireStream{ID: 4}) },
		"twice the same":   func(w *wireResults) { w.Streams[1].ID = 1 },
		"no such ID":       func(w *wireResults) { w.Streams[1].ID = 2 },
		"ID out of range":  func(w *wireResults) { w.Streams[1].ID = 4 },
		"negative ID":      func(w *wireResults) { w.Streams[1].ID = math.MinInt },
		"negative bytes":   func(w *wireResults) { w.Streams[0].Bytes = -1 },
		"too many bytes":   func(w *wireResults) { w.Streams[0].Bytes = 1e300 },
		"half an octet":    func(w *wireResults) { w.Streams[0].Bytes = 0.5 },
		"ends before":      func(w *wireResults) { w.Streams[0].End = -1 },
		"begins before":    func(w *wireResults) { w.Streams[0].Start = -1 },
		"not in this life": func(w *wireResults) { w.Streams[0].End = 1e18 },
	} {
		w := good()
		spoil(&w)
		var p *ProtocolError
		require.ErrorAs(t, w.check(2), &p, name)
	}
}

func TestJSONRefused(t *testing.T) {
	var w wireParams
	for n := range len(goldenParams) {
		require.Error(t, readJSON(strings.NewReader(goldenParams[:n]), &w), "%d octets", n)
	}
	// An enormous length is refused before anything is allocated or read for it.
	r := bytes.NewReader(append([]byte{0xFF, 0xFF, 0xFF, 0xFF}, "{}"...))
	require.ErrorContains(t, readJSON(r, &w), "more than")
	require.Equal(t, 2, r.Len())
	for _, text := range []string{"", "{", "[]", `{"len":"x"}`, `{"len":1}{}`, "\x00\x00",
		strings.Repeat("[", 1<<17)} {
		b := binary.BigEndian.AppendUint32(nil, uint32(len(text)))
		require.Error(t, readJSON(bytes.NewReader(append(b, text...)), &w), "%.20q", text)
	}
}

func TestStateNames(t *testing.T) {
	seen := map[string]bool{}
	for s := math.MinInt8; s <= math.MaxInt8; s++ {
		seen[State(s).String()] = true
	}
	require.Len(t, seen, 256)
	require.Equal(t, "ACCESS_DENIED", State(-1).String())
	require.Equal(t, "state 99", State(99).String())
}

// judged runs expect against what the other end writes.
func judged(t *testing.T, want State, sent string) error {
	t.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		_, _ = io.WriteString(theirs, sent)
		_ = theirs.Close()
	}()
	c := control{ctx: context.Background(), conn: ours, timeout: time.Minute}
	return c.expect(want)
}

func TestExpect(t *testing.T) {
	require.NoError(t, judged(t, DisplayResults, "\x0e"))
	require.ErrorIs(t, judged(t, DisplayResults, "\xff"), ErrBusy)
	require.ErrorIs(t, judged(t, DisplayResults, "\x0b"), ErrTerminated)
	require.ErrorIs(t, judged(t, DisplayResults, "\x0c"), ErrTerminated)
	require.ErrorContains(t, judged(t, DisplayResults, "\x10"),
		"IPERF_DONE on the control connection instead of DISPLAY_RESULTS")
	require.ErrorContains(t, judged(t, DisplayResults, ""),
		"closed the control connection instead of DISPLAY_RESULTS")

	var remote *RemoteError
	require.ErrorAs(t, judged(t, ParamExchange, "\xfe\x00\x00\x00\x06\x00\x00\x00\x68"), &remote)
	require.Equal(t, CodeNumStreams, remote.Code)
	require.ErrorContains(t, remote,
		"error 6 (number of parallel streams too large: connection reset by peer)")
	require.ErrorContains(t, judged(t, ParamExchange, "\xfe\x00\x00\x00\x06"), "without its codes")
	require.ErrorAs(t, judged(t, ParamExchange, "\xfe\x00\x01\x00\x06\x00\x00\x00\x00"), &remote)
	require.ErrorContains(t, remote, "error 65542")
}

func TestFlag(t *testing.T) {
	for text, want := range map[string]flag{"true": true, "1": true, `"x"`: true, "false": false,
		"0": false, "null": false} {
		var f flag
		require.NoError(t, json.Unmarshal([]byte(text), &f))
		require.Equal(t, want, f, text)
	}
}

// Whatever is sent, decoding ends, refuses with an error of ours or of the connection, and accepts
// only what is in bounds.
func FuzzControl(f *testing.F) {
	for _, s := range []string{goldenCookie + goldenParams, goldenCookie + goldenManyParams,
		goldenCookie + goldenBidirParams,
		goldenCookie + goldenUDPParams, goldenCookie + goldenSenderResults,
		goldenCookie + goldenReceiverResults,
		goldenCookie + "\xff\xff\xff\xff{}", "GET / HTTP/1.1"} {
		f.Add([]byte(s), uint8(1))
	}
	f.Fuzz(func(t *testing.T, b []byte, streams uint8) {
		r := bytes.NewReader(b)
		if _, err := readCookie(r); err != nil {
			var p *ProtocolError
			require.ErrorAs(t, err, &p)
			r = bytes.NewReader(b)
		}
		rest := b[len(b)-r.Len():]
		var wp wireParams
		if readJSON(r, &wp) == nil {
			if p, err := wp.params(); err == nil {
				require.NoError(t, p.check())
				require.LessOrEqual(t, len(p.layout(true)), 2*StreamsMax)
				require.LessOrEqual(t, p.limit(), uint64(countMax))
				var again wireParams
				m, err := appendJSON(nil, p.wire())
				require.NoError(t, err)
				require.NoError(t, readJSON(bytes.NewReader(m), &again))
				q, err := again.params()
				require.NoError(t, err)
				require.Equal(t, p, q)
			} else {
				var pe *ProtocolError
				require.True(t, errors.As(err, &pe) && pe.Code != 0, "%v", err)
			}
		}
		var wr wireResults
		if readJSON(bytes.NewReader(rest), &wr) == nil && wr.check(int(streams)) == nil {
			for _, s := range wr.Streams {
				i := streamIndex(s.ID)
				require.True(t, i >= 0 && i < int(streams))
				require.Equal(t, s.ID, streamID(i))
				require.LessOrEqual(t, uint64(s.Bytes), uint64(countMax))
			}
		}
	})
}
