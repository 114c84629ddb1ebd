package rnic_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/rnic"
)

// A server grants a client four kilooctets of its memory, and the client writes into it. Both run
// over the kernel's sockets here; with Config.Pollers, and ":0" to listen on, the same program
// runs on the userspace TCP.
func Example() {
	ctx, cancel := deadline()
	defer cancel()
	server, client := open(), open()
	l, err := server.Listen(ctx, "127.0.0.1:0", rnic.ListenOptions{})
	check(err)
	defer l.Close()
	served := make(chan string, 1)
	go func() { served <- serve(ctx, server, l) }()

	// Memory to write from, a queue for completions, a connection. The server's answer says where to
	// write.
	pd := client.AllocPD()
	source, err := pd.Register([]byte("written without a receive call"), 0)
	check(err)
	cq, err := client.CreateCQ(16)
	check(err)
	qp, err := client.Dial(ctx, l.Addr().String(), rnic.QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq},
		rnic.ConnParam{})
	check(err)
	stag := rnic.STag(binary.BigEndian.Uint32(qp.PeerPrivateData()))

	// A Write, and after it a Send that tells the server of it.
	_, err = qp.PostSend(
		rnic.WorkRequest{Op: rnic.OpWrite, ID: 1, Local: source.Slice(0, source.Len()), RemoteSTag: stag,
			RemoteOffset: 100, Signaled: true},
		rnic.WorkRequest{Op: rnic.OpSend, ID: 2, Local: source.Slice(0, 7), Signaled: true},
	)
	check(err)
	var done [16]rnic.Completion
	for got := 0; got < 2; {
		check(cq.Wait(ctx))
		n := cq.Poll(done[:])
		for _, c := range done[:n] {
			fmt.Printf("client: %v %d of %d octets: %v\n", c.Op, c.ID, c.Len, c.Status)
		}
		got += n
	}
	fmt.Println("server:", <-served)
	check(qp.Close(ctx))
	check(client.Close(ctx))
	check(server.Close(ctx))
	// Unordered output:
	// client: RDMA Write 1 of 30 octets: success
	// client: Send 2 of 7 octets: success
	// server: "written" announces "written without a receive call"
}

// serve accepts one client, grants it memory, waits for its message and says what it found.
func serve(ctx context.Context, dev *rnic.Adapter, l *rnic.Listener) (heard string) {
	req, err := l.Accept(ctx)
	check(err)
	pd := dev.AllocPD()
	cq, err := dev.CreateCQ(16)
	check(err)
	qp, err := dev.CreateQP(rnic.QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq})
	check(err)
	target, err := pd.RegisterWith(make([]byte, 4096),
		rnic.RegisterOptions{Access: rnic.RemoteWrite, For: qp})
	check(err)
	inbox, err := pd.Register(make([]byte, 64), rnic.LocalWrite)
	check(err)
	_, err = qp.PostRecv(rnic.WorkRequest{ID: 1, Local: inbox.Slice(0, 64)})
	check(err)
	hello := binary.BigEndian.AppendUint32(nil, uint32(target.STag()))
	check(req.Accept(ctx, qp, rnic.ConnParam{PrivateData: hello}))
	check(cq.Wait(ctx))
	var c [1]rnic.Completion
	cq.Poll(c[:])
	target.Deregister() // from here on the memory is ours alone
	return fmt.Sprintf("%q announces %q", inbox.Bytes()[:c[0].Len], target.Bytes()[100:130])
}

// What the peer may not do ends the connection; both ends learn the same reason.
func ExampleTerminateError() {
	ctx, cancel := deadline()
	defer cancel()
	client, server := pair(ctx, func(side) []byte { return nil })
	source := client.register(make([]byte, 10), 0)
	_, err := client.qp.PostSend(rnic.WorkRequest{Op: rnic.OpWrite, Local: source.Slice(0, 10),
		RemoteSTag: 0xbad, RemoteOffset: 5})
	check(err)
	<-client.qp.Done()
	fmt.Println(client.qp.Err())
	check(server.dev.Close(ctx))
	// Output: rnic: peer terminated the stream: DDP tagged buffer error: invalid STag (layer 1, type 1, code 0x00), segment of 24 octets, RDMA Write to STag 0x00000bad, TO 0x5
}

// A server has one large region, registered once, and grants a client a window of exactly the
// octets of its request. The client writes them and gives the window back with its message, so
// that the server may look at once.
func ExampleWindow() {
	ctx, cancel := deadline()
	defer cancel()
	var region *rnic.MemoryRegion
	var window *rnic.Window
	client, server := pair(ctx, func(s side) []byte {
		var err error
		// The region's own STag gives peers no right; only windows do.
		region, err = s.pd.RegisterWith(make([]byte, 1<<20),
			rnic.RegisterOptions{Access: rnic.LocalWrite, Windows: rnic.RemoteWrite})
		check(err)
		window, err = s.pd.NewWindow()
		check(err)
		stag, err := window.Bind(region,
			rnic.WindowOptions{Off: 4000, Len: 2, Access: rnic.RemoteWrite, For: s.qp})
		check(err)
		_, err = s.qp.PostRecv(rnic.WorkRequest{Local: region.Slice(0, 64)})
		check(err)
		return binary.BigEndian.AppendUint32(nil, uint32(stag))
	})
	stag := rnic.STag(binary.BigEndian.Uint32(client.qp.PeerPrivateData()))
	source := client.register([]byte("42 octets less two score"), 0)
	_, err := client.qp.PostSend(
		rnic.WorkRequest{Op: rnic.OpWrite, Local: source.Slice(0, 2), RemoteSTag: stag},
		rnic.WorkRequest{Op: rnic.OpSendInvalidate, Local: source.Slice(3, 6), RemoteSTag: stag},
	)
	check(err)
	c := server.next(ctx)
	fmt.Printf("message %q, window given back: %v\n", region.Bytes()[:c.Len], c.Invalidated == stag)
	fmt.Printf("written: %q\n", region.Bytes()[4000:4002]) // ours alone again, without a Revoke
	window.Free()
	check(client.dev.Close(ctx))
	check(server.dev.Close(ctx))
	region.Deregister()
	// Output:
	// message "octets", window given back: true
	// written: "42"
}

// Memory of any kind is registered alike; here it is a file, which then holds what the peer wrote.
func ExampleProtectionDomain_RegisterWith_file() {
	f, err := os.CreateTemp("", "region")
	check(err)
	defer os.Remove(f.Name())
	check(f.Truncate(8192))
	b, err := unix.Mmap(int(f.Fd()), 0, 8192, unix.PROT_READ, unix.MAP_SHARED)
	check(err)
	defer unix.Munmap(b)
	pd := open().AllocPD()
	_, err = pd.RegisterWith(b, rnic.RegisterOptions{Access: rnic.RemoteWrite})
	// Mapped to be read only: a peer must not do what this process may not.
	fmt.Println(errors.Is(err, os.ErrPermission))
	m, err := pd.RegisterWith(b[100:200], rnic.RegisterOptions{Access: rnic.RemoteRead, Base: 1 << 40})
	check(err)
	fmt.Println(m.Len(), m.Base(), m.Access())
	m.Deregister()
	// Output:
	// true
	// 100 1099511627776 RemoteRead
}

// Two programs talk over TCP, agree on RDMA, and go on with it on the same connection.
func ExampleAdapter_AcceptStream() {
	ctx, cancel := deadline()
	defer cancel()
	dev := open()
	l, err := net.Listen("tcp", "127.0.0.1:0") // or stream.Listen on an Adapter's Pollers
	check(err)
	defer l.Close()
	served := make(chan *rnic.QueuePair)
	go func() {
		conn, err := l.Accept()
		check(err)
		hello := make([]byte, 6)
		_, err = io.ReadFull(conn, hello) // exactly: what is after it may be MPA's
		check(err)
		fmt.Printf("server reads %q\n", hello)
		req, err := dev.AcceptStream(ctx, conn, []byte("go on\n"))
		check(err)
		qp, err := dev.CreateQP(options(dev))
		check(err)
		check(req.Accept(ctx, qp, rnic.ConnParam{PrivateData: []byte("welcome")}))
		served <- qp
	}()

	conn, err := net.Dial("tcp", l.Addr().String())
	check(err)
	_, err = conn.Write([]byte("RDMA?\n"))
	check(err)
	answer := make([]byte, 6)
	_, err = io.ReadFull(conn, answer)
	check(err)
	fmt.Printf("client reads %q\n", answer)
	qp, err := dev.CreateQP(options(dev))
	check(err)
	check(qp.ConnectStream(ctx, conn, rnic.ConnParam{}))
	fmt.Printf("client is in service: %s\n", qp.PeerPrivateData())
	peer := <-served
	check(qp.Close(ctx))
	<-peer.Done()
	check(dev.Close(ctx))
	// Output:
	// server reads "RDMA?\n"
	// client reads "go on\n"
	// client is in service: welcome
}

func open() *rnic.Adapter {
	dev, err := rnic.Open(rnic.Config{})
	check(err)
	return dev
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
