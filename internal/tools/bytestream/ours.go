package bytestream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/rnicd/rnicd/internal/tools/iperf3"
	"github.com/rnicd/rnicd/stream"
)

// Ours is what iperf3 wants of our streams beyond net.Conn.
type Ours struct{}

// infoTimeout bounds the question to a Poller.
const infoTimeout = time.Second

// windowMost bounds the buffers that a peer's -w makes us have for each stream.
const windowMost = 16 << 20

// Prepare implements iperf3.Transport.
func (Ours) Prepare(c net.Conn, p iperf3.Params) error {
	s, ok := c.(*stream.Conn)
	if !ok {
		return fmt.Errorf("%T is no stream of ours", c)
	}
	err := s.SetNoDelay(p.NoDelay)
	if n := min(p.Window, windowMost); n > 0 {
		err = errors.Join(err, s.SetReadBuffer(n), s.SetWriteBuffer(n))
	}
	if p.TOS != 0 {
		err = errors.Join(err, s.SetTOS(uint8(p.TOS)))
	}
	if p.Congestion != "" {
		err = errors.Join(err, s.SetCongestion(p.Congestion))
	}
	return err
}

// Info implements iperf3.Transport.
func (Ours) Info(c net.Conn) iperf3.Info {
	info := iperf3.Info{Retransmits: -1}
	s, ok := c.(*stream.Conn)
	if !ok {
		return info
	}
	ctx, cancel := context.WithTimeout(context.Background(), infoTimeout)
	defer cancel()
	if i, err := s.Info(ctx); err == nil {
		info.Retransmits, info.Unacked, info.Congestion = int64(i.TCP.Retransmits), int(i.Unacked),
			i.Congestion
	}
	return info
}
