package main

import (
	"fmt"
	"io"

	"github.com/rnicd/rnicd/internal/tools/xfer"
)

// printResult is what both sides print at the end of a transfer.
func printResult(w io.Writer, r xfer.Result, receiver bool) {
	fmt.Fprintf(w, "start-up    %s\n", startup(&r, receiver))
	fmt.Fprintf(w, "sha256      %x\n", r.Digest)
	fmt.Fprintf(w, "goodput     %s (%s in %s)\n", bitrate(r.Goodput()), octets(r.Length),
		seconds(r.Wire))
	switch {
	case receiver:
		fmt.Fprintf(w, "hashing     %s in place, after that\n", seconds(r.Hash))
	case r.ClientHash > 0:
		fmt.Fprintf(w, "hashing     %s before that, %s in place at the server after it\n",
			seconds(r.ClientHash), seconds(r.Hash))
	default:
		fmt.Fprintf(w, "hashing     meanwhile, and %s in place at the server after it\n", seconds(r.Hash))
	}
	if receiver {
		fmt.Fprintf(w, "segments    %d received, %d of our own retransmitted\n", r.Receiver.SegmentsIn,
			r.Receiver.Retransmits)
	} else {
		fmt.Fprintf(w, "segments    %d sent, %d retransmitted; %d FPDUs\n", r.Sender.SegmentsOut,
			r.Sender.Retransmits, r.Sender.FPDUs)
	}
	fmt.Fprintf(w, "placed      %s directly, %s through reassembly, %s of it ahead of a gap\n",
		octets(r.Receiver.Direct), octets(r.Receiver.Reassembled), octets(r.Receiver.OutOfOrder))
}

// printGot is what the client prints of a file that it read.
func printGot(w io.Writer, r xfer.Result) {
	fmt.Fprintf(w, "start-up    %s\n", startup(&r, false))
	fmt.Fprintf(w, "sha256      %x\n", r.Digest)
	fmt.Fprintf(w, "goodput     %s (%s in %s, written meanwhile)\n", bitrate(r.Goodput()),
		octets(r.Length), seconds(r.Wire))
	if r.ClientHash > 0 {
		fmt.Fprintf(w, "hashing     %s after that\n", seconds(r.ClientHash))
	} else {
		fmt.Fprintln(w, "hashing     meanwhile")
	}
	fmt.Fprintf(w, "segments    %d received, %d of our own retransmitted\n", r.Receiver.SegmentsIn,
		r.Receiver.Retransmits)
	fmt.Fprintf(w, "placed      %s directly, %s through reassembly, %s of it ahead of a gap\n",
		octets(r.Receiver.Direct), octets(r.Receiver.Reassembled), octets(r.Receiver.OutOfOrder))
}

// startup says what the connection spoke, in the same words at both ends.
func startup(r *xfer.Result, receiver bool) string {
	crc := "CRC32C"
	if !r.Framing.CRC {
		crc = "no CRC"
	}
	client, server := r.Framing.MarkersSent, r.Framing.MarkersReceived
	if receiver {
		client, server = server, client
	}
	markers := "no markers"
	switch {
	case client && server:
		markers = "markers both ways"
	case client:
		markers = "markers from the client"
	case server:
		markers = "markers from the server"
	}
	return fmt.Sprintf("%v, %s, %s", r.Dialect, crc, markers)
}

// printServed is what the server prints of a transfer that was granted and went well.
func printServed(w io.Writer, r xfer.Result) {
	if r.Op == xfer.OpGet {
		fmt.Fprintf(w, "sent        %s to %v\n", octets(r.Length), r.Remote)
		fmt.Fprintf(w, "start-up    %s\n", startup(&r, true))
		fmt.Fprintf(w, "sha256      %x\n", r.Digest)
		fmt.Fprintf(w, "goodput     %s (%s in %s)\n", bitrate(r.Goodput()), octets(r.Length),
			seconds(r.Wire))
		fmt.Fprintf(w, "segments    %d sent, %d retransmitted; %d FPDUs\n", r.Sender.SegmentsOut,
			r.Sender.Retransmits, r.Sender.FPDUs)
		return
	}
	fmt.Fprintf(w, "received    %s from %v\n", octets(r.Length), r.Remote)
	printResult(w, r, true)
}
