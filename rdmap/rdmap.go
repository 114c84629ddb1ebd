// Package rdmap is the RDMA protocol over DDP (RFC 5040): the control octet and what each opcode demands of the
// DDP header, the Read Request header, and Terminate with the one table of error causes.
//
// In the packet's way it stands between ddp and the QueuePair, and it is codecs and tables only:
//
//	ddp.Delivered ──Check──► opcode ──► QueuePair: Send, Read, Terminate
//	ddp.Error, MPA's code, RDMAP's own ──Cause──► Terminate ──► a message on queue 2
//
// Nothing here keeps state, locks or blocks; the codecs do not allocate. Text for humans (String, Error) does and
// is not for the packet path.
//
// Limits: opcodes 0 to 7; the atomic and immediate data operations of RFC 7306 are unexpected opcodes, as
// section 1.1 of that RFC wants from an RNIC without them.
package rdmap
