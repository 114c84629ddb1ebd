package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/rnicd/rnicd/internal/conf"
	"github.com/rnicd/rnicd/internal/daemon/cdi"
	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/daemon/control"
	"github.com/rnicd/rnicd/internal/status"
)

// answerTime is how long the switch may take to answer.
const answerTime = 2 * time.Second

// programs are the programs of the node's switch. It is for one goroutine.
type programs struct {
	host cdi.Host
	file string // the switch's configuration
	dir  string // of CDI files; empty: none are written

	taken        []byte // the text of the file, as it was last
	said         string // what was wrong with it
	control      string // the switch's control socket
	devices      []device
	wanted       map[string]status.SwitchProgram // by name, what the switch is to say of it
	open, secret *specs.Spec                     // in the CDI files
}

// look returns the devices of the file as it is now, with what the switch says of each. A file that
// is wrong changes nothing.
func (p *programs) look(ctx context.Context) []device {
	if text, err := conf.Read(p.file); err != nil {
		p.say(err)
	} else if !bytes.Equal(text, p.taken) {
		p.taken = text
		p.say(p.take(text))
	}
	cdiErr := p.write()
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	client := control.NewClient(p.control)
	defer client.Close()
	var s status.Switch
	err := client.Get(ctx, "/v1/status", nil, &s)
	var nobody *control.NobodyError
	if errors.As(err, &nobody) { // what it advises is no flag of ours
		err = fmt.Errorf("%s: no switch answers", nobody.Path)
	}
	devices := slices.Clone(p.devices)
	for i := range devices {
		devices[i].trouble = p.trouble(&s, cmp.Or(cdiErr, err), devices[i].name)
	}
	return devices
}

// say logs what is wrong with the file, once.
func (p *programs) say(err error) {
	switch {
	case err == nil:
		p.said = ""
	case err.Error() != p.said:
		p.said = err.Error()
		slog.Error("the switch's configuration is not taken", "error", err)
	}
}

// take makes devices of the file's text. Programs that no container can be are left out, and said.
func (p *programs) take(text []byte) error {
	s, err := config.ParseSwitch(p.file, text, cdi.Drivers())
	if err != nil {
		return err
	}
	var left error
	p.open, p.secret, left = p.host.Programs(s)
	if left != nil {
		slog.Warn("not all programs are devices", "error", left)
	}
	p.control, p.devices, p.wanted = s.Control.Path, nil, map[string]status.SwitchProgram{}
	for _, spec := range []*specs.Spec{p.open, p.secret} {
		if spec == nil {
			continue
		}
		for _, d := range spec.Devices {
			p.devices = append(p.devices, device{id: d.Name, name: d.Name, edits: d.ContainerEdits})
		}
	}
	for i := range s.Programs {
		g, v := &s.Programs[i], &s.Vswitch.Programs[i]
		p.wanted[g.Name] = status.SwitchProgram{Socket: v.Socket, ID: v.ID, Uplink: g.Uplink,
			Addresses: g.Addresses, Ports: g.Ports, MAC: v.MAC.String(), VLAN: v.VLAN}
	}
	slices.SortFunc(p.devices, func(a, b device) int { return strings.Compare(a.id, b.id) })
	return nil
}

// write makes the CDI files as they have to be. A device that is in two files of a folder cannot be
// had: another file of ours with one of these devices, as from a configuration of another name, is
// removed.
func (p *programs) write() error {
	openName, secretName := cdi.ProgramFiles(p.file)
	openName, secretName = filepath.Join(p.dir, openName), filepath.Join(p.dir, secretName)
	if p.dir == "" || p.wanted == nil ||
		written(openName, p.open) && written(secretName, p.secret) {
		return nil
	}
	files, err := cdi.Find(p.dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.Path == openName || f.Path == secretName || !slices.ContainsFunc(f.Devices,
			func(d specs.Device) bool { _, ours := p.wanted[d.Name]; return ours }) {
			continue
		}
		slog.Warn("removing a CDI file that has the same devices", "file", f.Path)
		if err := os.Remove(f.Path); err != nil {
			return err
		}
	}
	_, err = cdi.WritePrograms(p.dir, p.file, p.open, p.secret)
	return err
}

// trouble is why a program of the switch cannot be had now.
func (p *programs) trouble(s *status.Switch, err error, name string) string {
	switch {
	case err != nil:
		return err.Error()
	case s.Kind != status.KindSwitch:
		return "what answers is no switch"
	case !s.Healthy:
		return "the switch is not healthy: " + s.Error
	}
	i := slices.IndexFunc(s.Programs, func(q status.SwitchPort) bool { return q.Name == name })
	if i < 0 {
		return "the switch has not taken the program yet: reload it"
	}
	if !same(s.Programs[i].Program, p.wanted[name]) {
		return "the switch has the program as it was before: reload it"
	}
	uplink := s.Programs[i].Program.Uplink
	for _, u := range s.Uplinks {
		if u.Name == uplink && u.Trouble != nil {
			return "uplink " + uplink + ": " + u.Trouble.Text
		}
	}
	return ""
}

// same says whether the switch has what the file says of a program. It does not tell its secret.
func same(has *status.SwitchProgram, want status.SwitchProgram) bool {
	return has != nil && has.Socket == want.Socket && has.ID == want.ID &&
		has.Uplink == want.Uplink && slices.Equal(has.Addresses, want.Addresses) &&
		slices.Equal(has.Ports, want.Ports) && has.MAC == want.MAC && has.VLAN == want.VLAN
}
