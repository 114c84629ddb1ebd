// Package connect is a connection from its first octet to its last: MPA start-up in every dialect,
// full operation for a queue pair's engine, its end, and the ways from and to streaming mode. A
// Connection stands between an engine (package qp), which it drives, and a transport (package
// transport), which drives it.
//
// Everything of a Connection and its Endpoint is for the goroutine that drives the connection: the
// Poller's, or over a kernel socket the one that holds the transport's mutex. What any goroutine
// may call says so. Work of other goroutines gets there through transport.Conn.Submit.
//
// Its files, in reading order:
//
//	dial.go         the way to a peer, and to one of an older dialect
//	incoming.go     connections that come in
//	streamtompa.go  connections that were streams
//	earlydata.go    octets that came before MPA did
//	connection.go   Connection: what comes and what goes
//	startup.go      start-up frames
//	sendfirst.go    a Responder that sends first
//	wakeup.go       an Initiator that sends once more
//	effects.go      what the engine's calls mean for the connection
//	mpatostream.go  connections that become streams again
//	ending.go       how a connection ends
//	endpoint.go     Endpoint: a queue pair as its connection sees it
//	flight.go       the last events of a connection
//	host.go         Host: what all connections of an Adapter, and those of one Poller, have in common
//	phase.go        phases and time-outs
//	param.go        Param: how to connect
//	refusal.go      why a start-up that a peer began was refused
//	errors.go       why connections end
//	fortest.go      what tests of package rnic ask of connections
package connect
