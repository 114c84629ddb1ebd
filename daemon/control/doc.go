// Package control is the daemon's control socket: HTTP with JSON over a Unix socket, by which
// commands ask a daemon that runs. Its limits: ClientsMax connections, headers of 16 KiB, bodies of
// BodyMax octets. It is not on a packet's way.
//
//	socket.go   where the socket is; making it, and taking over that of a dead process
//	server.go   Server: handlers by pattern
//	client.go   Client: what commands call
//
// A part of the daemon that is to be asked something calls Server.Handle with a pattern of
// http.ServeMux, as "GET /v1/status", and answers with Reply, Fail, or a stream of its own: a
// handler may write for as long as its request's context lives, and that ends with the client's
// connection and with Server.Close. A command calls Client.Get for one answer, Client.Stream for
// one that goes on.
package control
