package rnic

// runMax is how many requests go on a ring together.
const runMax = 16

// postRun queues those at the front of wrs that need one entry each, up to runMax, together: one reservation and one barrier. All of
// them or none; it says how many. With none, posting them one by one tells why. What was said of posting in general has been
// looked at.
func (q *QueuePair) postRun(wrs []WorkRequest) int {
	var run [runMax]wqe
	n := 0
	for n < min(len(wrs), runMax, q.sq.Cap()) && plain(wrs[n].Op, &wrs[n]) {
		run[n] = wqeOf(wrs[n].Op, &wrs[n])
		n++
	}
	if n < 2 || !q.opt.SendCQ.reserve(int64(n)) {
		return 0
	}
	if !q.sq.PushAll(run[:n]) {
		q.opt.SendCQ.unreserve(int64(n))
		return 0
	}
	return n
}

// plain says whether a request is possible as it is, whatever the connection has settled, and is one entry.
func plain(op Opcode, wr *WorkRequest) bool {
	return (op == OpSend || op == OpWrite) && len(wr.List) == 0 && len(wr.Inline) == 0
}

// PostRecvs queues several receive buffers in their order, as PostRecv would one by one, for less: it is for who posts again what a
// Poll has brought back. The first n were posted; err is what PostRecv of wrs[n] would have returned, nil when all were. What other
// goroutines post may come in between. Any goroutine.
func (q *QueuePair) PostRecvs(wrs ...WorkRequest) (n int, err error) {
	for n < len(wrs) {
		if err := q.PostRecv(wrs[n]); err != nil { // the first goes the usual way, which knows what is wrong
			return n, err
		}
		n++
		n += q.postRecvRun(wrs[n:])
	}
	return n, nil
}

// postRecvRun is postRun of receive buffers.
func (q *QueuePair) postRecvRun(wrs []WorkRequest) int {
	var run [runMax]wqe
	n := 0
	for n < min(len(wrs), runMax) && len(wrs[n].List) == 0 && len(wrs[n].Inline) == 0 {
		run[n] = wqeOf(OpRecv, &wrs[n])
		n++
	}
	if n < 2 || !q.opt.RecvCQ.reserve(int64(n)) {
		return 0
	}
	if !q.postable(int32(n)) {
		q.opt.RecvCQ.unreserve(int64(n))
		return 0
	}
	q.rq.PushAll(run[:n]) // has room for RecvDepth
	if q.State() == Closed {
		q.flush()
	}
	return n
}
