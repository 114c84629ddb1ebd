package main

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// patience is how long a test waits for what has to come.
const patience = 60 * time.Second

// kubelet is what a kubelet is to a plugin: a registration server of API v1beta1, and a client of
// what registers.
type kubelet struct {
	v1beta1.UnimplementedRegistrationServer
	t   *testing.T
	dir string

	server     *grpc.Server
	registered chan *v1beta1.RegisterRequest
}

func newKubelet(t *testing.T) *kubelet {
	k := &kubelet{t: t, dir: shortDir(t)}
	k.start()
	t.Cleanup(func() { k.server.Stop() })
	return k
}

// start begins a life of the kubelet, which removes all sockets that it finds.
func (k *kubelet) start() {
	k.t.Helper()
	entries, err := os.ReadDir(k.dir)
	require.NoError(k.t, err)
	for _, e := range entries {
		require.NoError(k.t, os.Remove(filepath.Join(k.dir, e.Name())))
	}
	l, err := net.Listen("unix", filepath.Join(k.dir, "kubelet.sock"))
	require.NoError(k.t, err)
	k.registered = make(chan *v1beta1.RegisterRequest, 10)
	k.server = grpc.NewServer()
	v1beta1.RegisterRegistrationServer(k.server, k)
	go func() { _ = k.server.Serve(l) }()
}

func (k *kubelet) Register(_ context.Context, r *v1beta1.RegisterRequest) (*v1beta1.Empty, error) {
	k.registered <- r
	return new(v1beta1.Empty), nil
}

// resource is one that the kubelet knows.
type resource struct {
	t      *testing.T
	client v1beta1.DevicePluginClient
	lists  grpc.ServerStreamingClient[v1beta1.ListAndWatchResponse]
	cancel func()
}

// await returns the resources that register, by name.
func (k *kubelet) await(names ...string) map[string]*resource {
	k.t.Helper()
	found := map[string]*resource{}
	for range names {
		select {
		case r := <-k.registered:
			require.Equal(k.t, "v1beta1", r.Version)
			require.Equal(k.t, filepath.Base(r.Endpoint), r.Endpoint)
			found[r.ResourceName] = k.connect(r.Endpoint)
		case <-time.After(patience):
			require.Fail(k.t, "nothing registers")
		}
	}
	for _, name := range names {
		require.Contains(k.t, found, name)
	}
	return found
}

func (k *kubelet) connect(endpoint string) *resource {
	conn, err := grpc.NewClient("unix://"+filepath.Join(k.dir, endpoint),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(k.t, err)
	k.t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(k.t.Context(), 5*patience)
	k.t.Cleanup(cancel)
	r := &resource{t: k.t, client: v1beta1.NewDevicePluginClient(conn), cancel: cancel}
	options, err := r.client.GetDevicePluginOptions(ctx, new(v1beta1.Empty))
	require.NoError(k.t, err)
	require.False(k.t, options.PreStartRequired || options.GetPreferredAllocationAvailable)
	r.lists, err = r.client.ListAndWatch(ctx, new(v1beta1.Empty))
	require.NoError(k.t, err)
	return r
}

// next is the health by device of the next list.
func (r *resource) next() map[string]string {
	r.t.Helper()
	list := must(r.lists.Recv())(r.t)
	health := map[string]string{}
	for _, d := range list.Devices {
		health[d.ID] = d.Health
	}
	return health
}

// until waits for a list of these devices, all of this health.
func (r *resource) until(health string, ids ...string) {
	r.t.Helper()
	want := map[string]string{}
	for _, id := range ids {
		want[id] = health
	}
	for got := r.next(); ; got = r.next() {
		if len(got) == len(want) {
			same := true
			for id, h := range want {
				same = same && got[id] == h
			}
			if same {
				return
			}
		}
	}
}

func (r *resource) allocate(ids ...string) (*v1beta1.ContainerAllocateResponse, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	resp, err := r.client.Allocate(ctx, &v1beta1.AllocateRequest{
		ContainerRequests: []*v1beta1.ContainerAllocateRequest{{DevicesIds: ids}}})
	if err != nil {
		return nil, err
	}
	require.Len(r.t, resp.ContainerResponses, 1)
	return resp.ContainerResponses[0], nil
}

// offer runs the plugin until the test ends, or the returned function is called.
func offer(t *testing.T, o options) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	return stop
}

// line waits for one of the log.
type line struct {
	t    *testing.T
	text string
	seen chan struct{}
	hold chan struct{} // nil, or where who logs it waits
}

// logged waits for a line of the log that has a text.
func logged(t *testing.T, text string) *line {
	l := &line{t: t, text: text, seen: make(chan struct{}, 100)}
	slog.SetDefault(slog.New(slog.NewTextHandler(l, nil)))
	t.Cleanup(func() { slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil))) })
	return l
}

func (l *line) Write(b []byte) (int, error) {
	l.t.Logf("%s", b)
	if bytes.Contains(b, []byte(l.text)) {
		l.seen <- struct{}{}
		if l.hold != nil {
			<-l.hold
		}
	}
	return len(b), nil
}

func (l *line) wait() {
	l.t.Helper()
	select {
	case <-l.seen:
	case <-time.After(patience):
		require.Fail(l.t, "not logged", l.text)
	}
}

// shortDir is a directory whose name leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir := must(os.MkdirTemp("", "rnicd-k-"))(t)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// built is what the repository's Makefile builds: rnicd and the two libraries, in one folder.
var built = sync.OnceValues(func() (string, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("make", "-C", root, "build")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", &exec.Error{Name: string(out), Err: err}
	}
	return filepath.Join(root, "bin"), nil
})

func binaries(t *testing.T) string {
	t.Helper()
	return must(built())(t)
}

// process is one that the test started; it is killed at the test's end.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}

	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{} // something was written
}

func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(name, args...), done: make(chan struct{}),
		news: make(chan struct{}, 1)}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // the status is looked at
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	p.text.Write(b)
	p.mu.Unlock()
	select {
	case p.news <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (p *process) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// says waits until the process has written this, since its start.
func (p *process) says(what string) {
	p.t.Helper()
	deadline := time.After(patience)
	for !bytes.Contains([]byte(p.String()), []byte(what)) {
		select {
		case <-p.news:
		case <-p.done:
			require.Contains(p.t, p.String(), what, "it has ended")
		case <-deadline:
			require.Contains(p.t, p.String(), what)
		}
	}
}

// ends waits for the process's end, and returns its exit status.
func (p *process) ends() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		require.Fail(p.t, "does not end", "%s", p)
	}
	return p.cmd.ProcessState.ExitCode()
}

// must is v, if there was no error.
func must[V any](v V, err error) func(require.TestingT) V {
	return func(t require.TestingT) V {
		require.NoError(t, err)
		return v
	}
}
