package verbs

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
)

// Addresses come and go, and the interface goes down and up: events tell of it, and the table, the
// port's state and their files follow.
func TestPortEvents(t *testing.T) {
	l := newLab(t)
	ip := func(text string) {
		for line := range strings.SplitSeq(text, "; ") {
			l.Run(t, "ip", strings.Fields(line)...)
		}
	}
	ip("link add one type veth peer name two; link set two up; link set one up; " +
		"addr add 10.1.0.1/24 dev one; route add default dev one")
	p := l.asRoCE(l.compileAlone("gids", "-libverbs"))
	watch := l.asRoCE("ibv_asyncwatch")
	watch.Expect(t, 1, "async event FD")
	const up, down = ", active, 4: ACTIVE: ", ", down, 1: DOWN: "
	const rest = "1=::ffff:127.0.0.1 2=::1"
	p.Expect(t, 1, "^at first"+up+"0=::ffff:10.1.0.1 "+rest+`\.$`)
	ip("addr add 10.1.0.9/24 dev one")
	p.Expect(t, 1, "^GID table change"+up+"0=::ffff:10.1.0.1 "+rest+` 3=::ffff:10.1.0.9\.$`)
	ip("link set one down")
	p.Expect(t, 1, "^port error"+down)
	p.Expect(t, 1, "^GID table change"+down+rest+`\.$`)
	ip("link set one up")
	p.Expect(t, 1, "^port active"+up)
	p.Expect(t, 2, "^GID table change.* 0=::ffff:10.1.0.1 "+rest) // while it has no link yet, perhaps
	ip("addr del 10.1.0.9/24 dev one")
	p.Expect(t, 1, "^GID table change"+up+"0=::ffff:10.1.0.1 "+rest+`\.$`)
	ip("addr add fd01::1/64 dev one nodad")
	p.Expect(t, 1, "^GID table change"+up+"0=::ffff:10.1.0.1 "+rest+` 3=fd01::1\.$`)
	for _, want := range []string{`\(18\)`, `\(10\)`, `\(9\)`} {
		watch.Expect(t, 1, "event_type .*"+want+", port 1")
	}
}

// Over our own TCP its device decides: a cable of memif whose other end goes and comes back.
func TestPortEventsOnMemif(t *testing.T) {
	l := newLab(t)
	cable := "--device roce " + memifCable(t)
	program := l.compileAlone("gids", "-libverbs")
	end := func() *netlab.Process {
		p := l.runOn(cable+" --addr 10.9.0.2/24", "gcc", program)
		p.Expect(t, 1, "^at first, active, 4: ACTIVE: 0=::ffff:10.9.0.2\\.$")
		return p
	}
	p := l.runOn(cable+" --role server --addr 10.9.0.1/24", "gcc", program)
	p.Expect(t, 1, "^at first, active, 4: ACTIVE: 0=::ffff:10.9.0.1\\.$")
	other := end()
	for i := range 2 {
		other.Signal(t, syscall.SIGKILL)
		require.NotZero(t, other.Wait(t))
		p.Expect(t, i+1, "^port error, down, 1: DOWN: ")
		other = end()
		p.Expect(t, i+1, "^port active, active, 4: ACTIVE: ")
	}
}
