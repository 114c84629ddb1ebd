package rnic

import (
	"io"
	"net"
	"sync"
)

// bufferedConn is a socket some octets of which were read before it became the ULP's: they come first, whichever way the ULP
// reads. io.Copy takes WriteTo, which the *net.TCPConn would answer with what is left in the kernel.
type bufferedConn struct {
	*net.TCPConn

	mu   sync.Mutex // several goroutines may read
	rest []byte
}

func (c *bufferedConn) Read(p []byte) (int, error) {
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
func (c *bufferedConn) WriteTo(w io.Writer) (int64, error) {
	front := c.takeRest()
	if len(front) > 0 {
		n, err := w.Write(front)
		if n < len(front) {
			c.putBack(front[n:])
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

// takeRest takes what is still to be read of the first octets.
func (c *bufferedConn) takeRest() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := c.rest
	c.rest = nil
	return rest
}

// putBack undoes takeRest, for octets that could not be used.
func (c *bufferedConn) putBack(rest []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest = append(rest, c.rest...)
}
