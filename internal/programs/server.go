package programs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/awake"
)

// Bounds of what is answered.
const (
	clientsMax  = 64 // at a time, each a descriptor of the process; others wait
	answersMax  = 4  // at a time; clients that have asked wait
	headMax     = 16 << 10
	answerMax   = time.Minute      // with the wait for its place
	asksWithin  = 2 * time.Second  // less than clients wait for us (command.programTimeout)
	readsWithin = 10 * time.Second // a client takes what its socket has room for
	pauseMin    = 5 * time.Millisecond
	pauseMax    = time.Second
)

// Answer writes the answer to a question. The context ends when it takes too long. An error before
// anything is written is told; after that the client sees that the answer is cut.
type Answer func(ctx context.Context, query url.Values, w io.Writer) error

// QuestionError: what was asked cannot be answered.
type QuestionError struct{ Err error }

func (e *QuestionError) Error() string { return e.Err.Error() }
func (e *QuestionError) Unwrap() error { return e.Err }

// Serve answers GET requests by their paths, for as long as the process lives.
func (s *Socket) Serve(answers map[string]Answer) {
	places, answering := make(chan struct{}, clientsMax), make(chan struct{}, answersMax)
	for pause := pauseMin; ; {
		places <- struct{}{}
		c, err := s.listen.AcceptUnix()
		if err == nil {
			pause = pauseMin
			keep(c)
			go func() {
				defer func() { <-places }()
				s.serve(c, answers, answering)
			}()
			continue
		}
		<-places
		if !slices.ContainsFunc(passing, func(errno unix.Errno) bool { return errors.Is(err, errno) }) {
			return // the program has closed it by a way of its own
		}
		<-time.After(pause)
		pause = min(2*pause, pauseMax)
	}
}

// passing are the errors of accept after which it may be called again.
var passing = []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED}

// serve answers one question, when it has a place among those that answer: a client that asks
// nothing takes none. A mistake of ours in an answer must not end the program.
func (s *Socket) serve(c *net.UnixConn, answers map[string]Answer, answering chan struct{}) {
	defer func() {
		_ = recover()
		forget(c)
		_ = c.Close() // the client has gone, or knows
	}()
	w := &answer{to: within{c}}
	_ = c.SetReadDeadline(time.Now().Add(asksWithin)) // or reading says why not
	peer, err := peerOf(c)
	if err != nil || peer.Uid != s.uid && peer.Uid != root {
		w.fail(403, "Forbidden", errors.New("only the program's user and root may ask it"))
		return
	}
	path, query, err := question(c)
	if err != nil {
		w.fail(400, "Bad Request", err)
		return
	}
	do := answers[path]
	if do == nil {
		_, _ = io.WriteString(w.to, headOf(404, "Not Found")) // the client says what that means
		return
	}
	ctx, cancel := awake.Timeout(context.Background(), answerMax, nil)
	defer cancel()
	select {
	case answering <- struct{}{}:
	case <-ctx.Done():
		w.fail(503, "Service Unavailable", errors.New("too many ask at once"))
		return
	}
	defer func() { <-answering }()
	err = do(ctx, query, w)
	var wrong *QuestionError
	switch {
	case err == nil:
		w.end()
	case w.begun:
	case errors.As(err, &wrong):
		w.fail(400, "Bad Request", err)
	default:
		w.fail(503, "Service Unavailable", err)
	}
}

// question reads a request of HTTP/1.1, of which the first line is all that matters. One of
// HTTP/1.0 is refused: it knows no chunks, and without them nobody sees that an answer is cut.
func question(r io.Reader) (path string, query url.Values, err error) {
	lines := bufio.NewScanner(io.LimitReader(r, headMax))
	lines.Buffer(make([]byte, 1024), headMax)
	var first string
	for n := 0; lines.Scan(); n++ {
		if n == 0 {
			first = lines.Text()
		} else if lines.Text() == "" {
			method, rest, _ := strings.Cut(first, " ")
			target, version, ok := strings.Cut(rest, " ")
			at, err := url.ParseRequestURI(target)
			if !ok || err != nil || version != "HTTP/1.1" {
				return "", nil, errors.New("this is no request of HTTP/1.1")
			}
			if method != "GET" {
				return "", nil, fmt.Errorf("%s: a program only answers GET", method)
			}
			return at.Path, at.Query(), nil
		}
	}
	return "", nil, fmt.Errorf("no request, or one of more than %d octets", headMax)
}

func headOf(code int, text string, more ...string) string {
	return fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nConnection: close\r\n%s\r\n",
		code, text, strings.Join(more, ""))
}

// answer writes one in chunks, by whose end the client knows that it is whole.
type answer struct {
	to    io.Writer
	begun bool
	held  []byte
}

const heldMax = 16 << 10

// Write implements io.Writer.
func (a *answer) Write(p []byte) (int, error) {
	a.held = append(a.held, p...)
	if len(a.held) < heldMax {
		return len(p), nil
	}
	if err := a.flush(); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (a *answer) flush() error {
	head := ""
	if !a.begun {
		a.begun = true
		head = headOf(200, "OK", "Transfer-Encoding: chunked\r\n")
	}
	if len(a.held) > 0 {
		head += fmt.Sprintf("%x\r\n%s\r\n", len(a.held), a.held)
	}
	a.held = a.held[:0]
	_, err := io.WriteString(a.to, head)
	return err
}

func (a *answer) end() {
	if a.flush() == nil {
		_, _ = io.WriteString(a.to, "0\r\n\r\n")
	}
}

func (a *answer) fail(code int, text string, err error) {
	body, _ := json.Marshal(map[string]string{"error": err.Error()}) // of a string: no error
	_, _ = io.WriteString(a.to, headOf(code, text)+string(body))
}

// within is a client that has so long for each write.
type within struct{ c net.Conn }

func (w within) Write(p []byte) (int, error) {
	if err := w.c.SetWriteDeadline(time.Now().Add(readsWithin)); err != nil {
		return 0, err
	}
	return w.c.Write(p)
}
