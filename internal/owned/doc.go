// Package owned knows descriptors that are not the program's in whose process the engine runs. A
// program that closes all numbers, as one does that becomes a daemon, is told that these are not
// open: see verbs/shim/descriptors.c.
//
//	owned.go    the table
//	runtime.go  the descriptors of Go's runtime
package owned
