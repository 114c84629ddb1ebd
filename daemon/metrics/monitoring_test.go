package metrics

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var queried = regexp.MustCompile(`rnicd_[a-z_]+`)

// known fails where an expression has a metric that there is not.
func known(t *testing.T, expr string) {
	t.Helper()
	names := queried.FindAllString(expr, -1)
	for _, n := range names {
		require.Contains(t, append(Names(), SwitchNames()...), n, expr)
	}
}

// The dashboard asks for metrics that there are, each panel for some.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../docs/monitoring/dashboard.json")
	require.NoError(t, err)
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, RefID string }
		}
		Templating struct {
			List []struct{ Query any }
		}
	}
	require.NoError(t, json.Unmarshal(text, &d))
	require.Greater(t, len(d.Panels), 10)
	for _, p := range d.Panels {
		require.NotEmpty(t, p.Targets, p.Title)
		for _, q := range p.Targets {
			require.Regexp(t, queried, q.Expr, p.Title)
			known(t, q.Expr)
		}
	}
	for _, v := range d.Templating.List {
		query, err := json.Marshal(v.Query)
		require.NoError(t, err)
		known(t, string(query))
	}
}

// The example rules are rules, of metrics that there are.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("../../docs/monitoring/alerts.yml")
	require.NoError(t, err)
	var f struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &f))
	require.Len(t, f.Groups, 1)
	require.NotEmpty(t, f.Groups[0].Rules)
	guide, err := os.ReadFile("../../docs/guides/monitoring.md")
	require.NoError(t, err)
	for _, r := range f.Groups[0].Rules {
		known(t, r.Expr)
		require.Contains(t, []string{"page", "ticket"}, r.Labels["severity"], r.Alert)
		require.NotEmpty(t, r.Annotations["summary"], r.Alert)
		require.Contains(t, string(guide), r.Alert)
		if r.For != "" {
			_, err := time.ParseDuration(r.For)
			require.NoError(t, err, r.Alert)
		}
	}
}
