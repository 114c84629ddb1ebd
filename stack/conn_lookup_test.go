package stack

import (
	"math/rand/v2"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// randomID draws from so few tuples that most operations meet one that was there before.
func randomID(r *rand.Rand) tcp.ID {
	return tcp.ID{
		Local:  inet.AddrFrom4([4]byte{10, 0, 0, 1}),
		Remote: inet.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(4))}), LocalPort: uint16(r.IntN(8)),
		RemotePort: uint16(r.IntN(8)),
	}
}

// named are n connections that name may be given.
func named(n int) []Conn {
	conns, m := make([]Conn, n), tcp.NewMemory(tcp.Config{}, 1)
	for i := range conns {
		conns[i].tcp.Init(m)
	}
	return conns
}

// name gives c an id, as a connection has that was opened, and closed again.
func name(c *Conn, id tcp.ID) {
	c.tcp.Connect(0, id, 0, 0)
	c.tcp.Abort(0)
}

func TestLookupAgainstMap(t *testing.T) {
	r := dice(t)
	const connsMax = 100
	conns := named(connsMax)
	s := newSecret([16]byte{1, 2, 3, byte(r.Uint32())})
	table := newLookup(connsMax, &s, conns)
	// Few hashes for many tuples: long probes, and wrap-around at the end of the table.
	if r.IntN(2) == 0 {
		table.k0, table.k1 = 1, 1
	}
	oracle := map[tcp.ID]connIndex{}
	var free []connIndex
	for i := range conns {
		free = append(free, connIndex(i))
	}
	for step := range 20_000 {
		id := randomID(r)
		want, there := oracle[id]
		if !there {
			want = noConn
		}
		require.Equal(t, want, table.find(&id), "step %d", step)
		switch {
		case there && r.IntN(2) == 0:
			table.remove(want)
			delete(oracle, id)
			free = append(free, want)
		case !there && len(free) > 0:
			c := free[len(free)-1]
			free = free[:len(free)-1]
			table.insert(c, &id)
			name(&conns[c], id)
			oracle[id] = c
		}
		require.Equal(t, len(oracle), table.n)
	}
	for id, want := range oracle {
		require.Equal(t, want, table.find(&id), "at the end")
		first := table.candidate(table.hash(&id)) // another one of the same hash may stand before it
		require.Equal(t, table.hash(&id), table.hash(conns[first].tcp.ID()), "at the end")
	}
}

// The table is keyed: the same tuples fall differently under another secret.
func TestLookupHashIsKeyed(t *testing.T) {
	a, b := newSecret([16]byte{1}), newSecret([16]byte{2})
	ta, tb := newLookup(8, &a, nil), newLookup(8, &b, nil)
	same := 0
	for port := range uint16(1000) {
		id := tcp.ID{LocalPort: port}
		if ta.hash(&id) == tb.hash(&id) {
			same++
		}
	}
	require.Less(t, same, 3)
}
