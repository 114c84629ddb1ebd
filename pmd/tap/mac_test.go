package tap

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/skip"
)

// The MAC is the same from start to start, and another for another name, seed or host.
func TestMACStays(t *testing.T) {
	enterNetns(t)
	if hostID() == "" {
		skip.Missing(t, "this host has neither a machine id nor a name")
	}
	start := func(cfg Config) [6]byte {
		p := must(New(cfg))(t)
		require.NoError(t, p.Close())
		return p.MAC()
	}
	mac := start(Config{Name: "rmac"})
	require.Equal(t, byte(2), mac[0]&3, "locally administered, unicast")
	require.Equal(t, mac, start(Config{Name: "rmac"}))
	require.NotEqual(t, mac, start(Config{Name: "rmac2"}))
	require.NotEqual(t, mac, start(Config{Name: "rmac", Seed: "10.9.0.1/24"}))
	require.Equal(t, [6]byte{2, 0, 0, 0, 0, 7},
		start(Config{Name: "rmac", MAC: [6]byte{2, 0, 0, 0, 0, 7}}))

	// Network namespaces that have names have MACs of their own.
	defer func(was string) { netnsNames = was }(netnsNames)
	netnsNames = t.TempDir()
	named := func(name string) [6]byte {
		link := filepath.Join(netnsNames, name)
		require.NoError(t, os.Symlink("/proc/thread-self/ns/net", link))
		defer func() { require.NoError(t, os.Remove(link)) }()
		return start(Config{Name: "rmac"})
	}
	require.NoError(t, os.Symlink("/proc/1/ns/mnt", filepath.Join(netnsNames, "another")))
	require.Equal(t, mac, start(Config{Name: "rmac"}))
	first := named("first")
	require.NotEqual(t, mac, first)
	require.NotEqual(t, first, named("second"))
	require.Equal(t, first, named("first"))

	all := map[[6]byte]bool{}
	for _, host := range []string{"a", "b"} {
		for _, name := range []string{"tap0", "tap1", "tap2"} {
			for range 2 {
				m := stableMAC(host, name, "")
				all[m] = true
				require.Equal(t, byte(2), m[0]&3)
			}
		}
	}
	require.Len(t, all, 6)

	// A host without identity.
	defer func(was []string) { machineIDs = was }(machineIDs)
	machineIDs = []string{filepath.Join(t.TempDir(), "none")}
	name := must(os.Hostname())(t)
	require.Equal(t, map[bool]string{false: "\x00" + name}[name == "localhost" || name == "(none)"],
		hostID())
	require.NoError(t, os.WriteFile(machineIDs[0], []byte("0123\n"), 0o600))
	require.Equal(t, "0123\x00"+name, hostID())
	require.NoError(t, os.WriteFile(machineIDs[0], []byte("uninitialized\n"), 0o600))
	require.Equal(t, map[bool]string{false: "\x00" + name}[name == "localhost" || name == "(none)"],
		hostID())
}
