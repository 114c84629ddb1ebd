package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/rnicd/rnicd/internal/daemon/control"
	"github.com/rnicd/rnicd/internal/status"
)

// connectionsMax is how many connections are asked for.
const connectionsMax = 2000

// lookTimeout bounds one look.
const lookTimeout = 10 * time.Second

// Ask looks at a daemon, at its connections too where a view shows them, or at a switch.
func Ask(ctx context.Context, c *control.Client, v View, filter []string) (*Look, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	l, err := askStatus(ctx, c)
	if err != nil {
		return nil, err
	}
	if l.Switch != nil && (v == Connections || len(filter) > 0) {
		return nil, errors.New("a switch answers, which has no connections: look at its ports or " +
			"threads, --view ports or cores, without a filter")
	}
	if v != Connections {
		return l, nil
	}
	err = EachConnection(ctx, c, filter, connectionsMax+1, func(one *status.Connection) error {
		if !one.Connected() {
			return nil
		}
		if l.More = len(l.Connections) == connectionsMax; !l.More {
			l.Connections = append(l.Connections, *one)
		}
		return nil
	})
	return l, err
}

// askStatus asks whatever runs there for its status.
func askStatus(ctx context.Context, c *control.Client) (*Look, error) {
	var raw json.RawMessage
	if err := c.Get(ctx, "/v1/status", nil, &raw); err != nil {
		return nil, err
	}
	var kind struct{ Kind string }
	err := json.Unmarshal(raw, &kind)
	l := &Look{}
	switch {
	case err != nil:
	case kind.Kind == status.KindSwitch:
		l.Switch = &status.Switch{}
		err = json.Unmarshal(raw, l.Switch)
	default:
		l.Daemon = &status.Daemon{}
		err = json.Unmarshal(raw, l.Daemon)
	}
	if err != nil {
		return nil, fmt.Errorf("the answer: %w", err)
	}
	return l, nil
}

// EachConnection tells of connections of a daemon, at most limit of them; 0: all.
func EachConnection(ctx context.Context, c *control.Client, filter []string, limit int,
	tell func(*status.Connection) error) error {
	query := url.Values{"filter": filter}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	body, err := c.Stream(ctx, "/v1/connections", query)
	if err != nil {
		return err
	}
	defer body.Close()
	for in := json.NewDecoder(body); ; {
		var one status.Connection
		if err := in.Decode(&one); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := tell(&one); err != nil {
			return err
		}
	}
}

// Run shows a daemon on a terminal each period until q is typed, ctx or the daemon ends, or a
// signal comes. The terminal is as it was when it returns.
func Run(ctx context.Context, c *control.Client, s State, filter []string, period time.Duration, in,
	out *os.File) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	t, err := openTerminal(in, out)
	if err != nil {
		return err
	}
	defer t.restore()
	typed := keysTyped(ctx, in)
	tick := time.NewTicker(period)
	defer tick.Stop()
	var was *Look
	is, err := Ask(ctx, c, s.View, filter)
	if err != nil {
		return err
	}
	for {
		width, height := t.size()
		lines := append(Frame(was, is, &s, width, height-1), clip([]string{Keys}, width, 0)...)
		titles := 2
		if s.Detail {
			titles = -1
		}
		if err := t.draw(lines, titles); err != nil {
			return err
		}
		select {
		case b, ok := <-typed:
			if !ok {
				return nil // the terminal is gone
			}
			view := s.View
			for _, k := range keysOf(b) {
				if k == keyEnd {
					return nil
				}
				s.key(k, is)
			}
			if s.View == view {
				continue
			}
			was = nil // the last answer was for the other view
		case <-resized:
			continue
		case <-tick.C:
			was = is
		case <-ctx.Done():
			return nil
		}
		next, err := Ask(ctx, c, s.View, filter)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		is = next
	}
}

// keysTyped reads in until ctx ends; the channel is closed when there is nothing more to read.
func keysTyped(ctx context.Context, in *os.File) <-chan []byte {
	typed := make(chan []byte)
	go func() {
		defer close(typed)
		for {
			b := make([]byte, 64)
			n, err := in.Read(b)
			if err != nil {
				return
			}
			select {
			case typed <- b[:n]:
			case <-ctx.Done():
				return
			}
		}
	}()
	return typed
}

// key changes what is shown of is.
func (s *State) key(k string, is *Look) {
	views := map[string]View{"p": Ports, "c": Queues, "n": Connections}
	if v, ok := views[k]; ok && (is.Switch == nil || v != Connections) {
		s.View, s.Row, s.Detail = v, 0, false
	}
	switch k {
	case "s", keyRight:
		s.Sort[s.View] = (s.Sort[s.View] + 1) % s.View.columns(is)
	case keyLeft:
		s.Sort[s.View] = (s.Sort[s.View] + s.View.columns(is) - 1) % s.View.columns(is)
	case "r":
		s.Up = !s.Up
	case keyUp, "k":
		s.Row = max(0, s.Row-1)
	case keyDown, "j":
		s.Row++ // Frame knows how many there are
	case keyEnter:
		s.Detail = !s.Detail && s.View.details(is)
	}
}

func (v View) columns(is *Look) int { return len(v.table(nil, is).columns) }
