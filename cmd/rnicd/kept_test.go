package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a client puts under a name others read by RDMA Reads, over the kernel's TCP and over the
// daemon's own, within the quota and from the networks that the service allows; an empty file takes
// it away.
func TestRegionThatKeeps(t *testing.T) {
	ns := newNamespace(t)
	server := ns.rnicd(t, "serve", "--config", configured(t, `
[[port]]
name = "rnic0"
driver = "tap"
addresses = ["10.9.0.1/24"]
host_address = "10.9.0.254/24"

[[service]]
name = "shared"
type = "region"
size = "16MiB"
quota = "5MiB"
keep = true
allow = ["10.9.0.254"]

[[service]]
name = "others"
type = "region"
size = "1MiB"
listen = 7000
keep = true
allow = ["10.9.0.7"]
`))
	server.Expect(t, 1, "msg=ready ")
	f, again := randomFile(t, 3<<20), randomFile(t, 2<<20)
	to := filepath.Join(t.TempDir(), "copy")
	reads := func(want testFile) {
		t.Helper()
		ns.succeeds(t, "get --name image --timeout 60s 10.9.0.1 "+to)
		got := readFile(t, to)
		sent := readFile(t, want.path)
		require.Equal(t, len(sent), len(got))
		require.True(t, sent == got)
	}
	ns.fails(t, "get --name image --timeout 60s 10.9.0.1 "+to, ".*there is no image here")
	ns.succeeds(t, "put --name image --timeout 60s "+f.path+" 10.9.0.1")
	server.Expect(t, 1, "msg=served service=shared .*operation=put .*sha256="+f.sum+" .*name=image")
	reads(f)
	ns.fails(t, "put --timeout 60s "+f.path+" 10.9.0.1",
		".*your address may hold 5242880, and holds 3145728")
	ns.succeeds(t, "put --name image --timeout 60s "+again.path+" 10.9.0.1")
	reads(again)
	server.Expect(t, 2, "msg=served service=shared .*operation=get .*name=image")
	ns.fails(t, "get --name image --timeout 60s 10.9.0.1:7000 "+to, ".*10.9.0.254")
	ns.fails(t, "get --name ../image 10.9.0.1 "+to, `--name: "../image": want 1 to 64 letters`)
	for _, command := range []string{"get --name= 10.9.0.1 " + to,
		"put --name= " + f.path + " 10.9.0.1"} {
		ns.fails(t, command, `--name: "": want 1 to 64 letters`)
	}
	nothing := filepath.Join(t.TempDir(), "nothing")
	require.NoError(t, os.WriteFile(nothing, nil, 0o600))
	ns.succeeds(t, "put --name image --timeout 60s "+nothing+" 10.9.0.1")
	ns.fails(t, "get --name image --timeout 60s 10.9.0.1 "+to, ".*there is no image here")
	ns.stop(t, server)
}
