// Package rnicd is the front page of a module for RDMA without RNIC hardware: iWARP over the
// kernel's sockets, or over a TCP of its own on a NIC, a TAP or a memif. It has no code. A program
// imports:
//
//	rnic        the verbs: adapters, memory regions, queue pairs, completions
//	rsocket     net.Conn over a queue pair, as rdma-core's rsockets
//	stream      net.Conn over our TCP, without RDMA
//	cmd         the daemon, for programs with drivers of their own: the one way to embed it
//
// For our own TCP instead of the kernel's sockets also:
//
//	stack       the Poller: one core, one device queue, its connections
//	pmd         ports and queues of packets; registers drivers
//	pmd/tap     driver: the kernel, over a TAP
//	pmd/dpdk    driver: a NIC, over DPDK
//	pmd/memif   driver: another process, over shared memory
//	pmd/wire    driver: a cable in memory, for a program's tests
//	mem         packet buffers and registered memory
//	hugepages   hugepages
//
// The protocol's layers are for rnic and stack. Of these a program needs only tcp's Config, which
// is stack.Config.TCP, and its congestion controls:
//
//	tcp         TCP that knows MPA: settings, connections, segments
//	mpa         FPDUs, markers, start-up frames
//	ddp         headers, segmenting, Placement, Delivery
//	rdmap       opcodes, Read and Atomic Requests, Terminate
//
// README.md says how a program of another module imports them, docs/guides/embedding.md how to go
// on from there. Whole programs: docs/examples/embed over kernel sockets, docs/examples/tap over
// our own TCP.
package rnicd
