package fault

import (
	"testing"

	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/stretchr/testify/require"
)

func TestPort(t *testing.T) {
	l, err := wire.New(wire.Config{ChecksumOffload: true, Names: []string{"bad", "good"}})
	require.NoError(t, err)
	p, err := NewPort(l.Port(0), Spec{Tx: Faults{Delay: 5}}, func() int64 { return 0 })
	require.NoError(t, err)
	require.Equal(t, "bad", p.Name())
	require.Equal(t, l.Port(0).MAC(), p.MAC())
	require.Equal(t, pmd.Caps{MTU: 1500, Queues: 1}, p.Caps(), "no offload is left")
	pool := newPool(t, 8)
	q, err := p.Open(0, pool)
	require.NoError(t, err)
	_, err = p.Open(0, pool)
	require.ErrorContains(t, err, "opened before")

	r := &rig{t: t, pool: pool, q: q.(*Queue)}
	require.Equal(t, 3, r.send(3))
	require.Equal(t, 5, pool.Available())
	require.NoError(t, p.Close())
	require.Equal(t, 8, pool.Available())

	_, err = NewPort(l.Port(1), Spec{Rx: Faults{Drop: 2}}, nil)
	require.Error(t, err)
}
