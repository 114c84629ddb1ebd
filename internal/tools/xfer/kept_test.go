package xfer

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// keeper is a rig whose Memory of n octets keeps names, quota of them for one address.
func keeper(t *testing.T, n, quota int) *rig {
	m := NewMemory(make([]byte, n), quota)
	m.KeepNames()
	return newRig(t, 0, ServerConfig{Memory: m})
}

func (r *rig) putUnder(name string, octets []byte) error {
	_, err := Put(r.ctx, PutConfig{Adapter: r.client, Addr: r.addr, Memory: octets,
		Source: bytes.NewReader(octets), Length: uint64(len(octets)), Name: name})
	if err == nil {
		require.NoError(r.t, r.result().Err)
	}
	return err
}

func (r *rig) getUnder(name string) ([]byte, error) {
	var got bytes.Buffer
	_, err := Get(r.ctx, GetConfig{Adapter: r.client, Addr: r.addr, Name: name,
		Begin: func(uint64) (io.Writer, error) { return &got, nil }})
	if err == nil {
		res := r.result()
		require.NoError(r.t, res.Err)
		require.Equal(r.t, name, res.Name)
	}
	return got.Bytes(), err
}

// What is put under a name is read by others from where it was written, until it is replaced or
// taken away; what is put without one is not read.
func TestKeptIsRead(t *testing.T) {
	r := keeper(t, 1<<20, 0)
	a, b := content(1, 100_000), content(2, 200_001)
	_, err := r.getUnder("a")
	require.ErrorContains(t, err, "there is no a here")
	require.NoError(t, r.putUnder("a", a))
	require.NoError(t, r.putUnder("b.txt", b))
	require.NoError(t, r.putUnder("", a))
	for range 2 {
		got, err := r.getUnder("a")
		require.NoError(t, err)
		require.True(t, bytes.Equal(a, got))
		got, err = r.getUnder("b.txt")
		require.NoError(t, err)
		require.True(t, bytes.Equal(b, got))
	}
	_, err = r.getUnder("")
	require.ErrorContains(t, err, "say which of those that it keeps")
	require.NoError(t, r.putUnder("a", b))
	got, err := r.getUnder("a")
	require.NoError(t, err)
	require.True(t, bytes.Equal(b, got))
	require.NoError(t, r.putUnder("a", []byte{}))
	_, err = r.getUnder("a")
	require.ErrorContains(t, err, "there is no a here")
	require.NoError(t, r.putUnder("b.txt", []byte{}))
}

// What is kept counts in the quota of its address, and in the room that there is.
func TestKeptCountsInQuota(t *testing.T) {
	r := keeper(t, 5*extentAlign, 600)
	require.NoError(t, r.putUnder("a", content(1, 400)))
	require.ErrorContains(t, r.putUnder("b", content(1, 201)),
		"your address may hold 600, and holds 400, what it keeps included: an empty FILE put under a "+
			"name takes that away; try again later")
	require.NoError(t, r.putUnder("b", content(1, 200)))
	require.NoError(t, r.putUnder("a", []byte{}))
	require.NoError(t, r.putUnder("c", content(1, 400)))
	require.NoError(t, r.putUnder("b", []byte{}))
	require.NoError(t, r.putUnder("c", []byte{}))
}

// A server that keeps nothing says so, and a name that cannot be is refused at either end.
func TestNamesAreJudged(t *testing.T) {
	r := newRig(t, 1000, ServerConfig{})
	require.ErrorContains(t, r.putUnder("a", content(1, 10)), "a region with keep = true")
	_, err := r.getUnder("a")
	require.ErrorContains(t, err, "there is no a here")
	for _, name := range []string{"../a", "a b", "a\x1b[2J", strings.Repeat("x", nameMax)[1:] + "/"} {
		require.Error(t, CheckName(name))
		require.ErrorContains(t, r.putUnder(name, nil), "want 1 to 64 letters")
	}
	require.NoError(t, CheckName(strings.Repeat("x", nameMax)))
	require.Error(t, CheckName(""))
	require.Error(t, CheckName(strings.Repeat("x", nameMax+1)))
}

// A name is its address's; what is replaced while it is read stays until the last reader has gone;
// and names are bounded.
func TestKeptIsItsOwners(t *testing.T) {
	m := NewMemory(make([]byte, 2*keptMax*extentAlign), 0)
	m.KeepNames()
	mine, other := netip.MustParseAddr("fd09::1"), netip.MustParseAddr("fd09:0:0:1::1")
	keep := func(from netip.Addr, name string, octets []byte) error {
		x, why := m.take(from, uint64(len(octets)))
		require.Empty(t, why)
		copy(m.bytes(x), octets)
		err := m.store(from, name, x, sha256.Sum256(octets))
		if err != nil {
			m.give(from, x)
		}
		return err
	}
	require.NoError(t, keep(mine, "a", []byte("one")))
	require.ErrorContains(t, m.mayKeep(other, "a"), "another address's")
	require.ErrorContains(t, keep(other, "a", []byte("two")), "another address's")
	require.NoError(t, m.mayKeep(netip.MustParseAddr("fd09::2"), "a"), "of the same /64")
	first := must(m.open("a"))(t)
	again := must(m.open("a"))(t)
	require.NoError(t, keep(mine, "a", []byte("three")))
	require.Equal(t, "one", string(m.bytes(first.extent)))
	m.close(first)
	require.Equal(t, 2, m.room.inUse())
	m.close(again)
	require.Equal(t, 1, m.room.inUse())
	require.NoError(t, keep(mine, "a", nil))
	require.Empty(t, m.held)
	for i := range keptMax {
		require.NoError(t, keep(mine, "n"+strings.Repeat("x", i%50)+string(rune('a'+i/50)), []byte{1}))
	}
	require.ErrorContains(t, m.mayKeep(mine, "more"), "1024 names are kept")
	require.NoError(t, m.mayKeep(mine, "na"))
}

// What is kept leaves no room for others, who are told.
func TestKeptTakesRoom(t *testing.T) {
	r := keeper(t, 2*extentAlign, 0)
	require.NoError(t, r.putUnder("a", content(1, extentAlign+1)))
	require.ErrorContains(t, r.putUnder("", content(1, extentAlign)),
		"no room for 4096 octets beside 1 files that are kept")
	require.NoError(t, r.putUnder("a", []byte{}))
	require.NoError(t, r.putUnder("", content(1, 2*extentAlign)))
}
