package main

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/tools/xfer"
	"github.com/rnicd/rnicd/rnic"
)

var sampleResult = xfer.Result{
	Remote: netip.MustParseAddrPort("10.9.0.254:37600"),
	Length: 64 << 20, Digest: [32]byte{0xdc, 0x54, 31: 0x10}, Wire: 344 * time.Millisecond,
	Hash: 54 * time.Millisecond,
	Receiver: xfer.Counters{Direct: 60 << 20, Reassembled: 4 << 20, OutOfOrder: 1536,
		SegmentsIn: 47398, Retransmits: 3},
	Sender:  xfer.SenderCounters{SegmentsOut: 47400, Retransmits: 2, FPDUs: 47395},
	Dialect: rnic.RFC5044, Framing: rnic.Framing{CRC: true, MarkersSent: true},
}

func TestPrintResult(t *testing.T) {
	const (
		begin = "start-up    rfc5044, CRC32C, markers from the "
		head  = "sha256      dc5400000000000000000000000000000000000000000000000000000000" + "0010\n" +
			"goodput     1.56 Gbit/s (64.0 MiB in 0.344 s)\nhashing     "
		tail = "placed      60.0 MiB directly, 4.0 MiB through reassembly, 1.5 KiB of it ahead of a gap\n"
	)
	var client, server strings.Builder
	printResult(&client, sampleResult, false)
	require.Equal(t, begin+"client\n"+head+"meanwhile, and 0.054 s in place at the server after "+
		"it\nsegments    47400 sent, 2 retransmitted; 47395 FPDUs\n"+tail, client.String())
	printServed(&server, sampleResult)
	require.Equal(t, "received    64.0 MiB from 10.9.0.254:37600\n"+begin+"server\n"+head+
		"0.054 s in place, after that\nsegments    47398 received, 3 of our own retransmitted\n"+tail,
		server.String())
}

// Where a client hashes before or after the clock it says how long that took.
func TestPrintHashing(t *testing.T) {
	r := sampleResult
	r.ClientHash = 47 * time.Millisecond
	var put, get strings.Builder
	printResult(&put, r, false)
	require.Contains(t, put.String(),
		"in 0.344 s)\nhashing     0.047 s before that, 0.054 s in place at the server after it\n")
	printGot(&get, r)
	require.Contains(t, get.String(),
		"in 0.344 s, written meanwhile)\nhashing     0.047 s after that\n")
	get.Reset()
	printGot(&get, sampleResult)
	require.Contains(t, get.String(), "\nhashing     meanwhile\n")
}

// Both ends of a connection say the same of it.
func TestStartupLine(t *testing.T) {
	for want, f := range map[string]rnic.Framing{
		"rtr, CRC32C, markers from the client": {CRC: true, MarkersSent: true},
		"rtr, CRC32C, markers from the server": {CRC: true, MarkersReceived: true},
		"rtr, no CRC, markers both ways":       {MarkersSent: true, MarkersReceived: true},
		"rtr, no CRC, no markers":              {},
	} {
		require.Equal(t, want, startup(&xfer.Result{Dialect: rnic.RTR, Framing: f}, false))
		f.MarkersSent, f.MarkersReceived = f.MarkersReceived, f.MarkersSent
		require.Equal(t, want, startup(&xfer.Result{Dialect: rnic.RTR, Framing: f}, true))
	}
}

func TestPrintServedFailureIsOneLine(t *testing.T) {
	var b strings.Builder
	r := sampleResult
	r.Err = errors.Join(errors.New("first"), errors.New("second"))
	newOutput(&b).served(r)
	require.Equal(t, "failed      10.9.0.254:37600: first; second\n", b.String())
}
