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

// graceTime is how long the end of the plugin waits for questions that are being answered. One that
// has no answer fails the kubelet's pod for good.
const graceTime = 3 * time.Second

// reserve waits until this is the only plugin of ours for the kubelet whose sockets are in dir: two
// would replace each other's sockets and files for ever, as they might while a DaemonSet changes.
// release gives others their turn; it is nil if ctx has ended before.
func reserve(ctx context.Context, dir string) (release func()) {
	said := ""
	for {
		f, err := os.Open(dir)
		if err == nil {
			if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
				return func() { _ = f.Close() }
			}
			_ = f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				err = fmt.Errorf("%s: another plugin of rnicd runs; this one waits for its end", dir)
			}
		}
		if err.Error() != said {
			said = err.Error()
			slog.Error("not begun; it is tried again each second", "error", err)
		}
		if !pause(ctx) {
			return nil
		}
	}
}

// pause waits for pace, and says whether ctx goes on.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pace):
		return true
	}
}

// serve offers a resource to the kubelet whose sockets are in dir, until ctx is done. A kubelet
// that starts removes all sockets in dir and makes its own anew; it is registered with again.
func serve(ctx context.Context, dir string, p *plugin) {
	said := ""
	for {
		switch why, err := serveOnce(ctx, dir, p); {
		case ctx.Err() != nil:
			return
		case err == nil:
			said = ""
			slog.Info("registering again", "resource", name(p.resource), "why", why)
		case err.Error() != said:
			said = err.Error()
			slog.Error("not registered; it is tried again each second", "resource", name(p.resource),
				"error", err)
		}
		if !pause(ctx) {
			return
		}
	}
}

// serveOnce is for one life of the kubelet. Without an error, why says how it has ended.
func serveOnce(ctx context.Context, dir string, p *plugin) (why string, err error) {
	path := filepath.Join(dir, socketOf(p.resource))
	kubelet := filepath.Join(dir, filepath.Base(v1beta1.KubeletSocket))
	theirs, err := identify(kubelet)
	if err != nil {
		return "", err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	l, err := net.Listen("unix", path) // Close removes the path
	if err != nil {
		return "", err
	}
	ours, err := identify(path)
	if err != nil {
		return "", errors.Join(err, l.Close())
	}
	s, over := grpc.NewServer(), make(chan struct{})
	v1beta1.RegisterDevicePluginServer(s, life{p, over})
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	defer func() {
		close(over)
		hard := time.AfterFunc(graceTime, s.Stop)
		s.GracefulStop()
		hard.Stop()
	}()
	if err := register(ctx, kubelet, filepath.Base(path), p.resource); err != nil {
		return "", err
	}
	slog.Info("registered", "resource", name(p.resource))
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case err := <-ended:
			return "", err
		case <-tick.C:
		}
		if now, err := identify(kubelet); err == nil && now != theirs {
			return "the kubelet has started again", nil
		}
		if now, err := identify(path); err != nil || now != ours {
			return path + " has been removed", nil
		}
	}
}

// socketOf is the name of a resource's socket.
func socketOf(resource string) string { return "rnicd-" + resource + ".sock" }

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
