package iperf3

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
)

// pendingMax bounds connections that have not sent their cookie yet. While there are so many, none
// is accepted.
const pendingMax = 64

// ServerConfig says how a Server serves.
type ServerConfig struct {
	Transport Transport // may be nil
	// ends a test in which nothing moves for so long; 0: 30 s
	Idle   time.Duration
	Began  func(remote net.Addr, p Params)    // a test begins; may be nil
	Done   func(r *Report)                    // a test came to its end; may be nil
	Failed func(remote net.Addr, cause error) // a connection or a test failed; may be nil
}

// Server takes tests of iperf3's clients, one at a time; to others it says that it is busy. Its
// callbacks are called from several goroutines.
type Server struct {
	cfg  ServerConfig
	wait timeouts

	mu  sync.Mutex
	cur *session // nil: free
}

// StrayError is of a connection that never was a test's: it sent no cookie, or came while another
// test was running.
type StrayError struct{ Err error }

func (e *StrayError) Error() string { return e.Err.Error() }
func (e *StrayError) Unwrap() error { return e.Err }

// NewServer makes a Server.
func NewServer(cfg ServerConfig) *Server {
	return &Server{cfg: cfg, wait: timeouts{idle: cfg.Idle}.orDefault()}
}

// Serve serves until ctx is done, which is no error, or the listener fails. It closes the listener.
// Nothing of it runs any more when it returns. Whatever a peer does goes to Failed and to no one
// else.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	defer l.Close()
	pending := make(chan struct{}, pendingMax)
	for seq := 0; ; seq++ {
		select {
		case pending <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		conn, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return nil
		}
		if err != nil {
			return err
		}
		running.Go(func() { s.admit(ctx, conn, seq, func() { <-pending }) })
	}
}

// admit reads a connection's cookie and so learns what it is. A test runs on the goroutine of its
// control connection.
func (s *Server) admit(ctx context.Context, conn net.Conn, seq int, known func()) {
	limit := awake.Deadline(s.wait.message, conn.SetDeadline)
	hurry := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	c, err := readCookie(conn)
	limit.Stop()
	undisturbed := hurry()
	known()
	if err != nil || !undisturbed {
		_ = conn.Close()
		if undisturbed {
			s.failed(conn, &StrayError{err})
		}
		return
	}
	started, taken := s.seat(ctx, c, conn, seq)
	switch {
	case started != nil:
		s.run(ctx, started)
	case ctx.Err() != nil && !taken:
		_ = conn.Close()
	case !taken:
		busy := control{ctx: ctx, conn: conn, timeout: s.wait.message}
		_ = busy.send(AccessDenied)
		_ = conn.Close()
		s.failed(conn, &StrayError{errors.New("iperf3: refused: another test is running")})
	}
}

// seat begins a test with a connection or gives it to the one that is gathering. After the end of
// ctx it begins none: a data connection whose test has just ended by it, and made room, is not the
// first of another.
func (s *Server) seat(ctx context.Context, c cookie, conn net.Conn,
	seq int) (started *session, taken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.cur != nil:
		return nil, s.cur.offer(c, conn, seq)
	case ctx.Err() != nil:
		return nil, false
	}
	s.cur = &session{server: s, cookie: c, ctl: control{ctx: ctx, conn: conn, timeout: s.wait.message}}
	return s.cur, true
}

func (s *Server) run(ctx context.Context, ses *session) {
	stop := ses.ctl.interruptible()
	rep, err := ses.run(ctx)
	stop()
	s.mu.Lock()
	s.cur = nil
	ses.closeJoined()
	s.mu.Unlock()
	_ = ses.ctl.conn.Close()
	switch {
	case err != nil:
		s.failed(ses.ctl.conn, err)
	case s.cfg.Done != nil:
		s.cfg.Done(rep)
	}
}

func (s *Server) failed(conn net.Conn, err error) {
	if s.cfg.Failed != nil {
		s.cfg.Failed(conn.RemoteAddr(), err)
	}
}
