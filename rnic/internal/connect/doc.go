// Package connect is a connection from its first octet to its last: MPA start-up in every dialect,
// full operation for a queue pair's engine, its end, and the ways from and to streaming mode. Below
// it stand an engine (package qp), which it drives, and a transport (package transport), which
// drives it.
//
// Its files, in reading order:
//
//	endpoint.go     Endpoint: a queue pair as its connection sees it
//	dial.go         the way to a peer
//	fallback.go     and to one of an older dialect
//	responder.go    Responder: connections that come in
//	streamtompa.go  connections that were streams
//	connection.go   Connection: what comes and what goes
//	startup.go      start-up frames
//	earlydata.go    octets that came before MPA did
//	sendfirst.go    a Responder that sends first
//	wakeup.go       an Initiator that sends once more
//	ending.go       how a connection ends
//	mpatostream.go  connections that are streams again
//	phase.go        phases and time-outs
//	host.go         Host: what all connections of an Adapter have in common
//	poller.go       Poller: what those of one Poller have in common
//	param.go        Param: how to connect
//	errors.go       why connections end
//	fortest.go      what tests of package rnic ask of connections
package connect
