package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/status"
)

// ask runs rnicd status, and wants an exit status.
func (ns *namespace) ask(t *testing.T, want int, args ...string) string {
	t.Helper()
	p := ns.rnicd(t, append([]string{"status"}, args...)...)
	require.Equal(t, want, p.Wait(t), "%s", p)
	return p.String()
}

// scrape gets the metrics that are served inside the namespace.
func (ns *namespace) scrape(t *testing.T, addr string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string,
		string) (c net.Conn, err error) {
		ns.Do(func() { c, err = net.Dial("tcp", addr) })
		return c, err
	}}}
	defer client.CloseIdleConnections()
	resp := must(client.Get("http://" + addr + "/metrics"))(t)
	defer resp.Body.Close()
	text := must(io.ReadAll(resp.Body))(t)
	return string(text)
}

// What a switch does can be seen, as text, as JSON and by Prometheus: the programs attached, what
// went to each, what was dropped and why, and the programs refused. Commands for daemons say that
// this is a switch.
func TestSwitchSeen(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	text, socket := switchOfGuide(t)
	text, asked := seenAt(t, text)
	s := newSwitched(t, strings.Replace(text, "id = 4", "id = 4\nuids = [4711]", 1), socket)
	store := s.program(t, "serve --region 64MiB", 1, "10.9.0.1/24")
	store.Expect(t, 1, "^ready ")
	f := randomFile(t, 1<<20)
	succeeded(t, s.program(t, "put --timeout 60s", 2, "10.9.0.2/24", f.path, "10.9.0.1:7174"),
		f, s.process)
	s.exits(t, 1, "put", "--timeout", "500ms", "--pmd", "memif", "--socket", socket, "--id", "2",
		"--addr", "10.9.0.254/24", "--no-dad", f.path, "10.9.0.1:7174")
	why := map[int]string{9: "ID not found: no program has interface 9",
		4: "user 0 and group 0 may not attach as right"}
	refused := map[int]*process{}
	for id := range why {
		refused[id] = s.program(t, "put", id, "10.9.0.9/24", f.path, "10.9.0.1:7174")
	}
	for id, p := range refused {
		require.Equal(t, 1, p.Wait(t), "%s", p)
		s.Expect(t, 1, `level=WARN msg=refused socket=`+socket+` id=\d pid=\d+ uid=0 gid=0 why="`+
			why[id]+`"`)
	}
	s.Expect(t, 2, "msg=detached program=writer")

	var is status.Switch
	require.NoError(t, json.Unmarshal([]byte(s.ask(t, 0, "--json", "--socket", asked)), &is))
	require.True(t, is.Healthy)
	require.Equal(t, s.PID(), is.PID)
	require.Greater(t, is.Refused, uint64(1))
	require.Len(t, is.Uplinks, 1)
	require.Equal(t, "tap", is.Uplinks[0].Driver)
	require.Len(t, is.Programs, 4)
	one, writer := is.Programs[0], is.Programs[1]
	require.True(t, one.Attached)
	require.EqualValues(t, store.PID(), one.Program.PID)
	require.EqualValues(t, []string{"10.9.0.1"}, one.Program.Addresses)
	require.Greater(t, one.SentB, uint64(1<<20), "the file")
	require.Greater(t, writer.ReceivedB, one.SentB/2)
	require.False(t, writer.Attached)
	require.EqualValues(t, 2, writer.Attaches)
	require.NotEmpty(t, writer.Program.Error)
	require.NotZero(t, writer.Drops["spoofed-mac"])
	require.EqualValues(t, 1<<30, writer.Program.SendRate)
	require.NotZero(t, is.Threads[0].Turns)

	shown := s.ask(t, 0, "--socket", asked)
	require.Regexp(
		t, `(?m)^rnicd switch \S+  healthy  up \S+  1 of 4 programs attached  \d+ refused  pid \d+  `,
		shown)
	require.Regexp(t, `(?m)^store +0  attached .*\n  10.9.0.1  pid \d+ uid 0 gid 0 "rnicd"`, shown)
	require.Regexp(
		t,
		`(?m)^writer +0  detached .*\n  10.9.0.2  gone: .*  attached 2 times  dropped: .*spoofed-mac \d+`,
		shown)
	require.Regexp(t, `(?m)^rnic0#0 +0  uplink `, shown)

	metrics := s.scrape(t, "127.0.0.1:9175")
	for _, line := range []string{
		`rnicd_switch_attached\{kind="program",port="store",queue="0"\} 1`,
		`rnicd_switch_attached\{kind="program",port="writer",queue="0"\} 0`,
		`rnicd_switch_attachments_total\{kind="program",port="writer",queue="0"\} 2`,
		`rnicd_switch_sent_bytes_total\{kind="program",port="store",queue="0"\} 1\.\d+e\+06`,
		`rnicd_switch_drops_total\{kind="program",port="writer",queue="0",reason="spoofed-mac"\} [1-9]\d*`,
		`rnicd_switch_drops_total\{kind="uplink",port="rnic0",queue="0",reason="full"\} 0`,
		`rnicd_switch_rate_limit_bytes\{direction="send",kind="program",port="writer",queue="0"\} 1.073741824e\+09`,
		`rnicd_switch_refused_total [1-9]\d*`, `rnicd_switch_healthy 1`,
	} {
		require.Regexp(t, `(?m)^`+line+`$`, metrics)
	}
	for _, words := range []string{"ss", "events"} {
		p := s.exits(t, 1, words, "--socket", asked)
		require.Contains(t, p.String(), "rnicd status --switch")
	}
	top := s.exits(t, 0, "top", "--once", "--socket", asked)
	top.Expect(t, 1, `^store +0 +attached `)
	second := s.exits(t, 1, "switch", "--config", configured(t, text))
	require.Contains(t, second.String(), asked+" is another daemon's")
	s.end(t)
	require.Contains(t, s.ask(t, 3, "--socket", asked), "no daemon answers")
	require.NoFileExists(t, asked)
}

// What systemd hears of rnicd-switch.service: ready when programs can attach, alive all the time,
// a reload from its beginning to its end, and the end.
func TestSwitchTellsSystemd(t *testing.T) {
	ns := newNamespace(t)
	m, socket := newManager(t)
	text, programs := switchOfGuide(t)
	text, asked := seenAt(t, text)
	path := configured(t, text)
	cmd := exec.Command(programPath(t), "switch", "--config", path)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=20000")
	s := ns.Start(t, cmd)
	require.Equal(t, "READY=1\nSTATUS=4 programs, 1 uplink", m.hear())
	require.FileExists(t, programs)
	m.aliveAgain(3)
	for _, now := range []struct{ text, status string }{
		{text + "[[program]]\nname = \"more\"\nid = 5\naddresses = [\"10.9.0.5\"]\n",
			"5 programs, 1 uplink"}, {"mistake", "5 programs, 1 uplink; NOT RELOADED: see the log"},
	} {
		require.NoError(t, os.WriteFile(path, []byte(now.text), 0o600))
		s.Signal(t, syscall.SIGHUP)
		require.Regexp(t, `^RELOADING=1\nMONOTONIC_USEC=\d+$`, m.hear())
		require.Equal(t, "READY=1\nSTATUS="+now.status, m.hear())
	}
	m.aliveAgain(3)
	seen := ns.ask(t, 0, "--socket", asked)
	require.Contains(t, seen, "NOT RELOADED; in force is the configuration of")
	s.Signal(t, syscall.SIGTERM)
	require.Equal(t, "STOPPING=1\nSTATUS=ending", m.hear())
	require.Equal(t, 0, s.Wait(t), "%s", s)
}
