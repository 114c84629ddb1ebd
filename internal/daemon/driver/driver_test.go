package driver

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/pmd"
)

func TestRegister(t *testing.T) {
	defer clear(drivers)
	open := func(Config) (pmd.Port, error) { return nil, errors.New("none") }
	Register(Driver{Name: "zebra", Open: open})
	Register(Driver{Name: "ant", Open: open})
	require.Equal(t, []string{"ant", "zebra"}, Names())
	d, ok := ByName("ant")
	require.True(t, ok)
	_, err := d.Open(Config{})
	require.EqualError(t, err, "none")
	_, ok = ByName("tap")
	require.False(t, ok)
	for _, bad := range []Driver{{Open: open}, {Name: "ant", Open: open}, {Name: "bee"}, {Name: "dpdk", Open: open}} {
		require.Panics(t, func() { Register(bad) }, bad.Name)
	}
}
