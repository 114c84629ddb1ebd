package rsocket

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/testnic"
	"github.com/rnicd/rnicd/rnic"
)

// says has the peer send messages of n octets, and c read them.
func (p *raw) says(c *Conn, messages, n int) {
	p.t.Helper()
	for range messages {
		p.say(kindData, uint32(n))
		for left := n; left > 0; {
			k := must(c.Read(make([]byte, left)))(p.t)
			left -= k
		}
	}
}

// grants are the credits of all grants in front of a message of data, which c writes now.
func (p *raw) grants(c *Conn) (credits []int) {
	p.t.Helper()
	must(c.Write([]byte("x")))(p.t)
	for {
		k, value := p.hears()
		if k == kindData {
			return credits
		}
		require.Equal(p.t, kindGrant, k)
		credits = append(credits, int(value))
	}
}

// entry is what c has written into its peer's list at i.
func (p *raw) entry(i int) entry {
	b := p.m.Bytes()[rawBuffers*messageLen+i*entryLen:][:entryLen]
	e := parseEntry(b, p.order)
	clear(b)
	return e
}

// Memory is granted as soon as half of it was read, messages likewise; late ones as soon as the
// peer has used up what it has, except for the credits that a sender forgoes, and not before. Each
// half has one entry, one after the other in the peer's list, however long that is.
func TestGrants(t *testing.T) {
	devs := testnic.Wired(t)
	connect := func(t *testing.T, late bool) (p *raw, c *Conn) {
		p = newRaw(t, devs[0], rnic.ConnParam{})
		p.gives.list.length = 3
		c = p.connect(devs[1], Options{ReceiveBuffer: 4096, Credits: 16, LateGrants: late})
		p.says(c, 1, 1) // a Responder says nothing before
		require.Equal(t, []int{16}, p.grants(c))
		half := func(i uint64) entry { return entry{p.theirs.ring.to + 2048*i, p.theirs.ring.stag, 2048} }
		require.Equal(t, half(1), p.entry(1))
		t.Cleanup(func() {
			require.Equal(t, entry{}, p.entry(1))
			require.Equal(t, half(0), p.entry(2))
			require.Equal(t, half(1), p.entry(0))
		})
		return p, c
	}
	t.Run("memory", func(t *testing.T) {
		p, c := connect(t, false)
		p.says(c, 1, 2046)
		require.Empty(t, p.grants(c))
		p.says(c, 1, 1)
		require.Equal(t, []int{19}, p.grants(c))
		p.says(c, 1, 2048)
		require.Equal(t, []int{20}, p.grants(c))
	})
	t.Run("late memory", func(t *testing.T) {
		p, c := connect(t, true)
		p.says(c, 2, 2047)
		require.Empty(t, p.grants(c))
		p.says(c, 1, 1)
		require.Equal(t, []int{19}, p.grants(c)) // before the fourth message was read
		p.says(c, 1, 2048)
		require.Equal(t, []int{20}, p.grants(c))
	})
	t.Run("late memory, counters begin again", func(t *testing.T) {
		p, c := connect(t, true)
		c.mu.Lock()
		c.in.come, c.in.done, c.in.told = 1<<16-2, 1<<16-2, 1<<16-2
		c.mu.Unlock()
		p.says(c, 2, 2047)
		require.Empty(t, p.grants(c))
		p.says(c, 1, 1)
		p.says(c, 1, 2048)
		require.Equal(t, []int{16, 17}, p.grants(c))
	})
	t.Run("messages", func(t *testing.T) {
		p, c := connect(t, false)
		p.says(c, 6, 1)
		require.Empty(t, p.grants(c))
		p.says(c, 1, 1)
		require.Equal(t, []int{24}, p.grants(c))
		p.says(c, 7, 1)
		require.Empty(t, p.grants(c))
		p.says(c, 1, 1)
		require.Equal(t, []int{32}, p.grants(c))
		p.says(c, 2, 2040)
		require.Len(t, p.grants(c), 2)
	})
	t.Run("late messages", func(t *testing.T) {
		p, c := connect(t, true)
		p.says(c, 10, 1)
		require.Empty(t, p.grants(c))
		p.says(c, 1, 1)
		require.Equal(t, []int{27}, p.grants(c))
		p.says(c, 10, 1)
		require.Empty(t, p.grants(c))
		p.says(c, 1, 1)
		require.Equal(t, []int{38}, p.grants(c))
		p.says(c, 2, 2036)
		require.Empty(t, p.grants(c))
		p.says(c, 1, 1)
		p.says(c, 1, 2048)
		require.Len(t, p.grants(c), 2)
	})
}

// transfers is how many octets c can write at once, in messages of size.
func transfers(c *Conn, size int) (total int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := 1; n > 0; total += n {
		n = c.transfer(make([]byte, size))
	}
	return total
}

// A sender forgoes four of the peer's credits, of few a quarter, and goes on as far as it is
// granted others, whatever has become of its counters.
func TestCredits(t *testing.T) {
	devs := testnic.Wired(t)
	for credits, want := range map[uint16]int{1: 1, 3: 3, 4: 3, 8: 6, 15: 12, 16: 12, 40: 36} {
		t.Run(fmt.Sprint(credits), func(t *testing.T) {
			p := newRaw(t, devs[0], rnic.ConnParam{})
			p.gives.credits = credits
			c := p.connect(devs[1], Options{})
			p.says(c, 1, 1)
			require.Equal(t, want, transfers(c, 1))
			p.say(kindGrant, uint32(credits)+5)
			p.says(c, 1, 1)
			require.Equal(t, 5, transfers(c, 1))
		})
	}
}

// An entry is looked at when the message after it says that it must be there, not before, and once.
func TestEntries(t *testing.T) {
	devs := testnic.Wired(t)
	p := newRaw(t, devs[0], rnic.ConnParam{})
	c := p.connect(devs[1], Options{})
	at := 0
	write := func(length uint32) { // into the list of c, where it looks next
		b := make([]byte, entryLen)
		entry{p.data().ring.to, p.m.STag(), length}.put(b, p.order)
		list := p.theirs.list
		require.NoError(t, errOf(p.qp.PostSend(rnic.WorkRequest{Op: rnic.OpWrite, Inline: b,
			RemoteSTag: list.stag, RemoteOffset: list.to + uint64((1+at)%listLen*entryLen)})))
		at++
	}
	granted := func(read int) int { // so many messages were read, says the peer
		p.say(kindGrant, uint32(int(p.gives.credits)+read))
		p.says(c, 1, 1)
		return transfers(c, 500)
	}
	p.says(c, 1, 1)
	require.Equal(t, 1000, transfers(c, 500)) // two messages, and the half is full
	write(500)
	// the second half's, which is owed from the beginning: the third message
	require.Equal(t, 500, granted(0))
	write(1500) // the first half's, while nobody has read that
	require.Zero(t, granted(0))
	require.Zero(t, granted(1))
	require.Equal(t, 1500, granted(2)) // messages 4 to 6
	// the second half was read, and its entry is still under way: that of the last time is gone
	require.Zero(t, granted(3))
	require.Zero(t, granted(3))
	write(1000)
	require.Equal(t, 1000, granted(3))
	write(500)
	require.Zero(t, granted(5))
	require.Equal(t, 500, granted(6))
}

// A transfer leaves slots of the send queue to a grant, and a grant leaves two to goodbyes.
func TestSlots(t *testing.T) {
	devs := testnic.Wired(t)
	for slots, want := range map[int]struct {
		grants, octets int
	}{3: {0, 0}, 4: {1, 0}, 5: {1, 0}, 6: {1, 0}, 8: {1, 1}} {
		p := newRaw(t, devs[0], rnic.ConnParam{})
		c := p.connect(devs[1], Options{ReceiveBuffer: 4096})
		p.says(c, 1, 1)
		require.Len(t, p.grants(c), 1)
		c.mu.Lock()
		c.out.slots = slots
		c.in.freed, c.in.granted = c.in.half, 0
		c.grant()
		granted, octets := c.in.granted, c.transfer([]byte("x"))
		c.mu.Unlock()
		require.Equal(t, want.grants*c.in.half, granted, slots)
		require.Equal(t, want.octets, octets, slots)
	}
}
