package port

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/stack"
)

// A Poller that a program's threads can wake sleeps until they do; not on a device that cannot wake
// it, nor unless it is asked for. The loop over the kernel's sockets has no other way to wait.
func TestPoll(t *testing.T) {
	drivers := Builtin()
	look, bell := func() int { return 0 }, &stack.Bell{}
	for _, x := range []struct {
		driver string
		cfg    Config
		polled bool
		idle   stack.Idle
	}{
		{"memif", Config{}, true, stack.IdleInterrupt},
		{"tap", Config{Queues: 1}, true, stack.IdleInterrupt},
		{"memif", Config{Idle: stack.IdleSpin}, true, stack.IdleSpin},
		{"memif", Config{Fault: &fault.Spec{}}, true, stack.IdleAdaptive},
		{"dpdk", Config{}, true, stack.IdleAdaptive},
		{"memif", Config{Queues: 2}, false, stack.IdleAdaptive},
		{"kernel", Config{}, true, stack.IdleAdaptive},
	} {
		cfg := x.cfg
		cfg.Driver = drivers[slices.IndexFunc(drivers, func(d Driver) bool { return d.Name == x.driver })]
		require.Equal(t, x.polled, cfg.Poll(look, bell), "%+v", x)
		require.Equal(t, x.idle, cfg.Idle, "%+v", x)
		require.Equal(t, x.polled, cfg.OnTurn != nil && cfg.Bell == bell, "%+v", x)
	}
}

func TestCores(t *testing.T) {
	cores := must(ParseCores("8,2-3,1023"))(t)
	require.Equal(t, []int{8, 2, 3, 1023}, cores)
	for _, bad := range []string{"", "-", "a", "3-2", "-1", "1024", "1,,2", "2-3-4",
		"99999999999", "1-3,2"} {
		_, err := ParseCores(bad)
		require.Error(t, err, bad)
	}
}

// must is v, if there was no error.
func must[V any](v V, err error) func(require.TestingT) V {
	return func(t require.TestingT) V {
		require.NoError(t, err)
		return v
	}
}
