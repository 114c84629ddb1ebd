// Package rdmap is the RDMA protocol over DDP (RFC 5040) with its extensions (RFC 7306): the
// control octet and what each opcode demands of the DDP header, the headers of Read and Atomic
// Requests and Atomic Responses, what an atomic operation makes of a value, and Terminate with the
// one table of error causes.
//
// In the packet's way it stands between ddp and the QueuePair, and it is codecs and tables only:
//
//	ddp.ULP ──Check──► opcode ──► QueuePair: Send, Read, atomics, Terminate
//	ddp.Error, MPA's code, RDMAP's own ──Cause──► Terminate ──► a message on queue 2
//
// Nothing here keeps state, locks or blocks; the codecs do not allocate. Text for humans (String,
// Error) does and is not for the packet path.
//
// Limits: opcodes 0 to 11, of which 8 and up have version 1 only.
package rdmap
