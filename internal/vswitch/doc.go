// Package vswitch connects many programs to one NIC. One process polls the NIC and serves memif.
// Each program attaches over shared memory, with its own Poller, TCP and memory. It has its own
// addresses, or shares an address with other programs: each has a range of its TCP ports.
//
//	program ─memif─► Rx ─► source: is it what this program may send? ─► steer: whose is it? ─► buffers ─► Tx ─memif─► program
//	uplink  ───────► Rx ──────────────────────────────────────────────► steer             ─► buffers ─► Tx ───────► uplink
//
// The switch learns nothing: the configuration says which program has which MAC, VLAN and
// addresses, and the tables made of it do not change (plan). Frames with the MAC, address or port
// of another program are dropped, and counted by reason.
//
//	config.go    Config, its defaults and checks
//	switch.go    sockets, uplinks, programs
//	apply.go     a change of programs while it runs
//	core.go      a turn of one core
//	port.go      the transmit side of a port: buffers and rates
//	share.go     how sources share a port that is full
//	headers.go   parses Ethernet, IP and TCP headers
//	source.go    what a program may send
//	steer.go     where a frame goes
//	shared.go    one address, several programs
//	fragment.go  fragments for those
//	answer.go    ARP and neighbour discovery for those
//	plan.go      the tables
//	stats.go     counters by reason, and their snapshot
//
// A Core belongs to the goroutine that calls Turn. It does not allocate, lock, block or read a
// clock. Two cores are connected by a pmd/wire; a frame on it carries the number of its
// destination port. A change of the tables is a command that each core executes between two
// turns. Removed programs are closed when all cores have executed it.
//
// Limits: Linux. Programs that share an address have the same VLAN and MAC. The switch finds the
// program of a TCP segment by its port, of an ICMP error by the packet that it quotes, of a
// fragment by the packet's first fragment. Other packets go to the first attached program. A
// program with a shared address may send TCP and ICMP only, and no fragments.
package vswitch
