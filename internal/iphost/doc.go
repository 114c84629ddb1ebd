// Package iphost is one host's end of a link: its addresses, ARP, neighbour discovery, duplicate
// address detection, multicast listening, ICMP, reassembly and routes. It does no I/O and reads no
// clock: packets and the time come in as arguments, frames go out through a Link, and what else the
// caller has to act on is told by TakeNews. It knows nothing of connections. A Host belongs to one
// goroutine; several Hosts that have one address between them share a Shared.
//
// Its files, in reading order:
//
//	host.go        Host, Config, Link, News; Deadline and Expire
//	add.go         addresses are added and removed
//	reassembly.go  fragments
//	icmp.go        pings, received errors, errors that we send
//	arp.go         received ARP packets; questions for a neighbour
//	nd.go          neighbour discovery and router advertisements
//	claim.go       an address is claimed, announced and defended
//	shared.go      decisions about an address that several Hosts share
//	listen.go      multicast listener discovery, IGMP
//	ndsend.go      solicitations and advertisements that we send
//	address.go     our addresses; the choice of a source address
//	route.go       next hops and path MTUs
//	config.go      what is wrong with a Config
//	frame.go       frames that are sent
//	due.go         when something is due; what happens once in an interval at most
package iphost
