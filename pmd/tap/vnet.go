package tap

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"golang.org/x/sys/unix"
)

// virtio_net_hdr, linux/virtio_net.h; the legacy header of the Virtio specification 1.2 section 5.1.6, which TUN
// uses in the host's byte order:
//
//	0 flags  1 gso_type  2 hdr_len  4 gso_size  6 csum_start  8 csum_offset
const (
	vnetLen = 10

	vnetNeedsCsum = 1 // flags

	vnetGSOTCPv4 = 1 // gso_type
	vnetGSOTCPv6 = 4
	vnetGSOECN   = 0x80
)

const (
	// segmentedMax is the longest frame before it is cut: IP's length field, and the headers in front.
	segmentedMax = 65535 + pmd.FrameOverhead
	// RxSegmentedMax is what a Buf must hold behind its headroom to receive frames uncut.
	RxSegmentedMax = segmentedMax + 1
)

// setOffload tells the kernel what we can receive: frames without checksum, and uncut ones.
func setOffload(fd int, uncut bool) error {
	flags := unix.TUN_F_CSUM
	if uncut {
		flags |= unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN
	}
	return unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, flags)
}

// describe says in d what the kernel's header h says of a received frame. A frame that still needs its checksum
// never left this host's memory, so it is good. What the kernel calls valid (VIRTIO_NET_HDR_F_DATA_VALID) is so of
// TCP alone, not of the IPv4 header, and we say both or nothing.
func describe(d *mem.Desc, h *[vnetLen]byte) {
	if h[0]&vnetNeedsCsum != 0 {
		d.Flags |= mem.RxChecksumGood
		d.CsumStart = binary.NativeEndian.Uint16(h[6:])
		d.CsumOffset = binary.NativeEndian.Uint16(h[8:])
	}
	if h[1] != 0 {
		d.HdrLen = binary.NativeEndian.Uint16(h[2:])
		d.GSOSize = binary.NativeEndian.Uint16(h[4:])
	}
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

// gsoType of a frame whose TCP header begins at tcp. CWR belongs on the first segment only (RFC 3168 section
// 6.1.2); without the ECN bit the kernel would repeat it on all.
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

func isTag(b []byte) bool {
	t := binary.BigEndian.Uint16(b)
	return t == unix.ETH_P_8021Q || t == unix.ETH_P_8021AD
}
