package portfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Variables that say who may connect to a program.
const (
	envSecret = "secret_file"
	envAllow  = "allow"
)

// envControl is the directory of the program's control socket, or ControlOff.
const envControl = "control"

// ControlOff is the value of RNICD_CONTROL for none.
const ControlOff = "off"

// ControlDir is where the environment has a program's control socket be: in a directory, or where
// there is no word of it ("") in its user's own; ok: there is to be one.
func ControlDir(environ []string) (dir string, ok bool, err error) {
	for _, v := range environ {
		if value, is := strings.CutPrefix(v, envPrefix+"CONTROL="); is {
			dir = value
		}
	}
	switch {
	case dir == ControlOff:
		return "", false, nil
	case dir != "" && !filepath.IsAbs(dir):
		return "", false, fmt.Errorf("%sCONTROL: %q: want %s, or a directory from the root on", envPrefix,
			dir, ControlOff)
	}
	if len(dir) > controlDirMax {
		return "", false, fmt.Errorf("%sCONTROL: %q: want a directory of at most %d octets, as sockets' "+
			"paths are short", envPrefix, dir, controlDirMax)
	}
	return dir, true, nil
}

// controlDirMax: the path of a socket has at most 107 octets (unix(7)), of which the program's
// process number and what follows it take up to 15 ("/4194304.9.sock").
const controlDirMax = 107 - 15

// Octets of a secret.
const (
	guardSecretMin = 16
	guardSecretMax = 4096
)

// Guard says who may connect to a program, and send datagrams to it.
type Guard struct {
	Secret []byte         // that peers of queue pairs by number must have; nil: none
	Allow  []netip.Prefix // whose addresses may; none: all
}

// GuardOf is what the environment says of it. It reads the file of the secret.
func GuardOf(environ []string) (g Guard, err error) {
	vars := map[string]string{}
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		if key, ours := strings.CutPrefix(name, envPrefix); ours {
			vars[strings.ToLower(key)] = value
		}
	}
	if list := vars[envAllow]; list != "" {
		if g.Allow, err = prefixes(list); err != nil {
			return Guard{}, fmt.Errorf("%sALLOW: %w", envPrefix, err)
		}
	}
	file := vars[envSecret]
	if file == "" {
		return g, nil
	}
	if vars[envLooks] != Looks[1] {
		return Guard{}, fmt.Errorf("%sSECRET_FILE is for queue pairs that are connected by number, with "+
			"%sDEVICE=%s", envPrefix, envPrefix, Looks[1])
	}
	if g.Secret, err = readSecret(file); err != nil {
		return Guard{}, fmt.Errorf("%sSECRET_FILE: %w", envPrefix, err)
	}
	return g, nil
}

// prefixes are addresses, or networks, with commas between them.
func prefixes(list string) (all []netip.Prefix, err error) {
	for text := range strings.SplitSeq(list, ",") {
		text = strings.TrimSpace(text)
		p, err := netip.ParsePrefix(text)
		if err != nil {
			a, err := netip.ParseAddr(text)
			if err != nil || a.Zone() != "" {
				return nil, fmt.Errorf("%q: want addresses or networks, as 10.0.0.0/8,fd00::1", text)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		if p.Addr().Is4In6() {
			return nil, fmt.Errorf("%q: write it as IPv4", text)
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

// readSecret is what is in a file, without the end of its last line.
func readSecret(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Mode().IsRegular() && st.Mode().Perm()&0o007 != 0 {
		return nil, fmt.Errorf("%s: other users may use it: chmod o= %[1]s", file)
	}
	b, err := io.ReadAll(io.LimitReader(f, guardSecretMax+2))
	if err != nil {
		return nil, err
	}
	b = bytes.TrimRight(b, "\r\n")
	if len(b) < guardSecretMin || len(b) > guardSecretMax {
		return nil, fmt.Errorf("%s: want a secret of %d to %d octets, as head -c 32 /dev/urandom | "+
			"base64 makes one", file, guardSecretMin, guardSecretMax)
	}
	if !slices.ContainsFunc(b, func(c byte) bool { return c != b[0] }) {
		return nil, errors.New(file + ": all octets are the same")
	}
	return b, nil
}
