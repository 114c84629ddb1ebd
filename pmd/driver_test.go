package pmd

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRegister(t *testing.T) {
	defer clear(drivers)
	open := func(DriverConfig) (Port, error) { return nil, errors.New("none") }
	Register(Driver{Name: "zebra", Open: open})
	Register(Driver{Name: "ant", Open: open})
	all := Registered()
	require.Len(t, all, 2)
	require.Equal(t, []string{"ant", "zebra"}, []string{all[0].Name, all[1].Name})
	_, err := all[0].Open(DriverConfig{})
	require.EqualError(t, err, "none")
	for _, bad := range []Driver{{Open: open}, {Name: "ant", Open: open}, {Name: "bee"},
		{Name: "dpdk", Open: open}} {
		require.Panics(t, func() { Register(bad) }, bad.Name)
	}
}
