package status

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// No answer has null for an array that is empty, however deep it is.
func TestEmptyArrays(t *testing.T) {
	for _, answer := range []any{Daemon{}, Switch{}, Flights{}, Flight{}, Program{}, Port{}, Service{},
		Connection{}, SwitchPort{}} {
		text, err := json.Marshal(answer)
		require.NoError(t, err)
		var all map[string]any
		require.NoError(t, json.Unmarshal(text, &all))
		of := reflect.TypeOf(answer)
		for i := range of.NumField() {
			name, options, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			if of.Field(i).Type.Kind() == reflect.Slice && options == "" && name != "" {
				require.Equal(t, []any{}, all[name], "%v: %s", of, text)
			}
		}
	}
}
