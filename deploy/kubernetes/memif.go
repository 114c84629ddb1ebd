package main

import (
	"bytes"
	"context"
	"log/slog"
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

	taken   []byte // the text of the file, as it was last
	said    string // what was wrong with it
	control string // the switch's control socket
	devices []device
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
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	client := control.NewClient(p.control)
	defer client.Close()
	var s status.Switch
	err := client.Get(ctx, "/v1/status", nil, &s)
	devices := slices.Clone(p.devices)
	for i := range devices {
		devices[i].trouble = trouble(&s, err, devices[i].name)
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

// take makes devices of the file's text, and their CDI files. Programs that no container can be are
// left out, and said.
func (p *programs) take(text []byte) error {
	s, err := config.ParseSwitch(p.file, text, cdi.Drivers())
	if err != nil {
		return err
	}
	open, secret, left := p.host.Programs(s)
	if p.dir != "" {
		if _, err := cdi.WritePrograms(p.dir, p.file, open, secret); err != nil {
			p.taken = nil // tried again
			return err
		}
	}
	if left != nil {
		slog.Warn("not all programs are devices", "error", left)
	}
	p.control, p.devices = s.Control.Path, nil
	for _, spec := range []*specs.Spec{open, secret} {
		if spec == nil {
			continue
		}
		for _, d := range spec.Devices {
			p.devices = append(p.devices, device{id: d.Name, name: d.Name, edits: d.ContainerEdits})
		}
	}
	slices.SortFunc(p.devices, func(a, b device) int { return strings.Compare(a.id, b.id) })
	return nil
}

// trouble is why a program of the switch cannot be had now.
func trouble(s *status.Switch, err error, name string) string {
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
	uplink := s.Programs[i].Program.Uplink
	for _, u := range s.Uplinks {
		if u.Name == uplink && u.Trouble != nil {
			return "uplink " + uplink + ": " + u.Trouble.Text
		}
	}
	return ""
}
