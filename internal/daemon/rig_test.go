package daemon

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/rnic"
)

// patience bounds every wait. It is generous: the machine may be busy.
const patience = time.Minute

// logbook is what a daemon wrote.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // closed at the next line
}

func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.more)
	b.more = make(chan struct{})
	return b.text.Write(p)
}

// lines are those that match.
func (b *logbook) lines(pattern string) (all []string, more chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	re := regexp.MustCompile(pattern)
	for line := range strings.Lines(b.text.String()) {
		if re.MatchString(line) {
			all = append(all, line)
		}
	}
	return all, b.more
}

// await returns the n-th line that matches, when it is there.
func (b *logbook) await(t *testing.T, n int, pattern string) string {
	t.Helper()
	late := time.After(patience)
	for {
		all, more := b.lines(pattern)
		if len(all) >= n {
			return all[n-1]
		}
		select {
		case <-more:
		case <-late:
			b.mu.Lock()
			defer b.mu.Unlock()
			require.Failf(t, "no such line", "%d times %q in\n%s", n, pattern, b.text.String())
		}
	}
}

// rig is a daemon at one end of a cable in memory, and a client's Adapter at the other. The
// daemon's port is called cable.
type rig struct {
	t       *testing.T
	ctx     context.Context
	drivers port.Drivers
	log     *logbook
	d       *Daemon
	client  *port.Port
	dev     *rnic.Adapter
	onTurn  func() int
	ended   bool
}

const cable = `
[[port]]
name = "cable"
driver = "cable"
addresses = ["10.9.0.1/24"]
dad = "off"
page = "normal"
`

// start starts a daemon with a cable and what else a configuration says.
func start(t *testing.T, text string, with ...func(*rig)) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	link, err := wire.New(wire.Config{})
	require.NoError(t, err)
	r := &rig{
		t: t, ctx: ctx, log: &logbook{more: make(chan struct{})},
		drivers: port.Builtin().With(port.Of("cable", wire.MTUMax, link.Port(0))),
	}
	for _, w := range with {
		w(r)
	}
	r.client, err = port.Open(port.Config{
		Driver: port.Of("cable", wire.MTUMax, link.Port(1)),
		Addrs:  []netip.Prefix{netip.MustParsePrefix("10.9.0.2/24")}, DAD: port.DADNone,
		Page: hugepages.Normal, Node: hugepages.AnyNode,
	})
	require.NoError(t, err)
	r.dev, err = r.client.Adapter()
	require.NoError(t, err)
	require.NoError(t, r.client.Start())
	r.d, err = Start(ctx, r.parse(cable+text),
		Options{Log: r.log, Front: func(_ string, c *port.Config) { c.OnTurn = r.onTurn }})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, closeAdapter(r.dev))
		require.NoError(t, r.client.Close())
		if !r.ended {
			require.NoError(t, r.d.Close())
		}
		require.Zero(t, r.d.held.Load(), "services that hold memory")
	})
	return r
}

func (r *rig) parse(text string) *config.Config {
	r.t.Helper()
	if !strings.Contains(text, "[control]") { // daemons of several tests run at a time
		text += "\n[control]\nsocket = \"off\"\n"
	}
	return must(config.Parse("rnicd.toml", []byte(text), r.drivers))(r.t)
}

// reload gives the daemon another configuration.
func (r *rig) reload(text string) Changes {
	r.t.Helper()
	return must(r.d.Reload(r.ctx, r.parse(text)))(r.t)
}

// at is a TCP port of the daemon on the cable.
func at(tcp int) string { return fmt.Sprint("10.9.0.1:", tcp) }

// must is v, if there was no error.
func must[V any](v V, err error) func(require.TestingT) V {
	return func(t require.TestingT) V {
		require.NoError(t, err)
		return v
	}
}
