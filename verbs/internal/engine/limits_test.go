package engine

import (
	"math"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// There may be as many objects of each kind as the program is told, all kinds at once, and no more;
// one that is given back makes room, and one that could not be made takes none.
func TestLimits(t *testing.T) {
	p := newProgram(t)
	octets := make([]byte, 8)
	memory := uint64(uintptr(unsafe.Pointer(&octets[0])))
	for _, x := range []struct {
		name       string
		max        int
		make, drop uint32
		args       func() []uint64
		wrong      []uint64 // nil: it cannot fail
	}{
		{"domains", ring.PDsMax - 1, ring.AllocPD, ring.FreePD, func() []uint64 { return nil },
			nil},
		{"regions", ring.MRsMax, ring.RegMR, ring.DeregMR,
			func() []uint64 { return []uint64{p.pd, memory, 8, 0, 0} },
			[]uint64{p.pd, 1, 8, 0, 0}},
		{"windows", ring.MWsMax, ring.AllocMW, ring.FreeMW,
			func() []uint64 { return []uint64{p.pd} }, nil},
		{"completion queues", ring.CQsMax, ring.CreateCQ, ring.DestroyCQ,
			func() []uint64 { return []uint64{1, math.MaxUint64, 1, p.ctx} }, nil},
		{"shared receive queues", ring.SRQsMax, ring.CreateSRQ, ring.DestroySRQ,
			func() []uint64 { return []uint64{p.pd, 1, 1, 1, p.ctx} }, nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			if x.wrong != nil {
				_, err := p.call(x.make, nil, x.wrong...)
				require.Equal(t, syscall.EFAULT, err)
			}
			var last uint64
			for range x.max {
				last = p.do(x.make, x.args()...)[0]
			}
			_, err := p.call(x.make, nil, x.args()...)
			require.Equal(t, syscall.ENOMEM, err)
			p.do(x.drop, last)
			p.do(x.make, x.args()...)
		})
	}
}

// A receive buffer that is longer than any message is one: it is cut, in whichever range.
func TestLongReceiveBuffers(t *testing.T) {
	r := &wq.Request{WQE: wq.WQE{Local: wq.SGE{Length: 1 << 31}, More: 2},
		List: []wq.SGE{{Length: 5}, {Length: math.MaxUint32}}}
	clip(r)
	require.Equal(t, []uint32{ring.MessageMax, 0, 0},
		[]uint32{r.Local.Length, r.List[0].Length, r.List[1].Length})
	r.Local.Length, r.List = 100, []wq.SGE{{Length: math.MaxUint32}, {Length: 7}}
	clip(r)
	require.Equal(t, []uint32{100, ring.MessageMax - 100, 0},
		[]uint32{r.Local.Length, r.List[0].Length, r.List[1].Length})
	require.EqualValues(t, ring.MessageMax, r.Total())
}
