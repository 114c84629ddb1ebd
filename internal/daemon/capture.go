package daemon

import (
	"errors"
	"fmt"
	"math/bits"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/rnicd/rnicd/internal/capture"
	"github.com/rnicd/rnicd/internal/capture/filter"
	"github.com/rnicd/rnicd/internal/daemon/control"
	"github.com/rnicd/rnicd/pmd"
)

const (
	// captureRing bounds the octets between a Poller and the writer of a capture, for each queue.
	captureRing = 8 << 20
	idLenMax    = 64 // of a capture's name
)

// captures are those that run over the control socket.
type captures struct {
	mu  sync.Mutex
	end map[string]func() // by the name that its client has given it
}

func (d *Daemon) serveCapture() {
	all := &captures{end: map[string]func(){}}
	d.control.HandleFunc("GET /v1/capture", func(w http.ResponseWriter, r *http.Request) {
		d.capture(all, w, r)
	})
	d.control.HandleFunc("POST /v1/capture/end", func(w http.ResponseWriter, r *http.Request) {
		all.mu.Lock()
		end := all.end[r.FormValue("id")]
		all.mu.Unlock()
		if end == nil {
			control.Fail(w, http.StatusNotFound, errors.New("no such capture is running"))
			return
		}
		end()
		control.Reply(w, struct{}{})
	})
}

// capture streams what goes through ports as pcapng, until count frames are there, its end is asked
// for, or the client goes. Parameters: id, by which its end may be asked for; port, once or more
// often, all without; filter; snaplen; count.
func (d *Daemon) capture(all *captures, w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	points, err := d.points(query["port"])
	if err != nil {
		control.Fail(w, http.StatusBadRequest, err)
		return
	}
	cfg, err := captureConfig(query.Get("filter"), query.Get("snaplen"), query.Get("count"), points)
	if err != nil {
		control.Fail(w, http.StatusBadRequest, err)
		return
	}
	ended := make(chan struct{})
	if id := query.Get("id"); id != "" {
		if err := all.add(id, sync.OnceFunc(func() { close(ended) })); err != nil {
			control.Fail(w, http.StatusBadRequest, err)
			return
		}
		defer all.remove(id)
	}
	out := &held{to: w, flush: http.NewResponseController(w).Flush}
	c, err := capture.New(out, cfg)
	if err == nil {
		for _, p := range points {
			if err = c.Attach(p); err != nil {
				_ = c.Close() // into memory
				break
			}
		}
	}
	if err != nil {
		control.Fail(w, http.StatusConflict, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-pcapng")
	d.log.Info("capture begins", "ports", strings.Join(names(points), ","), "filter",
		query.Get("filter"))
	if out.open() == nil {
		_ = c.Flush() // the client knows by it that the capture runs
	}
	select {
	case <-c.Done():
	case <-ended:
	case <-r.Context().Done():
	}
	_ = c.Close() // a client that has gone
	n := c.Counters()
	d.log.Info("capture ended", "ports", strings.Join(names(points), ","), "frames", n.Written,
		"dropped", n.Dropped)
}

func names(points []*capture.Point) (all []string) {
	for _, p := range points {
		all = append(all, p.Name())
	}
	return all
}

func (c *captures) add(id string, end func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(id) > idLenMax {
		return fmt.Errorf("capture: a name of more than %d octets", idLenMax)
	}
	if c.end[id] != nil {
		return fmt.Errorf("capture: another one has the name %q", id)
	}
	c.end[id] = end
	return nil
}

func (c *captures) remove(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.end, id)
}

// points are those of the ports with these names, or of all that have frames.
func (d *Daemon) points(wanted []string) (all []*capture.Point, err error) {
	if len(wanted) == 0 {
		for _, p := range d.Ports() {
			if p.Point() != nil {
				all = append(all, p.Point())
			}
		}
		if len(all) == 0 {
			return nil, errors.New("no port has frames: over the kernel's sockets they are the kernel's; " +
				"tcpdump has them")
		}
		return all, nil
	}
	for _, name := range wanted {
		p, err := d.captured(name)
		if err != nil {
			return nil, err
		}
		if p.Point() == nil {
			return nil, fmt.Errorf("port %q: over the kernel's sockets frames are the kernel's; "+
				"tcpdump has them", name)
		}
		all = append(all, p.Point())
	}
	return all, nil
}

func (d *Daemon) captured(name string) (*Port, error) {
	var known []string
	for _, p := range d.Ports() {
		if p.Name == name {
			return p, nil
		}
		known = append(known, p.Name)
	}
	return nil, fmt.Errorf("port %q: there is none; there are %s", name, strings.Join(known, ", "))
}

func captureConfig(text, snap, count string,
	points []*capture.Point) (cfg capture.Config, err error) {
	if text != "" {
		if cfg.Filter, err = filter.Compile(text); err != nil {
			return cfg, err
		}
	}
	if cfg.SnapLen, err = natural("snaplen", snap); err != nil {
		return cfg, err
	}
	if cfg.Count, err = natural("count", count); err != nil {
		return cfg, err
	}
	longest := 1
	for _, p := range points {
		longest = max(longest, p.Caps().MTU+pmd.FrameOverhead)
	}
	if cfg.SnapLen > 0 {
		longest = min(longest, cfg.SnapLen)
	}
	cfg.Slots = min(capture.SlotsDefault, 1<<(bits.Len(uint(captureRing/longest))-1))
	return cfg, nil
}

func natural(name, text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s: %q is no number from 0", name, text)
	}
	return n, nil
}

// held keeps what is written in memory until open, so that an error may still be answered instead.
type held struct {
	mu     sync.Mutex
	to     http.ResponseWriter
	flush  func() error
	first  []byte
	opened bool
}

func (h *held) open() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.opened = true
	_, err := h.to.Write(h.first)
	h.first = nil
	if err != nil {
		return err
	}
	return h.flush()
}

// Write implements io.Writer.
func (h *held) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.opened {
		h.first = append(h.first, p...)
		return len(p), nil
	}
	n, err := h.to.Write(p)
	if err == nil {
		err = h.flush()
	}
	return n, err
}
