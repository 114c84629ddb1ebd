package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
)

// asDaemon has the test's program be the daemon.
const asDaemon = "RNICD_GODPDK_DAEMON"

func TestMain(m *testing.M) {
	if os.Getenv(asDaemon) != "" {
		main()
	}
	os.Exit(m.Run())
}

const config = `
[control]
socket = "off"
[[port]]
name = "port0"
driver = "godpdk"
device = "net_tap0,iface=rnic0"
eal = ["--no-huge", "--no-shconf", "-m256", "--no-pci"]
addresses = ["10.9.0.1/24"]
dad = "off"
[[service]]
name = "sink"
type = "stream"
mode = "sink"
`

// The daemon serves on a port over go-dpdk, answers the kernel's ping, and ends when it is told to.
func TestServes(t *testing.T) {
	netlab.NeedRoot(t)
	path := filepath.Join(t.TempDir(), "rnicd.toml")
	require.NoError(t, os.WriteFile(path, []byte(config), 0o600))
	ns := netlab.New(t)
	cmd := exec.Command(os.Args[0], "serve", "--config", path)
	cmd.Env = append(os.Environ(), asDaemon+"=1")
	p := ns.Start(t, cmd)
	p.Expect(t, 1, "msg=ready ")
	ns.Run(t, "ip", "addr", "add", "10.9.0.254/24", "dev", "rnic0")
	ns.Run(t, "ip", "link", "set", "rnic0", "up")
	ns.Run(t, "ping", "-c", "1", "-W", "5", "10.9.0.1")
	p.Signal(t, syscall.SIGTERM)
	require.Zero(t, p.Wait(t), "%s", p)
}
