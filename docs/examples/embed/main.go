// Command embed is the program whose lines the README and rnic's package comment show: a client
// writes into memory that a server has granted it, both over the kernel's sockets in one process.
//
//	go run ./docs/examples/embed
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"time"

	"github.com/rnicd/rnicd/rnic"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	addr, target := grantor(ctx)
	buf, hello := []byte("written without a receive call"), []byte("hello")
	var completions [16]rnic.Completion

	dev, err := rnic.Open(rnic.Config{}) // over kernel sockets; Config.Pollers: over our own TCP
	check(err)
	pd := dev.AllocPD()
	mr, err := pd.Register(buf, rnic.LocalWrite|rnic.RemoteWrite)
	check(err)
	cq, err := dev.CreateCQ(1024)
	check(err)
	qp, err := dev.Dial(ctx, addr, rnic.QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq},
		rnic.ConnParam{PrivateData: hello})
	check(err)
	stag, to := granted(qp.PeerPrivateData()) // where the peer lets us write
	_, err = qp.PostSend(rnic.WorkRequest{ID: 7, Op: rnic.OpWrite, Local: mr.Slice(0, len(buf)),
		RemoteSTag: stag, RemoteOffset: to, Signaled: true})
	check(err)
	err = cq.Wait(ctx) // until there is a Completion
	check(err)
	done := cq.Poll(completions[:])

	c := completions[0]
	fmt.Printf("%d completion: %v %d of %d octets: %v\n", done, c.Op, c.ID, c.Len, c.Status)
	check(qp.Close(ctx)) // in order: the peer has placed all of it
	check(dev.Close(ctx))
	fmt.Printf("%q\n", <-target)
}

// granted reads a grant: an STag and an offset.
func granted(b []byte) (rnic.STag, uint64) {
	return rnic.STag(binary.BigEndian.Uint32(b)), binary.BigEndian.Uint64(b[4:])
}

// grantor grants its first client memory, and says what is there when the client has left.
func grantor(ctx context.Context) (addr string, target <-chan string) {
	dev, err := rnic.Open(rnic.Config{})
	check(err)
	l, err := dev.Listen(ctx, "127.0.0.1:0", rnic.ListenOptions{})
	check(err)
	left := make(chan string)
	go func() {
		defer l.Close()
		req, err := l.Accept(ctx)
		check(err)
		cq, err := dev.CreateCQ(16)
		check(err)
		pd := dev.AllocPD()
		qp, err := dev.CreateQP(rnic.QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq})
		check(err)
		mr, err := pd.RegisterWith(make([]byte, 4096),
			rnic.RegisterOptions{Access: rnic.RemoteWrite, For: qp})
		check(err)
		grant := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, uint32(mr.STag())),
			mr.Base())
		err = req.Accept(ctx, qp, rnic.ConnParam{PrivateData: grant})
		check(err)
		<-qp.Done()
		mr.Deregister() // from here on the memory is ours alone
		left <- string(mr.Bytes()[:30])
	}()
	return l.Addr().String(), left
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
