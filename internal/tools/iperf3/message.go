package iperf3

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"syscall"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
)

const (
	cookieBytes = 37 // 36 characters and a NUL
	// a message with 256 streams has some 32 KiB; --get-server-output makes it longer
	jsonMax = 1 << 20
)

// cookie names a test: the same on all of its connections.
type cookie [cookieBytes]byte

func newCookie() cookie {
	const alphabet = "abcdefghijklmnopqrstuvwxyz234567"
	var c cookie
	_, _ = rand.Read(c[:cookieBytes-1]) // never fails
	for i := range c[:cookieBytes-1] {
		c[i] = alphabet[c[i]%byte(len(alphabet))]
	}
	return c
}

// readCookie reads a cookie, which any client of iperf3 sends first; anything else comes from a
// client of something else.
func readCookie(r io.Reader) (c cookie, err error) {
	if n, err := io.ReadFull(r, c[:]); err != nil {
		return c, &ProtocolError{Code: CodeParams, Reason: "no cookie: " + plural(n, "octet") + " of 37",
			Err: err}
	}
	ok := c[cookieBytes-1] == 0
	for _, b := range c[:cookieBytes-1] {
		ok = ok && b > ' ' && b < 0x7F
	}
	if !ok {
		return c, refusal(CodeParams, "not a client of iperf3: it began with %q instead of a cookie",
			c[:])
	}
	return c, nil
}

func readState(r io.Reader) (State, error) {
	var b [1]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, err
	}
	return State(b[0]), nil
}

// readJSON reads a message: its length in 4 octets, then JSON.
func readJSON(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > jsonMax {
		return refusal(CodeParams, "a message of %d octets: more than %d", n, jsonMax)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return &ProtocolError{Code: CodeParams, Reason: "bad JSON", Err: err}
	}
	return nil
}

func appendJSON(b []byte, v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return b, err
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...), nil
}

// control is a control connection. Each message has until timeout, going out or coming in; when ctx
// is done nothing is waited for any more, but what is left to say can still be sent.
type control struct {
	ctx     context.Context
	conn    net.Conn
	timeout time.Duration
	reading *awake.Timer // of what is read
}

// interruptible cuts reads short when ctx is done, until stop is called.
func (c *control) interruptible() (stop func() bool) {
	return context.AfterFunc(c.ctx, func() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) })
}

// allow gives what is read next its time; zero: as long as it takes. The order matters: either ctx
// is seen to be done here, or the deadline of interruptible comes after this one.
func (c *control) allow(d time.Duration) error {
	if c.reading != nil {
		c.reading.Stop()
	}
	if err := c.conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	if d > 0 {
		c.reading = awake.Deadline(d, c.conn.SetReadDeadline)
	}
	return c.ctx.Err()
}

func (c *control) write(b []byte) error {
	if err := c.conn.SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	defer awake.Deadline(c.timeout, c.conn.SetWriteDeadline).Stop()
	_, err := c.conn.Write(b)
	return err
}

func (c *control) send(s State) error { return c.write([]byte{byte(s)}) }

// fail tells a client why its test ends; that it may not arrive is no news.
func (c *control) fail(code Code) {
	b := binary.BigEndian.AppendUint32([]byte{0xFE}, uint32(code)) // 0xFE: ServerError
	_ = c.write(binary.BigEndian.AppendUint32(b, 0))
}

func (c *control) sendJSON(v any) error {
	b, err := appendJSON(nil, v)
	if err != nil {
		return err
	}
	return c.write(b)
}

func (c *control) readJSON(v any) error {
	if err := c.allow(c.timeout); err != nil {
		return err
	}
	return readJSON(c.conn, v)
}

// expect reads the next state, which must be want.
func (c *control) expect(want State) error {
	if err := c.allow(c.timeout); err != nil {
		return err
	}
	s, err := readState(c.conn)
	return c.judge(s, err, want)
}

// judge turns a state that was read into an error, unless it is want.
func (c *control) judge(s State, err error, want State) error {
	switch {
	case errors.Is(err, io.EOF):
		return &ProtocolError{Code: CodeParams,
			Reason: "the peer closed the control connection instead of " + want.String()}
	case err != nil:
		return &ProtocolError{Code: CodeParams, Reason: "no " + want.String() +
			" on the control connection", Err: err}
	case s == want:
		return nil
	case s == AccessDenied:
		return ErrBusy
	case s == ServerTerminate, s == ClientTerminate:
		return ErrTerminated
	case s == ServerError:
		return c.remoteError()
	}
	return refusal(CodeParams, "%v on the control connection instead of %v", s, want)
}

func (c *control) remoteError() error {
	var b [8]byte
	if _, err := io.ReadFull(c.conn, b[:]); err != nil {
		return &ProtocolError{Reason: "SERVER_ERROR without its codes", Err: err}
	}
	return &RemoteError{
		Code:  Code(binary.BigEndian.Uint32(b[:])),
		Errno: syscall.Errno(binary.BigEndian.Uint32(b[4:])),
	}
}

// event is a state that came while the test ran, or the end of the control connection.
type event struct {
	state State
	err   error
}

// next reads one state in the background, without a timeout of its own: closing the connection, or
// a read deadline, ends it. Nothing else may read from the connection until the event has come.
func (c *control) next() <-chan event {
	ch := make(chan event, 1)
	if err := c.allow(0); err != nil {
		ch <- event{err: err}
		return ch
	}
	go func() {
		s, err := readState(c.conn)
		ch <- event{s, err}
	}()
	return ch
}

// number is a JSON number as cJSON prints it: a count may have an exponent, and -1 comes as
// 18446744073709551615.
type number float64

func (n number) valid() bool { return !math.IsNaN(float64(n)) && !math.IsInf(float64(n), 0) }

// count is the value between 0 and limit, or false.
func (n number) count(limit float64) (int64, bool) {
	f := float64(n)
	return int64(f), f >= 0 && f <= limit && f == math.Trunc(f)
}

// flag is true unless it is absent, false, null or 0: iperf3 only looks whether the key is there,
// and writes true or 1.
type flag bool

// UnmarshalJSON implements json.Unmarshaler.
func (f *flag) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "false", "null", "0":
		*f = false
	default:
		*f = true
	}
	return nil
}
