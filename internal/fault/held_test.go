package fault

import (
	"math/rand/v2"
	"testing"

	"github.com/rnicd/rnicd/mem"
	"github.com/stretchr/testify/require"
)

func TestFIFOAgainstSlice(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		f := newFIFO(1 + rng.IntN(9))
		var oracle []held
		for step := range 300 {
			if rng.IntN(2) == 0 && !f.full() {
				h := held{buf: mem.Buf(step), due: int64(step)}
				f.push(h)
				oracle = append(oracle, h)
			} else if len(oracle) > 0 {
				require.Equal(t, oracle[0], *f.first(), "seed %d", seed)
				f.pop()
				oracle = oracle[1:]
			}
			require.Equal(t, len(oracle), f.n, "seed %d", seed)
			require.Equal(t, len(oracle) == len(f.items), f.full(), "seed %d", seed)
			require.Equal(t, len(oracle) == 0, f.first() == nil, "seed %d", seed)
		}
	}
}
