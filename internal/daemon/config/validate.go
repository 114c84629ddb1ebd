package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"time"

	"github.com/rnicd/rnicd/internal/conf"
	"github.com/rnicd/rnicd/internal/daemon/control"
	"github.com/rnicd/rnicd/internal/port/portfile"
	"github.com/rnicd/rnicd/rnic"
)

// validator collects what is wrong with a file.
type validator struct {
	*portfile.Check
	c *Config
}

func (v *validator) validate() {
	c := v.c
	for _, array := range []string{"port", "service"} {
		if v.Index.Single(array) {
			v.Wrong(array, "%s", conf.DoubleBrackets(array))
			return // the rest would say things that are not meant
		}
	}
	v.Units(reflect.ValueOf(c).Elem(), "")
	v.OneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	v.OneOf("log.format", c.Log.Format, "text", "json")
	v.Span("limits.poller_stall", time.Duration(c.Limits.PollerStall), pollerStallMin, time.Hour)
	v.control(&c.Control, control.DefaultPath)
	v.metrics(&c.Metrics)
	v.mpa()
	if len(c.Ports) == 0 {
		v.Wrong("port", "no port; a daemon needs one: [[port]] with name and addresses")
	}
	v.All(&c.TCP)
	for i := range c.Services {
		v.service(i)
	}
	v.services()
	v.listenTogether()
	v.socketsTogether()
}

// pollerStallMin bounds how often the watchdog looks: four times in this.
const pollerStallMin = 50 * time.Millisecond

// control finds out where the socket is to be; byDefault: unless the file says so.
func (v *validator) control(c *Control, byDefault func() string) {
	var err error
	if c.Perm, err = control.ParseMode(c.Mode); err != nil {
		v.Wrong("control.mode", "%v", err)
	}
	switch {
	case c.Socket == "off":
	case !v.Given("control.socket"):
		if c.Path = byDefault(); !v.SocketPath("control.socket", c.Path) { // of XDG_RUNTIME_DIR
			c.Path = ""
		}
	case !filepath.IsAbs(c.Socket):
		v.Wrong("control.socket", "%q: want a path that begins with /, or off", c.Socket)
	case v.SocketPath("control.socket", c.Socket):
		c.Path = c.Socket
	}
}

// mpa refuses dialects that cannot be served. A transfer begins with private data, so a dialect
// without frames is of no use to it.
func (v *validator) mpa() {
	var dialects []rnic.Dialect
	for i, name := range v.c.MPA.Dialects {
		d, err := rnic.ParseDialect(name)
		if err != nil || d.PrivateDataMax() == 0 {
			v.Wrong(fmt.Sprintf("mpa.dialects[%d]", i), "%q: want rddp-01, rfc5044, rtr or rfc6581", name)
			continue
		}
		dialects = append(dialects, d)
	}
	if v.Given("mpa.dialects") && len(v.c.MPA.Dialects) == 0 {
		v.Wrong("mpa.dialects", "empty, so that none would be served; leave it out for all")
	}
	for i := range v.c.Services {
		v.c.Services[i].Dialects = dialects
	}
}
