// Package control is the daemon's control socket: HTTP with JSON over a Unix socket, for commands
// that query a running daemon. Its limits: ClientsMax connections, headers of 16 KiB, bodies of
// BodyMax octets. Packets do not pass through it.
//
//	socket.go   the path of the socket; making it, and taking over that of a dead process
//	server.go   Server: handlers by pattern
//	client.go   Client: what commands call
//
// The daemon registers each request by Server.Handle with a pattern of http.ServeMux, such as
// "GET /v1/status". The handler answers with Reply or Fail, or writes a stream until the
// request's context ends: with the client's connection, or with Server.Close. A command calls
// Client.Get for one answer, Client.Stream for a stream.
package control
