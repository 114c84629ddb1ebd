package switchd

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/vswitch"
)

// lines is what a logger wrote.
type lines struct {
	mu      sync.Mutex
	b       bytes.Buffer
	changed chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed <- struct{}{}
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// await waits for the next line.
func (l *lines) await(t *testing.T) {
	t.Helper()
	select {
	case <-l.changed:
	case <-time.After(time.Minute):
		require.Fail(t, "no further line", l.String())
	}
}

// standHere is where a thread of the test stands.
//
//go:noinline
func standHere(until <-chan struct{}) { <-until }

// A thread that does not turn is reported, once, with its number and where it stands, and again
// when it turns; meanwhile the switch is not healthy, and its status says why there are no
// counters.
func TestHungThread(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "switch.sock")
	cfg, err := config.ParseSwitch("switch.toml",
		[]byte("[switch]\nthreads = 2\nsocket = \""+socket+
			"\"\n[[program]]\nname = \"one\"\naddresses = [\"10.9.0.1\"]\n"), port.Builtin())
	require.NoError(t, err)
	v := cfg.Vswitch
	v.Arena = hugepages.Heap(int(v.MemoryBytes(0)) + 1<<20)
	s := &Server{cfg: cfg, version: "v1", since: time.Now()}
	s.sw, err = vswitch.New(v)
	require.NoError(t, err)

	var turning sync.WaitGroup
	turn := func(c *vswitch.Core) (stop func()) {
		over := make(chan struct{})
		turning.Go(func() { turn(c, false, over) })
		return sync.OnceFunc(func() { close(over) })
	}
	stopFirst := turn(s.sw.Cores()[0])
	defer stopFirst()

	free := make(chan struct{})
	turning.Go(func() { labelled(1, func() { standHere(free) }) })

	log := &lines{changed: make(chan struct{}, 16)}
	ctx, cancel := context.WithCancel(t.Context())
	var watched sync.WaitGroup
	watched.Go(func() { s.watch(ctx, slog.New(slog.NewTextHandler(log, nil))) })
	log.await(t)
	require.Contains(t, log.String(), `level=ERROR msg="a thread has not turned"`)
	require.Contains(t, log.String(), "core 1 does not turn")
	log.await(t)
	require.Regexp(t, `level=ERROR msg="where the thread stands" thread=1 stack=".*switchd\.standHere`,
		log.String())
	close(free)
	require.False(t, s.Healthy())
	st := s.Status(t.Context())
	require.False(t, st.Healthy)
	require.Contains(t, st.Error, "core 1 does not turn")
	require.Empty(t, st.Threads)

	stopSecond := turn(s.sw.Cores()[1])
	defer stopSecond()
	log.await(t)
	require.Contains(t, log.String(), `level=WARN msg="all threads turn again"`)
	require.Equal(t, 1, strings.Count(log.String(), "has not turned"), "once, however long it takes")
	require.True(t, s.Healthy())
	st = s.Status(t.Context())
	require.True(t, st.Healthy)
	require.Len(t, st.Threads, 2)
	require.Equal(t, "one", st.Programs[0].Name)
	cancel()
	watched.Wait()
	stopFirst()
	stopSecond()
	turning.Wait()
	require.NoError(t, s.sw.Close())
}
