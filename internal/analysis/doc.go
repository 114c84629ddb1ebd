// Package analysis measures the claims of draft-ietf-rddp-mpa-01, appendix 11, about receive
// buffers and segments. "make analysis" writes the tables and figures of docs/results/analysis;
// docs/results/analysis.md explains them.
//
//	world.go     many connections over one link, in virtual time: tcp.Conn at both ends
//	receiver.go  what stands above TCP at the receiving end: mpa.Receiver, or the buffer of a TCP without MPA
//	stream.go    the FPDUs that every connection sends
//	hosts.go     two whole hosts in virtual time
//	packing.go   how many segments a real QueuePair makes of messages of one size
//	tables.go    the cells of the tables, the golden file, the document
//	figures.go   the figures, drawn by bench/plot
//
// Everything is decided by seeds: a cell that is measured again gives the same numbers.
package analysis
