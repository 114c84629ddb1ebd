package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/rnicd/rnicd/internal/daemon/cdi"
)

// socketsMax bounds a list that is sent as a whole.
const socketsMax = 10_000

// pathMax is how many octets the path of a Unix socket may have, without the one that ends it.
const pathMax = len(unix.RawSockaddrUnix{}.Path) - 1

// options are the flags.
type options struct {
	sockets int
	file    string // of the switch
	lib     string
	cdiDir  string
	noCDI   bool
	kubelet string // the folder of its sockets
}

func main() {
	o, err := parse(os.Args[1:], os.Stdout)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		err = run(ctx, o)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "rnicd-device-plugin:", err)
		os.Exit(1)
	}
}

// parse reads the flags. help is where -help prints them.
func parse(args []string, help io.Writer) (o options, err error) {
	f := flag.NewFlagSet("rnicd-device-plugin", flag.ContinueOnError)
	f.IntVar(&o.sockets, "sockets", 64, "how many containers of the node may have rnicd.io/sockets; 0: "+
		"there is no such resource")
	f.StringVar(&o.file, "switch", "", "the configuration of the node's switch, whose programs are "+
		"rnicd.io/memif; without it there is no such resource")
	f.StringVar(&o.lib, "lib", "/usr/lib/rnicd", "the node's folder of the two libraries, seen here under the "+
		"same path")
	f.StringVar(&o.cdiDir, "cdi-dir", cdi.DynamicDir, "where the node's container engine reads CDI files")
	f.BoolVar(&o.noCDI, "no-cdi", false, "answer with environment and mounts, for kubelets before 1.29 and "+
		"engines without CDI")
	f.StringVar(&o.kubelet, "device-plugins", v1beta1.DevicePluginPath,
		"the folder of the kubelet's sockets")
	var said strings.Builder
	f.SetOutput(&said)
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(help, said.String())
		return o, err
	case err != nil:
		return o, fmt.Errorf("%w; -help lists the flags", err)
	case f.NArg() > 0:
		return o, fmt.Errorf("%s: there are only flags; -help lists them", f.Arg(0))
	case o.sockets < 0 || o.sockets > socketsMax:
		return o, fmt.Errorf("-sockets %d: want 0 to %d", o.sockets, socketsMax)
	case o.sockets == 0 && o.file == "":
		return o, errors.New("-sockets 0 and no -switch: there is nothing to offer")
	case len(filepath.Join(o.kubelet, socketOf("sockets"))) > pathMax:
		return o, fmt.Errorf("-device-plugins %s: too long, a socket's path has at most %d octets",
			o.kubelet, pathMax)
	case !filepath.IsAbs(o.lib):
		return o, fmt.Errorf("-lib %s: want an absolute path, the same on the node and here", o.lib)
	}
	if o.noCDI {
		o.cdiDir = ""
	}
	return o, nil
}

// run offers the resources until ctx is done.
func run(ctx context.Context, o options) error {
	release := reserve(ctx, o.kubelet)
	if release == nil {
		return nil
	}
	defer release()
	host := cdi.Host{Libraries: o.lib}
	var all sync.WaitGroup
	defer all.Wait()
	offer := func(p *plugin, look func() []device) {
		p.update(look()) // so that the first list is whole
		all.Go(func() { serve(ctx, o.kubelet, p) })
		all.Go(func() {
			for pause(ctx) {
				p.update(look())
			}
		})
	}
	if o.sockets > 0 {
		offer(&plugin{pool: newPool("sockets", false), noCDI: o.noCDI},
			func() []device { return sockets(host, o.cdiDir, o.sockets) })
	}
	if o.file != "" {
		of := &programs{host: host, file: o.file, dir: o.cdiDir}
		offer(&plugin{pool: newPool("memif", true), noCDI: o.noCDI},
			func() []device { return of.look(ctx) })
	}
	return nil // once all have ended
}

// update sets the devices, and logs it when one comes, goes, fails or works again.
func (p *plugin) update(devices []device) {
	if !p.set(devices) {
		return
	}
	healthy, trouble := 0, ""
	for _, d := range devices {
		if d.trouble == "" {
			healthy++
		} else if trouble == "" {
			trouble = d.id + ": " + d.trouble
		}
	}
	slog.Info("devices", "resource", name(p.resource), "healthy", healthy, "of", len(devices),
		"trouble", trouble)
}
