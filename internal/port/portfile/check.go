package portfile

import (
	"fmt"
	"reflect"

	"github.com/rnicd/rnicd/internal/conf"
	"github.com/rnicd/rnicd/internal/port"
)

// Check judges the ports of a file.
type Check struct {
	*conf.Check
	Drivers port.Drivers
	Ports   []Port
}

// Fill gives the keys of each port's TCP that its own table does not have the values of [tcp].
func (v *Check) Fill(tcp TCP) {
	all := reflect.ValueOf(tcp)
	for i := range v.Ports {
		own := reflect.ValueOf(&v.Ports[i].TCP).Elem()
		for f := range own.NumField() {
			key := own.Type().Field(f).Tag.Get("toml")
			if !v.Given(fmt.Sprintf("port[%d].tcp.%s", i, key)) {
				own.Field(f).Set(all.Field(f))
			}
		}
	}
}

// All judges [tcp], each port, and the ports together.
func (v *Check) All(tcp *TCP) {
	v.tcp("tcp", tcp)
	for i := range v.Ports {
		v.port(i)
	}
	v.together()
	v.hostsOfOthers()
}

// tables are those of a file that are about ports.
type tables struct {
	TCP   TCP    `toml:"tcp"`
	Ports []Port `toml:"port"`
}

// read reads the ports of a text, whatever other tables it has.
func read(file string, text []byte, drivers port.Drivers) (*Check, error) {
	var t tables
	check, err := conf.DecodeTables(file, text, &t)
	if err != nil {
		return nil, err
	}
	v := &Check{check, drivers, t.Ports}
	if v.Index.Single("port") { // the rest would say things that are not meant
		v.Wrong("port", "%s", conf.DoubleBrackets("port"))
		return nil, v.Err()
	}
	v.Units(reflect.ValueOf(&t).Elem(), "")
	v.Defaults(&t)
	v.Fill(t.TCP)
	v.All(&t.TCP)
	return v, v.Err()
}
