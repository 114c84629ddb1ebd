package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/skip"
)

// patience bounds every wait.
const patience = time.Minute

// TestMain also is a process that makes a socket and ends, as one of TestSocketOfAnother.
func TestMain(m *testing.M) {
	if dir := os.Getenv("PROGRAMS_TEST_DIR"); dir != "" {
		listenAndEnd(dir)
		return
	}
	os.Exit(m.Run())
}

// listenAndEnd leaves the socket to a child, whose number it prints.
func listenAndEnd(dir string) {
	s, err := Listen(dir)
	if err != nil {
		panic(err)
	}
	f, err := s.listen.File()
	if err != nil {
		panic(err)
	}
	child := exec.Command("sleep", "600")
	child.ExtraFiles = []*os.File{f}
	if err := child.Start(); err != nil {
		panic(err)
	}
	fmt.Println(child.Process.Pid, s.path)
}

// serving is a socket that answers, in a directory of its own.
func serving(t *testing.T, answers map[string]Answer) (Program, *http.Client) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "sockets")
	s := must(Listen(dir))(t)
	t.Cleanup(func() { s.listen.Close() })
	go s.Serve(answers)
	all := in(dir, os.Geteuid())
	require.Equal(t, []Program{{os.Getpid(), os.Geteuid(), s.Path()}}, all)
	return all[0], clientOf(t, all[0].Dial)
}

func clientOf(t *testing.T, dial func(context.Context) (net.Conn, error)) *http.Client {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dial(ctx)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

// What an answer writes reaches the client, whole or not at all; so does an error.
func TestServe(t *testing.T) {
	long := strings.Repeat("0123456789", 10_000)
	_, c := serving(t, map[string]Answer{
		"/v1/name": func(_ context.Context, q url.Values, w io.Writer) error {
			return json.NewEncoder(w).Encode(q.Get("of"))
		},
		"/v1/long": func(_ context.Context, _ url.Values, w io.Writer) error {
			_, err := io.WriteString(w, long)
			return err
		},
		"/v1/none": func(context.Context, url.Values, io.Writer) error { return nil },
		"/v1/wrong": func(context.Context, url.Values, io.Writer) error {
			return &QuestionError{errors.New("no")}
		},
		"/v1/later": func(context.Context, url.Values, io.Writer) error { return errors.New("later") },
		"/v1/cut": func(_ context.Context, _ url.Values, w io.Writer) error {
			_, _ = io.WriteString(w, long)
			return errors.New("it has gone")
		},
		"/v1/panic": func(context.Context, url.Values, io.Writer) error { panic("a mistake") },
	})
	get := func(path string) (int, string, error) {
		r, err := c.Get("http://rnicd" + path)
		if err != nil {
			return 0, "", err
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		return r.StatusCode, string(text), err
	}
	for _, x := range []struct {
		path string
		code int
		text string
	}{
		{"/v1/name?of=a+b", 200, "\"a b\"\n"}, {"/v1/long", 200, long}, {"/v1/none", 200, ""},
		{"/v1/wrong", 400, `{"error":"no"}`}, {"/v1/later", 503, `{"error":"later"}`},
		{"/v9/name", 404, ""},
	} {
		code, text, err := get(x.path)
		require.NoError(t, err, x.path)
		require.Equal(t, x.code, code, x.path)
		require.Equal(t, x.text, text, x.path)
	}
	_, _, err := get("/v1/cut")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, _, err = get("/v1/panic")
	require.ErrorIs(t, err, io.EOF)
	r, err := c.Post("http://rnicd/v1/name", "", nil)
	require.NoError(t, err)
	require.Equal(t, 400, r.StatusCode)
	require.NoError(t, r.Body.Close())
}

// Whoever connects and says nothing, or what is no question, takes nothing from others.
func TestStrangers(t *testing.T) {
	p, c := serving(t, map[string]Answer{"/": func(context.Context, url.Values, io.Writer) error {
		return nil
	}})
	for _, text := range []string{"", "\n\n", "GET\r\n\r\n", "GET / HTTP/2\r\n\r\n",
		"GET / HTTP/1.0\r\n\r\n", "GET x HTTP/1.1\r\n\r\n", strings.Repeat("x", 2*headMax)} {
		n := must(p.Dial(t.Context()))(t)
		_, _ = io.WriteString(n, text) // it may have ended
		require.NoError(t, n.(*net.UnixConn).CloseWrite())
		answer, _ := io.ReadAll(n) // a reset, where there was more
		if len(answer) > 0 {
			require.Regexp(t, "^HTTP/1.1 400 ", string(answer))
		}
		require.NoError(t, n.Close())
	}
	r, err := c.Get("http://rnicd/")
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, 200, r.StatusCode)
}

// No more clients than answersMax are answered at a time; the next one is when one has gone.
func TestAnswersMax(t *testing.T) {
	in, leave := make(chan struct{}, 2*answersMax), make(chan struct{})
	_, c := serving(t, map[string]Answer{"/": func(context.Context, url.Values, io.Writer) error {
		in <- struct{}{}
		<-leave
		return nil
	}})
	var clients sync.WaitGroup
	for range 2 * answersMax {
		clients.Go(func() {
			r, err := c.Get("http://rnicd/")
			if err == nil {
				_ = r.Body.Close()
			}
		})
	}
	for range answersMax {
		<-in
	}
	for range answersMax {
		require.Empty(t, in)
		leave <- struct{}{}
		<-in
	}
	close(leave)
	clients.Wait()
}

// Clients that ask nothing do not keep another one from its answer, however many they are.
func TestIdleClients(t *testing.T) {
	p, c := serving(t, map[string]Answer{"/": func(context.Context, url.Values, io.Writer) error {
		return nil
	}})
	for range clientsMax {
		idle := must(p.Dial(t.Context()))(t)
		defer idle.Close()
	}
	c.Timeout = 5 * time.Second // as rnicd status waits
	r, err := c.Get("http://rnicd/")
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
}

// The socket of a process that has ended is removed by whoever looks, even where a child of its has
// it, and by the next process of its number.
func TestSocketOfAnother(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sockets")
	self := must(os.Executable())(t)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "PROGRAMS_TEST_DIR="+dir)
	out, err := cmd.Output()
	require.NoError(t, err)
	var child int
	var path string
	_, err = fmt.Sscan(string(out), &child, &path)
	require.NoError(t, err)
	defer func() { _ = unix.Kill(child, unix.SIGKILL) }()
	all := in(dir, os.Geteuid())
	require.Equal(t, []Program{{cmd.ProcessState.Pid(), os.Geteuid(), path}}, all)
	require.NoError(t, unix.Kill(child, 0))
	var gone *GoneError
	_, err = all[0].Dial(t.Context())
	require.ErrorAs(t, err, &gone)
	require.NoFileExists(t, path)
	_, err = all[0].Dial(t.Context())
	require.ErrorAs(t, err, &gone)

	// So is that of one whose end its parent has not noticed.
	cmd = exec.Command(self)
	cmd.Env = append(os.Environ(), "PROGRAMS_TEST_DIR="+dir)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var second int
	_, err = fmt.Fscan(stdout, &second, &path)
	require.NoError(t, err)
	defer func() { _ = unix.Kill(second, unix.SIGKILL) }()
	require.NoError(t, unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil))
	_, err = in(dir, os.Geteuid())[0].Dial(t.Context())
	require.ErrorAs(t, err, &gone)
	require.NoFileExists(t, path)
	require.NoError(t, cmd.Wait())

	// Of this number: a stale one is taken over, that of another process is not.
	mine := filepath.Join(dir, strconv.Itoa(os.Getpid())+".sock")
	stale := must(net.ListenUnix("unix", &net.UnixAddr{Name: mine, Net: "unix"}))(t)
	stale.SetUnlinkOnClose(false)
	require.NoError(t, stale.Close())
	others := []string{"4194305.sock", "4194305.1.sock"} // more than a process can have
	for _, name := range others {
		l := must(net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unix"}))(t)
		l.SetUnlinkOnClose(false)
		if name == others[0] {
			require.NoError(t, l.Close())
		} else {
			defer l.Close() // of another namespace
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "4194306.sock"), nil, 0o600))
	s := must(Listen(dir))(t)
	require.Equal(t, mine, s.Path())
	require.NoFileExists(t, filepath.Join(dir, others[0]))
	require.FileExists(t, filepath.Join(dir, others[1]))
	require.FileExists(t, filepath.Join(dir, "4194306.sock"), "not a socket")
	require.NoError(t, os.WriteFile(mine+".x", nil, 0o600))
	require.NoError(t, os.Rename(mine+".x", mine)) // not a socket of this process's
	s.Remove()
	require.FileExists(t, mine)
	again := must(Listen(dir))(t)
	require.Equal(t, strings.Replace(mine, ".sock", ".1.sock", 1), again.Path())
	again.Remove()
	require.NoFileExists(t, again.Path())
}

// Nothing is looked at that another user may have put there.
func TestForeignDirectories(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sockets")
	s, err := Listen(dir)
	require.NoError(t, err)
	uid := os.Geteuid()
	p := in(dir, uid)[0]
	require.Empty(t, in(dir, uid+1))
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	require.Empty(t, in(link, uid))
	require.NoError(t, os.Chmod(dir, 0o750))
	require.Empty(t, in(dir, uid))
	_, err = p.Dial(t.Context())
	require.ErrorContains(t, err, "is not user "+strconv.Itoa(uid)+"'s alone")
	require.NoError(t, os.Chmod(dir, 0o700))

	other := filepath.Join(t.TempDir(), "x.sock")
	l, err := net.Listen("unix", other)
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, os.Remove(s.Path()))
	require.NoError(t, os.Symlink(other, s.Path()))
	_, err = p.Dial(t.Context())
	require.ErrorContains(t, err, "is no socket")
	require.NoError(t, os.Remove(s.Path()))
	require.NoError(t, os.WriteFile(s.Path(), nil, 0o600))
	_, err = p.Dial(t.Context())
	require.ErrorContains(t, err, "is no socket")
	require.FileExists(t, s.Path())
	for name, want := range map[string]bool{"12.sock": true, "12.3.sock": true, "sock": false,
		"x.sock": false, "12": false, "-1.sock": false} {
		_, ok := pidOf(name)
		require.Equal(t, want, ok, name)
	}
}

// Only the program's own user and root are answered, whatever the mode of the socket.
func TestOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		skip.Missing(t, "needs root, to become another user")
	}
	const nobody = 65534
	dir := must(os.MkdirTemp("/tmp", "rnicd-programs-test-"))(t)
	defer os.RemoveAll(dir)
	require.NoError(t, os.Chmod(dir, 0o755))
	s := must(Listen(dir))(t)
	require.NoError(t, os.Chmod(s.Path(), 0o666))
	go s.Serve(map[string]Answer{"/": func(context.Context, url.Values, io.Writer) error {
		return nil
	}})
	status := make(chan int)
	go func() {
		runtime.LockOSThread() // and never unlocks: the thread ends
		var code int
		defer func() { status <- code }()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
			return
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil || unix.Connect(fd, &unix.SockaddrUnix{Name: s.Path()}) != nil {
			return
		}
		f := os.NewFile(uintptr(fd), "client")
		defer f.Close()
		_, _ = io.WriteString(f, "GET / HTTP/1.1\r\n\r\n")
		text, _ := io.ReadAll(f)
		_, _ = fmt.Sscanf(string(text), "HTTP/1.1 %d", &code)
	}()
	require.Equal(t, 403, <-status)
}

// must is v, if there was no error.
func must[V any](v V, err error) func(require.TestingT) V {
	return func(t require.TestingT) V {
		require.NoError(t, err)
		return v
	}
}
