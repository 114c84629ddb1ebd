package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// patience bounds every wait.
const patience = time.Minute

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// What a handler says reaches the client, its errors too, and a stream as it comes; the socket is
// its owner's alone.
func TestAsk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "control.sock") // the directory is made
	s := must(Listen(path, 0o600))(t)
	info := must(os.Stat(path))(t)
	require.Equal(t, os.ModeSocket|0o600, info.Mode())
	s.HandleFunc("GET /v1/name", func(w http.ResponseWriter, r *http.Request) {
		Reply(w, map[string]string{"name": r.FormValue("of")})
	})
	s.HandleFunc("GET /v1/wrong", func(w http.ResponseWriter, _ *http.Request) {
		Fail(w, http.StatusBadRequest, errors.New("no such port"))
	})
	s.HandleFunc("GET /v1/stream", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "one")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // Close, or the client
	})
	s.Serve()
	c := NewClient(path)
	defer c.Close()
	ctx := within(t)
	var got map[string]string
	require.NoError(t, c.Get(ctx, "/v1/name", url.Values{"of": {"a b"}}, &got))
	require.Equal(t, "a b", got["name"])
	require.EqualError(t, c.Get(ctx, "/v1/wrong", nil, &got), "no such port")
	require.ErrorContains(t, c.Get(ctx, "/v9/status", nil, &got), "another version")
	stream, err := c.Stream(ctx, "/v1/stream", nil)
	require.NoError(t, err)
	line := make([]byte, 4)
	_, err = io.ReadFull(stream, line)
	require.NoError(t, err)
	require.Equal(t, "one\n", string(line))
	require.NoError(t, s.Close())
	rest := must(io.ReadAll(stream))(t)
	require.Empty(t, rest)
	require.NoFileExists(t, path)
	require.ErrorContains(t, c.Get(ctx, "/v1/name", nil, &got), path+": no daemon answers")
}

// Of a process that listens and does not answer the error says so, and is still a deadline's.
func TestSilentListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	c := NewClient(path)
	defer c.Close()
	err = c.Get(ctx, "/v1/status", nil, new(any))
	require.EqualError(t, err, path+": it does not answer; is it stopped?")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// A socket that a killed process left is taken over, a living one's is not, nor is a file.
func TestStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	stale := must(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
	stale.SetUnlinkOnClose(false) // as one that was killed
	living, err := Listen(path, 0o600)
	var used *InUseError
	require.ErrorAs(t, err, &used)
	require.Nil(t, living)
	require.NoError(t, stale.Close())
	require.FileExists(t, path)

	// Of many that start at the same time one gets it, and keeps it.
	var all sync.WaitGroup
	var mu sync.Mutex
	var servers []*Server
	for range 8 {
		all.Go(func() {
			s, err := Listen(path, 0o600)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				servers = append(servers, s)
				return
			}
			var used *InUseError
			require.ErrorAs(t, err, &used)
		})
	}
	all.Wait()
	require.Len(t, servers, 1)
	servers[0].HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { Reply(w, 1) })
	servers[0].Serve()
	c := NewClient(path)
	defer c.Close()
	var one int
	require.NoError(t, c.Get(within(t), "/", nil, &one))
	require.NoError(t, servers[0].Close())

	require.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
	_, err = Listen(path, 0o600)
	require.ErrorContains(t, err, "is no socket")
	text := must(os.ReadFile(path))(t)
	require.Equal(t, "mine", string(text))
}

// No more clients than ClientsMax are served at a time; the next one is when one has gone.
func TestClientsMax(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	s := must(Listen(path, 0o600))(t)
	defer s.Close()
	var running, most atomic.Int64
	in, leave := make(chan struct{}, 2*ClientsMax), make(chan struct{})
	s.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		n := running.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		in <- struct{}{}
		<-leave
		running.Add(-1)
		w.Header().Set("Connection", "close")
		Reply(w, n)
	})
	s.Serve()
	ctx := within(t)
	var clients sync.WaitGroup
	for range 2 * ClientsMax {
		clients.Go(func() {
			c := NewClient(path)
			defer c.Close()
			var n int
			assert.NoError(t, c.Get(ctx, "/", nil, &n))
		})
	}
	for range ClientsMax {
		<-in
	}
	for range ClientsMax {
		leave <- struct{}{}
		<-in
	}
	close(leave)
	clients.Wait()
	require.EqualValues(t, ClientsMax, most.Load())
}

// Clients that ask nothing, or nothing more, do not keep another one from its answer, however many
// they are.
func TestIdleClients(t *testing.T) {
	for name, asked := range map[string]bool{"nothing": false, "nothing more": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "control.sock")
			s := must(Listen(path, 0o600))(t)
			defer s.Close()
			s.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { Reply(w, 1) })
			s.Serve()
			for range ClientsMax {
				idle, err := net.Dial("unix", path)
				require.NoError(t, err)
				defer idle.Close()
				if !asked {
					continue
				}
				_, err = idle.Write([]byte("GET / HTTP/1.1\r\nHost: here\r\n\r\n"))
				require.NoError(t, err)
				_, err = idle.Read(make([]byte, 1))
				require.NoError(t, err)
			}
			ctx, cancel := context.WithTimeout(within(t), 5*time.Second) // rnicd status waits for 10
			defer cancel()
			c := NewClient(path)
			defer c.Close()
			var one int
			require.NoError(t, c.Get(ctx, "/", nil, &one))
		})
	}
}

// A client that asks for much and reads nothing is given up.
func TestClientsThatDoNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	s, err := Listen(path, 0o600)
	require.NoError(t, err)
	defer s.Close()
	s.listen.(*limited).within = 10 * time.Millisecond
	gone := make(chan error, 1)
	s.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		var err error
		for much := make([]byte, 1<<16); err == nil; {
			_, err = w.Write(much)
		}
		gone <- err
	})
	s.Serve()
	c, err := net.Dial("unix", path)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("GET / HTTP/1.1\r\nHost: here\r\n\r\n"))
	require.NoError(t, err)
	select {
	case err = <-gone:
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	case <-within(t).Done():
		require.Fail(t, "it is still being answered")
	}
}

// No handler begins when Close has looked for those that run.
func TestNoHandlerAfterClose(t *testing.T) {
	s := must(Listen(filepath.Join(t.TempDir(), "control.sock"), 0o600))(t)
	s.HandleFunc("GET /", func(http.ResponseWriter, *http.Request) { require.Fail(t, "answered") })
	require.NoError(t, s.Close())
	answer := httptest.NewRecorder()
	s.answer(answer, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusServiceUnavailable, answer.Code)
}

func TestParseMode(t *testing.T) {
	for text, want := range map[string]os.FileMode{"0600": 0o600, "660": 0o660, "0666": 0o666} {
		got := must(ParseMode(text))(t)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "rw", "0888", "07777", "6", "01777"} {
		_, err := ParseMode(text)
		require.Error(t, err, text)
	}
}

// The socket has its mode whatever the umask, which takes rights of others away.
func TestMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	s := must(Listen(path, 0o666))(t)
	defer s.Close()
	info := must(os.Stat(path))(t)
	require.Equal(t, os.ModeSocket|0o666, info.Mode())
}

// A daemon and a switch of one host have different sockets by default, for root and for a user.
func TestDefaultPaths(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/7")
	for _, of := range []struct {
		have, dir string
	}{{DefaultPath(), "rnicd"}, {DefaultSwitchPath(), "rnicd-switch"}} {
		require.Contains(
			t, []string{"/run/" + of.dir + "/control.sock", "/run/user/7/" + of.dir + "/control.sock"},
			of.have)
	}
}

// The path is one that a socket's address can hold, or the error says what it is.
func TestPathTooLong(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	require.NoError(t, os.Mkdir(dir, 0o700))
	_, err := Listen(filepath.Join(dir, "control.sock"), 0o600)
	require.ErrorContains(t, err, "invalid argument")
}

// Others may lock the directory, which they can open; that keeps no daemon from starting.
func TestLockedDirectory(t *testing.T) {
	dir := t.TempDir()
	f := must(os.Open(dir))(t)
	defer f.Close()
	require.NoError(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	s := must(Listen(filepath.Join(dir, "control.sock"), 0o600))(t)
	require.NoError(t, s.Close())
}

// must is v, if there was no error.
func must[V any](v V, err error) func(require.TestingT) V {
	return func(t require.TestingT) V {
		require.NoError(t, err)
		return v
	}
}
