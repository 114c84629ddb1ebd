package config

import (
	"fmt"

	"github.com/rnicd/rnicd/internal/conf"
)

// programs are those whose protocols rnicd once spoke itself, each with how it is run.
var programs = map[string]string{
	"iperf3":   "iperf3 -s, or iperf3 -c HOST; over our TCP there are a sink, source and echo",
	"perftest": "rnicd run -- ib_send_lat -R, or another of perftest's",
	"rping":    "rnicd run -- rping -s, or rping -c -a HOST",
	"rstream":  "rnicd run -- rstream, or riostream",
}

// Removed says of something that was of a kind, a command or a type of service, which of programs
// to run instead.
func Removed(what, kind, program string) error {
	return fmt.Errorf("%s is no %s any more; run the program itself: %s", what, kind,
		programs[program])
}

// removed looks for services that are programs now. Their keys are gone, too: what strict decoding
// would say of these is not the point.
func removed(file string, text []byte) error {
	var has struct {
		Services []struct {
			Type string `toml:"type"`
			Mode string `toml:"mode"`
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
		for kind, name := range map[string]string{"type": s.Type, "mode": s.Mode} {
			if _, ok := programs[name]; ok {
				v.Wrong(fmt.Sprintf("service[%d].%s", i, kind), "%v",
					Removed(fmt.Sprintf("%q", name), kind, name))
			}
		}
	}
	return v.Err()
}
