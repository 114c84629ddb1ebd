// Package perftest speaks the hand-shake of linux-rdma's perftest, as its programs have it with -R
// (their connections made by the connection manager): ib_write_bw, ib_read_bw, ib_send_bw,
// ib_write_lat, ib_read_lat and ib_send_lat, of version 4.5 as Debian 12 has it. What is measured,
// and by which rules, is package perf's.
//
// There are two connections to one port, the second within the first's hand-shake. On the first go
// Sends, one each way at a time, the client's first; on the second goes what is measured:
//
//	client                                                    server
//	  | == connection 1, without private data ================> |
//	  | <- version, 16 octets of text -----------------------> |
//	  | <- 4 octets: over how much memory messages go round ---> |  the larger of the two counts
//	  | <- 4 octets: length of a cache line ------------------> |  likewise
//	  | <- 2 octets: the path MTU, a digit -------------------> |  the smaller
//	  | <- Place of nothing ----------------------------------> |
//	  | == connection 2; its read depths in the enhanced frame => |
//	  | <- Place of nothing ----------------------------------> |
//	  | <- Place: STag and offset of memory, ... -------------> |
//	  | <- Places twice more, to wait for each other ---------> |  all but ib_write_bw and ib_read_bw: three times
//	  | == what is measured, on connection 2 =================> |
//	  | <- Place, the same again -----------------------------> |  all but ib_write_lat
//	  | <- five times 8 octets: the figures ------------------> |  ib_write_bw, ib_read_bw
//	  | <- Place, the same again -----------------------------> |  ib_write_bw, ib_read_bw
//	  | -- FIN on connection 2, FIN on connection 1 -----------> |
//
// So neither end learns from the other which program it is, how long messages are and how many
// come: both are told, as the users of perftest tell both.
//
// Where this comes from: Order, layout and numbers were read off captures of two Linux hosts
// (testdata), and the meaning of the fields was looked up in perftest's source.
package perftest
