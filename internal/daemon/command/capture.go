package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rnicd/rnicd/internal/capture"
	"github.com/rnicd/rnicd/internal/conf"
	"github.com/rnicd/rnicd/internal/daemon/control"
)

// endWait is how long the daemon has for the rest of a capture that was told to end.
const endWait = 5 * time.Second

// captureOptions are the flags of capture.
type captureOptions struct {
	socket, write string
	ports         []string
	count, snap   int
	size          string
	files         int
}

// Capture is the command capture.
func Capture() *cobra.Command {
	o := &captureOptions{}
	c := &cobra.Command{
		Use:   "capture [FILTER]",
		Short: "Write what goes through a running daemon's ports to a pcapng file",
		Long: `capture asks the daemon on its control socket for the frames of a port, or of all, in both directions, and writes them as
pcapng: for Wireshark and tshark, with direction, nanoseconds and the number of frames that are missing. It ends with Ctrl-C, or after
--count frames. The packet path does not wait for it: frames for which there is no room are dropped from the file, and counted.

The filter, one or several arguments, is made of
  tcp udp icmp icmp6 arp ip ip6      vlan [N]      inbound outbound
  [src|dst] host ADDRESS, net PREFIX, port N, portrange N-M, ether MAC; also after a protocol, as tcp dst port 7174
with and, or, not and parentheses. VLAN tags hide nothing: tcp finds tagged frames, too.`,
		Example: `  rnicd capture -i rnic0 -w rnic0.pcapng tcp port 7174
  rnicd capture -w ring.pcapng -C 100MiB -W 10
  rnicd capture 'host 10.9.0.2 and not arp' | tshark -r -`,
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return o.run(ctx, strings.Join(args, " "), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.StringVar(&o.socket, "socket", "", "the daemon's control socket")
	f.StringSliceVarP(&o.ports, "port", "i", nil, "name of a port; all without")
	f.StringVarP(&o.write, "write", "w", "-", "file to write; - is standard output")
	f.StringVarP(&o.size, "file-size", "C", "", "begin the next file after so many octets, as 100MiB")
	f.IntVarP(&o.files, "files", "W", 0, "keep so many files, and overwrite the oldest")
	f.IntVarP(&o.count, "count", "c", 0, "end after so many frames")
	f.IntVarP(&o.snap, "snaplen", "s", 0, "octets to keep of a frame; 0: all")
	return c
}

func (o *captureOptions) run(ctx context.Context, filter string, stdout, stderr io.Writer) error {
	cfg := capture.FilesConfig{Path: o.write, Count: o.files}
	if o.size != "" {
		var n conf.Size
		if err := n.UnmarshalText([]byte(o.size)); err != nil {
			return fmt.Errorf("--file-size: %w", err)
		}
		cfg.SizeMax = int64(n)
	}
	if o.write == "-" {
		if isTerminal(stdout) {
			return errors.New("capture: name a file, -w FILE, or put a program after it: rnicd capture | " +
				"tshark -r -")
		}
		cfg.Out = stdout
	}
	client := control.NewClient(o.socket)
	defer client.Close()
	id := rand.Text()
	query := url.Values{"id": {id}, "port": o.ports, "filter": {filter},
		"snaplen": {strconv.Itoa(o.snap)}, "count": {strconv.Itoa(o.count)}}
	asked, cancel := context.WithCancel(context.Background())
	defer cancel()
	// the daemon says how many frames are missing when it is told to end
	stop := context.AfterFunc(ctx, func() {
		late, over := context.WithTimeout(asked, endWait)
		defer over()
		if client.Post(late, "/v1/capture/end", url.Values{"id": {id}}) != nil {
			cancel()
			return
		}
		<-late.Done()
		cancel()
	})
	defer stop()
	in, err := client.Stream(asked, "/v1/capture", query)
	if err != nil {
		return err
	}
	defer in.Close()
	files, err := capture.NewFiles(cfg)
	if err != nil {
		return err
	}
	_, err = io.Copy(files, in)
	if closing := files.Close(); err == nil {
		err = closing
	}
	n := files.Counters()
	fmt.Fprintf(stderr, "%s, %d missing\n", conf.Count(int(n.Written), "frame"), n.Dropped)
	return err
}

// isTerminal says that octets written to w would be shown to somebody.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && f.Name() != os.DevNull
}
