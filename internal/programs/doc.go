// Package programs has the control sockets of programs of rnicd run: where they are, who answers on
// them, and which are found. The answers are HTTP with JSON as those of package control, whose
// Client asks; this package is linked into every such program, and does without net/http for that.
//
//	place.go   the directories
//	socket.go  Listen: the socket of this process
//	server.go  Serve: answers, a few at a time
//	look.go    All: the programs that there are, and what is left of those that were killed
//
// Its limits: a program answers its own user and root, answersMax at a time, for as long as
// answerMax; questions have headMax octets.
package programs
