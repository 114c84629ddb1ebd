package daemon

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/rnicd/rnicd/daemon/control"
	"github.com/rnicd/rnicd/daemon/metrics"
)

// Bounds of what scrapers may take.
const (
	scrapersMax   = 16 // connections
	scrapeTimeout = 10 * time.Second
	scrapeHeader  = 16 << 10
	idleScraper   = 10 * time.Second // then its place is another's
)

// listenMetrics opens the port for Prometheus. Scrapes are answered from serveMetrics on.
func (d *Daemon) listenMetrics() error {
	at := d.cfg.Metrics.Listen
	if at == "" {
		return nil
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	d.scraped = control.Limit(l, scrapersMax, control.ReadsWithin)
	return nil
}

func (d *Daemon) serveMetrics() {
	if d.scraped == nil {
		return
	}
	d.metrics = &http.Server{
		Handler: metrics.Handler(d.Status), ReadTimeout: scrapeTimeout, WriteTimeout: scrapeTimeout, IdleTimeout: idleScraper,
		MaxHeaderBytes: scrapeHeader, ErrorLog: log.New(io.Discard, "", 0),
	}
	d.scraping.Go(func() { _ = d.metrics.Serve(d.scraped) }) // until closeMetrics
	d.log.Info("metrics", "listen", d.scraped.Addr().String())
}

// closeMetrics ends scrapes.
func (d *Daemon) closeMetrics() {
	if d.scraped == nil {
		return
	}
	_ = d.scraped.Close()
	if d.metrics != nil {
		_ = d.metrics.Close()
	}
	d.scraping.Wait()
}
