// Package sim runs whole hosts in virtual time from one seed: Poller, TCP, MPA, DDP, RDMAP and
// verbs are the real ones; the cable, the path and the clock are simulated. The same seed gives the
// same run.
//
//	Draw(seed) -> Workload -> Run: a World of two hosts, connections, events -> Outcome
//
// A World and everything in it belong to one goroutine; Worlds share nothing. With Config.Clock
// only Turn does: applications may then have goroutines of their own, as the programs of queue
// pairs by number have (verbs/internal/engine, TestSeeds).
//
// # What a seed draws
//
//	host <- tap <- faults <- path <- cable -> path -> faults -> tap -> host
//
// Of these, and of what happens over them:
//
//   - Faults (internal/fault): loss, reordering, duplicates, flipped bits, cut frames, delay, two
//     words of a payload swapped.
//   - Devices (internal/fault): lossless; each is unlimited or slow, by octets or frames a second,
//     frames per call, and pauses.
//   - Path (fault.Path): a middlebox that joins and cuts segments; a router with a smaller or
//     changing MTU, or a black hole.
//   - Work: 1 to 4 connections, MTU 576 to 9000, 10 to 80 messages of up to 64 KiB from each end;
//     all opcodes, dialects and options; in acknowledged mode receive buffers may come late.
//   - Ends: in order, an abort, a cut cable, a revoked region. Other connections must not notice.
//
// # What must hold
//
// The oracle is in peer.go and oracle.go.
//
//   - A region holds what was written to it, or nothing, octet by octet. Nothing around it changes,
//     and nothing changes after Revoke.
//   - Messages arrive in order, once, as sent. When a Send is delivered, all earlier Writes have
//     been placed. In acknowledged mode, when any request completes.
//   - A Read returns the octets that were there; an atomic finds the value its predecessors left.
//     An invalidated STag is invalid.
//   - Each work request completes once, in order; after a failed one none succeeds. On each
//     connection, shared receive buffers complete in posting order.
//   - On a lossless path no retransmission timer expires, however slow a device is and however many
//     connections share it.
//   - Everything that the closing end had posted arrives. Afterwards Buf pools are full, STag
//     tables are empty and connections are gone.
//
// A connection that is not ended early carries everything; of one that is, everything that arrived
// is right, and so is the reason of its end. Damage that TCP does not detect may end a connection
// only where MPA has no choice (docs/requirements/DECISIONS.md 30).
package sim
