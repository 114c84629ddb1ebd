package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/skip"
)

const exampleFolder = "docs/examples/config"

// exampleFile is the configuration of that name in docs/examples/config, with its sockets in a
// folder of this test.
func exampleFile(t *testing.T, name string) (dir, text string) {
	t.Helper()
	b := must(os.ReadFile(filepath.Join(repository, exampleFolder, name)))(t)
	dir = t.TempDir()
	return dir, strings.ReplaceAll(string(b), "/run/rnicd", dir)
}

// needDPDK skips a test where the program under test has no driver of DPDK's.
func needDPDK(t *testing.T) {
	t.Helper()
	if programPath(t); !program.dpdk {
		skip.Missing(t, "no DPDK headers: apt-get install libdpdk-dev")
	}
}

// Every example is judged well, and is started by a test below.
func TestExamplesAreChecked(t *testing.T) {
	paths := must(filepath.Glob(filepath.Join(repository, exampleFolder, "*.toml")))(t)
	started := []string{"af-xdp.toml", "memif.toml", "pci-nic.toml", "switch.toml", "tap.toml"}
	require.Len(t, paths, len(started))
	ns := newNamespace(t)
	for i, path := range paths {
		require.Equal(t, started[i], filepath.Base(path))
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), `"dpdk"`) {
			needDPDK(t)
		}
		ns.succeeds(t, "check "+path)
	}
}

// The TAP of the example, from the kernel's side.
func TestExampleTAP(t *testing.T) {
	ns := newNamespace(t)
	_, text := exampleFile(t, "tap.toml")
	server := ns.rnicd(t, "serve", "--config", configured(t, text))
	server.Expect(t, 1, "msg=ready ")
	ns.put(t, randomFile(t, 3<<20))
	ns.Run(t, "ip", "addr", "add", "fd09::fe/64", "dev", "rnic0", "nodad")
	ns.succeeds(t, "put --wait 20s --timeout 60s "+randomFile(t, 1<<20).path+" [fd09::1]:7174")
	ns.succeeds(t, "perf write lat 10.9.0.1 -n 3 --timeout 60s")
	ns.stop(t, server)
}

// The example's command attaches to its socket.
func TestExampleMemif(t *testing.T) {
	ns := newNamespace(t)
	dir, text := exampleFile(t, "memif.toml")
	server := ns.rnicd(t, "serve", "--config", configured(t, text))
	server.Expect(t, 1, "msg=\"?port opened")
	f := randomFile(t, 3<<20)
	command := regexp.MustCompile(`rnicd (put --pmd memif .*) FILE (\S+)`).FindStringSubmatch(text)
	require.NotNil(t, command)
	require.Contains(t, command[1], dir)
	ns.succeeds(t, command[1]+" --no-dad --wait 60s --timeout 60s "+f.path+" "+command[2])
	server.Expect(t, 1, "msg=served .*sha256="+f.sum)
	ns.stop(t, server)
}

// Both ends of a veth pair have AF_XDP: the kernel leaves its own checksums to a veth's other end.
func TestExampleAFXDP(t *testing.T) {
	needDPDK(t)
	ns := newNamespace(t)
	_, text := exampleFile(t, "af-xdp.toml")
	ns.veth(t, "enp1s0", "peer0")
	server := ns.rnicd(t, "serve", "--config", configured(t, text))
	server.Expect(t, 1, "msg=ready ")
	f := randomFile(t, 3<<20)
	ns.succeeds(t, "put --pmd dpdk --dev net_af_xdp0,iface=peer0 --addr 10.9.0.2/24 --dad quick "+
		"--wait 60s --timeout 60s "+f.path+" 10.9.0.1")
	server.Expect(t, 1, "msg=served .*sha256="+f.sum)
	ns.stop(t, server)
}

// No physical NIC is here: doctor says of the example that it is not there, and with the line that
// the example has for that it runs on net_tap.
func TestExamplePCI(t *testing.T) {
	needDPDK(t)
	ns := newNamespace(t)
	_, text := exampleFile(t, "pci-nic.toml")
	const nic = "0000:01:00.0"
	require.Contains(t, text, "\npci = \""+nic+"\"\n")
	absent := strings.ReplaceAll(text, nic, "fffe:ff:1f.7")
	doctor := ns.exits(t, 1, "doctor", "--config", configured(t, absent))
	require.Len(t, doctor.Lines("^lack  driver +fffe:ff:1f.7 is not there$"), 1, "%s", doctor)
	server := ns.exits(t, 1, "serve", "--config", configured(t, absent))
	require.Regexp(t, `(?m)^rnicd: port "nic0": dpdk: .*fffe:ff:1f\.7`, server.String())

	instead := regexp.MustCompile(
		`(?m)^# .*without a NIC, put in place of the line with pci:\n#\s+(device = .*)$`).
		FindStringSubmatch(text)
	require.NotNil(t, instead)
	server = ns.rnicd(t, "serve", "--config",
		configured(t, strings.Replace(text, "pci = \""+nic+"\"", instead[1], 1)))
	server.Expect(t, 1, "msg=ready ")
	ns.Run(t, "ip", "addr", "add", "10.9.0.254/24", "dev", "rnic0")
	ns.Run(t, "ip", "link", "set", "rnic0", "up")
	ns.put(t, randomFile(t, 3<<20))
	ns.succeeds(t, "perf write bw 10.9.0.1 -n 100 --timeout 60s")
	ns.stop(t, server)
}
