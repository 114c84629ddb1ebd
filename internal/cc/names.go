package cc

import (
	"fmt"
	"strings"
)

// algorithms in the order in which Names lists them.
var algorithms = [...]Algorithm{Cubic{}, DCTCP{}, NewReno{}}

// Names of all algorithms, for a configuration's help.
func Names() []string {
	names := make([]string, len(algorithms))
	for i, a := range algorithms {
		names[i] = a.Name()
	}
	return names
}

// ByName finds the algorithm that a configuration names.
func ByName(name string) (Algorithm, error) {
	for _, a := range algorithms {
		if a.Name() == name {
			return a, nil
		}
	}
	return nil, fmt.Errorf("congestion control %q is not known; choose one of %s", name,
		strings.Join(Names(), ", "))
}
