package mem

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func bind(t require.TestingT, w *Window, m *MemoryRegion, opt WindowOptions) STag {
	return must(w.Bind(m, opt))(t)
}

func newWindow(t require.TestingT, table *Table) *Window {
	return must(table.NewWindow())(t)
}

// A window reaches its octets, with its rights, on its stream, and nothing else of the region; the
// region's own STag is what it was.
// req: DDP-10.3-2, DDP-10.3-4, 5041-8.3.1-5, 5042-6.3.4-1
func TestWindowShowsItsPart(t *testing.T) {
	table := NewTable(4)
	pd := table.AllocDomain()
	b := make([]byte, 100)
	m := register(t, table, pd, b, RegionOptions{Windows: RemoteRead | RemoteWrite, Base: 1000})
	w := newWindow(t, table)
	require.Equal(t, 2, table.Len())
	require.False(t, w.Valid())
	require.Equal(t, CheckInvalidSTag, verdict(table, pd, 7, w.STag(), 0, 1), "not bound yet")
	stag := bind(t, w, m, WindowOptions{Off: 10, Len: 20, Base: 5, Access: RemoteWrite, Stream: 7})
	require.True(t, w.Valid())
	require.Equal(t, stag, w.STag())
	got, res := table.Check(pd, 7, stag, 5, 20, RemoteWrite)
	require.Equal(t, CheckOK, res)
	require.Same(t, &b[10], &got[0])
	require.Equal(t, 20, cap(got))
	for _, c := range []struct {
		pd     ProtectionDomain
		stream StreamID
		to     uint64
		n      int
		need   Access
		want   CheckResult
	}{
		{pd, 7, 4, 1, RemoteWrite, CheckBounds}, {pd, 7, 25, 1, RemoteWrite, CheckBounds},
		{pd, 7, 5, 21, RemoteWrite, CheckBounds},
		{pd, 7, 1010, 1, RemoteWrite, CheckBounds}, {pd, 7, math.MaxUint64, 2, RemoteWrite, CheckWrap},
		{pd, 7, 5, 1, RemoteRead, CheckAccess}, {pd, 7, 5, 1, LocalRead, CheckAccess},
		{pd, 7, 5, 1, LocalWrite, CheckAccess},
		{pd, 8, 5, 1, RemoteWrite, CheckNotAssociated},
		{pd, AnyStream, 5, 1, RemoteWrite, CheckNotAssociated},
		{pd + 1, 7, 5, 1, RemoteWrite, CheckNotAssociated},
	} {
		_, res := table.Check(c.pd, c.stream, stag, c.to, c.n, c.need)
		require.Equal(t, c.want, res, "%+v", c)
	}
	require.Equal(t, CheckAccess, verdict(table, pd, 7, m.STag(), 1000, 1), "peers have windows only")
	_, res = table.Check(pd, 7, m.STag(), 1000, 100, LocalRead)
	require.Equal(t, CheckOK, res)
}

// Each binding has a new key: what was advertised before reaches nothing, wherever the window lies
// now.
// req: 5042-6.1.1-4
func TestWindowKeyRotates(t *testing.T) {
	table := NewTable(2)
	m := register(t, table, 1, make([]byte, 8), RegionOptions{Access: RemoteWrite})
	w := newWindow(t, table)
	seen := map[STag]bool{}
	for i := range 256 {
		if i%3 == 0 {
			w.Unbind()
		}
		old := w.STag()
		stag := bind(t, w, m, WindowOptions{Len: 8, Access: RemoteWrite})
		require.Equal(t, old.Index(), stag.Index())
		require.Equal(t, old.Key()+1, stag.Key())
		require.False(t, seen[stag])
		seen[stag] = true
		require.Equal(t, CheckOK, verdict(table, 1, 1, stag, 0, 8))
		require.Equal(t, CheckInvalidSTag, verdict(table, 1, 1, old, 0, 8))
	}
}

// However the region's validity ends, that of its windows ends with it, and does not come back with
// it.
func TestWindowEndsWithItsRegion(t *testing.T) {
	for name, end := range map[string]func(*Table, *MemoryRegion){
		"Revoke":     func(_ *Table, m *MemoryRegion) { m.Revoke() },
		"Revalidate": func(_ *Table, m *MemoryRegion) { m.Revalidate() },
		"Deregister": func(_ *Table, m *MemoryRegion) { m.Deregister() },
		"Invalidate": func(table *Table, m *MemoryRegion) {
			require.Equal(t, CheckOK, table.Invalidate(1, 3, m.STag()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			table := NewTable(4)
			m := register(t, table, 1, make([]byte, 8), RegionOptions{Access: RemoteWrite, Stream: 3})
			w := newWindow(t, table)
			opt := WindowOptions{Len: 8, Access: RemoteWrite, Stream: 3}
			stag := bind(t, w, m, opt)
			require.Equal(t, CheckOK, verdict(table, 1, 3, stag, 0, 8))
			end(table, m)
			require.Equal(t, CheckInvalidSTag, verdict(table, 1, 3, stag, 0, 8))
			require.Equal(t, CheckInvalidSTag, table.Invalidate(1, 3, stag))
			require.False(t, w.Valid())
			if name == "Deregister" {
				_, err := w.Bind(m, opt)
				require.ErrorIs(t, err, ErrRevoked)
				return
			}
			if name != "Revalidate" {
				_, err := w.Bind(m, opt)
				require.ErrorIs(t, err, ErrRevoked)
				m.Revalidate()
			}
			require.Equal(t, CheckInvalidSTag, verdict(table, 1, 3, stag, 0, 8), "not by itself")
			require.Equal(t, CheckOK, verdict(table, 1, 3, bind(t, w, m, opt), 0, 8))
		})
	}
}

// A window never shows more than its region has.
func TestBindRefuses(t *testing.T) {
	table := NewTable(8)
	b := make([]byte, 10)
	readable := register(t, table, 1, b, RegionOptions{Access: RemoteRead | LocalWrite})
	tied := register(t, table, 1, b, RegionOptions{Access: RemoteWrite, Stream: 3})
	w := newWindow(t, table)
	for _, c := range []struct {
		field string
		m     *MemoryRegion
		opt   WindowOptions
	}{
		{"length", readable, WindowOptions{Access: RemoteRead}},
		{"length", readable, WindowOptions{Access: RemoteRead, Len: -1}},
		{"length", readable, WindowOptions{Access: RemoteRead, Len: 11}},
		{"length", readable, WindowOptions{Access: RemoteRead, Len: math.MaxInt}},
		{"Off", readable, WindowOptions{Access: RemoteRead, Off: -1, Len: 1}},
		{"Off", readable, WindowOptions{Access: RemoteRead, Off: 10, Len: 1}},
		{"Off", readable, WindowOptions{Access: RemoteRead, Off: 1, Len: 10}},
		{"Off", readable, WindowOptions{Access: RemoteRead, Off: math.MaxInt, Len: 10}},
		{"Base", readable, WindowOptions{Access: RemoteRead, Len: 10, Base: math.MaxUint64 - 9}},
		{"Access", readable, WindowOptions{Len: 10}},
		{"Access", readable, WindowOptions{Len: 10, Access: RemoteWrite}},
		{"Access", readable, WindowOptions{Len: 10, Access: RemoteRead | RemoteWrite}},
		{"Access", readable, WindowOptions{Len: 10, Access: RemoteRead | LocalWrite}},
		{"Access", tied, WindowOptions{Len: 10, Access: RemoteRead, Stream: 3}},
		{"Stream", tied, WindowOptions{Len: 10, Access: RemoteWrite, Stream: 4}},
		{"Stream", tied, WindowOptions{Len: 10, Access: RemoteWrite}},
	} {
		bind(t, w, readable, WindowOptions{Len: 1, Access: RemoteRead})
		_, err := w.Bind(c.m, c.opt)
		var bad *RegionError
		require.ErrorAs(t, err, &bad, "%+v", c)
		require.Equal(t, "window's "+c.field, bad.Field, "%+v", c)
		require.False(t, w.Valid(), "a window whose owner wants it elsewhere does not stay where it was")
	}
	bind(t, w, readable, WindowOptions{Len: 10, Access: RemoteRead, Base: math.MaxUint64 - 10})
	require.Panics(t, func() {
		_, _ = w.Bind(register(t, NewTable(1), 1, b, RegionOptions{Access: RemoteRead}),
			WindowOptions{Len: 1, Access: RemoteRead})
	}, "another Table")
	full := NewTable(1)
	newWindow(t, full)
	_, err := full.NewWindow()
	var none *TableFullError
	require.ErrorAs(t, err, &none)
}

// Who could write where is said before a second peer is let in.
// req: 5042-6.3.6-1
func TestWriters(t *testing.T) {
	table := NewTable(8)
	b := make([]byte, 100)
	require.Empty(t, table.Writers(b))
	m := register(t, table, 1, b[10:50], RegionOptions{Windows: RemoteWrite})
	register(t, table, 1, b, RegionOptions{Access: RemoteRead | LocalWrite})
	require.Empty(t, table.Writers(b), "nobody may write yet")
	w := newWindow(t, table)
	stag := bind(t, w, m, WindowOptions{Off: 10, Len: 10, Access: RemoteWrite}) // octets 20 to 29
	other := register(t, table, 2, b[28:40], RegionOptions{Access: RemoteWrite, Stream: 9})
	require.ElementsMatch(t, []STag{stag, other.STag()}, table.Writers(b))
	require.ElementsMatch(t, []STag{stag, other.STag()}, table.Writers(b[28:30]))
	require.Equal(t, []STag{stag}, table.Writers(b[27:28]))
	require.Equal(t, []STag{stag}, table.Writers(b[:21]))
	require.Equal(t, []STag{other.STag()}, table.Writers(b[30:]))
	require.Empty(t, table.Writers(b[:20]))
	require.Empty(t, table.Writers(b[40:]))
	require.Empty(t, table.Writers(b[25:25]))
	m.Revoke()
	require.Equal(t, []STag{other.STag()}, table.Writers(b), "the window ended with its region")
	other.Deregister()
	require.Empty(t, table.Writers(b))
}

func TestBindDoesNotWait(t *testing.T) {
	table := NewTable(2)
	m := register(t, table, 1, make([]byte, 8), RegionOptions{Access: RemoteWrite})
	w := newWindow(t, table)
	r := table.NewReader()
	r.Enter() // of another goroutine that will not leave
	stag := bind(t, w, m, WindowOptions{Len: 8, Access: RemoteWrite, Stream: 1})
	require.Equal(t, CheckOK, table.Invalidate(1, 1, stag))
	bind(t, w, m, WindowOptions{Len: 8, Access: RemoteWrite})
	r.Exit()
}

// With a Key Bind neither waits nor takes away what is bound, and the window may grant nothing.
func TestBindWithKey(t *testing.T) {
	table := NewTable(2)
	m := register(t, table, 1, make([]byte, 8), RegionOptions{Access: RemoteWrite})
	w := newWindow(t, table)
	r := table.NewReader()
	r.Enter() // of another goroutine that will not leave
	defer r.Exit()
	index := w.STag() &^ 0xff
	for _, key := range []uint8{7, 7, 255, 0} {
		opt := WindowOptions{Len: 8, Access: RemoteWrite, Stream: 1, Key: &key}
		stag := bind(t, w, m, opt)
		require.Equal(t, index|STag(key), stag)
		require.Equal(t, CheckOK, verdict(table, 1, 1, stag, 0, 8))
		other := key + 1
		opt.Key = &other
		_, err := w.Bind(m, opt)
		require.ErrorIs(t, err, errBound)
		require.Equal(t, CheckOK, verdict(table, 1, 1, stag, 0, 8))
		require.Equal(t, CheckOK, table.Invalidate(1, 1, stag))
	}
	key := uint8(9)
	stag := bind(t, w, m, WindowOptions{Len: 8, Stream: 1, Key: &key})
	require.Equal(t, CheckAccess, verdict(table, 1, 1, stag, 0, 8))
	require.Equal(t, CheckOK, table.Invalidate(1, 1, stag))
	_, err := w.Bind(m, WindowOptions{Len: 8, Access: RemoteRead, Stream: 1, Key: &key})
	require.ErrorContains(t, err, "Access")
}
