package stack

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// The parts of a Poller are given what they work with: none of them knows the Poller.
func TestPartsDoNotKnowThePoller(t *testing.T) {
	poller := reflect.TypeFor[Poller]()
	parts := 0
	for _, f := range reflect.VisibleFields(poller) {
		part := f.Type
		if part.Kind() == reflect.Pointer {
			part = part.Elem()
		}
		if part.Kind() != reflect.Struct || part.PkgPath() != poller.PkgPath() {
			continue
		}
		parts++
		for i := range part.NumField() {
			require.NotEqual(t, reflect.PointerTo(poller), part.Field(i).Type, "%s.%s", f.Name,
				part.Field(i).Name)
		}
	}
	require.Greater(t, parts, 10)
}
