// Package report makes the answers that are the same for a daemon and for a program of rnicd run,
// whichever is asked on its control socket. What it asks of a Poller, the Poller copies in one of
// its Turns: it waits for no client.
//
//	port.go         a port and its Pollers
//	connections.go  the connections of a Poller, and the answer to GET /v1/connections
//	flights.go      the last connections that have ended with an error, and events
package report
