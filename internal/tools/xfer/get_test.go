package xfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rnic"
)

// get reads the server's file into memory.
func (r *rig) get(change func(*GetConfig)) ([]byte, Result, error) {
	r.t.Helper()
	var got bytes.Buffer
	cfg := GetConfig{Adapter: r.client, Addr: r.addr, Begin: func(uint64) (io.Writer, error) {
		return &got, nil
	}}
	if change != nil {
		change(&cfg)
	}
	res, err := Get(r.ctx, cfg)
	return got.Bytes(), res, err
}

// Files of every awkward size come whole, with the same hash at both ends, in as many Reads as
// start-up allows.
func TestGet(t *testing.T) {
	for _, n := range []int{0, 1, 1459, readMax, readsMax*readMax + 12345} {
		want := content(uint64(n), n)
		if n == 0 {
			want = []byte{}
		}
		r := newRig(t, 100, ServerConfig{File: want})
		last := uint64(0)
		got, res, err := r.get(func(cfg *GetConfig) {
			cfg.Progress = func(done, length uint64) { last = done }
		})
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got))
		require.Equal(t, [digestLen]byte(sha256.Sum256(want)), res.Digest)
		require.EqualValues(t, n, last)
		served := r.result()
		require.NoError(t, served.Err)
		require.Equal(t, OpGet, served.Op)
		require.EqualValues(t, n, served.Length)
		require.Equal(t, res.Digest, served.Digest)
		require.EqualValues(t, 1, r.server.Served.Load())
		require.Equal(t, rnic.RFC6581, res.Dialect)
	}
}

// page is a file in memory that returns one octet otherwise than it was written.
type page struct {
	bytes.Buffer
	spoilt int // which; -1: none
}

func (p *page) ReadAt(b []byte, at int64) (int, error) {
	n, err := bytes.NewReader(p.Bytes()).ReadAt(b, at)
	if i := p.spoilt - int(at); p.spoilt >= 0 && i >= 0 && i < n {
		b[i] ^= 1
	}
	return n, err
}

// What can be read again is hashed when all of it has come, as it is there then.
func TestGetHashesWhatIsThere(t *testing.T) {
	file := content(1, 3_000_000)
	r := newRig(t, 100, ServerConfig{File: file})
	for _, spoilt := range []int{-1, 2_500_000} {
		to := &page{spoilt: spoilt}
		_, res, err := r.get(func(cfg *GetConfig) {
			cfg.Begin = func(uint64) (io.Writer, error) { return to, nil }
		})
		require.True(t, bytes.Equal(file, to.Bytes()))
		require.Positive(t, res.ClientHash)
		if spoilt < 0 {
			require.NoError(t, err)
			require.NoError(t, r.result().Err)
			continue
		}
		require.ErrorContains(t, err, "SHA-256 mismatch")
		require.ErrorContains(t, r.result().Err, "SHA-256 mismatch")
	}
	_, res, err := r.get(func(cfg *GetConfig) {
		cfg.Begin = func(uint64) (io.Writer, error) { return struct{ io.Writer }{io.Discard}, nil }
	})
	require.NoError(t, err)
	require.NoError(t, r.result().Err)
	require.Zero(t, res.ClientHash, "hashed meanwhile")
}

// In a dialect that settles no read depths both ends know theirs.
func TestGetOlderDialect(t *testing.T) {
	r := newRig(t, 100, ServerConfig{File: content(1, 3_000_000)})
	_, res, err := r.get(func(cfg *GetConfig) { cfg.Conn.Dialect = rnic.RFC5044 })
	require.NoError(t, err)
	require.Equal(t, rnic.RFC5044, res.Dialect)
	require.NoError(t, r.result().Err)
}

// What goes wrong at the client ends the transfer, and the server hears of it and serves on.
func TestGetFails(t *testing.T) {
	r := newRig(t, 100, ServerConfig{File: content(1, 3_000_000)})
	full := errors.New("no room")
	_, _, err := r.get(func(cfg *GetConfig) {
		cfg.Begin = func(uint64) (io.Writer, error) { return nil, full }
	})
	require.ErrorIs(t, err, full)
	require.Error(t, r.result().Err)
	_, _, err = r.get(func(cfg *GetConfig) {
		cfg.Begin = func(uint64) (io.Writer, error) { return fails{full}, nil }
	})
	require.ErrorIs(t, err, full)
	require.Error(t, r.result().Err)
	var interrupted context.CancelFunc
	_, _, err = r.get(func(cfg *GetConfig) {
		cfg.Begin = func(uint64) (io.Writer, error) {
			interrupted()
			return io.Discard, nil
		}
		r.ctx, interrupted = context.WithCancel(r.ctx)
	})
	require.ErrorIs(t, err, context.Canceled)
}

type fails struct{ err error }

func (f fails) Write([]byte) (int, error) { return 0, f.err }

// A client that was granted a file may read it, and nothing else: not write it, not read beyond it,
// and no more when it has said that it has it.
//
// req: 5042-6.3.4-1
func TestGetRights(t *testing.T) {
	for _, tc := range []struct {
		name string
		post func(*rogue, grant) error
	}{
		{"write", func(c *rogue, g grant) error { return c.post(rnic.OpWrite, g, 0) }},
		{"beyond", func(c *rogue, g grant) error { return c.post(rnic.OpRead, g, g.length-9) }},
		{"afterwards", func(c *rogue, g grant) error {
			require.True(c.r.t, c.finishes(finish{length: g.length, digest: *g.digest}).match)
			return c.post(rnic.OpRead, g, 0)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := content(3, 5000)
			want := bytes.Clone(file)
			r := newRig(t, 100, ServerConfig{File: file})
			c, g := r.getRogue()
			require.NoError(t, tc.post(c, g))
			var te *rnic.TerminateError
			require.ErrorAs(t, c.untilDone(), &te)
			require.Error(t, r.result().Err)
			require.Equal(t, want, file)
		})
	}
}

// A client that claims another hash, or another length, is told so.
func TestGetMismatch(t *testing.T) {
	file := content(3, 5000)
	for want, f := range map[string]finish{
		"SHA-256 mismatch": {length: 5000},
		"closed with a length of 4999, the file has 5000": {length: 4999, digest: sha256.Sum256(file)},
	} {
		r := newRig(t, 100, ServerConfig{File: file})
		c, _ := r.getRogue()
		require.False(t, c.finishes(f).match)
		c.qp.Disconnect()
		require.ErrorContains(t, r.result().Err, want)
	}
}

// What a server says that is none of ours, or lies, is an error that says so.
func TestGetRogueServer(t *testing.T) {
	const n = 1000
	file := content(3, n)
	right := sha256.Sum256(file)
	wrong := right
	wrong[5] ^= 1
	for _, tc := range []struct {
		name   string
		digest [digestLen]byte
		length uint64 // of the grant
		play   func(s *rogue)
		want   string
	}{
		{"all is well", right, n, func(s *rogue) {
			s.verdict(answer{match: true, digest: right, length: n})
		}, ""},
		{"no match", right, n, func(s *rogue) {
			s.verdict(answer{digest: right, length: n})
		}, "failed, though its SHA-256 is the same as here"},
		{"no match, and no more", right, n, func(s *rogue) {
			s.verdict(answer{})
		}, "not all octets have come to it, or not those that were sent"},
		{"another length", right, n, func(s *rogue) {
			s.verdict(answer{match: true, digest: right, length: n + 1})
		}, "answers for 1001 octets, the transfer had 1000"},
		{"match, with another digest", wrong, n, func(s *rogue) {
			s.verdict(answer{match: true})
		}, "SHA-256 mismatch"},
		{"more than there is", right, 1 << 40, func(s *rogue) { <-s.qp.Done() }, "base or bounds"},
		{"no answer", right, n, func(s *rogue) {
			s.receive()
			s.send([]byte("thank you"))
		}, "where the server's answer was due"},
		{"closes", right, n, func(s *rogue) {
			s.receive()
			s.qp.Disconnect()
		}, "the server closed the connection"},
		{"says nothing", right, n, func(s *rogue) {
			s.receive()
		}, "waiting for the server: context deadline exceeded"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, 10, ServerConfig{})
			addr := r.rogueServerWith(rnic.ConnParam{IRD: readDepth}, func(s *rogue, req *rnic.ConnRequest) {
				m, err := s.pd.RegisterWith(file, rnic.RegisterOptions{Access: rnic.RemoteRead, For: s.qp})
				if err != nil {
					s.r.t.Error(err)
					return
				}
				s.accept(req, grant{stag: m.STag(), length: tc.length, digest: &tc.digest}.marshal())
				tc.play(s)
			})
			_, res, err := r.get(func(cfg *GetConfig) {
				cfg.Addr = addr
				if tc.name == "says nothing" {
					cfg.Timeout = 50 * time.Millisecond
				}
			})
			require.Equal(t, err, res.Err)
			if tc.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.want)
			}
			require.NoError(t, r.ctx.Err(), "it took the test's time, not its own")
		})
	}
}

// verdict answers the closing message, and waits for the end.
func (s *rogue) verdict(a answer) {
	s.receive()
	s.send(a.marshal(make([]byte, answerLen)))
}

// An answer while there is still something to read is no answer.
func TestGetEarlyAnswer(t *testing.T) {
	r := newRig(t, 10, ServerConfig{})
	const n = 8 * readMax // an answer and Responses take turns
	digest := [digestLen]byte{}
	answered := make(chan struct{})
	addr := r.rogueServerWith(rnic.ConnParam{IRD: readDepth}, func(s *rogue, req *rnic.ConnRequest) {
		m, err := s.pd.Register(make([]byte, n), rnic.RemoteRead)
		if err != nil {
			s.r.t.Error(err)
			return
		}
		s.accept(req, grant{stag: m.STag(), length: n, digest: &digest}.marshal())
		s.send(answer{match: true}.marshal(make([]byte, answerLen)))
		close(answered)
	})
	_, _, err := r.get(func(cfg *GetConfig) {
		cfg.Addr = addr
		cfg.Begin = func(uint64) (io.Writer, error) {
			wait(r, answered)
			return io.Discard, nil
		}
	})
	require.ErrorContains(t, err, "the server answered before the transfer was complete")
}

// A client that was granted a file and does nothing is given up.
func TestGetIdle(t *testing.T) {
	r := newRig(t, 100, ServerConfig{File: content(3, 5000), IdleTimeout: 50 * time.Millisecond})
	r.getRogue()
	require.ErrorContains(t, r.result().Err, "nothing was read by the client for 50ms")
}

// getRogue is a client that was granted the file.
func (r *rig) getRogue() (*rogue, grant) {
	r.t.Helper()
	c := r.newRogueWith(r.client, rnic.ConnParam{ORD: 4})
	require.NoError(r.t, c.connect(request{op: OpGet}.marshal()))
	g := must(parseGetGrant(c.qp.PeerPrivateData()))(r.t)
	return c, g
}

// A server that grants something else than get asked for is no server of files.
func TestGetGrantMalformed(t *testing.T) {
	for _, b := range [][]byte{nil, grant{}.marshal(), make([]byte, getLen)} {
		_, err := parseGetGrant(b)
		require.ErrorIs(t, err, errMalformed)
		require.ErrorContains(t, err, fmt.Sprintf("private data (%d octets) is no grant to read", len(b)))
	}
	digest := [digestLen]byte{1}
	g := grant{stag: 5, to: 6, length: 7, digest: &digest}
	got := must(parseGetGrant(g.marshal()))(t)
	require.Equal(t, g, got)
}
