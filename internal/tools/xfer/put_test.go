package xfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

func (r *rig) put(b []byte) (Result, error) {
	return Put(r.ctx, PutConfig{Adapter: r.client, Addr: r.addr, Source: bytes.NewReader(b),
		Length: uint64(len(b))})
}

// moves puts b; both ends say that all is well.
func (r *rig) moves(b []byte) {
	r.t.Helper()
	must(r.put(b))(r.t)
	require.NoError(r.t, r.result().Err)
}

// A file of any size lands in the region, octet by octet, and both sides agree on it.
func TestPut(t *testing.T) {
	for _, n := range []int{0, 1, 4095, 4096, 100_000, chunkMax - 1, chunkMax, chunkMax + 1,
		3*chunksMax*chunkMax + 12345} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newRig(t, n+10, ServerConfig{})
			data := content(uint64(n), n)
			var seen []uint64
			res, err := Put(r.ctx, PutConfig{
				Adapter: r.client, Addr: r.addr,
				Source: iotest.OneByteReader(bytes.NewReader(data[:min(n, 100)])), Length: uint64(min(n, 100)),
			})
			require.NoError(t, err, "from a reader that gives little at a time")
			require.NoError(t, r.result().Err)
			require.Equal(t, uint64(min(n, 100)), res.Length)

			res, err = Put(r.ctx, PutConfig{
				Adapter: r.client, Addr: r.addr, Source: bytes.NewReader(data), Length: uint64(n),
				Progress: func(done uint64) { seen = append(seen, done) },
			})
			require.NoError(t, err)
			got := r.result()
			require.NoError(t, got.Err)
			require.True(t, bytes.Equal(data, r.region[:n]))
			require.Equal(t, make([]byte, 10), r.region[n:])
			for _, x := range []Result{res, got} {
				require.Equal(t, uint64(n), x.Length)
				require.Equal(t, sha256.Sum256(data), x.Digest)
				require.Equal(t, uint64(n), x.Receiver.Direct+x.Receiver.Reassembled-finishLen)
				require.Positive(t, x.Receiver.SegmentsIn)
			}
			require.Positive(t, res.Sender.FPDUs)
			require.Positive(t, res.Sender.SegmentsOut)
			for i := range seen {
				require.True(t, i == 0 || seen[i] > seen[i-1], "progress goes forward")
			}
			if n > 0 {
				require.Equal(t, uint64(n), seen[len(seen)-1])
				require.Positive(t, res.Goodput())
			}
			require.Equal(t, uint64(2), r.server.Served.Load())
		})
	}
}

// What is in memory is sent from where it lies, in Writes of several chunks' length.
func TestPutMemory(t *testing.T) {
	for _, n := range []int{0, 1, writeMax - 1, writeMax + 1, (writesMax+2)*writeMax/4 + 12345} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newRig(t, n+10, ServerConfig{})
			data := content(uint64(n), n)
			last := uint64(0)
			res, err := Put(r.ctx, PutConfig{Adapter: r.client, Addr: r.addr, Memory: data,
				Progress: func(done uint64) { last = done }})
			require.NoError(t, err)
			require.NoError(t, r.result().Err)
			require.True(t, bytes.Equal(data, r.region[:n]))
			require.Equal(t, sha256.Sum256(data), res.Digest)
			require.EqualValues(t, n, res.Length)
			require.EqualValues(t, n, last)
			require.Zero(t, res.ClientHash, "hashed meanwhile")
			require.Zero(t, r.client.Regions())
		})
	}
}

// Where the hash is known nothing is hashed while octets are on their way: it is the known one
// that the server is told.
func TestPutKnownDigest(t *testing.T) {
	data := content(1, 3_000_000)
	r := newRig(t, len(data), ServerConfig{})
	right, took, err := Digest(r.ctx, bytes.NewReader(data), uint64(len(data)))
	require.NoError(t, err)
	require.Equal(t, sha256.Sum256(data), right)
	require.Positive(t, took)
	wrong := sha256.Sum256(data[1:])
	for _, cfg := range []PutConfig{{Memory: data},
		{Source: bytes.NewReader(data), Length: uint64(len(data))}} {
		cfg.Adapter, cfg.Addr, cfg.Digest, cfg.Hashed = r.client, r.addr, &right, took
		res, err := Put(r.ctx, cfg)
		require.NoError(t, err)
		require.NoError(t, r.result().Err)
		require.Equal(t, right, res.Digest)
		require.Equal(t, took, res.ClientHash)
		if cfg.Source != nil {
			cfg.Source = bytes.NewReader(data)
		}
		cfg.Digest = &wrong
		require.ErrorContains(t, errOf(Put(r.ctx, cfg)), "the server says that the transfer failed")
		require.ErrorContains(t, r.result().Err, "SHA-256 mismatch")
	}
}

// A source that has less than it should, or a context that ends, ends the hashing.
func TestDigestFails(t *testing.T) {
	source := bytes.NewReader(content(1, chunkMax+10))
	_, _, err := Digest(context.Background(), source, chunkMax+11)
	require.ErrorIs(t, err, io.EOF)
	require.ErrorContains(t, err, fmt.Sprintf("at octet %d of %d", chunkMax, chunkMax+11))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, err = Digest(ctx, source, 10)
	require.ErrorIs(t, err, context.Canceled)
}

// Several clients at once get memory of their own.
func TestPutConcurrently(t *testing.T) {
	const clients, n = 6, 300_000
	// a server may give room back when its client is at the next
	r := newRig(t, 2*clients*(n+extentAlign), ServerConfig{})
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			data := content(uint64(i), n)
			for range 3 {
				res, err := r.put(data)
				if err != nil || res.Digest != sha256.Sum256(data) {
					t.Errorf("client %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	count := map[[digestLen]byte]int{}
	for range 3 * clients {
		res := r.result()
		require.NoError(t, res.Err)
		count[res.Digest]++
	}
	for i := range clients {
		require.Equal(t, 3, count[sha256.Sum256(content(uint64(i), n))])
	}
	require.Equal(t, uint64(3*clients), r.server.Served.Load())
}

// A source that is shorter than announced, or fails, ends the transfer on both sides.
func TestPutSourceFails(t *testing.T) {
	broken := errors.New("disk on fire")
	for _, tc := range []struct {
		name   string
		source io.Reader
		want   error
		text   string
	}{
		{"empty", bytes.NewReader(nil), io.EOF, "reading the source at octet 0 of 10000000"},
		{"short", bytes.NewReader(content(1, 9_999_999)), io.ErrUnexpectedEOF, "of 10000000"},
		{"broken", iotest.ErrReader(broken), broken, "reading the source at octet 0 of 10000000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, 10_000_000, ServerConfig{})
			_, err := Put(r.ctx, PutConfig{Adapter: r.client, Addr: r.addr, Source: tc.source,
				Length: 10_000_000})
			require.ErrorIs(t, err, tc.want)
			require.ErrorContains(t, err, tc.text)
			require.ErrorIs(t, r.result().Err, stack.ErrReset)
			require.Zero(t, r.client.Regions())
		})
	}
}

// A Put ends with its context, also in the middle of its source.
func TestPutContext(t *testing.T) {
	r := newRig(t, 40<<20, ServerConfig{})
	ctx, cancel := context.WithCancel(r.ctx)
	source := &cancelling{Reader: bytes.NewReader(content(1, 40<<20)), after: 20 << 20, cancel: cancel}
	_, err := Put(ctx, PutConfig{Adapter: r.client, Addr: r.addr, Source: source, Length: 40 << 20})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, r.result().Err, stack.ErrReset)
	require.Zero(t, r.client.Regions())
}

type cancelling struct {
	io.Reader
	after  int
	cancel func()
}

func (c *cancelling) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if c.after -= n; c.after <= 0 {
		c.cancel()
	}
	return n, err
}

func TestPutNobodyThere(t *testing.T) {
	r := newRig(t, 10, ServerConfig{})
	_, err := Put(r.ctx, PutConfig{Adapter: r.client, Addr: "nonsense", Source: bytes.NewReader(nil)})
	var ce *rnic.ConnectError
	require.ErrorAs(t, err, &ce)
	require.Zero(t, r.client.Regions())
}

// rogueServer plays a server: play gets the connection request.
func (r *rig) rogueServer(play func(s *rogue, req *rnic.ConnRequest)) (addr string) {
	return r.rogueServerWith(rnic.ConnParam{}, play)
}

func (r *rig) rogueServerWith(conn rnic.ConnParam,
	play func(s *rogue, req *rnic.ConnRequest)) (addr string) {
	r.t.Helper()
	dev := must(rnic.Open(rnic.Config{}))(r.t)
	l := must(dev.Listen(r.ctx, "127.0.0.1:0", rnic.ListenOptions{}))(r.t)
	s := r.newRogueWith(dev, conn)
	var wg sync.WaitGroup
	wg.Go(func() {
		req, err := l.Accept(r.ctx)
		if err != nil {
			r.t.Errorf("rogue server: %v", err)
			return
		}
		play(s, req)
	})
	r.t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

func (s *rogue) accept(req *rnic.ConnRequest, private []byte) {
	if err := req.Accept(s.r.ctx, s.qp, s.with(private)); err != nil {
		s.r.t.Errorf("accept: %v", err)
	}
}

// grantAll grants the rogue's data memory.
func (s *rogue) grantAll(req *rnic.ConnRequest, n uint64) {
	s.accept(req, grant{stag: s.buf.STag(), to: rogueData, length: n}.marshal())
}

// roguePlay is what a server of the test's own does, and how Put's error says it.
type roguePlay struct {
	name string
	play func(s *rogue, req *rnic.ConnRequest)
	want string
}

const rogueOctets = 1000 // that Put has for the server

// puts has Put meet each server. Its error is what the play says, in its own time, and it leaves
// nothing.
func puts(t *testing.T, plays []roguePlay) {
	data := content(1, rogueOctets)
	for _, tc := range plays {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, 10, ServerConfig{})
			addr := r.rogueServer(tc.play)
			timeout := patience
			if tc.name == "says nothing" {
				timeout = 50 * time.Millisecond
			}
			res, err := Put(r.ctx, PutConfig{
				Adapter: r.client, Addr: addr, Source: bytes.NewReader(data), Length: rogueOctets,
				AnswerTimeout: timeout,
			})
			require.ErrorContains(t, err, tc.want)
			require.Equal(t, err, res.Err)
			require.NoError(t, r.ctx.Err(), "it took the test's time, not its own")
			r.until(func() bool { return r.client.Regions() == 0 })
		})
	}
}

// A server that is none of ours, or grants what it has not, is an error that says so.
func TestPutRogueGrant(t *testing.T) {
	puts(t, []roguePlay{
		{"rejects without a text", func(s *rogue, req *rnic.ConnRequest) {
			if err := req.Reject(s.r.ctx, []byte("no")); err != nil {
				s.r.t.Error(err)
			}
		}, "rejected by the peer (2 octets of private data)"},
		{"no grant", func(s *rogue, req *rnic.ConnRequest) {
			s.accept(req, nil)
		}, "is not a grant; is it `rnicd serve`?"},
		{"other private data", func(s *rogue, req *rnic.ConnRequest) {
			s.accept(req, make([]byte, grantLen))
		}, "is not a grant"},
		{"grants too little", func(s *rogue, req *rnic.ConnRequest) {
			s.grantAll(req, rogueOctets-1)
		}, "1000 octets to send, 999 granted"},
		{"grants what is not there", func(s *rogue, req *rnic.ConnRequest) {
			s.accept(req, grant{stag: 0xbad00, length: rogueOctets}.marshal())
		}, "invalid STag"},
	})
}

// So is a server that has received everything and then answers wrongly, or not at all.
func TestPutRogueAnswer(t *testing.T) {
	then := func(end func(s *rogue)) func(*rogue, *rnic.ConnRequest) {
		return func(s *rogue, req *rnic.ConnRequest) {
			s.grantAll(req, rogueOctets)
			s.receive()
			end(s)
		}
	}
	says := func(octets []byte) func(*rogue, *rnic.ConnRequest) {
		return then(func(s *rogue) { s.send(octets) })
	}
	answers := func(change func(a *answer)) func(*rogue, *rnic.ConnRequest) {
		a := answer{match: true, digest: sha256.Sum256(content(1, rogueOctets)), length: rogueOctets}
		change(&a)
		return says(a.marshal(make([]byte, answerLen)))
	}
	puts(t, []roguePlay{
		{"no match", answers(func(a *answer) {
			a.match = false
		}), "the transfer failed, though its SHA-256 is the same as here"},
		{"no match, with another digest", answers(func(a *answer) {
			a.match, a.digest[5] = false, ^a.digest[5]
		}), "SHA-256 mismatch: here "},
		{"no match, and no more", answers(func(a *answer) {
			*a = answer{}
		}), "not all octets have come to it, or not those that were sent"},
		{"another length", answers(func(a *answer) {
			a.length = 1 << 40
		}), "the server answers for 1099511627776 octets, the transfer had 1000"},
		{"match, with another digest", answers(func(a *answer) {
			a.digest[5] ^= 1
		}), "the server says that all is well, but its SHA-256 is "},
		{"no answer", says([]byte("thank you")), "where the server's answer was due"},
		{"a long answer", says(make([]byte, answerLen+1)), "message too long"},
		{"closes", then(func(s *rogue) { s.qp.Disconnect() }), "the server closed the connection"},
		{"vanishes", then(func(s *rogue) { s.qp.Abort() }), "connection reset by peer"},
		{"says nothing", then(func(*rogue) {}), "waiting for the server: context deadline exceeded"},
	})
}

// An answer while there is still something to send is no answer.
func TestPutEarlyAnswer(t *testing.T) {
	r := newRig(t, 10, ServerConfig{})
	const n = 64 << 20
	heard := make(chan struct{})
	addr := r.rogueServer(func(s *rogue, req *rnic.ConnRequest) {
		big, err := s.pd.Register(make([]byte, n), rnic.RemoteWrite)
		if err != nil {
			s.r.t.Error(err)
			return
		}
		s.accept(req, grant{stag: big.STag(), length: n}.marshal())
		s.send(answer{match: true}.marshal(make([]byte, answerLen)))
		close(heard)
	})
	// The source waits in the middle until the answer must be there.
	half := content(1, n/2)
	source := io.MultiReader(bytes.NewReader(half), &waiting{r: r, ch: heard}, bytes.NewReader(half))
	_, err := Put(r.ctx, PutConfig{Adapter: r.client, Addr: addr, Source: source, Length: n})
	require.Error(t, err)
	// it may still come late
	require.Regexp(t, "answered before the transfer was complete|the server answers for 0 octets",
		err.Error())
}

// waiting is an empty reader that ends when ch is closed.
type waiting struct {
	r  *rig
	ch chan struct{}
}

func (w *waiting) Read([]byte) (int, error) {
	select {
	case <-w.ch:
	case <-w.r.ctx.Done():
	}
	return 0, io.EOF
}

func TestGoodput(t *testing.T) {
	r := Result{Length: 1000, Wire: time.Millisecond}
	require.InDelta(t, 8e6, r.Goodput(), 1)
	r.Wire = 0
	require.Zero(t, r.Goodput())
	r.Wire = -1
	require.Zero(t, r.Goodput())
}
