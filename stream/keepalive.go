package stream

import (
	"errors"
	"net"
	"time"

	"github.com/rnicd/rnicd/stack"
)

// keepAliver is what a connection with keep-alives has (RFC 9293 section 3.8.4): probes begin after idleNs without a
// segment, go out every intervalNs, and count unanswered ones end the connection. idleNs 0 turns them off.
type keepAliver interface {
	SetKeepAlive(idleNs, intervalNs int64, count int)
}

// keepAlive is what was asked for, with defaults filled in.
type keepAlive struct {
	idleNs, intervalNs int64
	count              int
}

// setKeepAlive stores cfg for the Poller to apply; a disabled one is not stored at the start: off is the default.
func (u *upper) setKeepAlive(cfg net.KeepAliveConfig) {
	if !cfg.Enable {
		if u.keepAlive.Load() != nil {
			u.keepAlive.Store(&keepAlive{})
		}
		return
	}
	fill(&cfg.Idle, keepIdleDefault)
	fill(&cfg.Interval, keepIntervalDefault)
	fill(&cfg.Count, keepCountDefault)
	u.keepAlive.Store(&keepAlive{idleNs: int64(cfg.Idle), intervalNs: int64(cfg.Interval), count: cfg.Count})
}

func (u *upper) applyKeepAlive(c *stack.Conn) {
	if k, t := u.keepAlive.Load(), any(c); k != nil {
		if t, ok := t.(keepAliver); ok {
			t.SetKeepAlive(k.idleNs, k.intervalNs, k.count)
		}
	}
}

// SetKeepAlive turns keep-alives on, with what was set before or package net's defaults, or off.
func (c *Conn) SetKeepAlive(on bool) error {
	cfg := c.keepAliveConfig()
	cfg.Enable = on
	return c.SetKeepAliveConfig(cfg)
}

// SetKeepAlivePeriod sets the time before the first probe and between probes.
func (c *Conn) SetKeepAlivePeriod(d time.Duration) error {
	cfg := c.keepAliveConfig()
	cfg.Enable, cfg.Idle, cfg.Interval = true, d, d
	return c.SetKeepAliveConfig(cfg)
}

// SetKeepAliveConfig sets all of it; zero values take package net's defaults. An error that is errors.ErrUnsupported when
// the stack's connections have no keep-alives.
func (c *Conn) SetKeepAliveConfig(cfg net.KeepAliveConfig) error {
	if err := c.ended(c.u.state.Load()); err != nil {
		return c.opError("set", err)
	}
	if _, ok := any((*stack.Conn)(nil)).(keepAliver); !ok && cfg.Enable {
		return c.opError("set", errors.ErrUnsupported)
	}
	if cfg.Idle < 0 || cfg.Interval < 0 || cfg.Count < 0 {
		return c.opError("set", errors.New("stream: keep-alive times and counts are not negative"))
	}
	c.u.setKeepAlive(cfg)
	c.u.ask(askOptions)
	return nil
}

func (c *Conn) keepAliveConfig() net.KeepAliveConfig {
	k := c.u.keepAlive.Load()
	if k == nil {
		return net.KeepAliveConfig{}
	}
	return net.KeepAliveConfig{Idle: time.Duration(k.idleNs), Interval: time.Duration(k.intervalNs), Count: k.count}
}
