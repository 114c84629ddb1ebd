package verbs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What the manual pages promise of attributes, limits, statuses and events, over the kernel's
// sockets.
func TestContracts(t *testing.T) {
	l := newLab(t)
	p := l.run("gcc", l.compile("contracts"))
	require.Zero(t, p.Wait(t), "%s", p)
	p.Expect(t, 1, "^all well$")
}
