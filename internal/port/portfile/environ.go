package portfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/rnicd/rnicd/internal/conf"
	"github.com/rnicd/rnicd/internal/port"
)

// Environment variables of a port: envPrefix and a key of [[port]] in capitals, as RNICD_MTU and
// RNICD_TCP_RTO_MIN; arrays as texts with commas. envFile names a daemon's file instead, envPort
// the port there if it has several.
const (
	envPrefix = "RNICD_"
	envFile   = envPrefix + "CONFIG"
	envPort   = envPrefix + "PORT"
)

// envShort are other names of keys, those of rnicd's flags.
var envShort = map[string]string{"pmd": "driver", "addr": "addresses", "dev": "device"}

// envOthers are variables that are not about a port.
var envOthers = []string{"engine", "verbose", "peer", "crc", "no_skip", "config", "port", envLooks,
	envSecret, envAllow, envControl}

// envLooks says what the RDMA device looks like to programs (Looks). The port's device is RNICD_DEV
// alone.
const envLooks = "device"

// Looks are the values of RNICD_DEVICE: an RNIC, the default, or a RoCE adapter.
var Looks = []string{"iwarp", "roce"}

// Environment is the port that environment variables describe (KEY=VALUE each), for a program that
// has no file of its own. Without any it is the kernel's sockets. Limits of connections that are
// not given are a program's, not a daemon's.
func Environment(environ []string, drivers port.Drivers) (*port.Config, error) {
	vars := map[string]string{}
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		if key, ours := strings.CutPrefix(name, envPrefix); ours && value != "" {
			vars[strings.ToLower(key)] = value
		}
	}
	if looks := vars[envLooks]; looks != "" && !slices.Contains(Looks, looks) {
		return nil, fmt.Errorf("%sDEVICE: %s: want %s; the device of a port is %sDEV", envPrefix, looks,
			strings.Join(Looks, " or "), envPrefix)
	}
	text, names, err := tableOf(vars)
	if err != nil {
		return nil, err
	}
	if file := vars["config"]; file != "" {
		if len(names) > 0 {
			return nil, fmt.Errorf("%s and %s: give only one", envFile, names[0])
		}
		cfg, err := portOf(file, vars["port"], drivers)
		var unread *conf.ReadError
		if errors.As(err, &unread) {
			return nil, fmt.Errorf("%s %w", envFile, err)
		}
		if err != nil {
			return nil, err
		}
		return hosted(cfg, file+": addresses")
	}
	v, err := read("environment", []byte(text), drivers)
	var wrong conf.Errors
	if errors.As(err, &wrong) {
		var lines []string
		for _, e := range wrong {
			lines = append(lines, variable(e.Key)+": "+e.Text)
		}
		return nil, errors.New(strings.Join(lines, "\n"))
	}
	if err != nil {
		return nil, err
	}
	return hosted(v.program(0), variable("port[0].addresses"))
}

// hosted refuses an address for the kernel's sockets that they cannot be bound to: the program
// would find out where it listens or connects, each time, without a word of why. what has given it.
func hosted(cfg *port.Config, what string) (*port.Config, error) {
	a := cfg.HostAt
	if !a.IsValid() {
		return cfg, nil
	}
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return nil, fmt.Errorf("%s: %v: no interface of this host has this address, or can use it yet; "+
			"ip -brief address shows those that there are", what, a)
	}
	if err == nil {
		_ = c.Close() // nothing was sent
	}
	return cfg, nil
}

// programConns is how many connections a program may have, unless it is told.
const programConns = 4096

// program is the port with index i for one program, which bounds its connections itself: unless the
// file says otherwise, there is no limit by peer.
func (v *Check) program(i int) *port.Config {
	o := &v.Ports[i].Open
	o.CaptureDirect = true // a program may end at any moment, without a word to us
	if !v.Given(fmt.Sprintf("port[%d].peer_connections", i)) {
		o.PeerMax = 0
	}
	if !v.Given(fmt.Sprintf("port[%d].connections", i)) {
		o.ConnsMax = programConns
	}
	return o
}

// variable is the name of the one that has given a key, as port.tcp.rto_min or
// port[0].addresses[1].
func variable(key string) string {
	_, key, _ = strings.Cut(key, ".")
	key, _, _ = strings.Cut(key, "[")
	if key == envLooks {
		key = "dev"
	}
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// portOf is a port of a file; name may be empty where it has one.
func portOf(file, name string, drivers port.Drivers) (*port.Config, error) {
	text, err := conf.Read(file)
	if err != nil {
		return nil, err
	}
	v, err := read(file, text, drivers)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range v.Ports {
		if p := &v.Ports[i]; p.Name == name || name == "" && len(v.Ports) == 1 {
			return v.program(i), nil
		}
		names = append(names, v.Ports[i].Name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s has no [[port]]; want the configuration of a daemon", file)
	}
	return nil, fmt.Errorf("%s: want one of the ports of %s: %s", envPort, file,
		strings.Join(names, ", "))
}

// tableOf writes a [[port]] of the variables, whose names it returns.
func tableOf(vars map[string]string) (text string, names []string, err error) {
	text = "[[port]]\nname = \"rnic0\"\n"
	if vars["pmd"] == "" && vars["driver"] == "" {
		text += "driver = \"kernel\"\n"
	}
	var keys []string
	tcp := "[port.tcp]\n"
	for name, value := range sortedVars(vars) {
		key := name
		if long := envShort[name]; long != "" {
			key = long
		}
		sub, isTCP := strings.CutPrefix(key, "tcp_")
		table, to := reflect.TypeFor[Port](), &text
		if isTCP {
			key, table, to = sub, reflect.TypeFor[TCP](), &tcp
		}
		f, ok := conf.FieldOf(table, key)
		if name == envLooks {
			continue
		}
		if !ok || key == "name" || key == "tcp" || key == "options" {
			if near := conf.Nearest(name, envNames()); near != "" && !slices.Contains(envOthers, name) {
				return "", nil, fmt.Errorf("%s%s: unknown; did you mean %s%s?", envPrefix,
					strings.ToUpper(name), envPrefix, strings.ToUpper(near))
			}
			continue // of something else
		}
		if slices.Contains(keys, key) && !isTCP {
			return "", nil, fmt.Errorf("%s%s and its other name: give only one", envPrefix,
				strings.ToUpper(name))
		}
		keys, names = append(keys, key), append(names, envPrefix+strings.ToUpper(name))
		*to += key + " = " + tomlOf(f.Type, value) + "\n"
	}
	if strings.Count(tcp, "\n") > 1 {
		text += tcp
	}
	return text, names, nil
}

// sortedVars goes through vars in the order of their names.
func sortedVars(vars map[string]string) func(yield func(name, value string) bool) {
	names := make([]string, 0, len(vars))
	for name := range vars {
		names = append(names, name)
	}
	slices.Sort(names)
	return func(yield func(name, value string) bool) {
		for _, name := range names {
			if !yield(name, vars[name]) {
				return
			}
		}
	}
}

// envNames are the keys that variables have.
func envNames() (all []string) {
	for _, t := range []reflect.Type{reflect.TypeFor[Port](), reflect.TypeFor[TCP]()} {
		for i := range t.NumField() {
			key := t.Field(i).Tag.Get("toml")
			if t == reflect.TypeFor[TCP]() {
				key = "tcp_" + key
			}
			all = append(all, key)
		}
	}
	for short := range envShort {
		all = append(all, short)
	}
	return append(all, envOthers...)
}

// tomlOf is value as a TOML value for a field of type t.
func tomlOf(t reflect.Type, value string) string {
	quote := func(s string) string {
		b, _ := json.Marshal(s) // of a string: no error. A JSON string is one of TOML's
		return string(b)
	}
	switch {
	case t.Kind() == reflect.Slice:
		var parts []string
		for part := range strings.SplitSeq(value, ",") {
			parts = append(parts, quote(strings.TrimSpace(part)))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case t.Kind() == reflect.String || t == reflect.TypeFor[conf.Duration]():
		return quote(value)
	}
	return value
}
