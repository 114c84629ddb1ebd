// Package ddp is Direct Data Placement (draft-shah-iwarp-ddp-v1.0, RFC 5041): the header codec, the
// cutting of a message into segments at the Data Source, and Placement and Delivery at the Data
// Sink.
//
// On the packet path it is between mpa, which passes up complete, CRC-checked ULPDUs with their
// position in the byte stream, and rdmap, which defines the ULP's octets of the header:
//
//	mpa.Receiver ──ULPDU, [start,end)──► Stream.Place ──one copy──► MemoryRegion or posted RecvBuffer
//	left edge    ──edge──────────────► Stream.Deliver ──Delivered──► rdmap, completions
//	WorkRequest  ──Message──► Segmenter.Next ──Header, range──► mpa.Sender
//
// Placement happens in any order, Delivery only in stream order (section 7.4). So DDP keeps no
// payload. It keeps the posted buffers of each queue number (Queue), and the messages whose last
// segment was placed while earlier stream octets are missing (at most StreamConfig.PendingMax, in a
// PendingMemory that Streams share).
//
// Everything here belongs to one goroutine, the Poller of the connection; nothing locks, blocks,
// allocates after Init, or reads a clock.
//
// Limits: a message is shorter than 2^32 octets, a ULPDU is at most 64768 octets (MPA), a
// Segmenter counts MSNs for queuesMax queue numbers. As section 7.2 allows, a Stream does not
// verify that every octet of a message arrived: the byte stream is complete.
package ddp
