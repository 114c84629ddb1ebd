package bench

import (
	"context"
	"net/netip"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/pmd/tap"
	"github.com/rnicd/rnicd/rnic"
)

// BenchmarkTAP is RDMA Write of 1 MiB messages from MPA over the kernel's TCP, through a TAP at MTU
// 1500, into our stack; CRC32C on. The first mark: 2 Gbit/s.
func BenchmarkTAP(b *testing.B) {
	netlab.NeedRoot(b)
	for _, markers := range []struct {
		name string
		on   bool
	}{{"markers=false", false}, {"markers=true", true}} {
		var once sync.Once
		b.Run(markers.name, func(b *testing.B) {
			once.Do(func() { requireCRC(b, 1500, opts{ConnParam: rnic.ConnParam{NoMarkers: !markers.on}}) })
			ns := netlab.New(b)
			var port *tap.Port
			ns.Do(func() {
				var err error
				port, err = tap.New(tap.Config{Name: "bench0", Addr: netip.MustParsePrefix("10.9.0.254/24")})
				require.NoError(b, err)
			})
			b.Cleanup(func() { require.NoError(b, port.Close()) })
			server := newHost(b, port, "10.9.0.1/24", 1500)
			kernel, err := rnic.Open(rnic.Config{})
			require.NoError(b, err)
			s := newEnd(b, server, writeRegion, opts{ConnParam: rnic.ConnParam{NoMarkers: !markers.on}})
			c := newEnd(b, &host{dev: kernel}, writeRegion, opts{QPOptions: rnic.QPOptions{SendDepth: 64}})
			join(b, server, s, func(ctx context.Context) (err error) {
				ns.Do(func() { err = c.qp.Connect(ctx, "10.9.0.1:7174", c.conn) })
				return err
			})
			benchWrite(b, s, c)
		})
	}
}
