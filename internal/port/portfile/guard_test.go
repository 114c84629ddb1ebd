package portfile

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/port"
)

// Who may connect: networks or addresses, and a secret out of a file that is nobody else's.
func TestGuard(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	write := func(text string, mode os.FileMode) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.NoError(t, os.Chmod(file, mode))
	}
	write("sixteen octets ..\n", 0o640)
	environ := []string{"RNICD_SECRET_FILE=" + file, "RNICD_DEVICE=roce",
		"RNICD_ALLOW=10.1.2.3/8, fd00::1,192.0.2.1"}
	g, err := GuardOf(environ)
	require.NoError(t, err)
	require.Equal(t, "sixteen octets ..", string(g.Secret))
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("fd00::1/128"), netip.MustParsePrefix("192.0.2.1/32")}, g.Allow)
	_, err = Environment(environ, port.Builtin())
	require.NoError(t, err)

	g, err = GuardOf([]string{"RNICD_DEVICE=roce", "RNICD_SECRET_FILE=", "RNICD_ALLOW="})
	require.NoError(t, err)
	require.Equal(t, Guard{}, g)

	for _, x := range []struct {
		text string
		mode os.FileMode
		more string
		want string
	}{
		{"too short", 0o600, "", "want a secret of 16 to 4096 octets"},
		{strings.Repeat("long", 1025), 0o600, "", "want a secret of 16 to 4096 octets"},
		{strings.Repeat("x", 32), 0o600, "", "all octets are the same"},
		{"sixteen octets ..", 0o604, "", "other users may use it: chmod o= "},
		{"sixteen octets ..", 0o602, "", "other users may use it: chmod o= "},
		{"sixteen octets ..", 0o600, "RNICD_SECRET_FILE=/nothing/there", "RNICD_SECRET_FILE: open /noth"},
		{"sixteen octets ..", 0o600, "RNICD_DEVICE=iwarp", "RNICD_SECRET_FILE is for queue pairs that"},
		{"sixteen octets ..", 0o600, "RNICD_ALLOW=10.0.0.0/8,here", `RNICD_ALLOW: "here": want`},
		{"sixteen octets ..", 0o600, "RNICD_ALLOW=fe80::1%eth0", `RNICD_ALLOW: "fe80::1%eth0": want`},
		{"sixteen octets ..", 0o600, "RNICD_ALLOW=::ffff:10.0.0.0/104", "write it as IPv4"},
	} {
		write(x.text, x.mode)
		g, err := GuardOf(append(environ[:2:2], x.more))
		require.ErrorContains(t, err, x.want)
		require.Equal(t, Guard{}, g)
	}
}

// Where a control socket is to be.
func TestControlDir(t *testing.T) {
	long := "/" + strings.Repeat("d", controlDirMax-1)
	for value, want := range map[string]string{"": "", "/run/x": "/run/x", long: long} {
		dir, ok, err := ControlDir([]string{"RNICD_CONTROL=" + value})
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, want, dir)
	}
	_, ok, err := ControlDir([]string{"RNICD_CONTROL=off"})
	require.NoError(t, err)
	require.False(t, ok)
	for value, want := range map[string]string{
		"run":      `RNICD_CONTROL: "run": want off, or a directory from the root on`,
		long + "d": "want a directory of at most 92 octets",
	} {
		_, _, err := ControlDir([]string{"RNICD_CONTROL=" + value})
		require.ErrorContains(t, err, want)
	}
}
