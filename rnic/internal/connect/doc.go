// Package connect is the life of a connection: MPA start-up in every dialect, full operation for
// a queue pair's engine, its end, and the changes from and to streaming mode. A Connection drives
// an engine (package qp), and is driven by a transport (package transport).
//
// A Connection and its Endpoint belong to the goroutine that drives the connection: the Poller's,
// or, over a kernel socket, the one that holds the transport's Loop. Methods for any goroutine
// say so. Other goroutines use transport.Conn.Submit.
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
//	effects.go      what the connection does after calls of the engine
//	retry.go        a peer that is not ready, or does not answer
//	mpatostream.go  connections that become streams again
//	ending.go       how a connection ends
//	endpoint.go     Endpoint: a queue pair as its connection sees it
//	bind.go         local addresses and ports, taken before there is a connection
//	flight.go       the last events of a connection
//	signal.go       Signal: what happens once
//	host.go         Host: what the connections of an Adapter, and of one Poller, share
//	timer.go        what a connection's timer is for
//	frames.go       start-up frames on their way
//	phase.go        phases and time-outs
//	param.go        Param: how to connect
//	refusal.go      why a start-up that a peer began was refused
//	errors.go       why connections end
package connect
