package interop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/skip"
)

// dead is what the guest's network looked like when a test had failed and the guest did not answer
// to ARP: all tests after it would wait for that to their ends. They fail at once.
var dead string

// needCard fails a test that could not succeed, and looks at the guest's card if the test fails.
func needCard(t *testing.T) {
	t.Helper()
	require.Empty(t, dead, "the guest's card is dead: see the first test that failed")
	t.Cleanup(func() {
		if t.Failed() && !answersARP() {
			dead = stateOfCard()
			t.Logf("the guest does not answer to ARP:\n%s", dead)
		}
	})
}

// answersARP says whether the guest is there: nothing listens on the port that is tried, and only a
// host that is there can say so.
func answersARP() bool {
	c, err := net.DialTimeout("tcp", net.JoinHostPort(guestAddr.Addr().String(), "9"), 5*time.Second)
	if err == nil {
		_ = c.Close()
	}
	return err == nil || errors.Is(err, syscall.ECONNREFUSED)
}

// stateOfCard is what both ends say of the way between them.
func stateOfCard() string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	host, err := exec.CommandContext(ctx, "ip", "-s", "-d", "link").CombinedOutput()
	if err != nil {
		host = fmt.Appendf(host, "%v", err)
	}
	inside, err := vm.Run(ctx, `ip addr; ip neigh; cat /proc/net/dev; grep virtio /proc/interrupts
		dmesg | grep -v "speed is unknown" | tail -n 20`)
	if err != nil {
		inside += err.Error()
	}
	return strings.Join([]string{"host:", string(host), "guest:", inside}, "\n")
}

// A card that works answers, and both ends tell of it.
func TestStateOfCard(t *testing.T) {
	if !*live {
		skip.Because(t, skip.VirtualMachine, "-live is not set")
	}
	require.True(t, answersARP())
	require.Regexp(t, `(?s)host:.*vm0:.*guest:.*inet 10\.9\.0\.2/24.*virtio0-input`, stateOfCard())
}
