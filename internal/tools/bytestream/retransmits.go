package bytestream

import (
	"context"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/stream"
)

// infoTimeout bounds the question to a Poller.
const infoTimeout = time.Second

// Retransmits is how many segments this end of a connection has sent again, of our TCP or the
// kernel's; -1: not known.
func Retransmits(c net.Conn) int64 {
	switch c := c.(type) {
	case *stream.Conn:
		ctx, cancel := context.WithTimeout(context.Background(), infoTimeout)
		defer cancel()
		if i, err := c.Info(ctx); err == nil {
			return int64(i.TCP.Retransmits)
		}
	case *net.TCPConn:
		raw, err := c.SyscallConn()
		if err != nil {
			return -1
		}
		n := int64(-1)
		// What cannot be learned of a socket that the peer has reset stays unknown.
		_ = raw.Control(func(fd uintptr) {
			if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				n = int64(info.Total_retrans)
			}
		})
		return n
	}
	return -1
}
