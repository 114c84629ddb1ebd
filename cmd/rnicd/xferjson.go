package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"

	"github.com/rnicd/rnicd/internal/tools/xfer"
)

// xferRecord is the line of put's and get's --json. docs/guides/tools.md says at which end some
// are counted.
type xferRecord struct {
	Operation   string     `json:"operation"`
	File        string     `json:"file"`
	Server      string     `json:"server"`
	Dialect     string     `json:"dialect"`
	CRC         bool       `json:"crc"`
	Length      uint64     `json:"length_octets"`
	SHA256      string     `json:"sha256"`
	Seconds     float64    `json:"elapsed_seconds"`
	Goodput     float64    `json:"goodput_bits_per_second"`
	ClientHash  float64    `json:"client_hash_seconds"`
	ServerHash  float64    `json:"server_hash_seconds"`
	Segments    uint64     `json:"segments"`
	Retransmits uint64     `json:"retransmitted"`
	Placed      xferPlaced `json:"placed_octets"`
}

type xferPlaced struct {
	Direct      uint64 `json:"direct"`
	Reassembled uint64 `json:"reassembled"`
	AheadOfGap  uint64 `json:"ahead_of_gap"`
}

// transferred tells of a transfer that a client is through with.
func (r *reporter) transferred(path, addr string, res xfer.Result) {
	r.do(func(w io.Writer) {
		switch {
		case r.json:
			_ = json.NewEncoder(w).Encode(xferRecordOf(path, addr, &res)) // cannot fail except for w
		case res.Op == xfer.OpGet:
			fmt.Fprintf(w, "got         %s from %s\n", path, addr)
			printGot(w, res)
		default:
			fmt.Fprintf(w, "sent        %s to %s\n", path, addr)
			printResult(w, res, false)
		}
	})
}

func xferRecordOf(path, addr string, r *xfer.Result) xferRecord {
	rec := xferRecord{
		Operation: "put", File: path, Server: addr, Dialect: r.Dialect.String(), CRC: r.Framing.CRC,
		Length: r.Length, SHA256: hex.EncodeToString(r.Digest[:]), Seconds: r.Wire.Seconds(),
		Goodput:    r.Goodput(),
		ClientHash: r.ClientHash.Seconds(), ServerHash: r.Hash.Seconds(),
		Segments: r.Sender.SegmentsOut, Retransmits: r.Sender.Retransmits,
		Placed: xferPlaced{r.Receiver.Direct, r.Receiver.Reassembled, r.Receiver.OutOfOrder},
	}
	if r.Op == xfer.OpGet {
		rec.Operation = "get"
		rec.Segments, rec.Retransmits = r.Receiver.SegmentsIn, r.Receiver.Retransmits
	}
	return rec
}
