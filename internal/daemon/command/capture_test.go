package command

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/daemon"
	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/wire"
)

// patience bounds every wait.
const patience = time.Minute

// wired is a daemon with a port, and the other end of its cable.
type wired struct {
	t    *testing.T
	d    *daemon.Daemon
	path string // of the control socket
	log  *bytes.Buffer
	q    pmd.Queue
	pool *mem.Pool
}

func newWired(t *testing.T) *wired {
	link, err := wire.New(wire.Config{Names: []string{"rnic0", "peer"}})
	require.NoError(t, err)
	w := &wired{t: t, path: filepath.Join(t.TempDir(), "control.sock"), log: &bytes.Buffer{}}
	cfg, err := config.Parse("rnicd.toml", fmt.Appendf(nil, `
[control]
socket = %q
[[port]]
name = "rnic0"
driver = "cable"
addresses = ["10.9.0.1/24"]
dad = "off"
page = "normal"
[[port]]
name = "local"
driver = "kernel"
addresses = ["127.0.0.1"]
[[service]]
name = "measure"
type = "perf"
ports = ["rnic0"]
`, w.path), port.Builtin().With(port.Of("cable", wire.MTUMax, link.Port(0))))
	require.NoError(t, err)
	w.d, err = daemon.Start(t.Context(), cfg, daemon.Options{Log: w.log})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.d.Close()) })
	pool := mem.PoolConfig{Bufs: 64, Stride: 2048}
	w.pool, err = mem.NewPool(hugepages.Heap(pool.Bytes()), pool)
	require.NoError(t, err)
	w.q, err = link.Port(1).Open(0, w.pool)
	require.NoError(t, err)
	return w
}

// send sends the daemon a frame that its stack drops and does not answer.
func (w *wired) send(tag byte) {
	b := w.pool.Alloc()
	w.pool.Desc(b).Len = 60
	copy(w.pool.Data(b), []byte{2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, tag, 0x88, 0xb5})
	require.Equal(w.t, 1, w.q.Tx([]mem.Buf{b}), "the wire has more slots than the test has frames")
	w.pool.Free(b)
}

// run runs the command, and calls begun when the daemon has begun to capture.
func (w *wired) run(begun func(end context.CancelFunc),
	args ...string) (stdout []byte, stderr string, err error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	var out, errs bytes.Buffer
	watched := &watchedWriter{Buffer: &out, first: func() { begun(cancel) }}
	root := Root(port.Builtin())
	root.SetArgs(append([]string{"capture", "--socket", w.path}, args...))
	root.SetOut(watched)
	root.SetErr(&errs)
	err = root.ExecuteContext(ctx)
	return out.Bytes(), errs.String(), err
}

type watchedWriter struct {
	*bytes.Buffer
	first func()
}

func (w *watchedWriter) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if w.first != nil {
		w.first()
		w.first = nil
	}
	return n, err
}

func sources(t *testing.T, file []byte) (tags []byte, intfs []string) {
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions)
	require.NoError(t, err)
	for {
		data, ci, opts, err := r.ReadPacketDataWithOptions()
		if err != nil {
			break
		}
		require.Equal(t, pcapgo.NgEpbFlagDirectionInbound, opts.Flags.Direction)
		intf, err := r.Interface(ci.InterfaceIndex)
		require.NoError(t, err)
		tags, intfs = append(tags, data[11]), append(intfs, intf.Name)
	}
	return tags, intfs
}

// The command writes the frames that match its filter until it has -c of them; a second run does
// too.
func TestCapture(t *testing.T) {
	w := newWired(t)
	for range 2 {
		out, text, err := w.run(func(context.CancelFunc) {
			for i := range byte(5) {
				w.send(i)
			}
		}, "-c", "3", "inbound", "and", "not", "ether 02:00:00:00:00:01")
		require.NoError(t, err)
		require.Equal(t, "3 frames, 0 missing\n", text)
		tags, intfs := sources(t, out)
		require.Equal(t, []byte{0, 2, 3}, tags)
		require.Equal(t, []string{"rnic0", "rnic0", "rnic0"}, intfs)
	}
}

// An interrupted command has written the frames until then, and the statistics.
func TestCaptureInterrupted(t *testing.T) {
	w := newWired(t)
	out, text, err := w.run(func(end context.CancelFunc) {
		w.send(7)
		for at := w.d.Ports()[0].Pollers()[0]; ; { // it has been through the Point
			k, err := at.Counters(t.Context())
			require.NoError(t, err)
			if k.RxFrames > 0 {
				break
			}
		}
		end()
	}, "-i", "rnic0", "inbound")
	require.NoError(t, err)
	require.Equal(t, "1 frame, 0 missing\n", text)
	tags, _ := sources(t, out)
	require.Equal(t, []byte{7}, tags)
	r, err := pcapgo.NewNgReader(bytes.NewReader(out), pcapgo.DefaultNgReaderOptions)
	require.NoError(t, err)
	for err == nil {
		_, _, err = r.ReadPacketData()
	}
	intf, err := r.Interface(0)
	require.NoError(t, err)
	require.EqualValues(t, 1, intf.Statistics.PacketsReceived)
}

func TestCaptureMistakes(t *testing.T) {
	w := newWired(t)
	none := filepath.Join(t.TempDir(), "none.pcapng")
	for want, args := range map[string][]string{
		`filter: at character 5, "portt": want and, or, or the end`: {"tcp",
			"portt", "80"},
		`port "rnic1": there is none; there are rnic0, local`: {"-i",
			"rnic1"},
		`port "local": over the kernel's sockets frames are the kernel's; tcpdump has them`: {"-i",
			"local"},
		`snaplen: "-1" is no number from 0`:                                       {"-s", "-1"},
		`--file-size: "5x" is no size; write 4096, "64KiB", "256MiB" or "1.5GiB"`: {"-C", "5x"},
		"capture: 3 files, and no size at which the next one begins": {"-w",
			none, "-W", "3"},
		"capture: open /dev/null/x: not a directory; choose a file that can be written": {"-w",
			"/dev/null/x"},
	} {
		_, _, err := w.run(func(context.CancelFunc) {}, args...)
		require.EqualError(t, err, want)
	}
	_, err := os.Stat(none)
	require.ErrorIs(t, err, os.ErrNotExist)
	root := Root(port.Builtin())
	root.SetArgs([]string{"capture", "--socket", none})
	require.ErrorContains(t, root.Execute(), "no daemon answers")
}
