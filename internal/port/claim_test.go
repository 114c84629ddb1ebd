package port

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
)

// Whatever the driver calls it, one device is one name.
func TestClaimsOfDrivers(t *testing.T) {
	for _, tc := range []struct {
		driver string
		cfg    Config
		want   []string
	}{
		{"tap", Config{Device: "rnic0"}, []string{"rnic0"}},
		{"tap", Config{Device: "rnic%d"}, nil},
		{"dpdk", Config{Device: "rnic0"}, []string{"rnic0"}}, // net_tap
		{"dpdk", Config{Device: "net_tap0,iface=rnic0"}, []string{"rnic0"}},
		{"dpdk", Config{Device: "net_af_packet0,iface=eth1,qpairs=2"}, []string{"eth1"}},
		{"dpdk", Config{Device: "net_af_xdp0,start_queue=1,iface=eth1"}, []string{"eth1"}},
		{"dpdk", Config{Device: "net_af_packet0", EAL: []string{"--vdev=net_af_packet0,iface=eth1"}},
			[]string{"eth1"}},
		{"dpdk", Config{Device: "net_null0"}, nil},
		{"dpdk", Config{PCI: "0000:01:00.0"}, []string{"0000:01:00.0"}},
		{"dpdk", Config{PCI: "AF:00.1"}, []string{"0000:af:00.1"}},
		{"memif", Config{Socket: "/run/memif.sock"}, nil}, // its server refuses a second one
		{"kernel", Config{}, nil},
	} {
		d := must(Builtin().ByName(tc.driver))(t)
		var got []string
		if d.Claims != nil {
			got = d.Claims(&tc.cfg)
		}
		require.Equal(t, tc.want, got, "%s %+v", tc.driver, tc.cfg)
	}
}

// A device has one holder in a network namespace, whose process the error names; a holder that was
// killed has nothing. This test runs itself as that process.
func TestClaim(t *testing.T) {
	d := must(Builtin().ByName("tap"))(t)
	cfg := Config{Driver: d, Device: "rclaim"}
	if os.Getenv("CLAIM_CHILD") != "" {
		_, err := Claim(&cfg)
		fmt.Println("held", err)
		select {}
	}
	netlab.New(t).Do(func() {
		require.NoError(t, Holder(&cfg))
		first := must(Claim(&cfg))(t)
		other := cfg
		other.Device = "rclaim2"
		second, err := Claim(&other)
		require.NoError(t, err)
		second.Release()
		_, err = Claim(&cfg)
		var inUse *InUseError
		require.ErrorAs(t, err, &inUse)
		require.Equal(t, InUseError{"rclaim", os.Getpid()}, *inUse)
		require.Equal(t, err, Holder(&cfg))
		netlab.New(t).Do(func() { // where it is another device
			same := must(Claim(&cfg))(t)
			same.Release()
		})
		first.Release()
		require.NoError(t, Holder(&cfg))

		child := exec.Command(os.Args[0], "-test.run=^TestClaim$")
		child.Env = append(os.Environ(), "CLAIM_CHILD=1")
		out := must(child.StdoutPipe())(t)
		require.NoError(t, child.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "held <nil>\n", line)
		_, err = Claim(&cfg)
		require.ErrorAs(t, err, &inUse)
		require.Equal(t, child.Process.Pid, inUse.PID)
		require.NoError(t, child.Process.Kill())
		require.Error(t, child.Wait(), "killed")
		again := must(Claim(&cfg))(t)
		again.Release()
	})
}
