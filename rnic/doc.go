// Package rnic is the software RNIC for Go programs, with the vocabulary of the verbs.
//
// An Adapter owns the STag table and speaks iWARP over one or more Pollers (our own TCP), or over
// the kernel's sockets (the drafts' "MPA over an unmodified TCP"). ProtectionDomains,
// MemoryRegions, CompletionQueues and QueuePairs are the same over both. The Initiator:
//
//	dev, err := rnic.Open(rnic.Config{}) // over kernel sockets; Config.Pollers: over our own TCP
//	pd := dev.AllocPD()
//	mr, err := pd.Register(buf, rnic.LocalWrite|rnic.RemoteWrite)
//	cq, err := dev.CreateCQ(1024)
//	qp, err := dev.Dial(ctx, addr, rnic.QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq},
//		rnic.ConnParam{PrivateData: hello})
//	stag, to := granted(qp.PeerPrivateData()) // where the peer lets us write
//	_, err = qp.PostSend(rnic.WorkRequest{ID: 7, Op: rnic.OpWrite, Local: mr.Slice(0, len(buf)),
//		RemoteSTag: stag, RemoteOffset: to, Signaled: true})
//	err = cq.Wait(ctx) // until there is a Completion
//	done := cq.Poll(completions[:])
//
// The Responder, which sends STag and offset of its memory in the Reply's private data (the form is
// the application's):
//
//	l, err := dev.Listen(ctx, "127.0.0.1:0", rnic.ListenOptions{})
//	req, err := l.Accept(ctx)
//	qp, err := dev.CreateQP(rnic.QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq})
//	mr, err := pd.RegisterWith(make([]byte, 4096),
//		rnic.RegisterOptions{Access: rnic.RemoteWrite, For: qp})
//	grant := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, uint32(mr.STag())),
//		mr.Base())
//	err = req.Accept(ctx, qp, rnic.ConnParam{PrivateData: grant})
//
// Both are docs/examples/embed, a whole program with its errors checked.
//
// QPOptions configures a QueuePair, ConnParam its connection. ConnParam.ORD is the number of
// Reads and atomics that this end may have outstanding, IRD the number of the peer's that it
// serves; the default, 0, allows none.
//
// Each method says which goroutines may call it. "Any goroutine" includes one that turns a Poller
// (stack.Config.OnTurn). "Any application goroutine" excludes it, because the call may wait for
// the Poller. A CompletionQueue is polled by one goroutine. Posting does not block and does not
// allocate. A posted range belongs to the QueuePair until its Completion has been polled.
//
// docs/reference/verbs.md lists the names of libibverbs and librdmacm with these, and the rules
// for goroutines, buffers, errors, the end of a connection and limits. docs/reference/memory.md
// is about registered memory, docs/reference/dialects.md about start-up.
package rnic
