package stream

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// told counts the calls of a hook, on the goroutine that turns the Pollers.
type told struct{ readable, writable int }

func (n *told) hook(r Readiness) {
	if r&Readable != 0 {
		n.readable++
	}
	if r&Writable != 0 {
		n.writable++
	}
}

// The hook is called once for each look that found nothing, and not otherwise.
func TestNotifyReadable(t *testing.T) {
	v, a, b := newVirtualPair(t, 0, nil)
	var n told
	b.SetNotify(n.hook)
	v.write(a, "nobody has looked")
	v.pass(time.Second)
	require.Equal(t, told{}, n)
	require.Equal(t, Readable|Writable, b.Ready(Readable|Writable))
	v.read(b)

	require.Equal(t, Writable, b.Ready(Readable|Writable)) // armed
	for range 3 {
		v.write(a, "more")
		v.pass(time.Second)
		require.Equal(t, told{readable: 1}, n, "once")
	}
	require.Equal(t, Readable, b.Ready(Readable))
	require.Equal(t, "moremoremore", v.read(b))
	v.write(a, "not armed")
	v.pass(time.Second)
	require.Equal(t, told{readable: 1}, n)
	v.read(b)
	_, err := b.TryRead(make([]byte, 1))
	wantOp(t, err, "read", syscall.EAGAIN)
	var ne net.Error
	require.ErrorAs(t, err, &ne)
	require.True(t, ne.Timeout())
	v.write(a, "armed")
	v.pass(time.Second)
	require.Equal(t, told{readable: 2}, n)
	require.Equal(t, "armed", v.read(b))

	require.Zero(t, b.Ready(Readable))
	require.NoError(t, a.CloseWrite())
	v.pass(time.Second)
	require.Equal(t, told{readable: 3}, n, "the end is something to read")
	require.Equal(t, Readable, b.Ready(Readable))
	require.Equal(t, io.EOF, errOf(b.TryRead(make([]byte, 1))))
	b.SetNotify(nil)
	require.NoError(t, abort(a))
	v.until("reset", dead(b))
	require.Equal(t, 3, n.readable)
}

func TestNotifyWritable(t *testing.T) {
	v := newVirtual(t, 0, nil)
	a, b := v.pair(Options{SendBuffer: 16 << 10},
		Options{ReceiveWindow: 32 << 10, ReceiveWindowMax: 32 << 10})
	var n told
	a.SetNotify(n.hook)
	fill := func() (total int) {
		for quiet := false; ; {
			k, err := a.TryWrite(make([]byte, 5000))
			if err == nil {
				total, quiet = total+k, false
				continue
			}
			wantOp(t, err, "write", syscall.EAGAIN)
			if quiet {
				return total
			}
			v.pass(time.Second) // so much goes as the window admits
			quiet = true
		}
	}
	sent := fill()
	require.GreaterOrEqual(t, sent, 48<<10)
	require.Zero(t, a.Ready(Writable))
	before := n.writable
	for range 3 {
		for b.Unread() > 0 {
			sent -= len(v.read(b))
			v.pass(time.Millisecond)
		}
		require.Equal(t, before+1, n.writable, "once")
	}
	require.Zero(t, sent)
	require.Equal(t, Writable, a.Ready(Writable))

	fill()
	before = n.writable
	require.NoError(t, a.SetWriteBuffer(1<<20))
	v.pass(0)
	require.Equal(t, before+1, n.writable, "a larger buffer is room")

	v.hosts[1].nic.lose = func(f sentFrame) bool { return true }
	fill()
	require.Zero(t, a.Ready(Readable|Writable))
	before = n.writable
	v.until("given up", dead(a))
	require.Equal(t, told{readable: 1, writable: before + 1}, n,
		"an error is something to hear of, either way")
	require.Equal(t, Readable|Writable, a.Ready(Readable|Writable))
	wantOp(t, errOf(a.TryWrite([]byte("x"))), "write", syscall.ETIMEDOUT)
}

// While another goroutine is within Read or Write there is nothing to be had without waiting.
func TestTryWhileAnotherWaits(t *testing.T) {
	l, a, _ := newPair(t, labConfig{})
	fillUp(t, a)
	reading := in(func() error { return readOne(a) })
	writing := in(func() error { _, err := a.Write(make([]byte, 1<<20)); return err })
	l.until("both wait", func() bool { return a.u.reader.waiting.Load() && a.u.writer.waiting.Load() })
	wantOp(t, errOf(a.TryRead(make([]byte, 1))), "read", syscall.EAGAIN)
	wantOp(t, errOf(a.TryWrite(make([]byte, 1))), "write", syscall.EAGAIN)
	require.Zero(t, a.Ready(Writable))
	require.NoError(t, abort(a))
	wantOp(t, l.result(reading), "read", net.ErrClosed)
	wantOp(t, l.result(writing), "write", net.ErrClosed)
	require.Equal(t, Readable|Writable, a.Ready(Readable|Writable), "nothing blocks any more")
	wantOp(t, errOf(a.TryRead(make([]byte, 1))), "read", net.ErrClosed)
}

// stuck is a Reader that says when it is read, and fails when it is told to.
type stuck struct{ reading, fail chan struct{} }

func (s stuck) Read([]byte) (int, error) {
	close(s.reading)
	<-s.fail
	return 0, io.ErrUnexpectedEOF
}

// Who finds another call under way hears of its end, also when that gave the Poller nothing to do.
func TestNotifyWhenAnotherHasLeft(t *testing.T) {
	v, a, _ := newVirtualPair(t, 0, nil)
	var n told
	a.SetNotify(n.hook)
	for name, look := range map[string]func(){
		"TryWrite": func() { wantOp(t, errOf(a.TryWrite([]byte("x"))), "write", syscall.EAGAIN) },
		"TryWrite of nothing": func() {
			wantOp(t, errOf(a.TryWrite(nil)), "write", syscall.EAGAIN)
		},
		"Ready": func() { require.Zero(t, a.Ready(Writable)) },
	} {
		n = told{}
		s := stuck{make(chan struct{}), make(chan struct{})}
		writing := in(func() error { _, err := a.ReadFrom(s); return err })
		<-s.reading
		look()
		v.pass(time.Second)
		require.Equal(t, told{}, n, name)
		close(s.fail)
		require.Equal(t, io.ErrUnexpectedEOF, <-writing)
		v.pass(0)
		require.Equal(t, told{writable: 1}, n, name)
		require.Equal(t, Writable, a.Ready(Writable), name)
		must(a.Write(nil))(t)
		v.pass(0)
		require.Equal(t, told{writable: 1}, n, "once")
	}

	n = told{}
	reading := in(func() error { return readOne(a) })
	v.during(func() {
		for !a.u.reader.waiting.Load() {
		}
	})
	wantOp(t, errOf(a.TryRead(make([]byte, 1))), "read", syscall.EAGAIN)
	v.pass(time.Second)
	require.Equal(t, told{}, n)
	require.NoError(t, a.SetReadDeadline(time.Unix(1, 0)))
	wantOp(t, <-reading, "read", os.ErrDeadlineExceeded)
	v.pass(0)
	require.Equal(t, told{readable: 1}, n)
}

// Looks do not take each other for writers.
func TestReadyOfSeveral(t *testing.T) {
	_, a, _ := newVirtualPair(t, 0, nil)
	var wg sync.WaitGroup
	var not atomic.Int64
	for range 4 {
		wg.Go(func() {
			for range 1_000_000 {
				if a.Ready(Writable) == 0 {
					not.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, not.Load())
}

// A look that found something after all takes back its own arm only.
func TestInterest(t *testing.T) {
	var i interest
	require.False(t, i.take())
	i.disarm(i.arm())
	require.False(t, i.take())

	i.arm()
	second := i.arm() // while the first one's stands
	i.disarm(second)
	require.True(t, i.take(), "the first relies on it")
	require.False(t, i.take(), "once")

	first := i.arm()
	i.arm()
	i.disarm(first)
	require.True(t, i.take(), "the second relies on it")

	first = i.arm()
	require.True(t, i.take())
	second = i.arm()
	i.disarm(first)
	require.True(t, i.take())
	i.disarm(second)
	require.False(t, i.take())
}

// Several goroutines that write without blocking, and never look but when they are told to, come to
// an end.
func TestNotifyOfSeveral(t *testing.T) {
	const writers, each = 3, 1 << 20
	l, a, b := newPair(t, labConfig{}, Options{SendBuffer: 8 << 10})
	var mu sync.Mutex
	more, calls := sync.NewCond(&mu), 0
	say := func(Readiness) { mu.Lock(); calls++; more.Broadcast(); mu.Unlock() }
	a.SetNotify(say)
	defer context.AfterFunc(l.ctx, func() { say(Writable) })()
	received := in(func() error { _, err := io.CopyN(io.Discard, b, writers*each); return err })
	written := make(chan error, writers)
	for range writers {
		go func() {
			left := make([]byte, each)
			for len(left) > 0 {
				mu.Lock()
				before := calls
				mu.Unlock()
				n, err := a.TryWrite(left[:min(len(left), 5000)])
				left = left[n:]
				if errors.Is(err, syscall.EAGAIN) && a.Ready(Writable) == 0 {
					mu.Lock()
					for calls == before {
						more.Wait()
					}
					mu.Unlock()
				}
				if l.ctx.Err() != nil {
					break
				}
			}
			written <- l.ctx.Err()
		}()
	}
	for range writers {
		require.NoError(t, l.result(written))
	}
	require.NoError(t, l.result(received))
}

// A deadline that has passed is an error, and errors do not block.
func TestTryAfterADeadline(t *testing.T) {
	_, a, _ := newVirtualPair(t, 0, nil)
	require.Zero(t, a.Ready(Readable))
	require.NoError(t, a.SetDeadline(time.Unix(1, 0)))
	require.Equal(t, Readable|Writable, a.Ready(Readable|Writable))
	wantOp(t, errOf(a.TryRead(make([]byte, 1))), "read", os.ErrDeadlineExceeded)
	wantOp(t, errOf(a.TryWrite(make([]byte, 1))), "write", os.ErrDeadlineExceeded)
}

// Unread counts what is in order, whatever it lies in, also when the connection is over.
func TestUnread(t *testing.T) {
	v, a, b := newVirtualPair(t, 0, nil)
	require.Zero(t, b.Unread())
	total := 0
	for _, n := range []int{1, 2, 100, 1448, 1449, 7, 10_000} {
		v.write(a, string(make([]byte, n)))
		v.pass(time.Millisecond)
		total += n
		require.Equal(t, total, b.Unread())
		require.Equal(t, uint64(total), v.info(b).Unread)
	}
	for _, n := range []int{1, 102, 1000, 2000} {
		k := must(b.TryRead(make([]byte, n)))(t)
		total -= k
		require.Equal(t, total, b.Unread())
		require.Equal(t, uint64(total), v.info(b).Unread)
	}
	require.NoError(t, abort(a))
	v.until("reset", dead(b))
	require.Equal(t, total, b.Unread(), "can still be read")
	require.Len(t, v.read(b), total)
	require.Zero(t, b.Unread())

	a, b = v.pair(Options{}, Options{})
	v.write(a, "thrown away")
	v.pass(time.Millisecond)
	require.NoError(t, b.CloseRead())
	v.pass(time.Millisecond)
	require.Zero(t, b.Unread())
	require.Zero(t, v.info(b).Unread)
}
