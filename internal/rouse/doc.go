// Package rouse puts a goroutine that polls to sleep until its device, a bell or a deadline wakes
// it, and wakes it.
//
//	rouse.go    Rouser: the handshake between the sleeper and who leaves something for it
//	wakeups.go  the epoll that it sleeps in
package rouse
