package cdi

import (
	"path"

	"tags.cncf.io/container-device-interface/specs-go"
)

// Kind is the vendor and class of all devices; a device is Kind=NAME.
const Kind = "rnicd.io/rnic"

// The devices that need no switch. The first is the host's, or the pod's, sockets; the second looks
// like a RoCE adapter, alone or with another device; the third has the libraries and rnicd, and
// leaves the environment alone, for rnicd run.
const (
	Sockets = "sockets"
	RoCE    = "roce"
	Tools   = "tools"
)

// Where things are in a container.
const (
	LibrariesInside = "/usr/lib/rnicd"
	SocketsInside   = "/run/rnicd"
)

// Host is what containers get of a host.
type Host struct {
	// Libraries is the host's folder of the two libraries, and of the rnicd that a container runs.
	Libraries string
	// PrefixLen is the prefix length of programs' IPv4 addresses; 0: found out.
	PrefixLen int
	// GIDs are further groups of the container's processes; they need CDI 0.7.0.
	GIDs []uint32
}

// Spec has the devices that need no switch.
func (h Host) Spec() *specs.Spec {
	roce := h.loaded()
	roce.Env = append(roce.Env, "RNICD_DEVICE=roce")
	return complete(&specs.Spec{Devices: []specs.Device{
		{Name: Sockets, ContainerEdits: h.loaded()},
		{Name: RoCE, ContainerEdits: roce},
		{Name: Tools, ContainerEdits: specs.ContainerEdits{Mounts: h.mounts()}},
	}})
}

// complete fills in the kind, and the earliest version of CDI that has all that is in spec.
func complete(spec *specs.Spec) *specs.Spec {
	spec.Kind = Kind
	spec.Version, _ = specs.MinimumRequiredVersion(spec) // it has no error to return
	return spec
}

// mounts are the libraries.
func (h Host) mounts() []*specs.Mount { return []*specs.Mount{bind(h.Libraries, LibrariesInside)} }

// loaded is what makes every program of a container load the libraries, as rnicd run does.
func (h Host) loaded() specs.ContainerEdits {
	return specs.ContainerEdits{Mounts: h.mounts(), Env: []string{
		"LD_PRELOAD=" + path.Join(LibrariesInside, "librnicd_verbs.so"),
		"LD_LIBRARY_PATH=" + path.Join(LibrariesInside, "standin"),
	}}
}

// bind shows a file or folder of the host, not to be written. A socket can be connected to all the
// same.
func bind(host, inside string) *specs.Mount {
	return &specs.Mount{HostPath: host, ContainerPath: inside,
		Options: []string{"ro", "nosuid", "nodev", "rbind", "rprivate"}}
}
