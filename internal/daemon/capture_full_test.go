package daemon

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/daemon/metrics"
	"github.com/rnicd/rnicd/internal/daemon/top"
	"github.com/rnicd/rnicd/internal/skip"
	"github.com/rnicd/rnicd/internal/status"
)

// A disk that is full under a port's capture is told at once, by log, status and metrics; the port
// is served on, and a daemon that ends then ends well.
func TestDiskFullUnderACapture(t *testing.T) {
	if os.Geteuid() != 0 {
		skip.Missing(t, "not root: mounts a small file system")
	}
	dir := t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, 0)) })
	file := filepath.Join(dir, "all.pcapng")
	r := start(t, "capture = \""+file+"\"\n"+region)
	captured := func() *status.Capture { return r.d.Status(r.ctx).Ports[0].Capture }
	was := captured()
	require.Equal(t, file, was.File)
	require.Empty(t, was.Error)
	more := func() { require.NoError(t, r.put(r.dev, at(7174), 100_000)) }
	more()
	r.log.await(
		t, 1,
		`level=ERROR msg="the capture has ended; the port is served on" port=cable error="capture: .*no space left`)
	more()
	now := captured()
	require.Contains(t, now.Error, "no space left on device: the file is incomplete")
	require.Eventually(t, func() bool { return captured().Missing > 0 }, patience, time.Millisecond)
	var text strings.Builder
	top.WriteStatus(&text, r.d.Status(r.ctx))
	require.Contains(t, text.String(), "capture to "+file+" has ended: capture: ")
	w := httptest.NewRecorder()
	metrics.Handler(metrics.Collector{Status: r.d.Status}).ServeHTTP(
		w, httptest.NewRequest("GET", "/metrics", nil))
	require.Contains(t, w.Body.String(), `rnicd_capture_ended{port="cable"} 1`)
	require.Regexp(t, `rnicd_capture_frames_missing_total\{port="cable"\} [1-9]`, w.Body.String())
	r.ended = true
	require.NoError(t, r.d.Close())
	all, _ := r.log.lines("the capture has ended")
	require.Len(t, all, 1)
}
