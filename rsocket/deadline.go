package rsocket

import (
	"net"
	"time"
)

// deadline of Reads or Writes. Guarded by Conn.mu.
type deadline struct {
	timer  *time.Timer
	passed bool
}

// stop lets go of the timer.
func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

// set moves the deadline; the zero time means none. Those that wait are told when it has passed.
func (c *Conn) set(d *deadline, t time.Time) {
	d.stop()
	left := time.Until(t)
	d.passed = !t.IsZero() && left <= 0
	if d.passed {
		c.changed.Broadcast()
	}
	if t.IsZero() || d.passed {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(left, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if d.timer == timer { // and not replaced meanwhile
			d.passed = true
			c.changed.Broadcast()
		}
	})
	d.timer = timer
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	return c.setDeadlines(t, &c.readDeadline, &c.writeDeadline)
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(t, &c.readDeadline) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(t, &c.writeDeadline) }

func (c *Conn) setDeadlines(t time.Time, ds ...*deadline) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	for _, d := range ds {
		c.set(d, t)
	}
	return nil
}
