package stack

import (
	"net/netip"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/stretchr/testify/require"
)

func TestConfigErrorsSayWhatIsWrong(t *testing.T) {
	l := newLab(t, nil)
	for want, spoil := range map[string]func(*Config){
		"needs a Queue":                      func(c *Config) { c.Queue = nil },
		"want the unicast address of a host": func(c *Config) { c.Addr = netip.Prefix{} },
		"10.0.0.0/24: the first and the last": func(c *Config) {
			c.Addr = netip.MustParsePrefix("10.0.0.0/24")
		},
		"10.0.0.255/24: the first and the last": func(c *Config) {
			c.Addrs = []netip.Prefix{netip.MustParsePrefix("10.0.0.255/24")}
		},
		"gateway 10.0.0.255: the first and the last": func(c *Config) {
			c.Gateway = netip.MustParseAddr("10.0.0.255")
		},
		"Idle 99: want IdleAdaptive to IdleInterrupt": func(c *Config) { c.Idle = 99 },
		"its queue has no interrupts":                 func(c *Config) { c.Idle = IdleInterrupt },
		"is not on 10.0.0.0/24": func(c *Config) {
			c.Gateway = netip.MustParseAddr("10.0.1.1")
		},
		"10.0.0.1 is our own address": func(c *Config) { c.Gateway = c.Addr.Addr() },
		"is not a unicast":            func(c *Config) { c.MAC = inet.Broadcast },
		"MTU 9000: want 576":          func(c *Config) { c.MTU = 9000 },
		"MSS 1461 does not fit":       func(c *Config) { c.TCP.MSS = 1461 },
		"PendingMax 3 is less":        func(c *Config) { c.PendingMax = 3 },
		"want at least 1 each":        func(c *Config) { c.ConnsMax = -1 },
		"pool headroom 64":            func(c *Config) { c.Pool = l.poolWith(2048, 64) },
		"pool stride 1024: MSS 1":     func(c *Config) { c.Pool = l.poolWith(1024, 128) },
	} {
		cfg := l.a.cfg
		spoil(&cfg)
		_, err := New(cfg)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, `stack: poller "host0"`)
	}
}

// The zero Config pins to no CPU; to be on CPU 0 is asked for.
func TestZeroCoreIsAnyCPU(t *testing.T) {
	l := newLab(t, nil)
	for given, want := range map[int]int{0: -1, -1: -1, OnCPU(0): 0, OnCPU(-1): -1, OnCPU(3): 3,
		4: 4} {
		cfg := l.a.cfg
		cfg.Core = given
		require.NoError(t, complete(&cfg))
		require.Equal(t, want, cfg.Core, given)
	}
}

func (l *lab) poolWith(stride, headroom int) *mem.Pool {
	pool, err := mem.NewPool(newHeap(stride*8+4096),
		mem.PoolConfig{Bufs: 8, Stride: stride, Headroom: headroom})
	require.NoError(l.t, err)
	return pool
}
