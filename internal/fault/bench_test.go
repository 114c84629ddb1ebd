package fault

import (
	"testing"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd/wire"
)

// One op is one frame sent through the faults and received by a sound port; the cable alone is the
// floor.
func BenchmarkTx(b *testing.B) {
	for name, spec := range map[string]Spec{
		"none":  {},
		"drop":  {Tx: Faults{Drop: 0.01}},
		"all":   {Tx: allFaults},
		"delay": {Tx: Faults{Delay: 100}},
	} {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, spec, wire.Config{})
			bufs, in := r.frames(r.pool, 32), make([]mem.Buf, 64)
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += 32 {
				r.now += 50
				r.q.Tx(bufs)
				r.peerPool.FreeN(in[:r.peer.Rx(in)])
			}
		})
	}
}
