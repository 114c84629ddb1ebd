package ddp

import (
	"testing"

	"github.com/rnicd/rnicd/mem"
	"github.com/stretchr/testify/require"
)

// judge is a ULP that notes what it was asked, and answers as a test wants.
type judge struct {
	asked   []Header
	payload []int
	need    mem.Access
	refuse  bool
	post    func()
}

func (j *judge) judge(h *Header, payload int) (mem.Access, bool) {
	j.asked, j.payload = append(j.asked, *h), append(j.payload, payload)
	if j.post != nil {
		j.post()
	}
	return j.need, !j.refuse
}

// judged is a sink whose ULP is j.
type judged struct {
	*sink
	j *judge
}

func newJudged(t *testing.T) (*judged, *judge) {
	k := &judged{newSink(t, 8), &judge{need: mem.RemoteWrite}}
	return k, k.j
}

// place offers the next segment to the Stream and, in between, its header to the ULP.
func (k *judged) place(h Header, payload []byte) *Error {
	b := ulpdu(h, payload)
	start, end := k.span(len(b))
	return k.offer(start, end, b)
}

func (k *judged) offer(start, end uint64, b []byte) *Error {
	h, err := k.stream.Begin(start, end, len(b), [][]byte{b})
	if h == nil {
		return err
	}
	need, ok := k.j.judge(h, len(b)-h.Len())
	if !ok {
		k.stream.Disable()
		return nil
	}
	return k.stream.Place(start, end, len(b), [][]byte{b}, need)
}

// The ULP says which right a Tagged range must have.
func TestULPNamesTheRight(t *testing.T) {
	for _, c := range []struct {
		has, need mem.Access
		placed    bool
	}{
		{mem.LocalWrite, mem.RemoteWrite, false}, {mem.LocalWrite, mem.LocalWrite, true},
		{mem.RemoteWrite, mem.RemoteWrite, true},
	} {
		k, j := newJudged(t)
		mr := k.registerIn(k.domain, 10, mem.RegionOptions{Access: c.has})
		j.need = c.need
		err := k.place(tagged(mr, 2, true), []byte("four"))
		if !c.placed {
			require.Equal(t, [2]uint8{TypeTagged, CodeInvalidSTag}, [2]uint8{err.Type, err.Code})
			continue
		}
		require.Nil(t, err)
		require.Equal(t, "\x00\x00four", string(mr.Bytes()[:6]))
		require.Equal(t, []Header{tagged(mr, 2, true)}, j.asked)
		require.Equal(t, []int{4}, j.payload)
	}
}

// A segment that the ULP refuses is not placed, and nothing after it is; the Stream has no error
// of its own to report.
func TestULPRefuses(t *testing.T) {
	for _, h := range []func(mr *mem.MemoryRegion) Header{
		func(mr *mem.MemoryRegion) Header { return tagged(mr, 0, true) },
		func(*mem.MemoryRegion) Header { return untagged(0, 1, 0, true) },
		// asked before the MSN is looked at
		func(*mem.MemoryRegion) Header { return untagged(0, 99, 0, true) },
		func(*mem.MemoryRegion) Header { return untagged(1, 1, 0, true) }, // and before the queue
	} {
		k, j := newJudged(t)
		mr, inbox := k.register(10), k.post(0, 1, 10)
		j.refuse = true
		require.Nil(t, k.place(h(mr), []byte("no")))
		j.refuse = false
		require.Nil(t, k.place(tagged(mr, 0, true), []byte("no")))
		require.Nil(t, k.stream.Err())
		require.Len(t, j.asked, 1, "nothing is judged after a refusal")
		require.Equal(t, make([]byte, 10), mr.Bytes())
		require.Equal(t, make([]byte, 13), inbox.Bytes())
		var d Delivered
		require.False(t, k.stream.Deliver(k.pos, &d))
	}
}

// What DDP finds first: a header cut short, another version, a queue number that cannot be. The ULP
// does not see these.
func TestErrorsBeforeTheULP(t *testing.T) {
	for want, h := range map[[2]uint8]Header{
		{TypeTagged, CodeTaggedVersion}:     {Tagged: true, Last: true, Version: 2},
		{TypeUntagged, CodeUntaggedVersion}: {Last: true, Version: 2, MSN: 1},
		{TypeUntagged, CodeInvalidQN}:       {Last: true, Version: testDV, QN: 3, MSN: 1},
	} {
		k, j := newJudged(t)
		err := k.place(h, nil)
		require.Equal(t, want, [2]uint8{err.Type, err.Code})
		require.Empty(t, j.asked)
	}
	k, j := newJudged(t)
	require.True(t, k.offer(0, 10, []byte{0xc1, 0, 0, 0}).Truncated)
	require.Empty(t, j.asked)
}
