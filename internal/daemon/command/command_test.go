package command

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/pmd"
)

// A program with a driver of its own has it in its configuration, with the driver's own options,
// and what the driver says is what the start fails with.
func TestOwnDriver(t *testing.T) {
	var got *port.Config
	own := port.Driver{Name: "own", Option: func(string, string) error {
		return nil
	}, Open: func(c *port.Config, _ *hugepages.Arena) (pmd.Port, error) {
		got = c
		return nil, errors.New("no such slot")
	}}
	file := filepath.Join(t.TempDir(), "rnicd.toml")
	require.NoError(t, os.WriteFile(file, []byte(`[control]
socket = "off"
[[port]]
name = "one"
driver = "own"
device = "dev7"
page = "normal"
addresses = ["10.9.0.1/24"]
[port.options]
slot = "3"
`), 0o600))
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		root := Root(port.All().With(own))
		root.SetArgs(args)
		root.SetOut(&out)
		root.SetErr(&out)
		return out.String(), root.Execute()
	}
	_, err := run("check", file)
	require.NoError(t, err)
	require.Nil(t, got, "nothing is opened")
	_, err = run("serve", "--config", file)
	require.EqualError(t, err, `port "one": no such slot`)
	require.Equal(t, "dev7", got.Device)
	require.Equal(t, map[string]string{"slot": "3"}, got.Options)
	root := Root(port.Builtin())
	root.SetArgs([]string{"check", file})
	require.ErrorContains(t, root.Execute(),
		`rnicd.toml:5:1: port.driver: "own": want tap, dpdk, memif or kernel`)
	_, err = run("serve")
	require.ErrorContains(t, err, "config")
}
