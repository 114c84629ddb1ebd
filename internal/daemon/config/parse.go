package config

import (
	"fmt"

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
	check, err := conf.Decode(file, text, c)
	if err != nil {
		return nil, err
	}
	v := newValidator(c, check, drivers)
	v.Defaults(c)
	v.Fill(c.TCP)
	v.validate()
	if err := v.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

func newValidator(c *Config, check *conf.Check, drivers port.Drivers) *validator {
	return &validator{&portfile.Check{Check: check, Drivers: drivers, Ports: c.Ports}, c}
}
