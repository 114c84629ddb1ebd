package stream

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// net/http serves and fetches over the stack as it is: large bodies both ways, connections kept
// alive, many at once.
func TestHTTP(t *testing.T) {
	l := newLab(t, labConfig{})
	ln := l.listen(Options{})
	mux := http.NewServeMux()
	mux.HandleFunc("/sum", func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		_, _ = io.Copy(h, r.Body)
		_, _ = fmt.Fprint(w, hex.EncodeToString(h.Sum(nil)))
	})
	body := random(1, 2<<20)
	mux.HandleFunc("/get", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, bytes.NewReader(body))
	})
	srv := &http.Server{Handler: mux}
	serving := in(func() error { return srv.Serve(ln) })

	dialer := &Dialer{Pollers: l.hosts[0].mine}
	transport := &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 8}
	client := &http.Client{Transport: transport}
	url := "http://" + ln.Addr().String()
	fetch := func(i int) {
		upload := random(uint64(i), 300_000+i)
		resp := must(client.Post(url+"/sum", "application/octet-stream", bytes.NewReader(upload)))(t)
		got := must(io.ReadAll(resp.Body))(t)
		require.NoError(t, resp.Body.Close())
		sum := sha256.Sum256(upload)
		require.Equal(t, hex.EncodeToString(sum[:]), string(got))
		resp = must(client.Get(url + "/get"))(t)
		got = must(io.ReadAll(resp.Body))(t)
		require.NoError(t, resp.Body.Close())
		require.True(t, bytes.Equal(body, got))
	}
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 2 {
				fetch(2*worker + i)
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, dialer.turn.Load(), uint32(16), "32 requests: connections were kept alive")
	transport.CloseIdleConnections()
	require.NoError(t, srv.Shutdown(l.ctx))
	require.ErrorIs(t, l.result(serving), http.ErrServerClosed)
	l.idle()
}
