// Package vswitch joins many programs to one NIC. One process polls the NIC and serves memif; each program attaches over shared
// memory with addresses of its own, or shares one address with others by ranges of TCP ports, and keeps its own Poller, TCP and
// memory.
//
//	program ─memif─► Rx ─► source: is it what this program may send? ─► steer: whose is it? ─► buffers ─► Tx ─memif─► program
//	uplink  ───────► Rx ──────────────────────────────────────────────► steer             ─► buffers ─► Tx ───────► uplink
//
// Nothing is learned: which MAC, VLAN and addresses are whose stands in the configuration, in tables that do not change (plan).
// A program that sends with another's MAC, address or port is dropped, and counted by reason.
//
//	config.go    what a switch is made of, and what of that cannot be
//	switch.go    sockets, programs, changes while it runs
//	core.go      a turn of one core
//	port.go      what leaves: buffers and rates of each program
//	headers.go   what a frame says
//	source.go    what a program may send
//	steer.go     where a frame goes
//	shared.go    one address, several programs
//	fragment.go  fragments for those
//	answer.go    ARP and neighbour discovery for those
//	plan.go      the tables
//	stats.go     counters by reason
//
// A Core belongs to the goroutine that calls Turn. It does not allocate, lock, block or read a clock. Between two cores stands a
// pmd/wire, on which a frame goes with the number of the port it is for. Tables are changed by a command that each core takes
// between two turns; what was taken out is closed when all have.
//
// Limits: Linux. Programs of one address are on one link (VLAN) and have one MAC. Of them TCP is told apart, ICMP errors by what
// they quote, fragments by their first; all else goes to the first of them that is attached. A program with a shared address
// sends no fragments and, besides ICMP, TCP only.
package vswitch
