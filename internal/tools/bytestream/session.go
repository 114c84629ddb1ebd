// Package bytestream has the tests that need only TCP at the peer: a sink, a source, an echo,
// over any net.Conn.
package bytestream

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// A Session reads and writes LengthMax octets at a time at most, LengthDefault where nothing is
// said.
const (
	LengthMax     = 1 << 20
	LengthDefault = 128 << 10
)

// Session is one connection of a sink, source or echo.
type Session struct {
	Conn   net.Conn
	Length int           // of a Read or Write
	Idle   time.Duration // ends a Session in which nothing moves for so long
	Bytes  uint64        // source: how much to send; 0: for the Time
	Time   time.Duration // source: how long to send

	// What came of it.
	Sent, Received uint64
	Took           time.Duration

	begin time.Time
}

// Run does what a mode, sink, source or echo, is for, until the peer or the mode is done or ctx
// ends, which closes the connection. Otherwise that is the caller's to close.
func (p *Session) Run(ctx context.Context, mode string) (err error) {
	defer context.AfterFunc(ctx, func() { _ = p.Conn.Close() })()
	p.begin = time.Now()
	switch mode {
	case "sink":
		err = p.sink()
	case "source":
		err = p.source()
	case "echo":
		err = p.echo()
	}
	p.Took = time.Since(p.begin)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return err
}

func (p *Session) read(b []byte) (n int, err error) {
	for _, wait := range p.waits() {
		if err = p.Conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return 0, err
		}
		n, err = p.Conn.Read(b)
		p.Received += uint64(n)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	return n, p.explain(err)
}

// waits are how long to wait: for the idle time, and once more for an eighth of it. A process
// that was stopped for longer than the first finds what came meanwhile in the second.
func (p *Session) waits() [2]time.Duration {
	return [2]time.Duration{p.Idle, max(p.Idle/8, againMin)}
}

// againMin is for a Poller to take in what waits.
const againMin = 20 * time.Millisecond

// write also gives a Read that waits meanwhile its time again.
func (p *Session) write(b []byte) error {
	for {
		var n int
		var err error
		for _, wait := range p.waits() {
			if err = p.Conn.SetDeadline(time.Now().Add(wait)); err != nil {
				return err
			}
			n, err = p.Conn.Write(b)
			p.Sent += uint64(n)
			if b = b[n:]; n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
		}
		if len(b) == 0 || n == 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return p.explain(err)
		}
	}
}

func (p *Session) explain(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("nothing moved for %v: %w", p.Idle, err)
	}
	return err
}

// closeWrite ends our half, if the transport can.
func (p *Session) closeWrite() error {
	if half, ok := p.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

func (p *Session) sink() error {
	buf := make([]byte, p.Length)
	for {
		if _, err := p.read(buf); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (p *Session) echo() error {
	buf := make([]byte, p.Length)
	for {
		n, err := p.read(buf)
		if n > 0 {
			if err := p.write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return p.closeWrite()
		}
		if err != nil {
			return err
		}
	}
}

// source writes one random block again and again, while it reads what comes back. The time ends
// when the peer has closed, so that it covers the way of the last octet.
func (p *Session) source() error {
	block := make([]byte, p.Length)
	_, _ = rand.Read(block) // never fails
	back := make(chan error, 1)
	go func() {
		err := p.compare(block)
		if err != nil {
			_ = p.Conn.Close() // ends writeAll
		}
		back <- err
	}()
	err := p.writeAll(block)
	if err == nil {
		err = p.closeWrite()
	}
	if err != nil {
		_ = p.Conn.Close() // ends compare
	}
	returned := <-back
	if err != nil && (returned == nil || errors.Is(returned, net.ErrClosed)) {
		return err // the first to fail closed the connection under the other
	}
	if returned == nil && p.Received != 0 && p.Received != p.Sent {
		return fmt.Errorf("sent %d octets, %d came back", p.Sent, p.Received)
	}
	return returned
}

func (p *Session) writeAll(block []byte) error {
	for {
		n := uint64(len(block))
		if p.Bytes > 0 {
			n = min(n, p.Bytes-p.Sent)
		}
		if n == 0 || p.Time > 0 && time.Since(p.begin) >= p.Time {
			return nil
		}
		if err := p.write(block[:n]); err != nil {
			return err
		}
	}
}

// compare reads to the end. A sink sends nothing for as long as we send; write allows for that.
func (p *Session) compare(block []byte) error {
	buf := make([]byte, len(block))
	at := 0
	for {
		n, err := p.Conn.Read(buf)
		for rest := buf[:n]; len(rest) > 0; {
			k := min(len(rest), len(block)-at)
			if !bytes.Equal(rest[:k], block[at:at+k]) {
				return fmt.Errorf("octets %d to %d came back changed", p.Received, p.Received+uint64(k))
			}
			p.Received += uint64(k)
			rest, at = rest[k:], (at+k)%len(block)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return p.explain(err)
		}
	}
}
