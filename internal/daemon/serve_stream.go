package daemon

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/tools/bytestream"
)

// streamServer is a sink, source or echo.
func streamServer(s *Service, c *config.Service) server {
	return server{conn: func(ctx context.Context, conn net.Conn) {
		p := &bytestream.Session{
			Conn: conn, Length: int(c.Length), Idle: time.Duration(c.IdleTimeout), Bytes: uint64(c.Bytes),
			Time: time.Duration(c.Time),
		}
		err := p.Run(ctx, c.Mode)
		s.over(remoteOf(conn), err, "mode", c.Mode, "received", p.Received, "sent", p.Sent,
			"took", p.Took)
	}}
}

func remoteOf(c net.Conn) netip.AddrPort {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return plain(a.AddrPort())
	}
	return netip.AddrPort{}
}
