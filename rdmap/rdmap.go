// Package rdmap is the RDMA protocol over DDP (RFC 5040) with its extensions (RFC 7306): the
// control octet, the rules of each opcode for the DDP header, the headers of Read and Atomic
// Requests and Atomic Responses, the arithmetic of atomic operations, and Terminate with its
// table of error causes.
//
// On the packet path it is between ddp and the QueuePair. It has codecs and tables only:
//
//	ddp.ULP ──Check──► opcode ──► QueuePair: Send, Read, atomics, Terminate
//	ddp.Error, MPA's code, RDMAP's own ──Cause──► Terminate ──► a message on queue 2
//
// Nothing here keeps state, locks or blocks; the codecs do not allocate. Text for humans (String,
// Error) does and is not for the packet path.
//
// Limits: opcodes 0 to 11, 8 and up in version 1 only; and 15, which is our own (reliability.go).
package rdmap
