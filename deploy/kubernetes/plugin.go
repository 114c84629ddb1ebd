package main

import (
	"context"
	"log/slog"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/rnicd/rnicd/internal/daemon/cdi"
)

// domain is what all resources' names begin with.
const domain = "rnicd.io/"

// name is a resource's as pods write it.
func name(resource string) string { return domain + resource }

// plugin answers the kubelet for one resource.
type plugin struct {
	v1beta1.UnimplementedDevicePluginServer // what the options say that we do not have
	*pool

	noCDI bool // the kubelet, or the container engine, does not know CDI
}

func (p *plugin) GetDevicePluginOptions(context.Context,
	*v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return new(v1beta1.DevicePluginOptions), nil
}

// life is a plugin in one life of the kubelet, until over is closed.
type life struct {
	*plugin
	over <-chan struct{}
}

// ListAndWatch tells all devices, and again whenever one comes, goes, fails or works again.
func (l life) ListAndWatch(_ *v1beta1.Empty,
	stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	for {
		devices, changed := l.get()
		resp := new(v1beta1.ListAndWatchResponse)
		for _, d := range devices {
			health := v1beta1.Healthy
			if d.trouble != "" {
				health = v1beta1.Unhealthy
			}
			resp.Devices = append(resp.Devices, &v1beta1.Device{ID: d.id, Health: health})
		}
		if err := stream.Send(resp); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-l.over:
			return nil
		case <-stream.Context().Done():
			return nil
		}
	}
}

// Allocate says what each container gets of its devices.
func (p *plugin) Allocate(_ context.Context,
	req *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	resp, all := new(v1beta1.AllocateResponse), []string{}
	for _, c := range req.ContainerRequests {
		devices, err := p.find(c.DevicesIds)
		if err != nil {
			return nil, status.Error(codes.FailedPrecondition, err.Error())
		}
		answer := new(v1beta1.ContainerAllocateResponse)
		for i, d := range devices {
			switch {
			case i > 0 && d.name == devices[i-1].name: // several sockets are the same once
			case p.noCDI:
				without(answer, d)
			default:
				answer.CdiDevices = append(answer.CdiDevices,
					&v1beta1.CDIDevice{Name: cdi.Kind + "=" + d.name})
			}
		}
		resp.ContainerResponses = append(resp.ContainerResponses, answer)
		all = append(all, c.DevicesIds...)
	}
	slog.Info("allocated", "resource", name(p.resource), "devices", strings.Join(all, ","))
	return resp, nil
}

// without answers with what the CDI device has: the kubelet makes it part of the container.
func without(answer *v1beta1.ContainerAllocateResponse, d device) {
	answer.Envs = map[string]string{}
	for _, v := range d.edits.Env {
		key, value, _ := strings.Cut(v, "=")
		answer.Envs[key] = value
	}
	for _, m := range d.edits.Mounts {
		answer.Mounts = append(answer.Mounts, &v1beta1.Mount{
			ContainerPath: m.ContainerPath, HostPath: m.HostPath, ReadOnly: true})
	}
}
