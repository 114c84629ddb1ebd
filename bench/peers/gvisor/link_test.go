package main

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// received is a NetworkDispatcher that notes what comes.
type received struct {
	stack.NetworkDispatcher
	payloads chan []byte
}

func (r *received) DeliverNetworkPacket(proto tcpip.NetworkProtocolNumber,
	pkt *stack.PacketBuffer) {
	if proto == header.IPv4ProtocolNumber && pkt.RXChecksumValidated {
		r.payloads <- pkt.Data().AsRange().ToSlice()
	}
}

// linked is a link on one end of a pair of sockets that keep message boundaries, as a TAP does; the
// other end is returned.
func linked(t *testing.T, o *options) (*vnetLink, int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC,
		0)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		for _, opt := range []int{unix.SO_SNDBUFFORCE, unix.SO_SNDBUF} { // room for a frame of 64 KiB
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt, 1<<20)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
	}
	l, err := newVnetLink(fds[0], 1500, "\x02\x00\x00\x00\x00\x01", o)
	if err != nil {
		t.Fatal(err)
	}
	return l, fds[1]
}

func frame(n int) []byte {
	b := make([]byte, vnetLen+header.EthernetMinimumSize+n)
	binary.BigEndian.PutUint16(b[vnetLen+12:], uint16(header.IPv4ProtocolNumber))
	for i := range n {
		b[vnetLen+header.EthernetMinimumSize+i] = byte(i * 7)
	}
	return b
}

// Frames of every size around the buffers' edges come up whole, in order, and one by one, on
// whichever goroutine.
func TestLinkReceives(t *testing.T) {
	for _, inline := range []bool{true, false} {
		o := &options{inline: inline, first: 2048, rest: 16384}
		l, peer := linked(t, o)
		r := &received{payloads: make(chan []byte, 1)}
		l.Attach(r)
		e := header.EthernetMinimumSize
		for _, n := range []int{1, 46, 1500, 2048 - e - 1, 2048 - e, 2048 - e + 1, 2048 + 16384 - e,
			2048 + 16384 - e + 1, 65535} {
			f := frame(n)
			if _, err := unix.Write(peer, f); err != nil {
				t.Fatal(n, err)
			}
			select {
			case got := <-r.payloads:
				if !bytes.Equal(got, f[vnetLen+e:]) {
					t.Fatalf("inline %v: frame of %d octets came up as %d others", inline, n, len(got))
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("inline %v: frame of %d octets did not come up", inline, n)
			}
		}
		l.Attach(nil)
		l.Wait()
	}
}

// A packet goes out as one frame after a virtio_net_hdr that asks for what its GSO options say.
func TestLinkSends(t *testing.T) {
	gso := stack.GSO{Type: stack.GSOTCPv4, NeedsCsum: true, CsumOffset: 16, L3HdrLen: 20, MSS: 1448,
		MaxSize: 65535}
	headers := header.EthernetMinimumSize + 40
	for _, c := range []struct {
		payload int
		gso     stack.GSO
		want    [vnetLen]byte
	}{
		{100, stack.GSO{}, [vnetLen]byte{}},
		{1448, gso, [vnetLen]byte{0: 1, 2: byte(headers), 6: 34, 8: 16}},
		{1449, gso, [vnetLen]byte{0: 1, 1: 1, 2: byte(headers), 4: 1448 & 0xff, 5: 1448 >> 8,
			6: 34, 8: 16}},
		{60000, gso, [vnetLen]byte{0: 1, 1: 1, 2: byte(headers), 4: 1448 & 0xff, 5: 1448 >> 8,
			6: 34, 8: 16}},
	} {
		l, peer := linked(t, &options{first: 2048, rest: 16384})
		pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{
			ReserveHeaderBytes: headers,
			Payload:            buffer.MakeWithData(frame(c.payload)[vnetLen+header.EthernetMinimumSize:]),
		})
		pkt.TransportHeader().Push(20)
		pkt.NetworkHeader().Push(20)
		pkt.EgressRoute.LocalLinkAddress, pkt.EgressRoute.RemoteLinkAddress = "\x02\x00\x00\x00\x00\x01",
			"\x02\x00\x00\x00\x00\x02"
		pkt.NetworkProtocolNumber = header.IPv4ProtocolNumber
		pkt.GSOOptions = c.gso
		l.AddHeader(pkt)
		var list stack.PacketBufferList
		list.PushBack(pkt)
		if n, err := l.WritePackets(list); n != 1 || err != nil {
			t.Fatal(c.payload, n, err)
		}
		b := make([]byte, 1<<17)
		n, err := unix.Read(peer, b)
		if err != nil {
			t.Fatal(err)
		}
		if n != vnetLen+headers+c.payload || [vnetLen]byte(b) != c.want {
			t.Fatalf("payload %d: %d octets, header %v, want %v", c.payload, n, b[:vnetLen], c.want)
		}
		if !bytes.Equal(b[vnetLen+headers:n], frame(c.payload)[vnetLen+header.EthernetMinimumSize:]) {
			t.Fatalf("payload %d: other octets", c.payload)
		}
		pkt.DecRef()
	}
}
