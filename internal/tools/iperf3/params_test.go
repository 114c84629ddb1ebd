package iperf3

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func decoded(t testing.TB, message string) (Params, error) {
	t.Helper()
	var w wireParams
	require.NoError(t, readJSON(strings.NewReader(message), &w))
	return w.params()
}

func TestParamsGolden(t *testing.T) {
	p, err := decoded(t, goldenParams)
	require.NoError(t, err)
	require.Equal(t, Params{Time: time.Second, Streams: 1, Length: 128 << 10, Version: "3.12"}, p)
	require.Equal(t, []bool{false}, p.layout(true), "the client sends")
	require.Equal(t, []bool{true}, p.layout(false))

	// What we send for the same test is octet for octet what iperf3 sends.
	b, err := appendJSON(nil, p.wire())
	require.NoError(t, err)
	require.Equal(t, goldenParams, string(b))

	p, err = decoded(t, goldenManyParams)
	require.NoError(t, err)
	require.Equal(t, Params{
		Reverse: true, Time: time.Second, Omit: time.Second, Streams: 2, Length: 128 << 10, Rate: 1e6,
		NoDelay: true, Window: 102400,
		Congestion: "reno", Title: "hello", ServerOutput: true, Version: "3.12",
	}, p)
	require.Equal(t, []bool{true, true}, p.layout(true))

	p, err = decoded(t, goldenBidirParams)
	require.NoError(t, err)
	require.Equal(t, uint64(1<<20), p.limit())
	require.Equal(t, []bool{false, true}, p.layout(true), "first what the client sends on")
	require.Equal(t, []bool{true, false}, p.layout(false))
}

func TestParamsRefused(t *testing.T) {
	_, err := decoded(t, goldenUDPParams)
	var p *ProtocolError
	require.ErrorAs(t, err, &p)
	require.Equal(t, CodeProtocol, p.Code)
	for _, row := range []struct {
		from, to string
		code     Code
	}{
		{`"tcp":true`, `"sctp":true`, CodeNoSCTP},
		{`"parallel":1`, `"parallel":0`, CodeNumStreams},
		{`"parallel":1`, `"parallel":129`, CodeNumStreams},
		{`"parallel":1`, `"TOS":256,"parallel":1`, CodeTOS},
		{`"parallel":1`, `"TOS":-1,"parallel":1`, CodeTOS},
		{`"parallel":1`, `"parallel":1.5`, CodeParams},
		{`"parallel":1`, `"parallel":-1`, CodeParams},
		{`"parallel":1`, `"parallel":1e300`, CodeParams},
		{`"len":131072`, `"len":0`, CodeBlockSize},
		{`"len":131072`, `"len":1048577`, CodeBlockSize},
		{`"len":131072`, `"x":1`, CodeBlockSize},
		{`"time":1`, `"time":86401`, CodeDuration},
		{`"time":1`, `"time":-1`, CodeDuration},
		{`"omit":0`, `"omit":601`, CodeOmit},
		{`"num":0`, `"num":-5`, CodeParams},
		{`"num":0`, `"num":1e17`, CodeParams},
		{`"blockcount":0`, `"blockcount":1e15`, CodeParams},
		{`"num":0`, `"num":0,"reverse":true,"bidirectional":true`, CodeReverseBidi},
		{`"num":0`, `"num":0,"bandwidth":-1`, CodeParams},
		{`"num":0`, `"num":0,"window":1e12`, CodeParams},
		{`"num":0`, `"num":0,"congestion":"` + strings.Repeat("x", 300) + `"`, CodeParams},
	} {
		body := strings.Replace(goldenParams[4:], row.from, row.to, 1)
		require.NotEqual(t, goldenParams[4:], body, row.from)
		_, err := decoded(t, string([]byte{0, 0, byte(len(body) >> 8), byte(len(body))})+body)
		require.ErrorAs(t, err, &p, row.to)
		require.Equal(t, row.code, p.Code, row.to)
	}
}

func TestParamsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Params{
			Time:         time.Duration(rapid.IntRange(0, 86400).Draw(t, "time")) * time.Second,
			Omit:         time.Duration(rapid.IntRange(0, 600).Draw(t, "omit")) * time.Second,
			Bytes:        rapid.Uint64Range(0, countMax).Draw(t, "bytes"),
			Blocks:       rapid.Uint64Range(0, countMax/LengthMax).Draw(t, "blocks"),
			Streams:      rapid.IntRange(1, StreamsMax).Draw(t, "streams"),
			Length:       rapid.IntRange(1, LengthMax).Draw(t, "length"),
			Rate:         rapid.Uint64Range(0, countMax).Draw(t, "rate"),
			NoDelay:      rapid.Bool().Draw(t, "nodelay"),
			Window:       rapid.IntRange(0, 1<<30).Draw(t, "window"),
			Congestion:   rapid.SampledFrom([]string{"", "cubic"}).Draw(t, "cc"),
			ServerOutput: rapid.Bool().Draw(t, "output"), Version: "x",
			TOS: rapid.IntRange(0, 255).Draw(t, "TOS"),
		}
		switch rapid.IntRange(0, 2).Draw(t, "direction") {
		case 1:
			p.Reverse = true
		case 2:
			p.Bidir = true
		}
		b, err := appendJSON(nil, p.wire())
		require.NoError(t, err)
		var w wireParams
		require.NoError(t, readJSON(bytes.NewReader(b), &w))
		q, err := w.params()
		require.NoError(t, err)
		require.Equal(t, p, q)
		// What one side sends on, the other receives on.
		for i, sends := range p.layout(true) {
			require.NotEqual(t, sends, p.layout(false)[i])
		}
	})
}

func TestStreamIDs(t *testing.T) {
	ids := []int{}
	for i := range 5 {
		ids = append(ids, streamID(i))
		require.Equal(t, i, streamIndex(streamID(i)))
	}
	require.Equal(t, []int{1, 3, 4, 5, 6}, ids)
	require.Equal(t, -1, streamIndex(2))
	require.Equal(t, -1, streamIndex(0))
}
