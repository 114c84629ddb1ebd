package engine

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// While several goroutines send events, each about an object of its own, and the program reads,
// some objects go. No event about one that went is read afterwards; those of the others come all,
// in order.
func TestRemoveLeavesTheOthersInOrder(t *testing.T) {
	const objects, going, events = 6, 3, 3000
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	p := newProgram(t)
	mine, theirs := p.channel()
	ch := p.engine.channels.open(theirs)
	var about [objects]subject
	var senders sync.WaitGroup
	for i := range about {
		about[i].cookie = uint64(i)
		senders.Go(func() {
			for n := range uint64(events) {
				about[i].tell(ch, octets(&[2]uint64{uint64(i), n}))
			}
		})
	}
	var next [objects]uint64
	gone := 0
	goes := func() {
		about[gone].leave(ch)
		ch.remove(mine, uint64(gone))
		gone++
	}
	for next[objects-1] < events || next[objects-2] < events || next[going] < events {
		if gone < going && next[gone] > 10 && rng.IntN(200) == 0 {
			goes()
		}
		b := receive(mine)
		if b == nil {
			runtime.Gosched()
			continue
		}
		i := cookieOf(b)
		require.GreaterOrEqual(t, i, uint64(gone), "an event about an object that has gone")
		require.Equal(t, next[i], cookieOf(b[8:]), "of object %d", i)
		next[i]++
	}
	senders.Wait()
	for gone < going {
		goes()
	}
	require.Nil(t, receive(mine))
	until(func() bool { return !ch.queued.Load() })
	require.Nil(t, receive(mine))
}

// An id's unread events move with it, also those that have no room in the socket.
func TestMigrateMovesAll(t *testing.T) {
	p := newProgram(t)
	from, oldEnd := p.channel()
	to, newEnd := p.channel()
	first, second := p.do(ring.CMCreate, uint64(oldEnd), 1)[0],
		p.do(ring.CMCreate, uint64(oldEnd), 2)[0]
	const events = 1000
	for range events {
		p.do(ring.CMRoute, first)
		p.do(ring.CMRoute, second)
	}
	p.do(ring.CMMigrate, first, uint64(newEnd), uint64(from))
	p.do(ring.CMRoute, first)
	for fd, want := range map[int][2]uint64{to: {1, events + 1}, from: {2, events}} {
		for n := range want[1] {
			var b []byte
			until(func() bool { b = receive(fd); return b != nil })
			require.Equal(t, want[0], cookieOf(b), "event %d", n)
		}
		require.Nil(t, receive(fd))
	}
}

// A program that asks for any completion instead of a solicited one, just when that comes, is told.
func TestArmedMoreMeanwhileIsTold(t *testing.T) {
	const rounds = 100000
	p := newProgram(t)
	mine, theirs := p.channel()
	handle := p.do(ring.CreateCQ, 4, uint64(theirs), 42, p.ctx)[0]
	q := must(find[*cq](&p.engine.objects, handle))(t)
	var turn atomic.Uint32
	go func() {
		for i := range uint32(rounds) {
			for turn.Load() != 2*i+1 {
				runtime.Gosched()
			}
			atomic.CompareAndSwapUint32(&q.head.Armed, ring.ArmedSolicited, ring.ArmedAny)
			turn.Store(2*i + 2)
		}
	}()
	for i := range uint32(rounds) {
		atomic.StoreUint32(&q.head.Armed, ring.ArmedSolicited)
		turn.Store(2*i + 1)
		for range i % 128 { // so that the two meet at each step
			turn.Load()
		}
		q.wake(true)
		for turn.Load() != 2*i+2 {
			runtime.Gosched()
		}
		require.EqualValues(t, ring.Disarmed, atomic.LoadUint32(&q.head.Armed), "round %d", i)
		require.NotNil(t, receive(mine), "round %d", i)
		require.Nil(t, receive(mine), "round %d: told twice", i)
	}
	_, errno := p.call(ring.Forget, nil, 1<<40, uint64(mine), 42)
	require.Equal(t, syscall.EINVAL, errno, "no channel")
}

// Whatever is told, read, moved from one channel to the other and forgotten, in whichever order,
// a reader finds the events of each object in their order, where they belong, and none of an
// object that has gone; while another goroutine tells of an object of its own. An octet is an
// object, and what is done.
func FuzzEventsAgainstDestroy(f *testing.F) {
	f.Add([]byte{0x00, 0x01, 0x02, 0x11, 0x20, 0x31, 0x30})
	f.Add([]byte("\x40\x41\x42\x43\x10\x31\x22\x32\x10\x20\x30\x31"))
	f.Fuzz(func(t *testing.T, data []byte) {
		const objects = 8
		const others = objects // the other goroutine's
		var ends [2]int
		var chs [2]*channel
		for i := range chs {
			fds := must(unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0))(t)
			ends[i], chs[i] = fds[0], &channel{fd: fds[1]}
			chs[i].refs.Store(1)
			defer unix.Close(fds[0])
			defer chs[i].release()
		}
		var about [objects + 1]subject
		var at [objects + 1]int // channel
		var told, read [objects + 1]uint64
		for i := range about {
			about[i].cookie = uint64(i)
		}
		tell := func(i int) {
			about[i].tell(chs[at[i]], octets(&[2]uint64{uint64(i), told[i]}))
			told[i]++
		}
		var other sync.WaitGroup
		other.Go(func() {
			for range 4 * len(data) {
				tell(others)
			}
		})
		take := func(ch int) bool {
			b := receive(ends[ch])
			if b == nil {
				return false
			}
			i := cookieOf(b)
			require.False(t, about[i].gone, "object %d", i)
			require.Equal(t, at[i], ch, "object %d", i)
			require.Equal(t, read[i], cookieOf(b[8:]), "object %d", i)
			read[i]++
			return true
		}
		for _, octet := range data {
			i := int(octet) % objects
			switch octet >> 4 % 8 {
			case 0:
				tell(i)
			case 1:
				take(at[i])
			case 2: // as cmID.migrate
				from := at[i]
				at[i] = 1 - from
				for _, b := range chs[from].remove(ends[from], uint64(i)) {
					chs[at[i]].send(b)
				}
			case 3:
				about[i].leave(chs[0], chs[1])
				chs[at[i]].remove(ends[at[i]], uint64(i))
			case 4:
				for range 400 { // more than have room in the socket
					tell(i)
				}
			}
		}
		other.Wait()
		for i := range about {
			for !about[i].gone && read[i] < told[i] {
				if !take(at[i]) {
					runtime.Gosched()
				}
			}
		}
	})
}
