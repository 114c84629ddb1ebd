package config

import (
	"fmt"
	"reflect"

	"github.com/rnicd/rnicd/internal/conf"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/port/portfile"
)

// Load reads a file and says whether it can be started, with the drivers that the program has. An
// error of its content is conf.Errors.
func Load(file string, drivers port.Drivers) (*Config, error) {
	text, err := conf.Read(file)
	if err != nil {
		return nil, err
	}
	if IsSwitch(text) {
		return nil, fmt.Errorf("%s: this is the configuration of a switch: rnicd switch --config FILE",
			file)
	}
	return Parse(file, text, drivers)
}

// Parse is Load of a text; file is its name in errors.
func Parse(file string, text []byte, drivers port.Drivers) (*Config, error) {
	c := &Config{File: file}
	if err := removed(file, text); err != nil {
		return nil, err
	}
	ix, err := conf.Decode(file, text, c)
	if err != nil {
		return nil, err
	}
	v := newValidator(c, ix, drivers)
	conf.Fill(reflect.ValueOf(c).Elem(), "", ix)
	v.Fill(c.TCP)
	v.validate()
	if err := v.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

func newValidator(c *Config, ix *conf.Index, drivers port.Drivers) *validator {
	return &validator{&portfile.Check{Check: &conf.Check{File: c.File, Index: ix}, Drivers: drivers,
		Ports: c.Ports}, c}
}

// removedTypes are types of service that there were, each with what serves its clients now.
var removedTypes = map[string]string{
	"perftest": "rnicd run -- ib_write_bw -R, or another of perftest's programs",
	"rping":    "rnicd run -- rping -s",
	"rstream":  "rnicd run -- rstream, or riostream",
}

// removed looks for services of such types. Their keys are gone, too: what strict decoding would
// say of these is not the point.
func removed(file string, text []byte) error {
	var has struct {
		Services []struct {
			Type string `toml:"type"`
		} `toml:"service"`
	}
	if conf.Peek(text, &has) != nil {
		return nil // strict decoding says what is wrong
	}
	ix, err := conf.NewIndex(text)
	if err != nil {
		return nil // likewise
	}
	v := conf.Check{File: file, Index: ix}
	for i, s := range has.Services {
		if by, ok := removedTypes[s.Type]; ok {
			v.Wrong(fmt.Sprintf("service[%d].type", i), "%q is no type any more; run the program itself: %s",
				s.Type, by)
		}
	}
	return v.Err()
}
