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

// unseen are metrics without a panel, and why.
var unseen = map[string]string{
	"rnicd_build_info":               "a version has no course in time",
	"rnicd_switch_rate_limit_bytes":  "the configuration says it",
	"rnicd_switch_rate_limit_frames": "the configuration says it",
}

// The dashboards ask for metrics that there are, each panel for some; each metric has a panel, or a
// reason to have none.
func TestDashboard(t *testing.T) {
	for file, names := range map[string][]string{"dashboard.json": Names(),
		"dashboard-switch.json": SwitchNames()} {
		text, err := os.ReadFile("../../../docs/monitoring/" + file)
		require.NoError(t, err)
		var d struct {
			Panels []struct {
				ID      int
				Title   string
				Targets []struct{ Expr, RefID string }
			}
			Templating struct {
				List []struct{ Query any }
			}
		}
		require.NoError(t, json.Unmarshal(text, &d))
		require.Greater(t, len(d.Panels), 10)
		ids, seen := map[int]bool{}, map[string]bool{}
		for _, p := range d.Panels {
			require.NotEmpty(t, p.Targets, p.Title)
			require.False(t, ids[p.ID], p.Title)
			ids[p.ID] = true
			for _, q := range p.Targets {
				require.Regexp(t, queried, q.Expr, p.Title)
				known(t, q.Expr)
				for _, name := range queried.FindAllString(q.Expr, -1) {
					seen[name] = true
				}
			}
		}
		for _, v := range d.Templating.List {
			query, err := json.Marshal(v.Query)
			require.NoError(t, err)
			known(t, string(query))
		}
		for _, name := range names {
			require.NotEqual(t, unseen[name] != "", seen[name], "%s: a panel for %s, or a reason in unseen",
				file, name)
		}
	}
}

// amiss is in the names of metrics that count what is wrong.
var amiss = regexp.MustCompile(
	`_(lost|drops|errors|failed|refused|missing|ended|trouble|offences|throttled|stalls|still|exhausted|` +
		`conflicts|overflows|reclaimed|terminated|black_holes|retransmissions|reassembled|full|up|healthy)(_|$)`)

// silent are such metrics without an alert, and why.
var silent = map[string]string{
	"rnicd_healthy":                      "rnicd_poller_still_seconds says which Poller it is",
	"rnicd_drops_total":                  "any network has some; what matters has a metric of its own",
	"rnicd_segments_refused_total":       "the peer sends them again: rnicd_tcp_retransmissions_total at its end",
	"rnicd_switch_throttled_turns_total": "send_rate and send_frames at work",
}

// normal are reasons that a healthy network has, which an alert leaves out.
var normal = map[string]string{
	"rnicd_device_drops_total":        `reason!="rx other vlan"`, // other VLANs of a trunk
	"rnicd_switch_device_drops_total": `reason!="rx other vlan"`,
	"rnicd_startups_refused_total":    `cause!="rejected"`, // by the service
	"rnicd_switch_thread_drops_total": `reason!="gone"`,    // a program that went away
}

func leftOut(name string) string {
	if normal[name] == "" {
		return ""
	}
	return "{" + normal[name] + "}"
}

// The example rules are rules, of metrics that there are; each metric of what is wrong has one,
// or a reason to have none.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("../../../docs/monitoring/alerts.yml")
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
	guide, err := os.ReadFile("../../../docs/guides/monitoring.md")
	require.NoError(t, err)
	alerted, named := map[string]bool{}, map[string]bool{}
	for _, r := range f.Groups[0].Rules {
		known(t, r.Expr)
		for _, name := range queried.FindAllString(r.Expr, -1) {
			alerted[name] = true
			require.Contains(t, r.Expr, name+leftOut(name), r.Alert)
		}
		require.False(t, named[r.Alert], "twice: %s", r.Alert)
		named[r.Alert] = true
		require.Contains(t, []string{"page", "ticket"}, r.Labels["severity"], r.Alert)
		require.NotEmpty(t, r.Annotations["summary"], r.Alert)
		require.Contains(t, string(guide), r.Alert)
		if r.For != "" {
			_, err := time.ParseDuration(r.For)
			require.NoError(t, err, r.Alert)
		}
	}
	for _, name := range append(Names(), SwitchNames()...) {
		if amiss.MatchString(name) {
			require.NotEqual(t, silent[name] != "", alerted[name], "an alert for %s, or a reason in silent",
				name)
		}
	}
}
