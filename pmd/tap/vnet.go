package tap

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"golang.org/x/sys/unix"
)

// virtio_net_hdr, linux/virtio_net.h; the legacy header of the Virtio specification 1.2 section
// 5.1.6, which TUN uses in the host's byte order:
//
//	0 flags  1 gso_type  2 hdr_len  4 gso_size  6 csum_start  8 csum_offset
const (
	vnetLen = 10

	vnetNeedsCsum = 1 // flags

	vnetGSONone  = 0 // gso_type
	vnetGSOTCPv4 = 1
	vnetGSOTCPv6 = 4
	vnetGSOUDP   = 5 // VIRTIO_NET_HDR_GSO_UDP_L4
	vnetGSOECN   = 0x80
)

// segmentedMax is the longest frame before it is cut: IP's length field, and the headers in front.
const segmentedMax = 65535 + pmd.FrameOverhead

// vnetHeader is what the kernel says of a received frame. Its hdr_len is left out: it tells what of
// an skb is in one piece, which may be more or less than the headers.
type vnetHeader struct {
	needsCsum bool
	// without ECN: CWR is for the first segment alone with it, and the kernel does not offer the rest
	gsoType               byte
	gsoSize               int
	csumStart, csumOffset uint16
}

func parseVnet(b *[vnetLen]byte) vnetHeader {
	return vnetHeader{
		needsCsum: b[0]&vnetNeedsCsum != 0, gsoType: b[1] &^ vnetGSOECN,
		gsoSize:   int(binary.NativeEndian.Uint16(b[4:])),
		csumStart: binary.NativeEndian.Uint16(b[6:]), csumOffset: binary.NativeEndian.Uint16(b[8:]),
	}
}

// describe says in d, of a frame of d.Len octets, what the kernel's header said of it. A frame that
// still needs its checksum never left this host's memory, so it is good. What the kernel calls
// valid (VIRTIO_NET_HDR_F_DATA_VALID) is so of TCP alone, not of the IPv4 header, and we say both
// or nothing. False: the checksum's place is not in the frame.
func (v *vnetHeader) describe(d *mem.Desc) bool {
	if !v.needsCsum {
		return true
	}
	d.Flags |= mem.RxChecksumGood
	d.CsumStart, d.CsumOffset = v.csumStart, v.csumOffset
	return v.csumOffset != 0 && uint32(v.csumStart)+uint32(v.csumOffset)+2 <= d.Len
}

// request writes into h what d asks of the kernel for a frame to be sent.
func request(h *[vnetLen]byte, frame []byte, d *mem.Desc) {
	*h = [vnetLen]byte{}
	if d.Flags&mem.TxChecksum == 0 {
		return
	}
	h[0] = vnetNeedsCsum
	binary.NativeEndian.PutUint16(h[6:], d.CsumStart)
	binary.NativeEndian.PutUint16(h[8:], d.CsumOffset)
	if d.Flags&mem.TxSegment == 0 {
		return
	}
	h[1] = gsoType(frame, int(d.CsumStart))
	binary.NativeEndian.PutUint16(h[2:], d.HdrLen)
	binary.NativeEndian.PutUint16(h[4:], d.GSOSize)
}

// gsoType of a frame whose TCP header begins at tcp. CWR belongs on the first segment only (RFC
// 3168 section 6.1.2); without the ECN bit the kernel would repeat it on all.
func gsoType(frame []byte, tcp int) byte {
	at := 12
	for at < 12+2*4 && at+2 <= len(frame) && isTag(frame[at:]) {
		at += 4
	}
	t := byte(vnetGSOTCPv4)
	if at+2 <= len(frame) && binary.BigEndian.Uint16(frame[at:]) == unix.ETH_P_IPV6 {
		t = vnetGSOTCPv6
	}
	if tcp+13 < len(frame) && frame[tcp+13]&0x80 != 0 {
		t |= vnetGSOECN
	}
	return t
}

// segmented writes into b the header of several coalesced frames, of size octets of payload each,
// whose common headers h stand in frame.
func segmented(b *[vnetLen]byte, frame []byte, h *headers, size int) {
	request(b, frame, &mem.Desc{
		Flags: mem.TxChecksum | mem.TxSegment, CsumStart: uint16(h.l4), CsumOffset: tcpCsumOffset,
		HdrLen: uint16(h.len), GSOSize: uint16(size),
	})
}
