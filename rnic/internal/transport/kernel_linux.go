package transport

import (
	"golang.org/x/sys/unix"
)

// querySegment asks the kernel for the effective segment size (TCP_MAXSEG), or if it does not tell
// for the path's MTU. headers are those in front of TCP's payload. A closed socket leaves both at
// 0.
func (s *KernelConn) querySegment() (maxSeg, mtu, headers int) {
	headers = headersIPv4
	if maxSeg = s.socket.option(unix.IPPROTO_TCP, unix.TCP_MAXSEG); maxSeg > 0 {
		return maxSeg, 0, headers
	}
	if s.peer.Addr().Is4() {
		return 0, s.socket.option(unix.IPPROTO_IP, unix.IP_MTU), headers
	}
	return 0, s.socket.option(unix.IPPROTO_IPV6, unix.IPV6_MTU), headersIPv6
}

// Octets of a datagram in front of TCP's payload, with timestamps.
const (
	headersIPv4 = 20 + 20 + 12
	headersIPv6 = 40 + 20 + 12
)

func (s *KernelConn) kernelStats() Stats {
	t := Stats{Kernel: true, EMSS: s.segment}
	if info := s.socket.info(); info != nil {
		t.add(info)
	}
	return t
}

// add puts the kernel's counters in.
func (t *Stats) add(info *unix.TCPInfo) {
	t.SegmentsIn, t.SegmentsOut = uint64(info.Segs_in), uint64(info.Segs_out)
	t.Retransmits, t.OutOfOrder = uint64(info.Total_retrans), uint64(info.Rcv_ooopack)
}

// Heard says whether the Upper was offered the first octets. It asks no kernel. Any goroutine.
func (s *KernelConn) Heard() bool {
	select {
	case <-s.heard:
		return true
	default:
		return false
	}
}

// Unheard says whether the peer has sent nothing yet. Otherwise it returns when the Upper has been
// offered the first of it. Any goroutine that holds up nothing that the Upper waits for.
func (s *KernelConn) Unheard() bool {
	if s.Heard() {
		return false
	}
	if info := s.socket.info(); info == nil || info.Bytes_received == 0 {
		return true
	}
	<-s.heard
	return false
}

// Progress counts octets that came in or were acknowledged by the peer's TCP.
func (s *KernelConn) Progress() uint64 {
	info := s.socket.info()
	if info == nil {
		return 0
	}
	return info.Bytes_acked + info.Bytes_received
}

// Taken is of what the socket has not sent, or the peer not acknowledged.
func (s *KernelConn) Taken() (pulled, taken uint64) {
	waits := uint64(s.socket.unacked())
	if s.pending != nil {
		waits += uint64(s.pending.left())
	}
	return s.pulled, s.pulled - min(waits, s.pulled)
}
