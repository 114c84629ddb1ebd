package main

import (
	"fmt"
	"net"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/link/qdisc/fifo"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"github.com/rnicd/rnicd/bench/peers/measure"
)

const (
	nic       = 1
	bufferMax = 64 << 20
)

// listen makes the device, a stack on it and a listener.
func listen(o *options, addr netip.Prefix) (net.Listener, error) {
	link, err := newLink(o)
	if err != nil {
		return nil, err
	}
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	if err := tune(o, s); err != nil {
		return nil, err
	}
	var nicOptions stack.NICOptions
	if o.fifo > 0 {
		nicOptions.QDisc = fifo.New(link, 1, o.fifo)
	}
	if err := s.CreateNICWithOptions(nic, link, nicOptions); err != nil {
		return nil, fmt.Errorf("CreateNIC: %v", err)
	}
	ours := tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4(addr.Addr().As4()),
		PrefixLen: addr.Bits()}
	protocolAddr := tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: ours}
	if err := s.AddProtocolAddress(nic, protocolAddr, stack.AddressProperties{}); err != nil {
		return nil, fmt.Errorf("AddProtocolAddress %v: %v", addr, err)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: ours.Subnet(), NIC: nic}})
	return gonet.ListenTCP(s, tcpip.FullAddress{NIC: nic, Addr: ours.Address, Port: measure.Port},
		ipv4.ProtocolNumber)
}

// newLink is the link endpoint that was asked for. The device's MTU and the kernel side's address
// are set from outside.
func newLink(o *options) (stack.LinkEndpoint, error) {
	if o.link != "vnet" && o.link != "fdbased" {
		return nil, fmt.Errorf("--link %q: want vnet or fdbased", o.link)
	}
	fd, err := openTAP(o.dev, o.link == "vnet")
	if err != nil {
		return nil, err
	}
	device, err := net.InterfaceByName(o.dev)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.dev, err)
	}
	mac := device.HardwareAddr // the kernel side's: ours must differ
	mac[0] = mac[0]&^1 | 2
	mac[5] ^= 1
	addr := tcpip.LinkAddress(mac[:])
	if o.link == "vnet" {
		return newVnetLink(fd, uint32(o.mtu), addr, o)
	}
	// What a TAP without virtio_net_hdr delivers has a checksum that the same host computed.
	return fdbased.New(&fdbased.Options{
		FDs: []int{fd}, MTU: uint32(o.mtu), EthernetHeader: true, Address: addr,
		RXChecksumOffload: true, GRO: o.gro,
		ProcessorsPerChannel: processors(o),
	})
}

func processors(o *options) int {
	if o.inline {
		return 1
	}
	return 0 // fdbased's default: as many as there are CPUs
}

// tune sets the protocol's options.
func tune(o *options, s *stack.Stack) error {
	sack, moderate, cc := tcpip.TCPSACKEnabled(o.sack),
		tcpip.TCPModerateReceiveBufferOption(o.moderate), tcpip.CongestionControlOption(o.cc)
	recovery := tcpip.TCPRecovery(0)
	if o.rack {
		recovery = tcpip.TCPRACKLossDetection
	}
	send := tcpip.TCPSendBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: o.sndbuf,
		Max: bufferMax}
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: o.rcvbuf,
		Max: bufferMax}
	for _, opt := range []tcpip.SettableTransportProtocolOption{&sack, &moderate, &cc, &recovery,
		&send, &receive} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, opt); err != nil {
			return fmt.Errorf("option %T: %v", opt, err)
		}
	}
	return nil
}
