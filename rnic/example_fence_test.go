package rnic_test

import (
	"encoding/binary"
	"fmt"

	"github.com/rnicd/rnicd/rnic"
)

// Memory that a peer granted is read, and given back with the message that says so. Without Fence
// the peer may invalidate the STag before it has answered the Read, which ends the connection.
func Example_readInvalidate() {
	ctx, cancel := deadline()
	defer cancel()
	var granted *rnic.MemoryRegion
	reader, served := pair(ctx, func(s side) []byte {
		granted = s.register([]byte("read me once"), rnic.RemoteRead)
		inbox := s.register(make([]byte, 16), rnic.LocalWrite)
		_, err := s.qp.PostRecv(rnic.WorkRequest{Local: inbox.Slice(0, 16)})
		check(err) // before the peer can send
		return binary.BigEndian.AppendUint32(nil, uint32(granted.STag()))
	})
	stag := rnic.STag(binary.BigEndian.Uint32(reader.qp.PeerPrivateData()))
	sink := reader.register(make([]byte, 12), rnic.LocalWrite)
	_, err := reader.qp.PostSend(
		rnic.WorkRequest{Op: rnic.OpRead, Local: sink.Slice(0, 12), RemoteSTag: stag, Signaled: true},
		rnic.WorkRequest{Op: rnic.OpSendInvalidate, Inline: []byte("thanks"), RemoteSTag: stag,
			Fence: true},
	)
	check(err)
	fmt.Printf("%v: %q\n", reader.next(ctx).Op, sink.Bytes())
	c := served.next(ctx)
	fmt.Printf("%d octets, our STag invalidated: %v, region valid: %v\n", c.Len, c.Invalidated == stag,
		granted.Valid())
	check(reader.qp.Close(ctx))
	check(served.dev.Close(ctx))
	// Output:
	// RDMA Read: "read me once"
	// 6 octets, our STag invalidated: true, region valid: false
}
