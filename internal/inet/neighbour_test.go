package inet

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// req: 1122-2.3.2.1-1, 1122-2.3.2.1-2, 1122-2.3.2.2-1, 826-1, 826-2
func TestNeighbourConversations(t *testing.T) {
	for _, c := range []struct {
		what   string
		cfg    NeighbourConfig
		script string
	}{
		{"the first packet to a destination waits for the answer and leaves with it", NeighbourConfig{}, `
			@0    lookup A f1   -> queued ask
			      take          -> nothing
			@0.2  reply A m1    -> silence
			      take          -> f1>m1
			      take          -> nothing
			      lookup A f2   -> m1
		`},
		{"a full queue keeps the latest; order is kept; two destinations do not mix",
			NeighbourConfig{QueueMax: 3}, `
			@0  lookup A f1  -> queued ask
			    lookup A f2  -> queued
			    lookup B f10 -> queued ask
			    lookup A f3  -> queued
			    lookup A f4  -> queued
			    lookup A f5  -> queued
			    dropped      -> f1 f2
			    learn A m1
			    learn B m2
			    take         -> f3>m1 f4>m1 f5>m1 f10>m2
			    dropped      -> nothing
			    count Displaced -> 2
			    count Frames -> 0
		`},
		{"another frame has room unless its queue or the table is full", NeighbourConfig{QueueMax: 2,
			FramesMax: 3}, `
			@0  knows A      -> room
			    lookup A f1  -> queued ask
			    knows A      -> room
			    lookup A f2  -> queued
			    knows A      -> full
			    knows B      -> room
			    lookup B f3  -> queued ask
			    knows B      -> full
			    knows C      -> full
			    learn A m1
			    knows A      -> known room
			    take         -> f1>m1 f2>m1
			    knows B      -> room
			@50 tick         -> B@all A@m1
			    knows A      -> known room
		`},
		{"one request per second and destination whatever is sent; then the host is given up with " +
			"its frames", NeighbourConfig{}, `
			@0    lookup A f1 -> queued ask
			      deadline    -> 1
			@0.5  lookup A f2 -> queued
			      tick        -> nothing
			@1    tick        -> A@all
			      tick        -> nothing
			@1.9  lookup A f3 -> queued
			      tick        -> nothing
			@2    tick        -> A@all
			@3    tick        -> A@all
			@3.9  lookup A f4 -> queued
			      dropped     -> nothing
			@4    tick        -> nothing
			      dropped     -> f1 f2 f3 f4
			      deadline    -> never
			      lookup A f5 -> queued ask
			    count Unreachable -> 1
		`},
		{"A Tick that comes late asks once and not for the intervals missed", NeighbourConfig{}, `
			@0    lookup A f1 -> queued ask
			@500  tick        -> A@all
			      deadline    -> 501
			@501  tick        -> A@all
		`},
		{"an idle entry becomes stale and ends, with nobody asked. It can still be used while " +
			"stale", NeighbourConfig{}, `
			@0   create A m1
			     deadline   -> 30
			@30  tick       -> nothing
			     deadline   -> 60
			@60  tick       -> nothing
			     deadline   -> never
			     lookup A f1 -> queued ask
			    count Expired -> 1
		`},
		{"a stale entry is usable, and refreshed", NeighbourConfig{}, `
			@0   create A m1
			@30  tick         -> nothing
			@45  lookup A f1  -> m1
			     deadline     -> 45
			     tick         -> A@m1
			@45.1 reply A m1
			     deadline     -> 75.1
			     tick         -> nothing
		`},
		{"an entry in use is asked by unicast when it is old, and frames go on meanwhile",
			NeighbourConfig{}, `
			@0     create A m1
			@29    lookup A f1 -> m1
			@30    tick        -> A@m1
			@30.5  lookup A f2 -> m1
			@31    tick        -> A@m1
			@31.1  reply A m1
			@32    tick        -> nothing
			       deadline    -> 61.1
		`},
		{"the peer changed its MAC and did not tell: asked at the old one in vain, then afresh by " +
			"broadcast, with traffic on", NeighbourConfig{}, `
			@0     create A m1
			@29    lookup A f1 -> m1
			@30    tick        -> A@m1
			@31    tick        -> A@m1
			@32    tick        -> A@m1
			@33    tick        -> A@m1
			@33.5  lookup A f2 -> m1
			@34    tick        -> nothing
			       lookup A f3 -> queued ask
			       reply A m2  -> silence
			       take        -> f3>m2
			       lookup A f4 -> m2
		`},
		{"timeout and bounds are configurable",
			NeighbourConfig{ReachableNs: 5e9, RetryNs: 2e9, RetriesMax: 1}, `
			@0   create A m1
			     lookup A f1 -> m1
			@5   tick -> A@m1
			@7   tick -> A@m1
			@8.9 tick -> nothing
			     lookup A f2 -> m1
			@9   tick -> nothing
			     deadline -> never
		`},
		{"only a request to us makes an entry. No reply does, as one that was asked for has its " +
			"entry", NeighbourConfig{}, `
			@0  reply A m1       -> silence
			    request B m1 C   -> silence
			    request C m1 C   -> silence
			    deadline         -> never
			    request D m1 us  -> answer
			    lookup D f1      -> m1
			    lookup A f2      -> queued ask
			    count Created -> 2
		`},
		{"what is answered", NeighbourConfig{}, `
			@0  request A m1 us    -> answer
			    request A m1 us    -> answer
			    request A m1 B     -> silence
			    request A m1 A     -> silence
			    request none m1 us -> answer
			    reply A m1         -> silence
			    request us m9 us   -> drop source
			    request us m9 A    -> drop source
			    reply us m9        -> drop source
		`},
		{"full of entries in use, a table refuses; it is not confused", NeighbourConfig{EntriesMax: 3}, `
			@0   create A m1
			     lookup A f1      -> m1
			     create B m2
			     lookup B f2      -> m2
			     lookup C f3      -> queued ask
			     lookup D f4      -> refused
			     request D m4 us  -> answer
			     lookup D f4      -> refused
			     lookup A f5      -> m1
			     lookup B f6      -> m2
			     learn C m3
			     take             -> f3>m3
			     lookup D f7      -> refused
			    count Refused -> 4
		`},
		{"of the idle entries the one goes that was never used, else the one unused for longest",
			NeighbourConfig{EntriesMax: 3}, `
			@0   create A m1
			     create B m2
			     create C m3
			@1   lookup C f1  -> m3
			@2   lookup B f1  -> m2
			@3   lookup A f1  -> m1
			@10  request A m1 Z
			     request B m2 Z
			     request C m3 Z
			     lookup D f2  -> refused
			@40  tick         -> nothing
			     create D m4
			     lookup A f3  -> m1
			     lookup B f3  -> m2
			     lookup C f3  -> queued ask
			     lookup D f4  -> refused
		`},
		{"FramesMax bounds all queues together; what is not yet taken back counts",
			NeighbourConfig{FramesMax: 3, QueueMax: 2}, `
			@0  lookup A f1  -> queued ask
			    lookup B f2  -> queued ask
			    lookup A f3  -> queued
			    lookup B f4  -> refused
			    lookup C f5  -> refused ask
			    learn A m1
			    lookup B f6  -> refused
			    take         -> f1>m1 f3>m1
			    lookup B f7  -> queued
			    lookup B f8  -> queued
			    lookup B f9  -> refused
			    dropped      -> f2
			    lookup B f9  -> queued
			    dropped      -> f7
			    learn C m3
			    take         -> nothing
			    lookup C f10 -> m3
			    count FramesFull -> 4
		`},
		{"clear gives the frames back", NeighbourConfig{}, `
			@0  lookup A f1 -> queued ask
			    create B m2
			    clear
			    dropped     -> f1
			    deadline    -> never
			    lookup B f2 -> queued ask
			    count Entries -> 1
		`},
		{"a frame that was released keeps its MAC though the entry goes before it is taken",
			NeighbourConfig{}, `
			@0  lookup A f1 -> queued ask
			    learn A m1
			    learn A m2
			    clear
			    take        -> f1>m1
		`},
		{"nothing is learned of, or looked up for, what is no station", NeighbourConfig{}, `
			@0  create A all
			    create A zero
			    create none m1
			    create group m1
			    create all m1
			    deadline        -> never
			    lookup none f1  -> refused
			    lookup group f1 -> refused
			    lookup all f1   -> refused
			    create A m1
			    learn A all
			    lookup A f1     -> m1
		`},
		{"With Doubt, a host that claims a known station's address is believed only when that does " +
			"not answer; what it says meanwhile, and however often, brings one question a second",
			NeighbourConfig{Doubt: true}, `
			@0    create A m1
			@0.5  reply A m2
			      lookup A f1   -> m1
			      tick          -> nothing
			@5    reply A m2
			      lookup A f1   -> m1
			      tick          -> A@m1
			@5.1  reply A m2
			      reply A m1
			      reply A m2
			      tick          -> nothing
			      lookup A f1   -> m1
			@10   create A m3
			      tick          -> A@m1
			@10.9 reply A m3
			      lookup A f1   -> m1
			@11   tick          -> A@m1
			@11.1 reply A m3
			      lookup A f1   -> m3
			    count Moved -> 1
			    count Doubted -> 6
		`},
		{"the old station is gone, and the newcomer silent: it is found by broadcast",
			NeighbourConfig{Doubt: true}, `
			@0    create A m1
			@5    reply A m2
			      lookup A f1   -> m1
			      tick          -> A@m1
			@6    tick          -> A@m1
			@7    tick          -> A@m1
			@8    tick          -> A@m1
			@9    tick          -> nothing
			      lookup A f1   -> queued ask
			@9.1  reply A m2
			      take          -> f1>m2
		`},
	} {
		t.Run(c.what, func(t *testing.T) { runNeighbours(t, c.cfg, c.script) })
	}
}

// What a sender says of itself updates its entry, be it a reply, a request to us or to another, or
// of an operation unknown.
// req: 826-1
func TestNeighbourMerge(t *testing.T) {
	n := runNeighbours(t, NeighbourConfig{}, `
		@0  request A m1 us -> answer
		    lookup A f1     -> m1
		    request A m2 B  -> silence
		    lookup A f1     -> m2
		    request A m3 A  -> silence
		    lookup A f1     -> m3
		    reply A m4      -> silence
		    lookup A f1     -> m4
		    lookup B f2     -> queued ask
		    request B m5 C  -> silence
		    take            -> f2>m5
	`)
	require.Equal(t, uint64(3), n.Stats().Moved)

	inverse := ARP{Op: 9, SenderIP: ip4(10, 0, 0, 'A'), SenderMAC: MAC{2, 5: 6}, TargetIP: ourIP}
	_, answer, d := n.Input(0, &inverse, ourIP, ourMAC)
	require.False(t, answer)
	require.Equal(t, DropNone, d)
	got, _, _, _ := n.Lookup(0, inverse.SenderIP, 0)
	require.Equal(t, inverse.SenderMAC, got)
}

func TestNeighbourConfigPanics(t *testing.T) {
	for _, cfg := range []NeighbourConfig{
		{EntriesMax: -1}, {EntriesMax: 1<<20 + 1}, {QueueMax: -1}, {QueueMax: 1 << 16}, {FramesMax: -1},
		{FramesMax: 1<<20 + 1},
		{RetriesMax: -1}, {RetriesMax: 101}, {RetryNs: -1}, {ReachableNs: -1},
		{ReachableNs: 5, RetryNs: 6},
	} {
		require.Panics(t, func() { NewNeighbours[int](cfg) }, "%+v", cfg)
	}
}

func TestNeighbourEntryIsACacheLine(t *testing.T) {
	require.Equal(t, uintptr(64), unsafe.Sizeof(neighbour{}))
}

func TestNeighbourAllocs(t *testing.T) {
	n := NewNeighbours[uint64](NeighbourConfig{EntriesMax: 8})
	known := ip4(10, 0, 0, 2)
	n.Learn(0, known, MAC{2}, true)
	now := int64(0)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now += 1e8
		n.Lookup(now, known, 1)
		for k := range byte(20) { // more than there is room for, some answered
			n.Lookup(now, ip4(10, 0, 1, k), uint64(k))
			n.Learn(now, ip4(10, 0, 1, 2*k), MAC{2, 5: k}, k&1 == 0)
		}
		for ok := true; ok; {
			_, _, ok = n.Tick(now)
		}
		for ok := true; ok; {
			_, _, ok = n.Take()
		}
		for ok := true; ok; {
			_, ok = n.TakeDropped()
		}
	}))
	require.NotZero(t, n.Stats().Evicted+n.Stats().Unreachable)
}
