package stream

import (
	"net"
	"time"
)

// keepAlive is what was asked for, with defaults filled in.
type keepAlive struct {
	idleNs, intervalNs int64
	count              int
}

// setKeepAlive stores cfg for the Poller to apply; a disabled one is not stored at the start: off
// is the default. What is negative stays as it was.
func (o *settings) setKeepAlive(cfg net.KeepAliveConfig) {
	was := o.keepAlive.Load()
	if !cfg.Enable {
		if was != nil {
			o.keepAlive.Store(&keepAlive{})
		}
		return
	}
	if was == nil {
		was = &keepAlive{}
	}
	if cfg.Idle < 0 {
		cfg.Idle = time.Duration(was.idleNs)
	}
	if cfg.Interval < 0 {
		cfg.Interval = time.Duration(was.intervalNs)
	}
	if cfg.Count < 0 {
		cfg.Count = was.count
	}
	fill(&cfg.Idle, keepIdleDefault)
	fill(&cfg.Interval, keepIntervalDefault)
	fill(&cfg.Count, keepCountDefault)
	o.keepAlive.Store(&keepAlive{idleNs: int64(cfg.Idle), intervalNs: int64(cfg.Interval),
		count: cfg.Count})
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

// SetKeepAliveConfig sets all of it; zero values take package net's defaults, negative ones stay as
// they were. The new times count from the last segment of the peer.
func (c *Conn) SetKeepAliveConfig(cfg net.KeepAliveConfig) error {
	return c.set(keepAliveChanged, func(o *settings) { o.setKeepAlive(cfg) })
}

func (c *Conn) keepAliveConfig() net.KeepAliveConfig {
	k := c.u.settings.keepAlive.Load()
	if k == nil {
		return net.KeepAliveConfig{}
	}
	return net.KeepAliveConfig{Idle: time.Duration(k.idleNs), Interval: time.Duration(k.intervalNs),
		Count: k.count}
}
