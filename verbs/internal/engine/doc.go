// Package engine carries out a program's calls of libibverbs and librdmacm on an rnic.Adapter. It
// serves the memory area and the rings that it shares with the C library (verbs/shim). It does not
// depend on the C structs; verbs/cshared makes a library of it.
//
//	program's thread                             engine
//	ibv_post_send --entry--> send queue --qp.Sends--> rnic, on the goroutine that drives the connection
//	              --doorbell bit, bell_fd------> the Poller's Turn, or Engine.run --QueuePair.Doorbell
//	ibv_post_recv --entry--> receive queue --qp.Recvs--> rnic, when octets arrive
//	ibv_poll_cq <--entry-- completion ring <--cq.add-- rnic
//	everything else: a Call, which Engine.run hands to a goroutine
//
// Its files, in reading order:
//
//	engine.go   Serve: calls and doorbells
//	call.go     control calls
//	handle.go   numbers for objects
//	limits.go   how many there may be
//	memory.go   domains, regions, windows
//	windows.go  those that end with their queue pair
//	channel.go  events to the program
//	mapping.go  memory of rings
//	cq.go       completion rings
//	cqresize.go the same, of another size
//	clock.go    the time of a completion
//	deliver.go  which completions get there, and when
//	queue.go    work requests from a ring
//	qp.go       queue pairs
//	slots.go    numbers of queue pairs, and the port that goes with them
//	number.go   the names of queue pairs, as their owners tell them
//	stderr.go   standard error, unless the program has put another file in its place
//	guard.go    who may connect: allowed addresses, proofs of a secret
//	way.go      a queue pair with a peer by number: its states, from one to the next
//	wayconnect.go  how it connects
//	wayretry.go    how long an answer may take
//	request.go  what a peer asks for that does the same
//	within.go   connections within the process
//	life.go     the connections that it has so
//	drain.go    its state SQD
//	ud.go       queue pairs for datagrams
//	udport.go   their datagrams, in and out
//	udsocket.go over the kernel's socket
//	udstack.go  over our own stack
//	udwire.go   and on the wire
//	srq.go      shared receive queues
//	async.go    asynchronous events
//	portwatch.go events of the port, and of its addresses
//	cm.go       connections: ids
//	addrs.go    connections: addresses
//	service.go  ids of RDMA_PS_UDP
//	serviceport.go asking, and being asked, by datagrams
//	servicesocket.go over the kernel's socket
//	servicestack.go over our own stack
//	dials.go    connections: the order in which they begin
//	cmconn.go   connections: listen, connect, accept, and their end
//	parking.go  listeners between two rdma_listen
//	sockaddr.go addresses as C has them
//	errno.go    errors as C has them
package engine
