package transport

import (
	"io"
	"net"
	"sync"
)

// BufferedConn is a socket some octets of which were read before it became the ULP's: they come
// first, whichever way the ULP reads. io.Copy takes WriteTo, which the *net.TCPConn would answer
// with what is left in the kernel.
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

// TakeRest takes what is still to be read of the first octets.
func (c *BufferedConn) TakeRest() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := c.rest
	c.rest = nil
	return rest
}

// PutBack undoes takeRest, for octets that could not be used.
func (c *BufferedConn) PutBack(rest []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest = append(rest, c.rest...)
}
