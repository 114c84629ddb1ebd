package cc

import (
	"strings"
	"testing"
	"unsafe"
)

func TestByName(t *testing.T) {
	if got := strings.Join(Names(), " "); got != "cubic dctcp reno" {
		t.Errorf("names: %s", got)
	}
	for _, name := range Names() {
		a, err := ByName(name)
		if err != nil || a.Name() != name {
			t.Errorf("%s: %v, %v", name, a, err)
		}
	}
	_, err := ByName("bbr")
	if err == nil ||
		!strings.Contains(err.Error(), `"bbr" is not known; choose one of cubic, dctcp, reno`) {
		t.Errorf("unknown: %v", err)
	}
}

func TestOnlyDCTCPNeedsExactECN(t *testing.T) {
	for _, a := range algorithms {
		e, ok := a.(ExactECN)
		if (ok && e.ExactECN()) != (a.Name() == "dctcp") {
			t.Errorf("%s: ExactECN %v", a.Name(), ok)
		}
	}
}

// 100,000 connections have a State each.
func TestStateIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(State{}); n > 128 {
		t.Errorf("State has %d octets", n)
	}
}
