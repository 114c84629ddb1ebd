package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/rawfile"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/stopfd"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/stack/gro"
)

// vnetLen is the size of a virtio_net_hdr (linux/virtio_net.h).
const vnetLen = 10

// openTAP makes a TAP device, with or without a virtio_net_hdr before each frame. With one, the
// kernel is told that we take frames without checksum and uncut ones.
func openTAP(name string, vnet bool) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("/dev/net/tun: %w", err)
	}
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if vnet {
		flags |= unix.IFF_VNET_HDR
	}
	ifr.SetUint16(flags)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		return -1, errors.Join(fmt.Errorf("%s: TUNSETIFF: %w", name, err), unix.Close(fd))
	}
	if vnet {
		err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6|
			unix.TUN_F_TSO_ECN)
		if err != nil {
			return -1, errors.Join(fmt.Errorf("%s: TUNSETOFFLOAD: %w", name, err), unix.Close(fd))
		}
	}
	return fd, nil
}

// vnetLink is a link endpoint on a TAP with virtio_net_hdr. gVisor's own fdbased endpoint does
// segmentation offload on sockets only (fdbased/endpoint.go, New: isSocket), so over a TAP it would
// send and receive a frame of the MTU with each system call. This one is fdbased's readv path with
// that header in front, and without the hand-over to a second goroutine unless inline is off
// (fdbased/packet_dispatchers.go, processors.go).
type vnetLink struct {
	fd     int
	stop   stopfd.StopFD
	inline bool
	gro    bool
	sizes  []int // of the buffers that a packet is read into

	mu         sync.RWMutex
	mtu        uint32
	addr       tcpip.LinkAddress
	dispatcher stack.NetworkDispatcher
	wg         sync.WaitGroup
}

var _ stack.LinkEndpoint = (*vnetLink)(nil)
var _ stack.GSOEndpoint = (*vnetLink)(nil)

func newVnetLink(fd int, mtu uint32, addr tcpip.LinkAddress, o *options) (*vnetLink, error) {
	stop, err := stopfd.New()
	if err != nil {
		return nil, err
	}
	return &vnetLink{fd: fd, stop: stop, mtu: mtu, addr: addr, inline: o.inline, gro: o.gro,
		sizes: bufferSizes(o)}, nil
}

func (l *vnetLink) GSOMaxSize() uint32                      { return 65535 }
func (l *vnetLink) SupportedGSO() stack.SupportedGSO        { return stack.HostGSOSupported }
func (l *vnetLink) MaxHeaderLength() uint16                 { return header.EthernetMinimumSize }
func (l *vnetLink) Wait()                                   { l.wg.Wait() }
func (l *vnetLink) Close()                                  {}
func (l *vnetLink) SetOnCloseAction(func())                 {}
func (l *vnetLink) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }

// Capabilities: without CapabilityTXChecksumOffload, as fdbased in runsc: a segment that may be cut
// has its checksum left to the kernel anyway, and one that is not (a SYN, a RST) would go out with
// none.
func (l *vnetLink) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload | stack.CapabilityResolutionRequired
}

func (l *vnetLink) MTU() uint32 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.mtu
}

func (l *vnetLink) SetMTU(mtu uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mtu = mtu
}

func (l *vnetLink) LinkAddress() tcpip.LinkAddress {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.addr
}

func (l *vnetLink) SetLinkAddress(addr tcpip.LinkAddress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addr = addr
}

// Attach starts the reading goroutine; a nil dispatcher ends it.
func (l *vnetLink) Attach(d stack.NetworkDispatcher) {
	l.mu.Lock()
	was := l.dispatcher
	l.dispatcher = d
	l.mu.Unlock()
	switch {
	case d == nil && was != nil:
		l.stop.Stop()
		l.wg.Wait()
	case d != nil && was == nil:
		l.wg.Go(func() { l.receive(d) })
	}
}

func (l *vnetLink) IsAttached() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.dispatcher != nil
}

func (l *vnetLink) AddHeader(pkt *stack.PacketBuffer) {
	eth := header.Ethernet(pkt.LinkHeader().Push(header.EthernetMinimumSize))
	eth.Encode(&header.EthernetFields{
		SrcAddr: pkt.EgressRoute.LocalLinkAddress, DstAddr: pkt.EgressRoute.RemoteLinkAddress,
		Type: pkt.NetworkProtocolNumber,
	})
}

func (l *vnetLink) ParseHeader(pkt *stack.PacketBuffer) bool {
	b, ok := pkt.LinkHeader().Consume(header.EthernetMinimumSize)
	if ok {
		pkt.NetworkProtocolNumber = header.Ethernet(b).Type()
	}
	return ok
}

// bufferSizes are a small one, for small frames and the front of large ones, and as many of the
// rest as the largest frame needs. gVisor clears a buffer when it is taken from its pool
// (buffer/chunk.go), so many small ones save clearing.
func bufferSizes(o *options) []int {
	sizes := []int{o.first}
	for n := o.first; n < 65536+header.EthernetMinimumSize; n += o.rest {
		sizes = append(sizes, o.rest)
	}
	return sizes
}

// receive reads frames into pooled buffers and replaces those that were used.
// Packets go up on this goroutine, or to another over a channel, GRO on either.
func (l *vnetLink) receive(d stack.NetworkDispatcher) {
	up := func(pkt *stack.PacketBuffer) { d.DeliverNetworkPacket(pkt.NetworkProtocolNumber, pkt) }
	var g gro.GRO
	g.Init(l.gro)
	g.Dispatcher = d
	if l.gro {
		up = func(pkt *stack.PacketBuffer) { g.Enqueue(pkt); g.Flush() }
	}
	give := func(pkt *stack.PacketBuffer) { up(pkt); pkt.DecRef() }
	if !l.inline {
		const queued = 1024
		ch := make(chan *stack.PacketBuffer, queued)
		defer close(ch)
		inner := give
		l.wg.Go(func() {
			for pkt := range ch {
				inner(pkt)
			}
		})
		give = func(pkt *stack.PacketBuffer) { ch <- pkt }
	}
	var vnet [vnetLen]byte
	views := make([]*buffer.View, len(l.sizes))
	iov := make([]unix.Iovec, 1+len(l.sizes))
	iov[0] = rawfile.IovecFromBytes(vnet[:])
	for {
		for i, v := range views {
			if v == nil {
				views[i] = buffer.NewViewSize(l.sizes[i])
				iov[i+1] = unix.Iovec{Base: views[i].BasePtr()}
				iov[i+1].SetLen(l.sizes[i])
			}
		}
		n, errno := rawfile.BlockingReadvUntilStopped(l.stop.EFD, l.fd, iov)
		if errno != 0 || n <= 0 {
			return
		}
		if n -= vnetLen; n < header.EthernetMinimumSize {
			continue
		}
		var payload buffer.Buffer
		for i, held := 0, 0; held < n; i++ {
			_ = payload.Append(views[i])
			views[i] = nil
			held += l.sizes[i]
		}
		payload.Truncate(int64(n))
		pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: payload})
		if !l.ParseHeader(pkt) {
			pkt.DecRef()
			continue
		}
		pkt.RXChecksumValidated = true // by memory: the sender's host is ours
		give(pkt)
	}
}

// WritePackets writes each packet, whatever its size, with one system call.
func (l *vnetLink) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	n := 0
	for _, pkt := range pkts.AsSlice() {
		if errno := l.write(pkt); errno != 0 {
			return n, tcpip.TranslateErrno(errno)
		}
		n++
	}
	return n, nil
}

func (l *vnetLink) write(pkt *stack.PacketBuffer) unix.Errno {
	var h [vnetLen]byte
	if g := &pkt.GSOOptions; g.Type != stack.GSONone {
		binary.NativeEndian.PutUint16(h[2:], uint16(pkt.HeaderSize()))
		if g.NeedsCsum {
			h[0] = 1 // VIRTIO_NET_HDR_F_NEEDS_CSUM
			binary.NativeEndian.PutUint16(h[6:], header.EthernetMinimumSize+g.L3HdrLen)
			binary.NativeEndian.PutUint16(h[8:], g.CsumOffset)
		}
		if pkt.Data().Size() > int(g.MSS) {
			h[1] = 1 // VIRTIO_NET_HDR_GSO_TCPV4: this peer has no IPv6 address
			binary.NativeEndian.PutUint16(h[4:], g.MSS)
		}
	}
	var few [16]unix.Iovec
	iov := append(few[:0], rawfile.IovecFromBytes(h[:]))
	for _, v := range pkt.AsSlices() {
		iov = rawfile.AppendIovecFromBytes(iov, v, rawfile.MaxIovs)
	}
	return rawfile.NonBlockingWriteIovec(l.fd, iov)
}
