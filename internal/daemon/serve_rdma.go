package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/tools/perf/pair"
	"github.com/rnicd/rnicd/internal/tools/xfer"
	"github.com/rnicd/rnicd/rnic"
)

// newServer makes what a service is of its type.
func newServer(s *Service, c *config.Service) (server, error) {
	switch c.Type {
	case config.Region:
		return regionServer(s, c)
	case config.File:
		return fileServer(s, c)
	case config.Perf:
		return perfServer(s, c), nil
	case config.Stream:
		return streamServer(s, c), nil
	}
	return server{}, fmt.Errorf("type %q is not served", c.Type)
}

// unbounded is for servers that bound their clients: the Service does that, and can change it.
const unbounded = math.MaxInt32

// perPort makes something for each port of a service.
func perPort[T any](s *Service, c *config.Service,
	make func(*rnic.Adapter) (T, error)) (map[*Port]T, error) {
	all := map[*Port]T{}
	for _, i := range c.On {
		p := s.d.ports[i]
		t, err := make(p.Adapter)
		if err != nil {
			return nil, err
		}
		all[p] = t
	}
	return all, nil
}

// transferred tells of a put or get.
func transferred(s *Service) func(xfer.Result) {
	return func(r xfer.Result) {
		attrs := []any{
			"operation", map[xfer.Op]string{xfer.OpPut: "put", xfer.OpGet: "get"}[r.Op],
			"octets", r.Length, "sha256", fmt.Sprintf("%x", r.Digest), "took", r.Wire, "dialect",
			r.Dialect.String(),
		}
		if r.Name != "" {
			attrs = append(attrs, "name", r.Name)
		}
		s.over(r.Remote, r.Err, attrs...)
	}
}

func xferConfig(s *Service, c *config.Service, dev *rnic.Adapter) xfer.ServerConfig {
	return xfer.ServerConfig{
		Adapter: dev, IdleTimeout: time.Duration(c.IdleTimeout), NoMarkers: c.NoMarkers, NoCRC: c.NoCRC,
		DropBadCRC: c.DropBadCRC,
		Done:       transferred(s), Refused: s.refused,
	}
}

// regionServer is memory that peers write files into.
func regionServer(s *Service, c *config.Service) (server, error) {
	h, err := s.hold(c, func(h *holding) error {
		if err := h.mapMemory(s, c, int64(c.Size)); err != nil {
			return err
		}
		h.memory = xfer.NewMemory(h.arena.Bytes()[:c.Size], int(c.Quota))
		if c.Keep {
			h.memory.KeepNames()
		}
		return nil
	})
	if err != nil {
		return server{}, err
	}
	servers, _ := perPort(s, c, func(dev *rnic.Adapter) (*xfer.Server, error) {
		cfg := xferConfig(s, c, dev)
		cfg.Memory = h.memory
		return xfer.NewServer(cfg), nil
	})
	return server{
		request: func(ctx context.Context, on *Port, req *rnic.ConnRequest) {
			servers[on].Handle(ctx, req)
		},
		begin:   func() { h.memory.SetQuota(int(c.Quota)) },
		release: h.leave,
	}, nil
}

// fileServer is a copy of a file that peers read.
func fileServer(s *Service, c *config.Service) (server, error) {
	h, err := s.hold(c, func(h *holding) error { return h.readFile(s, c) })
	if err != nil {
		return server{}, err
	}
	servers, _ := perPort(s, c, func(dev *rnic.Adapter) (*xfer.Server, error) {
		cfg := xferConfig(s, c, dev)
		cfg.File = h.octets
		return xfer.NewServer(cfg), nil
	})
	return server{
		request: func(ctx context.Context, on *Port, req *rnic.ConnRequest) {
			servers[on].Handle(ctx, req)
		},
		release: h.leave,
	}, nil
}

// readFile copies a file into memory.
func (h *holding) readFile(s *Service, c *config.Service) error {
	f, err := os.Open(c.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	h.octets = []byte{}
	if st.Size() == 0 {
		return nil
	}
	if err := h.mapMemory(s, c, st.Size()); err != nil {
		return err
	}
	h.octets = h.arena.Bytes()[:st.Size()]
	if _, err := io.ReadFull(f, h.octets); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", c.Path, err), h.arena.Close())
	}
	return nil
}

// stampOf is what changes when a file does.
func stampOf(c *config.Service) (string, error) {
	if c.Type != config.File {
		return "", nil
	}
	st, err := os.Stat(c.Path)
	if err != nil {
		return "", err
	}
	return fmt.Sprint(st.Size(), " ", st.ModTime().UnixNano()), nil
}

func perfServer(s *Service, c *config.Service) server {
	servers, _ := perPort(s, c, func(dev *rnic.Adapter) (*pair.Server, error) {
		return pair.NewServer(pair.ServerConfig{
			Adapter: dev, SizeMax: int(c.SizeMax), ClientsMax: unbounded,
			IdleTimeout: time.Duration(c.IdleTimeout),
			Conn:        rnic.ConnParam{NoMarkers: c.NoMarkers, NoCRC: c.NoCRC}, Refused: s.refused,
			Done: func(r pair.Served) {
				s.over(r.Remote, r.Err, "operation", r.Test.Op.String(), "latency", r.Test.Latency, "octets",
					r.Test.Size, "took", r.Took)
			},
		}), nil
	})
	return server{request: func(ctx context.Context, on *Port, req *rnic.ConnRequest) {
		servers[on].Handle(ctx, req)
	}}
}
