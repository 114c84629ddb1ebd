package stream

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const emss = 1448 // of Ethernet, IPv4, with timestamps

// Corked, only full segments leave, and the rest when the cork is out, or after 200 ms.
//
// req: 9293-MUST-60
func TestCork(t *testing.T) {
	v, a, b := newVirtualPair(t, 0, nil)
	v.sizes(0)
	require.NoError(t, a.SetCork(true))
	for range 5 {
		v.write(a, strings.Repeat("x", 100))
		v.pass(10 * time.Millisecond)
	}
	require.Empty(t, v.sizes(0))
	require.NoError(t, a.SetCork(false))
	v.pass(0)
	require.Equal(t, []int{500}, v.sizes(0))

	require.NoError(t, a.SetCork(true))
	v.write(a, strings.Repeat("x", 2*emss+300)) // full ones do not wait
	v.pass(0)
	require.Equal(t, []int{emss, emss}, v.sizes(0))
	v.write(a, strings.Repeat("x", emss-300)) // the third is full now
	v.pass(0)
	require.Equal(t, []int{emss}, v.sizes(0))

	v.pass(time.Hour) // nothing waits, no timer runs
	require.Equal(t, 3*emss+500, len(v.read(b)))
	v.write(a, "abc")
	begin := v.now
	v.pass(corkMax - time.Millisecond)
	require.Empty(t, v.sizes(0))
	require.Equal(t, uint64(3), v.info(a).Unsent)
	v.until("it is there", func() bool { return b.Unread() == 3 })
	require.Equal(t, begin+int64(corkMax), v.now)
	require.Equal(t, []int{3}, v.sizes(0))

	v.write(a, "defg") // and the next ones wait as long
	v.pass(corkMax - time.Millisecond)
	require.Empty(t, v.sizes(0))
	require.NoError(t, a.CloseWrite(), "nothing more can come")
	v.pass(0)
	require.Equal(t, []int{4}, v.sizes(0))
	require.Equal(t, "abcdefg", v.read(b))
}

// WriteMore has what it wrote wait for the Write that it promised.
//
// req: 9293-MAY-16
func TestWriteMore(t *testing.T) {
	v, a, b := newVirtualPair(t, 0, nil)
	more := func(text string) {
		n := must(a.WriteMore([]byte(text)))(t)
		require.Equal(t, len(text), n)
		v.pass(time.Millisecond)
	}
	v.sizes(0)
	more("head ")
	more("and ")
	require.Empty(t, v.sizes(0))
	v.write(a, "body")
	v.pass(0)
	require.Equal(t, []int{len("head and body")}, v.sizes(0))
	require.Equal(t, "head and body", v.read(b))
	v.write(a, "alone")
	v.pass(0)
	require.Equal(t, []int{5}, v.sizes(0))
	more("a promise")
	v.write(a, "") // nothing came of it
	v.pass(0)
	require.Equal(t, []int{9}, v.sizes(0))
	more("another")
	require.NoError(t, a.SetCork(true))
	v.write(a, "!") // the promise is kept, the cork is in
	v.pass(time.Millisecond)
	require.Empty(t, v.sizes(0))
	n := must(a.ReadFrom(strings.NewReader("?")))(t)
	require.Equal(t, int64(1), n)
	require.NoError(t, a.SetCork(false))
	v.pass(0)
	require.Equal(t, []int{9}, v.sizes(0))
}

// A send buffer smaller than a segment is emptied although the segment is not full: the writer
// waits for room.
func TestCorkWithASmallSendBuffer(t *testing.T) {
	v, a, b := newVirtualPair(t, 9000, nil, Options{SendBuffer: sendBufferMin})
	require.NoError(t, a.SetCork(true))
	begin := v.now
	v.during(func() { must(a.Write(make([]byte, 10*sendBufferMin)))(t) })
	require.Equal(t, begin, v.now, "no time passed")
	v.pass(0)
	full := 0
	for n := 1; n > 0; full += n {
		n, _ = a.TryWrite(make([]byte, 1)) // nobody waits: held back
		v.pass(0)
	}
	v.during(func() { // until somebody does
		must(a.Write([]byte("x")))(t)
	})
	require.Equal(t, begin, v.now, "no time passed")
	require.NoError(t, a.Close()) // a FIN takes the cork out
	v.until("all", func() bool { return b.Unread() == 10*sendBufferMin+full+1 })
	require.Less(t, v.now-begin, int64(corkMax))
	v.read(b)
	require.NoError(t, b.Close())
	v.until("closed", dead(a))
}

// SetNoDelay sends what is held back, once, as tcp(7) says of TCP_NODELAY and TCP_CORK; the cork
// stays in.
func TestNoDelayTakesTheCorkOutOnce(t *testing.T) {
	v, a, b := newVirtualPair(t, 0, nil, Options{Nagle: true})
	v.sizes(0)
	require.NoError(t, a.SetCork(true))
	require.NoError(t, a.SetNoDelay(true)) // nothing waits: nothing goes
	v.pass(0)
	v.write(a, "abc")
	v.pass(time.Millisecond)
	require.Empty(t, v.sizes(0))
	require.NoError(t, a.SetNoDelay(false))
	v.pass(time.Millisecond)
	require.Empty(t, v.sizes(0))
	require.NoError(t, a.SetNoDelay(true))
	v.pass(0)
	require.Equal(t, []int{3}, v.sizes(0))
	v.write(a, "defg")
	v.pass(corkMax - time.Millisecond)
	require.Empty(t, v.sizes(0), "held as before")
	must(a.WriteMore([]byte("h")))(t)
	require.NoError(t, a.SetNoDelay(true))
	v.pass(0)
	require.Equal(t, []int{5}, v.sizes(0))
	require.Equal(t, "abcdefgh", v.read(b))
}

// What WriteMore holds back goes with the next acknowledgment of what was sent before; where none
// is to come it waits as long as under a cork, and under one it waits for that.
func TestWriteMoreGoesWithAnAcknowledgment(t *testing.T) {
	v, a, b := newVirtualPair(t, 0, nil)
	more := func(text string) { must(a.WriteMore([]byte(text)))(t) }
	v.write(a, "question")
	v.pass(0)
	v.write(b, "answer") // from now on b's acknowledgments are delayed
	v.pass(time.Second)
	v.read(b)
	v.sizes(0)
	begin := v.now
	v.write(a, "sent")
	v.pass(0)
	more("held")
	v.until("it is there", func() bool { return b.Unread() == 8 })
	require.Less(t, v.now-begin, int64(corkMax)/2)
	require.Equal(t, []int{4, 4}, v.sizes(0))

	v.pass(time.Second)
	v.sizes(0)
	begin = v.now
	more("alone")
	v.until("it is there", func() bool { return b.Unread() == 13 })
	require.Equal(t, begin+int64(corkMax), v.now)
	v.pass(time.Second)
	v.sizes(0)

	v.write(a, "sent")
	v.pass(0)
	require.NoError(t, a.SetCork(true))
	more("held")
	v.pass(corkMax - 10*time.Millisecond)
	require.Equal(t, []int{4}, v.sizes(0))
}

// What was written before the cork, or before the WriteMore, is not held back by it, though the
// Poller has not seen it yet.
func TestCorkHoldsNothingOfBefore(t *testing.T) {
	v, a, _ := newVirtualPair(t, 0, nil)
	v.sizes(0)
	v.write(a, "before")
	require.NoError(t, a.SetCork(true))
	v.pass(0)
	require.Equal(t, []int{6}, v.sizes(0))
	v.write(a, "after")
	v.pass(corkMax / 2)
	require.Empty(t, v.sizes(0))
	require.NoError(t, a.SetCork(false))
	v.pass(0)
	require.Equal(t, []int{5}, v.sizes(0))
	v.write(a, "before")
	must(a.WriteMore([]byte("more")))(t)
	v.pass(0)
	require.Equal(t, []int{10}, v.sizes(0))
}

// A small segment waits until all before it are acknowledged, unless SetNoDelay says otherwise.
//
// req: 9293-SHLD-7, 9293-MUST-17
func TestNagle(t *testing.T) {
	v, a, b := newVirtualPair(t, 0, nil, Options{Nagle: true})
	mute := true
	v.hosts[1].nic.lose = func(sentFrame) bool { return mute }
	v.sizes(0)
	for range 3 {
		v.write(a, "x")
		v.pass(0)
	}
	require.Equal(t, []int{1}, v.sizes(0))
	mute = false
	v.until("the others go with the ACK", func() bool { return b.Unread() == 3 })
	mute = true
	require.NoError(t, a.SetNoDelay(true))
	v.sizes(0)
	for range 3 {
		v.write(a, "x")
		v.pass(0)
	}
	require.Equal(t, []int{1, 1, 1}, v.sizes(0))
	mute = false
}
