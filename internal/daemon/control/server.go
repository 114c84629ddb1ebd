package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
)

// Bounds of a Server.
const (
	ClientsMax = 64
	BodyMax    = 1 << 20

	headerMax   = 16 << 10
	asksWithin  = 2 * time.Second // and again so: less than clients wait for us (command.askTimeout)
	closingWait = 2 * time.Second

	// ReadsWithin is how long a client may read nothing of an answer that is more than its socket
	// holds.
	ReadsWithin = 10 * time.Second
)

// Server answers on the control socket. Its methods are for any goroutine; Close is for one.
type Server struct {
	path   string
	mux    *http.ServeMux
	http   http.Server
	listen net.Listener
	cancel context.CancelFunc
	served sync.WaitGroup // Serve, and handlers

	mu     sync.Mutex
	closed bool // no handler begins any more
}

// Listen makes the socket. Clients that come before Serve wait. Its error is an *InUseError when
// another process serves there.
func Listen(path string, mode os.FileMode) (*Server, error) {
	l, err := listen(path, mode)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{path: path, mux: http.NewServeMux(), cancel: cancel,
		listen: Limit(l, ClientsMax, ReadsWithin)}
	s.http = http.Server{
		Handler:           http.MaxBytesHandler(http.HandlerFunc(s.answer), BodyMax),
		ReadHeaderTimeout: asksWithin, IdleTimeout: asksWithin, MaxHeaderBytes: headerMax,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    log.New(io.Discard, "", 0), // of clients that go away, and have heard it
	}
	return s, nil
}

// Serve begins to answer, and returns. More patterns may be added later.
func (s *Server) Serve() {
	s.served.Go(func() { _ = s.http.Serve(s.listen) }) // until Close
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		Fail(w, http.StatusServiceUnavailable, errors.New("the daemon is ending"))
		return
	}
	s.served.Add(1)
	s.mu.Unlock()
	defer s.served.Done()
	s.mux.ServeHTTP(w, r)
}

// Path of the socket.
func (s *Server) Path() string { return s.path }

// Handle answers requests that match a pattern of http.ServeMux. A pattern is given once.
func (s *Server) Handle(pattern string, h http.Handler) { s.mux.Handle(pattern, h) }

// HandleFunc is Handle.
func (s *Server) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	s.mux.HandleFunc(pattern, h)
}

// Close removes the socket, ends the contexts of requests that are being answered, and returns when
// their handlers have. A client that does not read is cut off after a moment.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	ctx, cancel := awake.Timeout(context.Background(), closingWait, nil)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close()
	}
	_ = s.listen.Close() // that was never served; else it is closed
	s.served.Wait()
	return err
}

// Reply answers with v as JSON.
func Reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that has gone
}

// Fail answers with an error.
func Fail(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(failure{err.Error()}) // a client that has gone
}

type failure struct {
	Error string `json:"error"`
}

// Limit makes a Listener of l that has no more than n connections at a time; others wait. A write
// to one fails if it takes longer than within: a client that does not read delays no other for
// longer.
func Limit(l net.Listener, n int, within time.Duration) net.Listener {
	return &limited{Listener: l, within: within, places: make(chan struct{}, n),
		closed: make(chan struct{})}
}

type limited struct {
	net.Listener
	within time.Duration
	places chan struct{}
	once   sync.Once
	closed chan struct{}
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &limitedConn{Conn: c, within: l.within, leave: sync.OnceFunc(func() { <-l.places })}, nil
}

// Close implements net.Listener.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	within time.Duration
	leave  func()
}

func (c *limitedConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.within)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c *limitedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
