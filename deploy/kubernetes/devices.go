package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/rnicd/rnicd/internal/daemon/cdi"
)

// device is one that the kubelet may give to a container.
type device struct {
	id      string
	name    string // of the CDI device, without its kind
	edits   specs.ContainerEdits
	trouble string // why it does not work now; empty: it does
}

// pool is the devices of a resource. It is for any goroutine.
type pool struct {
	resource string // its name without the domain
	// alone: a container cannot have two, since each says where the same socket is.
	alone bool

	mu      sync.Mutex
	devices []device
	changed chan struct{} // closed by the next set that changes something
}

func newPool(resource string, alone bool) *pool {
	return &pool{resource: resource, alone: alone, changed: make(chan struct{})}
}

// set replaces all devices, and says whether who lists them has something to be told.
func (p *pool) set(devices []device) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	same := slices.EqualFunc(p.devices, devices, func(a, b device) bool {
		return a.id == b.id && (a.trouble == "") == (b.trouble == "")
	})
	p.devices = devices
	if !same {
		close(p.changed)
		p.changed = make(chan struct{})
	}
	return !same
}

// get returns the devices, which the caller does not change, and what is closed when they are
// others.
func (p *pool) get() (devices []device, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.devices, p.changed
}

// find returns the devices of these ids.
func (p *pool) find(ids []string) ([]device, error) {
	all, _ := p.get()
	if p.alone && len(ids) > 1 {
		return nil, fmt.Errorf("%d of %s for one container: it can be one program of the switch; ask "+
			"for 1", len(ids), name(p.resource))
	}
	var found []device
	for _, id := range ids {
		i := slices.IndexFunc(all, func(d device) bool { return d.id == id })
		switch {
		case i < 0:
			return nil, fmt.Errorf("%s has no device %s any more", name(p.resource), id)
		case all[i].trouble != "":
			return nil, fmt.Errorf("device %s of %s: %s", id, name(p.resource), all[i].trouble)
		}
		found = append(found, all[i])
	}
	return found, nil
}

// sockets are n devices that are all the same: the pod's own sockets. Their CDI file is in dir;
// empty: there is none.
func sockets(host cdi.Host, dir string, n int) []device {
	spec, trouble := host.Spec(), ""
	for _, file := range []string{"librnicd_verbs.so", "librnicd_engine.so"} {
		if _, err := os.Stat(filepath.Join(host.Libraries, file)); err != nil {
			trouble = err.Error()
			break
		}
	}
	if path := filepath.Join(dir, cdi.FileName); dir != "" && !written(path, spec) {
		if err := cdi.Write(path, spec, 0o644); err != nil && trouble == "" {
			trouble = err.Error()
		}
	}
	i := slices.IndexFunc(spec.Devices, func(d specs.Device) bool { return d.Name == cdi.Sockets })
	devices := make([]device, n)
	for k := range devices {
		devices[k] = device{strconv.Itoa(k), cdi.Sockets, spec.Devices[i].ContainerEdits, trouble}
	}
	return devices
}

// written says whether a CDI file is as it has to be: /run/cdi is everybody's, and a device without
// its file fails the pod. nil: there is no file.
func written(path string, spec *specs.Spec) bool {
	have, err := os.ReadFile(path)
	if spec == nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	want, wrong := cdi.Encode(spec)
	return err == nil && wrong == nil && bytes.Equal(have, want)
}
