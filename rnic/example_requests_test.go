package rnic_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/rnicd/rnicd/rnic"
)

// side is one end of an example's connection.
type side struct {
	dev *rnic.Adapter
	pd  *rnic.ProtectionDomain
	cq  *rnic.CompletionQueue
	qp  *rnic.QueuePair
}

// depths let each end read at the other, four times at once.
var depths = rnic.ConnParam{IRD: 4, ORD: 4}

// options are those of an end with a domain and a queue of its own.
func options(dev *rnic.Adapter) rnic.QPOptions {
	cq, err := dev.CreateCQ(64)
	check(err)
	return rnic.QPOptions{PD: dev.AllocPD(), SendCQ: cq, RecvCQ: cq}
}

// pair connects two ends. prepare is called at the Responder before it accepts, and says what the
// Initiator is told with the Reply.
func pair(ctx context.Context, prepare func(responder side) []byte) (initiator, responder side) {
	dev := open()
	l, err := dev.Listen(ctx, "127.0.0.1:0", rnic.ListenOptions{})
	check(err)
	defer l.Close()
	accepted := make(chan side, 1)
	go func() {
		req, err := l.Accept(ctx)
		check(err)
		opt := options(dev)
		qp, err := dev.CreateQP(opt)
		check(err)
		s := side{dev, opt.PD, opt.SendCQ, qp}
		conn := depths
		conn.PrivateData = prepare(s)
		check(req.Accept(ctx, qp, conn))
		accepted <- s
	}()
	opt := options(dev)
	qp, err := dev.Dial(ctx, l.Addr().String(), opt, depths)
	check(err)
	return side{dev, opt.PD, opt.SendCQ, qp}, <-accepted
}

// next waits for one Completion.
func (s side) next(ctx context.Context) rnic.Completion {
	check(s.cq.Wait(ctx))
	var c [1]rnic.Completion
	s.cq.Poll(c[:])
	return c[0]
}

func (s side) register(b []byte, access rnic.Access) *rnic.MemoryRegion {
	m, err := s.pd.RegisterWith(b, rnic.RegisterOptions{Access: access, For: s.qp})
	check(err)
	return m
}

// deadline bounds an example.
func deadline() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Second)
}

// A Send is gathered from a header on the stack and, of another one, from two places of
// registered memory; each is scattered over the two parts of the receive buffer that it finds.
func ExampleQueuePair_PostSend() {
	ctx, cancel := deadline()
	defer cancel()
	var inbox *rnic.MemoryRegion
	from, to := pair(ctx, func(s side) []byte {
		inbox = s.register(make([]byte, 100), rnic.LocalWrite)
		for id := range uint64(2) { // before the peer can send
			head, body := inbox.Slice(int(id)*8, 4), inbox.Slice(50+int(id)*20, 20)
			_, err := s.qp.PostRecv(rnic.WorkRequest{ID: id, Local: head, List: []rnic.SGE{body}})
			check(err)
		}
		return nil
	})
	header := [12]byte{0, 0, 0, 8, 'i', 'n', ' ', 'l', 'i', 'n', 'e', '!'}
	_, err := from.qp.PostSend(rnic.WorkRequest{Op: rnic.OpSend, Inline: header[:], Signaled: true})
	check(err)
	clear(header[:]) // ours again

	m := from.register([]byte("\x00\x00\x00\x06 nobody reads this gather"), 0)
	_, err = from.qp.PostSend(
		rnic.WorkRequest{Op: rnic.OpSend, Local: m.Slice(0, 4), List: []rnic.SGE{m.Slice(23, 6)},
			Signaled: true})
	check(err)
	for range 2 {
		c := to.next(ctx)
		head, body := inbox.Bytes()[c.ID*8:], inbox.Bytes()[50+c.ID*20:]
		n := binary.BigEndian.Uint32(head)
		fmt.Printf("message %d of %d octets: header says %d, body %q\n", c.ID, c.Len, n, body[:n])
	}
	check(from.qp.Close(ctx))
	check(to.dev.Close(ctx))
	// Output:
	// message 0 of 12 octets: header says 8, body "in line!"
	// message 1 of 10 octets: header says 6, body "gather"
}

// A Write is gathered, too; at the peer its octets stand one after the other. The Send after it
// tells the peer that they do.
func ExampleQueuePair_PostSend_write() {
	ctx, cancel := deadline()
	defer cancel()
	var target *rnic.MemoryRegion
	from, to := pair(ctx, func(s side) []byte {
		target = s.register(make([]byte, 64), rnic.RemoteWrite)
		_, err := s.qp.PostRecv(rnic.WorkRequest{})
		check(err) // for a message of no octets
		return binary.BigEndian.AppendUint32(nil, uint32(target.STag()))
	})
	stag := rnic.STag(binary.BigEndian.Uint32(from.qp.PeerPrivateData()))
	m := from.register([]byte("one two three"), 0)
	_, err := from.qp.PostSend(rnic.WorkRequest{Op: rnic.OpWrite,
		Local: m.Slice(8, 5), List: []rnic.SGE{m.Slice(3, 4), m.Slice(3, 1), m.Slice(0, 3)},
		RemoteSTag: stag, RemoteOffset: target.Base() + 10,
	})
	check(err)
	_, err = from.qp.PostSend(rnic.WorkRequest{Op: rnic.OpSend})
	check(err)
	to.next(ctx)
	target.Deregister() // ours alone from here on
	fmt.Printf("%q\n", target.Bytes()[10:23])
	check(from.qp.Close(ctx))
	check(to.dev.Close(ctx))
	// Output: "three two one"
}

// A Read fetches from the peer's memory; no program there takes part.
func ExampleQueuePair_PostSend_read() {
	ctx, cancel := deadline()
	defer cancel()
	reader, served := pair(ctx, func(s side) []byte {
		source := s.register([]byte("what the peer granted"), rnic.RemoteRead)
		return binary.BigEndian.AppendUint32(nil, uint32(source.STag()))
	})
	stag := rnic.STag(binary.BigEndian.Uint32(reader.qp.PeerPrivateData()))
	sink := reader.register(make([]byte, 16), rnic.LocalWrite)
	_, err := reader.qp.PostSend(rnic.WorkRequest{Op: rnic.OpRead, ID: 1, Local: sink.Slice(0, 7),
		RemoteSTag: stag, RemoteOffset: 14, Signaled: true})
	check(err)
	c := reader.next(ctx)
	fmt.Printf("%v: %v, %q\n", c.Op, c.Status, sink.Bytes()[:c.Len])

	// What is not granted ends the connection; the Read says why.
	_, err = reader.qp.PostSend(rnic.WorkRequest{Op: rnic.OpRead, ID: 2, Local: sink.Slice(0, 7),
		RemoteSTag: stag, RemoteOffset: 15, Signaled: true})
	check(err)
	c = reader.next(ctx)
	<-reader.qp.Done()
	var peer *rnic.PeerError
	fmt.Printf("%v: %v; the peer's Terminate: %v\n", c.Op, c.Status, errors.As(reader.qp.Err(), &peer))
	check(served.dev.Close(ctx))
	// Output:
	// RDMA Read: success, "granted"
	// RDMA Read: remote access error; the peer's Terminate: true
}

// Two atomics on a counter and a lock word of the peer's.
func ExampleQueuePair_PostSend_atomics() {
	ctx, cancel := deadline()
	defer cancel()
	words := make([]uint64, 2)
	words[0] = 41
	one, other := pair(ctx, func(s side) []byte {
		m := s.register(octetsOf(words), rnic.RemoteRead|rnic.RemoteWrite)
		return binary.BigEndian.AppendUint32(nil, uint32(m.STag()))
	})
	stag := rnic.STag(binary.BigEndian.Uint32(one.qp.PeerPrivateData()))
	_, err := one.qp.PostSend(rnic.WorkRequest{Op: rnic.OpFetchAdd, Add: 1, RemoteSTag: stag,
		Signaled: true})
	check(err)
	lock := rnic.CompareSwap{Compare: 0, CompareMask: ^uint64(0), Swap: 7, SwapMask: ^uint64(0)}
	for range 2 {
		_, err = one.qp.PostSend(rnic.WorkRequest{Op: rnic.OpCompareSwap, CompareSwap: lock,
			RemoteSTag: stag, RemoteOffset: 8, Signaled: true})
		check(err)
	}
	fmt.Println("counter before:", one.next(ctx).Original)
	fmt.Println("lock before:", one.next(ctx).Original, "so we have it")
	fmt.Println("lock before:", one.next(ctx).Original, "so somebody has it")
	check(one.qp.Close(ctx))
	check(other.dev.Close(ctx))
	fmt.Println(words)
	// Output:
	// counter before: 41
	// lock before: 0 so we have it
	// lock before: 7 so somebody has it
	// [42 7]
}

// A batch: the answer to a request, and after it, in the same order, the end of what the client
// was granted for it.
func ExampleQueuePair_PostSend_chain() {
	ctx, cancel := deadline()
	defer cancel()
	client, server := pair(ctx, func(side) []byte { return nil })
	inbox := client.register(make([]byte, 16), rnic.LocalWrite)
	_, err := client.qp.PostRecv(rnic.WorkRequest{Local: inbox.Slice(0, 16)})
	check(err)
	_, err = client.qp.PostSend(rnic.WorkRequest{Op: rnic.OpWrite})
	check(err) // of nothing: a Responder may not speak before the Initiator has

	granted := server.register(make([]byte, 4096), rnic.RemoteRead)
	n, err := server.qp.PostSend(
		rnic.WorkRequest{ID: 1, Op: rnic.OpSend, Inline: []byte("done")},
		rnic.WorkRequest{ID: 2, Op: rnic.OpLocalInvalidate, LocalSTag: granted.STag(), Signaled: true},
	)
	check(err)
	c := server.next(ctx)
	fmt.Printf("%d posted; %v %d: %v, region valid: %v\n", n, c.Op, c.ID, c.Status, granted.Valid())
	fmt.Printf("client: %q\n", inbox.Bytes()[:client.next(ctx).Len])
	check(client.qp.Close(ctx))
	check(server.dev.Close(ctx))
	// Output:
	// 2 posted; Local Invalidate 2: success, region valid: false
	// client: "done"
}

// A Listener looks at the private data of each request, and says what it thinks of it in the
// private data of its answer.
func ExampleListener_Accept() {
	ctx, cancel := deadline()
	defer cancel()
	dev := open()
	l, err := dev.Listen(ctx, "127.0.0.1:0", rnic.ListenOptions{})
	check(err)
	defer l.Close()
	go func() {
		for range 2 {
			req, err := l.Accept(ctx)
			check(err)
			if string(req.PrivateData()) != "sesame" {
				check(req.Reject(ctx, []byte("who are you?")))
				continue
			}
			qp, err := dev.CreateQP(options(dev))
			check(err)
			check(req.Accept(ctx, qp, rnic.ConnParam{PrivateData: []byte("come in")}))
		}
	}()
	for _, word := range []string{"simsim", "sesame"} {
		qp, err := dev.Dial(ctx, l.Addr().String(), options(dev),
			rnic.ConnParam{PrivateData: []byte(word)})
		var rejected *rnic.RejectedError
		if errors.As(err, &rejected) {
			fmt.Printf("%s: %s\n", word, rejected.PrivateData)
			continue
		}
		check(err)
		fmt.Printf("%s: %s\n", word, qp.PeerPrivateData())
		check(qp.Close(ctx))
	}
	check(dev.Close(ctx))
	// Output:
	// simsim: who are you?
	// sesame: come in
}

// octetsOf is the memory of words.
func octetsOf(words []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))
}

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
