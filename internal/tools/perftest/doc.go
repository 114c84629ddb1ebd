// Package perftest speaks the handshake of linux-rdma's perftest with -R (connections made by the
// connection manager): ib_write_bw, ib_read_bw, ib_send_bw, ib_write_lat, ib_read_lat and
// ib_send_lat of version 4.5, as in Debian 12. Package perf measures.
//
// A client makes two connections to one port, the second during the handshake on the first. The
// first carries Sends, one each way at a time, the client's first; the second carries what is
// measured:
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
// Neither end learns from the other which program it is, nor the length and number of messages:
// users of perftest give both ends the same options.
//
// Sources: order, layout and numbers are from captures of two Linux hosts (testdata), the meaning
// of the fields from perftest's source.
package perftest
