// Package mem holds packet buffers, rings and registered memory: what the packet path touches
// that is not protocol.
//
//   - Pool, Buf, Desc (buf.go, pool.go, pool_turns.go): packet buffers of one Poller, named by
//     index so that the garbage collector never sees a packet. The device and the stack own them in
//     turns.
//   - SPSC, MPSC (spsc.go, mpsc.go): bounded rings between goroutines, over backing the caller
//     passes in; View (view.go) lays that backing over arena octets.
//   - Table, MemoryRegion, Window, Reader (table.go, region.go, window.go, reader.go): which
//     octets an STag gives access to, and on which connections. Check is the only way from a wire
//     address to memory. After Revoke there is no access.
//
// Limits: nothing here allocates, locks or reads a clock on the packet path; registering
// allocates and locks. Sizes are fixed at creation. A ring or a Table cannot be shared with
// another process: its indices and epochs are in this one.
//
// It imports hugepages and internal/wq.
package mem
