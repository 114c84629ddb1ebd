// Package rsocket is stream sockets over QueuePairs in the protocol of librdmacm's rsockets: a
// net.Conn whose peer is another of this package, or a C program above rsockets (rstream, or any
// sockets program under librspreload).
//
//	l, err := rsocket.Listen(ctx, dev, ":7471", rsocket.ListenOptions{})
//	c, err := l.Accept()
//
//	c, err := rsocket.Dial(ctx, dev, "10.9.0.1:7471", rsocket.Options{})
//	n, err := c.Write(b)
//
// Each end has a ring of registered memory, into which the other writes by RDMA, and grants it in
// two halves:
//
//	A                                                B
//	 | -- Request, private data: A's first half ------> |
//	 | <- Reply, private data: B's first half --------- |
//	 | == RDMA Write of octets, into B's ring ========> |
//	 | -- Send {data, how many} ----------------------> |
//	 | <= RDMA Write of {where the next half is} ====== |  into A's list of two such entries
//	 | <- Send {grant, how many messages may follow} -- |
//	 | -- Send {disconnect} --------------------------> |
//
// Each Send has 4 octets, and takes one of the receive buffers that the other end has for them; how
// many octets' messages may be under way is granted like memory. That is the form of rsockets for
// iWARP, where an RDMA Write carries no immediate data. The source of all this is rdma-core's
// librdmacm/docs/rsocket, and what its rsocket.c does where that is silent: the host's byte order
// in Sends and entries, and which side waits for what.
//
// Either end may map memory, into which the other writes directly: Conn.Map and Conn.WriteAt,
// librdmacm's riomap and riowrite.
//
// Not spoken: datagrams.
package rsocket
