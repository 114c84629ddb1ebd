// Package rnic is what an embedder imports: the software RNIC with the vocabulary of the verbs.
//
// An Adapter owns the STag table and speaks iWARP either over one or more Pollers (our own TCP, the
// point of the project) or over the kernel's sockets (the drafts' "MPA over an unmodified TCP").
// Above it stand ProtectionDomains, MemoryRegions, CompletionQueues and QueuePairs, which are the
// same for both. The Initiator:
//
//	dev, err := rnic.Open(rnic.Config{}) // over kernel sockets; Config.Pollers: over our own TCP
//	pd := dev.AllocPD()
//	mr, err := pd.Register(buf, rnic.LocalWrite|rnic.RemoteWrite)
//	cq, err := dev.CreateCQ(1024)
//	qp, err := dev.Dial(ctx, addr, rnic.QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq}, rnic.ConnParam{PrivateData: hello})
//	stag, to := granted(qp.PeerPrivateData()) // where the peer lets us write
//	_, err = qp.PostSend(rnic.WorkRequest{ID: 7, Op: rnic.OpWrite, Local: mr.Slice(0, len(buf)), RemoteSTag: stag, RemoteOffset: to, Signaled: true})
//	err = cq.Wait(ctx) // until there is a Completion
//	done := cq.Poll(completions[:])
//
// The Responder, which tells it in the Reply's private data, in whatever form the two agree on,
// where it may write:
//
//	l, err := dev.Listen(ctx, "127.0.0.1:0", rnic.ListenOptions{})
//	req, err := l.Accept(ctx)
//	qp, err := dev.CreateQP(rnic.QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq})
//	mr, err := pd.RegisterWith(make([]byte, 4096), rnic.RegisterOptions{Access: rnic.RemoteWrite, For: qp})
//	grant := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, uint32(mr.STag())), mr.Base())
//	err = req.Accept(ctx, qp, rnic.ConnParam{PrivateData: grant})
//
// Both are docs/examples/embed, a whole program with its errors checked.
//
// QPOptions is what a QueuePair is, ConnParam how it connects. Reads and atomics need depths:
// ConnParam.ORD of them may be under way from this end at a time, and IRD of the peer's are served;
// with 0 there are none.
//
// Each method says who may call it: any goroutine, also one that turns a Poller
// (stack.Config.OnTurn); any application goroutine, which is every other, because the call may wait
// for the Poller; or the one that polls a CompletionQueue. Posting does not block and does not
// allocate. A posted range belongs to the QueuePair until its Completion has been polled.
//
// docs/reference/verbs.md sets the names of libibverbs and librdmacm beside these, and has the rules at
// length: goroutines, buffers, errors, the end of a connection, limits. docs/reference/memory.md is about
// registered memory, docs/reference/dialects.md about start-up.
package rnic
