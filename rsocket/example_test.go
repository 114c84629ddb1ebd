package rsocket_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/rsocket"
)

// net/http over RDMA, here over the kernel's TCP at both ends. The other end of either might be a C
// program above rsockets.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	dev, err := rnic.Open(rnic.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close(ctx)

	l, err := rsocket.Listen(ctx, dev, "127.0.0.1:0", rsocket.ListenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "hello, %s", r.URL.Path[1:])
		}))
	}()

	web := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _,
		addr string) (net.Conn, error) {
		return rsocket.Dial(ctx, dev, addr, rsocket.Options{})
	}}}
	resp, err := web.Get("http://" + l.Addr().String() + "/world")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(body))
	// Output: hello, world
}
