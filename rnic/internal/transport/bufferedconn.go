package transport

import (
	"io"
	"net"
	"sync"
)

// BufferedConn is a socket that the ULP gets with octets that were read from it already. They come
// first, also for io.Copy, which calls WriteTo: that of the *net.TCPConn would leave them out. Any
// goroutine.
type BufferedConn struct {
	*net.TCPConn

	mu   sync.Mutex // several goroutines may read
	rest []byte
}

func (c *BufferedConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	c.mu.Unlock()
	if n > 0 {
		return n, nil
	}
	return c.TCPConn.Read(p)
}

// WriteTo implements io.WriterTo.
func (c *BufferedConn) WriteTo(w io.Writer) (int64, error) {
	front := c.TakeRest()
	if len(front) > 0 {
		n, err := w.Write(front)
		if n < len(front) {
			c.PutBack(front[n:])
			if err == nil {
				err = io.ErrShortWrite
			}
		}
		if err != nil {
			return int64(n), err
		}
	}
	n, err := c.TCPConn.WriteTo(w)
	return int64(len(front)) + n, err
}

// TakeRest takes those octets that the ULP has not read yet.
func (c *BufferedConn) TakeRest() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := c.rest
	c.rest = nil
	return rest
}

// PutBack undoes TakeRest, for octets that could not be used.
func (c *BufferedConn) PutBack(rest []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest = append(rest, c.rest...)
}
