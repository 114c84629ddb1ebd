package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"

	"golang.org/x/sys/unix"
)

// Client asks a daemon on its control socket. Its methods are for any goroutine.
type Client struct {
	path string
	http http.Client
}

// NewClient asks on the socket at path; empty: at DefaultPath.
func NewClient(path string) *Client {
	if path == "" {
		path = DefaultPath()
	}
	return NewClientOf(path, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	})
}

// NewClientOf is NewClient for a socket at path that dial connects with.
func NewClientOf(path string, dial func(context.Context) (net.Conn, error)) *Client {
	c := &Client{path: path}
	c.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _,
		_ string) (net.Conn, error) {
		return dial(ctx)
	}}
	return c
}

// Close lets go of connections that are idle.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Get asks for a path, as /v1/status, and decodes the answer into v.
func (c *Client) Get(ctx context.Context, path string, query url.Values, v any) error {
	body, err := c.Stream(ctx, path, query)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(v); err != nil {
		return fmt.Errorf("%s: the answer: %w", c.path, err)
	}
	return nil
}

// Post asks the daemon to do something, and does not look at the answer except for an error.
func (c *Client) Post(ctx context.Context, path string, query url.Values) error {
	body, err := c.ask(ctx, http.MethodPost, path, query)
	if err != nil {
		return err
	}
	return body.Close()
}

// Stream asks for a path whose answer goes on until ctx ends or the daemon has said all. The caller
// closes it.
func (c *Client) Stream(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	return c.ask(ctx, http.MethodGet, path, query)
}

func (c *Client) ask(ctx context.Context, method, path string,
	query url.Values) (io.ReadCloser, error) {
	at := url.URL{Scheme: "http", Host: "rnicd", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, at.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	var said failure
	if json.NewDecoder(io.LimitReader(resp.Body, BodyMax)).Decode(&said) == nil && said.Error != "" {
		return nil, errors.New(said.Error)
	}
	return nil, fmt.Errorf("%s: %s: the daemon is of another version and does not know that", path,
		resp.Status)
}

// explain says what to do if no daemon answers.
func (c *Client) explain(err error) error {
	switch {
	case c.path == "":
		return &NobodyError{}
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return &NobodyError{c.path}
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s: not permitted; ask as the daemon's user, or set mode of its [control]",
			c.path)
	case errors.Is(err, context.DeadlineExceeded):
		return &silentError{c.path}
	}
	var inner *url.Error
	if errors.As(err, &inner) {
		err = inner.Err
	}
	return fmt.Errorf("%s: %w", c.path, err)
}

// silentError: a listener that does not answer in time.
type silentError struct{ path string }

func (e *silentError) Error() string { return e.path + ": it does not answer; is it stopped?" }
func (*silentError) Unwrap() error   { return context.DeadlineExceeded }

// NobodyError: a control socket without a listener, or none is known.
type NobodyError struct{ Path string }

func (e *NobodyError) Error() string {
	if e.Path == "" {
		return "no control socket is known: name the daemon's, --socket PATH"
	}
	return fmt.Sprintf("%s: no daemon answers; is one running, and with this [control] socket? "+
		"--socket PATH names another", e.Path)
}
