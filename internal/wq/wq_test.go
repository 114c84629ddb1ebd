package wq

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Entries are fixed, free of pointers and of hidden padding, so that they may lie in shared
// memory; a range is laid out as ibv_sge.
func TestLayout(t *testing.T) {
	for _, entry := range []any{WQE{}, CQE{}, *new(WQE).Ranges(), *new(WQE).Octets()} {
		require.EqualValues(t, EntryLen, reflect.TypeOf(entry).Size())
		requirePlain(t, reflect.TypeOf(entry))
	}
	sge := reflect.TypeFor[SGE]()
	requirePlain(t, sge)
	for i, want := range []struct {
		name string
		at   uintptr
	}{{"Offset", 0}, {"Length", 8}, {"STag", 12}} {
		require.Equal(t, want.name, sge.Field(i).Name)
		require.Equal(t, want.at, sge.Field(i).Offset)
	}
}

// requirePlain fails where a type has pointers, or padding that it does not name.
func requirePlain(t *testing.T, typ reflect.Type) {
	switch typ.Kind() {
	case reflect.Array:
		requirePlain(t, typ.Elem())
	case reflect.Struct:
		at := uintptr(0)
		for i := range typ.NumField() {
			f := typ.Field(i)
			require.Equal(t, at, f.Offset, "%v.%s", typ, f.Name)
			requirePlain(t, f.Type)
			at += f.Type.Size()
		}
		require.Equal(t, at, typ.Size(), "%v", typ)
	case reflect.Bool, reflect.Uint8, reflect.Uint32, reflect.Uint64:
	default:
		t.Fatalf("%v in an entry", typ)
	}
}

func TestFollowing(t *testing.T) {
	for more, want := range map[uint8]int{0: 0, 1: 1, 4: 1, 5: 2, 31: 8, 255: 64} {
		require.Equal(t, want, (&WQE{More: more}).Following())
	}
	for octets, want := range map[uint32]int{0: 0, 1: 1, 64: 1, 65: 2, 1<<32 - 1: 1 << 26} {
		require.Equal(t, want, (&WQE{Flags: FlagInline, More: 9, Local: SGE{Length: octets}}).Following())
	}
}

func TestMasks(t *testing.T) {
	rng := seeded(t)
	for range 100 {
		compare, swap := rng.Uint64(), rng.Uint64()
		s := Masks(compare, swap)
		c, w := s.Masks()
		require.Equal(t, [2]uint64{compare, swap}, [2]uint64{c, w})
	}
}

// A completion is there at its position, and at no other: neither where the ring was before, nor
// while it is copied, nor where positions wrap.
func TestPublish(t *testing.T) {
	const size = 4
	rng := seeded(t)
	for _, first := range []uint32{0, rng.Uint32() &^ (size - 1), 1<<32 - 2*size} {
		ring := make([]CQE, size)
		for i := range ring { // as one whose positions before were filled
			ring[i].seq = first + uint32(i) - size + 1
		}
		for at := first; at != first+4*size; at++ {
			slot := &ring[at%size]
			require.False(t, There(slot, at))
			c := CQE{ID: rng.Uint64(), Op: OpSend, seq: rng.Uint32()}
			Publish(slot, &c, at)
			require.False(t, There(&c, at), "what is copied does not say that it is there")
			require.True(t, There(slot, at))
			require.False(t, There(slot, at-size))
			require.False(t, There(slot, at+size))
			require.Equal(t, [2]uint64{c.ID, uint64(OpSend)}, [2]uint64{slot.ID, uint64(slot.Op)})
		}
	}
}

// Each value has a name, and none beyond.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	name := func(v fmt.Stringer) {
		require.NotContains(t, v.String(), "%")
		require.False(t, seen[v.String()], v.String())
		seen[v.String()] = true
	}
	for o := OpSend; o <= OpBindWindow; o++ {
		name(o)
	}
	for s := Success; s <= WindowBind; s++ {
		name(s)
	}
	for s := Idle; s <= Closed; s++ {
		name(s)
	}
	for k := range EventKinds {
		name(k)
	}
	require.Equal(t, "opcode 77, status 77, state 77, event 77",
		fmt.Sprintf("%v, %v, %v, %v", Opcode(77), Status(77), State(77), EventKind(77)))
}

func seeded(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}
