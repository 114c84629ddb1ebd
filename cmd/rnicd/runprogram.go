package main

import (
	"bytes"
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/daemon/command"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/port/portfile"
)

// The libraries of package verbs; the first loads the second, which stands beside it.
const (
	verbsLibrary  = "librnicd_verbs.so"
	engineLibrary = "librnicd_engine.so"
)

// standIn is the folder beside them where the first has the names of the libraries that it stands
// for: programs that load these themselves (dlopen) find it there.
const standIn = "standin"

// peerSiw is RNICD_PEER for what verbs/internal/engine's Host.PeersAreSiw is.
const peerSiw = "siw"

const toGetLibraries = "make build builds it and make install installs it, where gcc, " +
	"libibverbs-dev and librdmacm-dev are"

func newRun() *cobra.Command {
	var lib, file, peer, looks, secret, allow, ctl string
	var verbose, noCRC bool
	var o nicOptions
	c := &cobra.Command{
		Use: "run [--pmd tap --addr ADDRESS/LENGTH ...] -- PROGRAM [ARGUMENT...]",
		Short: "Run a program that uses libibverbs and librdmacm, as it is, over this host's sockets " +
			"or our own TCP",
		Long: `run starts a program that was written for libibverbs and librdmacm, as its distribution ships it, on a host that needs no
RDMA device. The program finds one device, rnicd0, which speaks iWARP over the kernel's sockets, for which it needs no rights:

  rnicd run -- rping -s -a 127.0.0.1
  rnicd run -- rping -c -a 127.0.0.1 -C 3

or over our own TCP on a device, which the program has for itself as long as it runs:

  rnicd run --pmd tap --host-addr 10.9.0.1/24 --addr 10.9.0.2/24 -- rping -s

When a Terminate ends a connection, standard error says why before the program exits, and vendor_err of the completions has its layer,
type and code. --verbose tells of other ends, too. While the program runs, rnicd status, ss, events and top show it.

The program's own options come after "--". It becomes this process: signals and its exit status are its own. The flags go to it as
environment variables, RNICD_PMD, RNICD_ADDR and so on (docs/guides/verbs.md). The two libraries, ` + verbsLibrary + ` and
` + engineLibrary + `, are looked for beside rnicd, and in ../lib/rnicd and ../lib from there.`,
		Args: command.ArgsWanted(1, math.MaxInt),
		RunE: func(_ *cobra.Command, args []string) error {
			if o.counters {
				return errors.New("--counters: run has none, for the program is not rnicd's own: leave it out")
			}
			env := o.environ(file, verbose)
			switch peer {
			case "":
			case peerSiw:
				env = append(env, "RNICD_PEER="+peer)
			default:
				return fmt.Errorf("--peer %s: unknown; %s is known", peer, peerSiw)
			}
			if looks != "" {
				env = append(env, "RNICD_DEVICE="+looks)
			}
			if secret != "" {
				path, err := filepath.Abs(secret) // the program may go elsewhere
				if err != nil {
					return err
				}
				env = append(env, "RNICD_SECRET_FILE="+path)
			}
			if allow != "" {
				env = append(env, "RNICD_ALLOW="+allow)
			}
			if ctl != "" {
				dir := ctl
				if dir != portfile.ControlOff {
					var err error
					if dir, err = filepath.Abs(dir); err != nil { // the program may go elsewhere
						return err
					}
				}
				env = append(env, "RNICD_CONTROL="+dir)
			}
			warnNoCRC(os.Stderr, noCRC)
			if noCRC {
				env = append(env, "RNICD_CRC=false")
			}
			return runProgram(lib, args, override(os.Environ(), env))
		},
	}
	f := c.Flags()
	f.StringVar(&lib, "lib", "", "the directory of the two libraries")
	f.StringVar(&file, "config", "",
		"a daemon's file, with one port or that of RNICD_PORT, instead of the flags of a device")
	f.BoolVar(&verbose, "verbose", false,
		"say on standard error where the program listens, what it is connected with, and why each "+
			"connection ends (without: only that a Terminate ended it)")
	f.StringVar(&peer, "peer", "", "what the other ends are: "+peerSiw+
		", Linux' software iWARP, which has no markers and needs its time")
	f.StringVar(&looks, "device", "", "what the device looks like: "+
		strings.Join(portfile.Looks, " or ")+" (default iwarp); roce is for programs that know no other (docs/guides/verbs.md)")
	f.StringVar(&secret, "secret-file", "", "a file with a secret, 16 octets or more: with "+
		"--device roce, only peers that have it, too, are connected by number (docs/guides/verbs.md)")
	f.StringVar(&allow, "allow", "", "addresses or networks that may connect or send datagrams, with "+
		"commas (default all)")
	f.StringVar(&ctl, "control", "", "the directory of the program's control socket, which is made if only "+
		"it is missing, or off (default the user's own; rnicd status, ss, events and top ask there)")
	f.BoolVar(&noCRC, "no-crc", false, "do without CRC32C where the peer does, too")
	o.flags(f)
	f.Lookup("pmd").DefValue = "kernel"
	f.Lookup("addr").DefValue = ""
	_ = f.MarkHidden("counters") // the flag is there
	f.SetInterspersed(false)
	return c
}

// runVariables are the environment variables of flags, those apart that environ knows.
var runVariables = map[string]string{
	"pmd": "PMD", "dev": "DEV", "pci": "PCI", "eal": "EAL", "socket": "SOCKET", "id": "ID",
	"role": "ROLE", "secret": "SECRET", "addr": "ADDR",
	"host-addr": "HOST_ADDRESS", "gateway": "GATEWAYS", "vlan": "VLAN", "mtu": "MTU",
	"queues": "QUEUES", "core": "CORES", "cores": "CORES",
	"idle": "IDLE", "flow-control": "FLOW_CONTROL", "promiscuous": "PROMISCUOUS", "page": "PAGE",
	"node": "NUMA_NODE", "fault": "FAULT",
	"capture": "CAPTURE", "congestion": "TCP_CONGESTION", "rto-min": "TCP_RTO_MIN",
	"pto-min": "TCP_PTO_MIN", "pacing": "TCP_PACING",
	"ecn": "TCP_ECN", "dial-ports": "DIAL_PORTS", "dad": "DAD", "mac": "MAC",
}

// flagsFor has a text about variables of a port name the flags instead that the user would give: of
// each variable that does not stand in the user's own environment.
func flagsFor(text string, own []string) string {
	others := map[string]string{"ADDR": "ADDRESSES", "PMD": "DRIVER"} // as portfile has them
	names := maps.Clone(runVariables)
	delete(names, "core") // cores
	for flag, name := range map[string]string{"config": "CONFIG", "no-offload": "OFFLOAD",
		"device": "DEVICE", "peer": "PEER", "secret-file": "SECRET_FILE", "allow": "ALLOW",
		"control": "CONTROL"} {
		names[flag] = name
	}
	for flag, name := range names {
		both := []string{name, cmp.Or(others[name], name)}
		if !slices.ContainsFunc(own, func(v string) bool {
			return strings.HasPrefix(v, "RNICD_"+both[0]+"=") || strings.HasPrefix(v, "RNICD_"+both[1]+"=")
		}) {
			text = regexp.MustCompile(`\bRNICD_(`+strings.Join(both, "|")+`)\b`).
				ReplaceAllLiteralString(text, "--"+flag)
		}
	}
	return text
}

// environ is what the flags given say, as portfile.Environment reads it.
func (o *nicOptions) environ(file string, verbose bool) (env []string) {
	add := func(name, value string) { env = append(env, "RNICD_"+name+"="+value) }
	if file != "" {
		add("CONFIG", file)
	}
	if verbose {
		add("VERBOSE", "1")
	}
	o.set.Visit(func(f *pflag.Flag) {
		value := f.Value.String()
		switch f.Name {
		case "spin":
			add("IDLE", "spin")
			return
		case "no-dad":
			add("DAD", "off")
			return
		case "no-offload":
			add("OFFLOAD", "false")
			return
		case "eal":
			value = strings.Join(strings.Fields(value), ",")
		case "addr":
			value = strings.Join(o.addrs, ",")
		case "gateway":
			value = strings.Join(o.gateways, ",")
		}
		if name, ok := runVariables[f.Name]; ok {
			add(name, value)
		}
	})
	return env
}

// override is env with what by has instead of variables of the same names.
func override(env, by []string) []string {
	return append(slices.DeleteFunc(env, func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.ContainsFunc(by, func(b string) bool { return strings.HasPrefix(b, name+"=") })
	}), by...)
}

// ofFlags has errors, one a line, name flags instead of variables.
func ofFlags(err error) error {
	var all []error
	for line := range strings.Lines(flagsFor(err.Error(), os.Environ())) {
		all = append(all, errors.New(strings.TrimSuffix(line, "\n")))
	}
	return errors.Join(all...)
}

// runProgram makes this process the program. It returns only with an error.
func runProgram(lib string, args, env []string) error {
	if _, err := portfile.Environment(env, port.All()); err != nil {
		return ofFlags(err)
	}
	if err := checkControl(env); err != nil {
		return ofFlags(err)
	}
	if _, err := portfile.GuardOf(env); err != nil {
		return ofFlags(err)
	}
	library, err := findLibrary(lib)
	if err != nil {
		return err
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	runs, what := interpreterOf(path), path
	if runs != path {
		what = fmt.Sprintf("%s: its interpreter %s", path, runs)
	}
	if why := otherC(runs); why != "" {
		return fmt.Errorf("%s %s: the libraries of rnicd run need glibc 2.34 or later, in a container "+
			"that of its image", what, why)
	}
	if why := notLoaded(runs); why != "" {
		fmt.Fprintf(os.Stderr, "rnicd: %s %s: it runs without %s and finds no device of rnicd\n", what,
			why, verbsLibrary)
	}
	err = syscall.Exec(path, args, loadFirst(forUCX(env), library))
	return fmt.Errorf("run %s: %w", path, err)
}

// checkControl says what is wrong with the directory of the control socket. The program makes it
// where it is missing, and goes on without a socket where it cannot.
func checkControl(env []string) error {
	dir, _, err := portfile.ControlDir(env)
	if err != nil || dir == "" {
		return err
	}
	at := dir
	st, err := os.Stat(at)
	if errors.Is(err, fs.ErrNotExist) {
		at = filepath.Dir(at)
		st, err = os.Stat(at)
	}
	for errors.Is(err, unix.ENOTDIR) { // up to the part that is none
		at = filepath.Dir(at)
		st, err = os.Stat(at)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("RNICD_CONTROL: no folder for %s: mkdir -p %s", dir, at)
	case err == nil && !st.IsDir():
		return fmt.Errorf("RNICD_CONTROL: %s is there, and is no directory: choose another one, or %s", at,
			portfile.ControlOff)
	}
	if err := unix.Access(at, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("RNICD_CONTROL: no socket can be made in %s: %w", at, err)
	}
	return nil
}

// findLibrary is where verbsLibrary is.
func findLibrary(dir string) (string, error) {
	dirs := []string{dir}
	if dir == "" {
		self, err := os.Executable() // not a link to it: it comes from the kernel
		if err != nil {
			return "", err
		}
		beside := filepath.Dir(self)
		dirs = []string{beside, filepath.Join(beside, "../lib/rnicd"), filepath.Join(beside, "../lib")}
	}
	for _, d := range dirs {
		path, err := filepath.Abs(filepath.Join(d, verbsLibrary))
		if err != nil {
			return "", err
		}
		switch _, err := os.Stat(path); {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return "", err
		}
		for _, other := range []string{engineLibrary, filepath.Join(standIn, "libibverbs.so.1")} {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), other)); err != nil {
				return "", fmt.Errorf("%s is there, %s is not beside it (%s): %w", path, other,
					toGetLibraries, err)
			}
		}
		return path, nil
	}
	return "", fmt.Errorf("%s not found in %s; %s; --lib says where it is", verbsLibrary,
		strings.Join(dirs, ", "), toGetLibraries)
}

// loadFirst is env with the library first among those that are preloaded, and its names first where
// libraries are looked for.
func loadFirst(env []string, library string) []string {
	env = putFirst(env, "LD_PRELOAD", library)
	return putFirst(env, "LD_LIBRARY_PATH", filepath.Join(filepath.Dir(library), standIn))
}

// forUCX is env with what UCX needs to listen. It makes two listeners at a port, by librdmacm and
// of TCP, which are two spaces of ports with InfiniBand and RoCE, and one here as with iWARP.
func forUCX(env []string) []string {
	const ours = "UCX_SOCKADDR_TLS_PRIORITY="
	if !slices.Contains(env, "RNICD_DEVICE=roce") ||
		slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, ours) }) {
		return env
	}
	return append(env, ours+"rdmacm")
}

// putFirst is env with value before what the variable name has.
func putFirst(env []string, name, value string) []string {
	out := make([]string, 0, len(env)+1)
	for _, v := range env {
		if rest, ok := strings.CutPrefix(v, name+"="); ok {
			if rest != "" {
				value += ":" + rest
			}
			continue
		}
		out = append(out, v)
	}
	return append(out, name+"="+value)
}

// interpretersMax is how many scripts the kernel follows to one that is none (exec_binprm).
const interpretersMax = 5

// interpreterOf is the program that the kernel runs for a file: of a script its interpreter, and of
// one of env(1) what that runs; else the file itself.
func interpreterOf(path string) string {
	for range interpretersMax {
		words := shebang(path)
		if len(words) == 0 {
			return path
		}
		next := words[0]
		if filepath.Base(next) == "env" {
			for _, w := range words[1:] { // with -S the kernel's one argument is several words
				if strings.HasPrefix(w, "-") || strings.Contains(w, "=") {
					continue
				}
				if found, err := exec.LookPath(w); err == nil {
					next = found
				}
				break
			}
		}
		path = next
	}
	return path
}

// shebang are the words after #! in a file's first line; none: it is no script.
func shebang(path string) []string {
	const lineMax = 256 // BINPRM_BUF_SIZE
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, lineMax)) // what it is, notLoaded looks at, too
	line, is := strings.CutPrefix(string(b), "#!")
	line, _, _ = strings.Cut(line, "\n")
	if !is {
		return nil
	}
	return strings.Fields(line)
}

// notLoaded says why the loader will not load the library into a program; "": it will, or the file
// does not tell.
func notLoaded(path string) string {
	f, err := elf.Open(path)
	if err != nil {
		return "" // what exec will refuse
	}
	defer f.Close()
	if self, err := elf.Open("/proc/self/exe"); err == nil {
		defer self.Close()
		if f.Class != self.Class || f.Machine != self.Machine {
			return "is for another processor (" + f.Class.String() + ", " + f.Machine.String() + ")"
		}
	}
	if !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return "is linked statically"
	}
	if otherRights(path) {
		return "runs with other rights than its caller's (setuid, setgid or capabilities)"
	}
	return ""
}

// glibcLeast is the version of glibc that the libraries need. The loader has its name since then,
// as glibc's libraries became one.
const glibcLeast = "GLIBC_2.34"

// otherC says why the C library of a program is not one for our libraries; "": it is, or the file
// does not tell. The loader ends the program when it finds them.
func otherC(path string) string {
	f, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	i := slices.IndexFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	if i < 0 {
		return ""
	}
	text, err := io.ReadAll(io.LimitReader(f.Progs[i].Open(), unix.PathMax))
	if err != nil {
		return ""
	}
	loader := string(bytes.TrimRight(text, "\x00"))
	switch name := filepath.Base(loader); {
	case strings.HasPrefix(name, "ld-musl-"):
		return "is made for musl"
	case !strings.HasPrefix(name, "ld-linux-"):
		return ""
	}
	l, err := elf.Open(loader)
	if err != nil {
		return ""
	}
	defer l.Close()
	versions, err := l.DynamicVersions()
	named := func(v elf.DynamicVersion) bool { return v.Name == glibcLeast }
	if err != nil || len(versions) == 0 || slices.ContainsFunc(versions, named) {
		return ""
	}
	return "is loaded by an older glibc (" + loader + ")"
}

// otherRights says whether exec gives the program other rights than this process has. The loader
// then ignores LD_PRELOAD and LD_LIBRARY_PATH.
func otherRights(path string) bool {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return false
	}
	if st.Mode&unix.S_ISUID != 0 && int(st.Uid) != os.Getuid() || st.Mode&unix.S_ISGID != 0 &&
		int(st.Gid) != os.Getgid() {
		return true
	}
	n, err := unix.Getxattr(path, "security.capability", nil)
	return err == nil && n > 0 && os.Getuid() != 0
}
