// Package mem holds packet buffers, rings and registered memory: everything the packet's way
// touches that is not protocol.
//
//   - Pool, Buf, Desc (buf.go, pool.go): packet buffers of one Poller, named by index so that the
//     garbage collector never sees a packet. A device fills or empties them, the stack owns them between.
//   - SPSC, MPSC (spsc.go, mpsc.go): bounded rings between goroutines, over backing the caller passes in;
//     View (view.go) lays that backing over arena octets.
//   - Table, MemoryRegion, Window, Reader (table.go, region.go, window.go, reader.go): which STag reaches which
//     octets, for whom. Check is the only way from a wire address to memory, and Revoke closes it for certain.
//
// Limits: nothing here allocates, locks or reads a clock on the packet's way; registering does all
// three but the last. Sizes are fixed at creation. Indices and epochs live in this process, so a
// ring or a Table is not shared with another one.
//
// It imports hugepages only. pmd, mpa, ddp, stack and rnic import it.
package mem
