package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"

	"github.com/rnicd/rnicd/internal/status"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// seen is what a Poller copies of a connection.
type seen struct {
	conn           stack.ConnInfo
	rdma           rnic.ConnInfo
	stream         stream.Info
	isRDMA, isByte bool
}

// EachOf tells of the connections of one Poller. It copies what a turn has seen, and tells of it
// between turns.
func EachOf(ctx context.Context, p *stack.Poller, tell func(*status.Connection) error) error {
	var batch []seen
	return p.EachConn(ctx, func(c *stack.Conn) {
		batch = append(batch, seen{})
		s := &batch[len(batch)-1]
		c.Info(&s.conn)
		if s.isRDMA = rnic.InfoOf(c, &s.rdma); !s.isRDMA {
			s.stream, s.isByte = stream.InfoOf(c)
		}
	}, func() error {
		for i := range batch {
			s := &batch[i]
			c := &status.Connection{Kind: status.Other, Conn: s.conn}
			switch {
			case s.isRDMA:
				c.Kind, c.RDMA = status.RDMA, &s.rdma
			case s.isByte:
				c.Kind = status.TCPStream
				c.Stream = &status.Stream{Acked: s.stream.Acked, Unacked: s.stream.Unacked,
					Unsent: s.stream.Unsent, Unread: s.stream.Unread}
			}
			if err := tell(c); err != nil {
				return err
			}
		}
		batch = batch[:0]
		return nil
	})
}

// Look is a question for connections.
type Look struct {
	Filter status.Filter
	limit  int // -1: none
}

// ParseLook reads one from a query: filter, a word of status.ParseFilter, any number of times;
// limit.
func ParseLook(query url.Values) (l Look, err error) {
	if l.Filter, err = status.ParseFilter(query["filter"]); err != nil {
		return l, err
	}
	l.limit = -1
	if text := query.Get("limit"); text != "" {
		if l.limit, err = strconv.Atoi(text); err == nil && l.limit < 1 {
			err = fmt.Errorf("limit %d: want 1 or more", l.limit)
		}
	}
	return l, err
}

// Write writes a JSON object a line. each calls tell for all connections of a Filter, until tell
// returns an error.
func (l Look) Write(ctx context.Context, w io.Writer, each func(context.Context, status.Filter,
	func(*status.Connection) error) error) error {
	out, left := json.NewEncoder(w), l.limit
	err := each(ctx, l.Filter, func(c *status.Connection) error {
		if left == 0 {
			return errEnough
		}
		left--
		return out.Encode(c)
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

var errEnough = errors.New("as many connections as were asked for")
