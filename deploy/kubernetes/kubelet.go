package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// pace is how often the plugin looks whether the kubelet has started again, and how the switch is.
const pace = time.Second

// registerTime is how long the kubelet may take to answer.
const registerTime = 10 * time.Second

// serve offers a resource to the kubelet whose sockets are in dir, until ctx is done. A kubelet
// that starts removes all sockets in dir and makes its own anew; it is registered with again.
func serve(ctx context.Context, dir string, p *plugin) {
	said := ""
	for {
		switch err := serveOnce(ctx, dir, p); {
		case ctx.Err() != nil:
			return
		case err == nil:
			said = ""
			slog.Info("the kubelet starts again", "resource", name(p.resource))
		case err.Error() != said:
			said = err.Error()
			slog.Error("not registered; it is tried again each second", "resource", name(p.resource),
				"error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pace):
		}
	}
}

// serveOnce is for one life of the kubelet.
func serveOnce(ctx context.Context, dir string, p *plugin) error {
	path := filepath.Join(dir, "rnicd-"+p.resource+".sock")
	kubelet := filepath.Join(dir, filepath.Base(v1beta1.KubeletSocket))
	theirs, err := identify(kubelet)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", path) // Close removes it, if it is still ours
	if err != nil {
		return err
	}
	ours, err := identify(path)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	s := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(s, p)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	defer s.Stop()
	if err := register(ctx, kubelet, filepath.Base(path), p.resource); err != nil {
		return err
	}
	slog.Info("registered", "resource", name(p.resource))
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case <-tick.C:
		}
		if now, err := identify(kubelet); err == nil && now != theirs {
			return nil
		}
		if now, err := identify(path); err != nil || now != ours {
			return nil
		}
	}
}

// register tells the kubelet that endpoint, in the folder of its own socket, answers for a
// resource.
func register(ctx context.Context, kubelet, endpoint, resource string) error {
	ctx, cancel := context.WithTimeout(ctx, registerTime)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+kubelet,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = v1beta1.NewRegistrationClient(conn).Register(ctx, &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: endpoint, ResourceName: name(resource),
		Options: new(v1beta1.DevicePluginOptions),
	})
	if err != nil {
		return fmt.Errorf("%s: %w", kubelet, err)
	}
	return nil
}

// identity tells a file from another that has its path later.
type identity struct {
	dev, ino uint64
	changed  unix.Timespec
}

func identify(path string) (identity, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return identity{}, fmt.Errorf("%s: %w", path, err)
	}
	return identity{uint64(st.Dev), st.Ino, st.Ctim}, nil
}
