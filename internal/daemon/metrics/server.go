package metrics

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rnicd/rnicd/internal/daemon/control"
)

// Bounds of what scrapers may take.
const (
	scrapersMax   = 16 // connections
	scrapeTimeout = 10 * time.Second
	scrapeHeader  = 16 << 10
	idleScraper   = 10 * time.Second // then its place is another's
)

// Server is the port for Prometheus. A nil one is asked nowhere.
type Server struct {
	listener net.Listener
	http     *http.Server
	scraping sync.WaitGroup
}

// Listen opens the port; none where at is empty. Scrapes wait until Serve.
func Listen(at string) (*Server, error) {
	if at == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return &Server{listener: control.Limit(l, scrapersMax, control.ReadsWithin)}, nil
}

// Addr is where it listens; empty: nowhere.
func (s *Server) Addr() string {
	if s == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Serve begins to answer, and returns.
func (s *Server) Serve(h http.Handler) {
	if s == nil {
		return
	}
	s.http = &http.Server{
		Handler: h, ReadTimeout: scrapeTimeout, WriteTimeout: scrapeTimeout, IdleTimeout: idleScraper,
		MaxHeaderBytes: scrapeHeader, ErrorLog: log.New(io.Discard, "", 0),
	}
	s.scraping.Go(func() { _ = s.http.Serve(s.listener) }) // until Close
}

// Close ends scrapes.
func (s *Server) Close() {
	if s == nil {
		return
	}
	_ = s.listener.Close()
	if s.http != nil {
		_ = s.http.Close()
	}
	s.scraping.Wait()
}
