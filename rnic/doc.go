// Package rnic is what an embedder imports: the software RNIC with the vocabulary of the verbs.
//
// An Adapter owns the STag table and speaks iWARP either over one or more Pollers (our own TCP, the point of the
// project) or over the kernel's sockets (the drafts' "MPA over an unmodified TCP"). Above it stand
// ProtectionDomains, MemoryRegions, CompletionQueues and QueuePairs, which are the same for both.
//
//	dev, err := rnic.Open(rnic.Config{})
//	pd := dev.AllocPD()
//	mr, err := pd.Register(buf, rnic.RemoteWrite|rnic.LocalWrite)
//	cq, err := dev.CreateCQ(1024)
//	qp, err := dev.Dial(ctx, "10.9.0.1:7174", rnic.QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq, PrivateData: hello})
//	err = qp.PostWrite(rnic.WorkRequest{ID: 7, Local: mr.Slice(0, len(buf)), RemoteSTag: stag, RemoteOffset: to, Signaled: true})
//	done := cq.Poll(completions[:])
//
// That is the Initiator. The Responder tells it in the Reply's private data, in whatever form the two agree on, where it may write: the
// STag and Base of a region of its own.
//
//	l, err := dev.Listen(ctx, ":7174", rnic.ListenOptions{})
//	req, err := l.Accept(ctx)
//	qp, err := dev.CreateQP(rnic.QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq})
//	err = qp.PostRecv(rnic.WorkRequest{ID: 1, Local: mr.Slice(0, 64)})
//	err = req.Accept(ctx, qp, grant)
//
// Work requests are Send (with Invalidate, with Solicited Event), RDMA Write, RDMA Read, the atomics FetchAdd and CompareSwap,
// immediate data, and Local Invalidate. Sends and Writes may be gathered from several ranges, or bring their octets along; receive buffers
// may be several ranges:
//
//	err = qp.PostSend(rnic.WorkRequest{Local: mr.Slice(0, 16), List: []rnic.SGE{mr.Slice(4096, 1000), other.Slice(0, 8)}})
//	err = qp.PostWrite(rnic.WorkRequest{Inline: word[:], RemoteSTag: stag, RemoteOffset: to})
//	n, err := qp.Post(answer, takeBack) // several requests, one ring of the doorbell
//
// Reads and atomics need depths: QPOptions.ORD of them may be under way from this end at a time, and IRD of the
// peer's are served; with 0 there are none. Where start-up does not settle them (any dialect but RFC6581), both ends must be
// told. Who is served reads and changes memory by the rights of its STag alone; no Completion tells of it.
//
//	qp, err := dev.Dial(ctx, addr, rnic.QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq, Dialect: rnic.RFC6581, ORD: 16})
//	err = qp.PostRead(rnic.WorkRequest{ID: 8, Local: mr.Slice(0, n), RemoteSTag: stag, RemoteOffset: to, Signaled: true})
//	err = qp.PostFetchAdd(rnic.WorkRequest{ID: 9, RemoteSTag: stag, RemoteOffset: counter, Signaled: true}, 1, 0)
//
// Config.Pollers are stack.Pollers that turn already, each on a queue of a pmd.Port: the example of package stream makes one.
// Poller, port and memory stay the embedder's: Adapter.Close first, then Poller.Stop, the port and the arena.
//
// A connection may also be used in streaming mode first and then be handed to MPA (RFC 5044 section 7.1.3): a *stream.Conn of
// the Adapter's Pollers or a *net.TCPConn, with QueuePair.ConnectStream at the Initiator and Adapter.AcceptStream at the
// Responder.
//
// # Goroutines
//
// Every exported method may be called from any goroutine unless it says otherwise; CompletionQueue.Poll is for one
// goroutine at a time. Requests that one goroutine posts to a QueuePair are carried out in its order; between those of
// several there is none but the one in which the calls came. Posting does not block and does not allocate. Work goes to the
// Poller through bounded rings; nothing an application calls takes a lock that the packet path takes. Over kernel sockets a QueuePair has a mutex and two goroutines of its own.
//
// A Responder sends nothing before the Initiator's first FPDU has come, however much is posted; QueuePair.SpeakFirst and PeerReady are the exceptions for
// a ULP that knows better.
//
// An application that wants neither a second core nor a goroutine to be woken runs on its Poller: stack.Config.OnTurn is called in
// every Turn behind what was received and before what is sent, and may poll and post there like anywhere else; only what waits for
// the Poller (Dial, Close, CompletionQueue.Wait) must not be called (the example RunToCompletion). Post and PostRecvs cost less
// than one posting call after another.
//
// # Buffers
//
// Memory is registered with ProtectionDomain.Register or RegisterWith; a Window grants a part of it for a while. What
// MemoryRegion.Revoke and Window.Unbind promise, and at what cost, stands in docs/memory.md.
//
// What a posting call is given by value or by slice (WorkRequest.List, Inline) it has copied when it returns; the slices may be on
// the stack. What the ranges name is another matter:
//
// A posted range belongs to the QueuePair until its Completion has been polled; registered memory that a peer may
// write can change at any time until the region is revoked. A send-side Completion means that the octets were copied
// into TCP's custody and will be delivered or the connection will fail (RFC 5041 section 5.3 as the drafts'
// section 7.4); it does not mean that the peer has seen them.
//
// What a peer writes may be placed in any order. It stands there for good once a Send that was posted behind it has been
// received; until then, and when the connection ends first, what the memory holds is indeterminate (RFC 5040 sections 3.1 and
// 5.5), so looking into it tells nothing. Who measures may look all the same, with sync/atomic: the octets of a Write that is one segment
// are placed together, so that of a peer that has one such Write under way at a time the last octet tells (cmd/rnicd/perf).
//
// What a Read fetches is there when its Completion says so, and indeterminate before. Completions of the send side come in the order
// of posting: what was sent behind a Read waits for it. A Write, or an atomic, behind a Read of the same octets needs
// WorkRequest.Fence, or the Read may return what it wrote. Atomics are about a 64-bit word that is aligned in the peer's memory, in
// that host's order; they are atomic towards each other and towards sync/atomic of the process that owns it, not towards Writes
// and Sends (RFC 7306 section 5.3).
//
// # Errors
//
// A posting call that returns an error has posted nothing. ErrSendQueueFull, ErrRecvQueueFull and ErrCQFull mean: not now; poll
// and try again. ErrState means: not yet; ErrClosed: not any more. ErrListTooLong, ErrInlineTooLong, ErrTooLong, ErrShape, ErrReadDepth and
// ErrExtension mean: never so on this QueuePair; errors.Is finds them, the text names the limit.
//
// What goes wrong later is told by the Status of a Completion, which comes for unsignaled requests
// too. Each Status except Success is the end of the connection, and everything posted after that
// request fails too. Err then has the reason, for errors.As: *TerminateError with the peer's
// *PeerError, or with the *ddp.Error or *mpa.Error of what this end found; *mpa.Error with code 1
// where the transport failed; nil where the peer closed its half in order and work that was Flushed
// could not be carried out any more. Because Sends and Writes complete when they were sent, it is
// Err, and not a Status, that tells of one that the peer refused.
//
// # Sharing and waiting
//
// QueuePairs of one domain may share their receive buffers (Adapter.CreateSRQ, QPOptions.SRQ): they take them as messages come.
//
// Who has other things to wait for than a CompletionQueue arms it and selects on CompletionQueue.Ready; Wait and WaitSolicited do it
// where there is nothing else.
//
// # Events
//
// What happens without a work request to complete, Adapter.Events tells: the end of a QueuePair, overflow, and the thresholds that
// SharedReceiveQueue.Arm and QueuePair.Arm set. Its channel is bounded, and what has no room there is counted and lost.
//
// # The end
//
// Close and Disconnect end a connection in order: what was posted is sent, what is posted
// afterwards is ErrClosed, and what the peer still says is received until it closes its half too;
// Reads that were posted before are waited for. A peer that closes first makes our half close
// behind what had been posted, or leaves it to us (QPOptions.AllowHalfClosed); a Read that was not
// sent by then ends it, and is Flushed with all that was posted after it. An error in what the peer
// sends is answered by one Terminate, and by nothing else. Whichever way it ends, all that was
// posted completes, and Done and Err tell how.
//
// # Limits
//
// Queue depths, connection counts and table sizes are fixed when the object is made. A full queue is an error of the
// posting call, never a loss: a work request reserves its place in the CompletionQueue when it is posted, so that a
// CompletionQueue cannot overflow. Buffers of a SharedReceiveQueue reserve theirs when a QueuePair takes them; where there is none,
// that QueuePair ends with ErrCQOverflow (CQMinSize).
package rnic
