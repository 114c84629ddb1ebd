// Package bench holds the benchmarks across packages; docs/results/benchmarks.md has their results.
// Run all with make bench-go, or one with
//
//	go test ./bench -run '^$' -bench Write -benchtime 3s -count 5
//
// # Yardsticks
//
// "make bench" measures ratios within one run; docs/results/yardsticks.md has the results.
// Contenders take turns in one process (bench/yard) on two pinned cores, in 200 slices of 20 ms
// ("quick": 40 of 10 ms). While one runs, the others are parked with their clocks stopped, so no
// timer expires. The first tenth of a slice is not counted. No slice is left out for what the host
// did.
//
// The second line of the table is the host's part: steal time, and slices in which a thread had its
// core for less than 98 % of the time. The third is the distance of the cores
// (bench/yard/apart.go): the round trip of a cache line, taken before each slice; the JSON has
// each. Steal time shows none of it.
//
// The rows:
//
//   - theft: a core that only counts, the machine's own spread.
//   - floor (bench/floor): one core copies and CRCs the payload of full segments, the other
//     verifies and copies it out, over a lock-free ring; passes, ring, burst and order of the
//     buffers are those that come out fastest. A Write that is over 5 % faster fails the run. 2
//     copies: a NIC whose DMA costs no core anything. 4 copies: as pmd/wire.
//   - Write: RDMA Writes of 1 MiB, 16 at once, between two Pollers, with CRC32C and checksum
//     offload, without markers unless the row says so. 2 copies: over pmd/wire with ZeroCopy. 4:
//     without.
//   - loss: one frame of 100 lost each way, RTT 100 us, software checksums, both ends on one core;
//     the time of Turns that had work.
//   - Write over memif, through the switch: as Write with 4 copies, without offloads; the writer
//     lends its Bufs.
//   - 8 octets, 64 octets: as BenchmarkLatency8 and BenchmarkSend64, an end on each core.
//   - TAP: from MPA over the kernel's TCP through a TAP into our stack; the sender sleeps in the
//     kernel.
//   - Turns: every Turn of the ping-pong of 8 octets, timed on both cores; the causes of those that
//     take over 10 us.
//   - crowd: 64 TCP connections over a device of 10 Gbit/s (internal/fault) and a path of 10 us
//     each way, in virtual time, so the same on every machine: 8 octets there and back beside 63
//     bulk senders, to an idle device, the worst of all, and Jain's index of the 63. The queue in a
//     real device comes on top.
//   - connections: what a segment costs, both ends, when each request and each answer is another
//     connection's, picked at random; idle ends as in TestOctetsPerIdleConnection.
//   - scale: 10, 1,000 and 10,000 connections of QueuePairs over kernel sockets and over a memif,
//     both ends in a process of their own: set-up, memory, messages of all in turn and of ten,
//     none, as many as possible. Writes docs/results/scale.tsv (docs/results/scale.md).
//   - start-ups: connections made, started up, aborted and destroyed; 1, 32 and 256 at once, one
//     core.
//   - Linux TCP over veth: sockets with buffers of 4 MiB, reads and writes of 64 KiB, in the same
//     two threads; with CRC32C one for each 64 KiB; TSO, GSO and GRO off.
//   - demo: 9 whole runs of "rnicd demo" ("quick": 3) beside the median of Write with markers, of
//     one message of 1 MiB, and of as much memory as the demo's.
//   - verbs: Debian's perftest on the libraries of verbs/ beside "rnicd perf": two processes on a
//     memif, idle = interrupt, whole runs in turns (docs/results/verbs.md).
//   - kernel: rnicd over the kernel's sockets, as "rnicd run" and "rnicd perf" use them without a
//     flag, beside UCX's TCP (an end on each core), libfabric's provider tcp, iperf3 and fio's
//     engine net (docs/results/kernel.md). Whole runs of two processes in turns, on a loopback and
//     a veth pair of their own, with CRC32C; long enough that it counts little where the scheduler
//     leaves both ends on one core for the first 100 ms. The veth cuts frames itself, as a wire
//     wants them, or, "offloads", is as containers have it. Many connections: 10,000 messages a
//     second in all, at most 4 of a connection under way, both ends in this process. System calls:
//     many messages less few, by perf, or by strace, under which a program is slower.
//   - numbers: perftest on queue pairs connected by number (rnicd run --device roce) beside the
//     same by librdmacm (-R), over the kernel's sockets and on a memif, and UCX over us beside UCX
//     over TCP (docs/results/numbers.md). With -R perftest's server polls; without, it sleeps in a
//     TCP socket, and its engine has to be woken for each message. So there is a third row: by
//     number, told by librdmacm (-z), in which the server polls as with -R.
//   - UCX, gVisor: programs of their own, 9 whole runs ("quick": 3): UCX 1.13's ucx_perftest over
//     TCP on loopback; gVisor as bench/peers runs it.
//   - queues: one queue and two, a core each, four connections per queue, MTU 1500, CRC32C,
//     checksums by the device. The far end costs nothing: it acknowledges, or sends frames made
//     before.
//   - net_ring: Write over DPDK's net_ring beside pmd/wire; checksums are left out on both.
package bench
