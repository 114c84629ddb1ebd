package tcp

import "testing"

// FuzzInput lets a peer that keeps to no rule talk to a Conn whose owner keeps to all. Three octets
// are one step. The invariants must hold after each, no octet may be handed up twice, and handles
// come back in order.
func FuzzInput(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 1, 1, 2, 2, 2})
	f.Add([]byte{1, 16, 10, 9, 0, 0, 1, 16, 20, 3, 0, 200, 9, 0, 0, 4, 0, 0, 1, 17, 3, 9, 1, 1})
	f.Add(
		[]byte("\x20\x10\x05\x21\x10\x40\x22\x10\x80\x09\x00\x00\x23\x11\x00\x07\x00\x00\x09\xff\xff"))
	// the path shrinks over a probe that is queued
	f.Add([]byte("00\xb8#00000000A00700000900A8X#00700"))
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) < 3 || len(program) > 3000 {
			return
		}
		mode := program[0]
		cfg := Config{MSS: 200, SentMax: 16, RangesMax: 9, SpansMax: 8, ReceiveWindow: 2000,
			NoSACK: mode&1 != 0, NoTimestamps: mode&2 != 0,
			NoWindowScale: mode&4 != 0, NoDelay: mode&8 != 0, ECN: ECNMode(program[1] % 3),
			Pacing: program[1]&64 != 0}
		if program[1]&32 != 0 {
			cfg.Congestion = exactReno{}
		}
		z := &fuzzer{t: t, c: NewConn(cfg), now: sc, peer: 0xfffffff0, got: map[uint64]bool{}}
		syn := Segment{Seq: z.peer, Flags: SYN | Flags(program[2])&(ECE|CWR),
			Window: uint16(program[1]) * 16}
		syn.Options = Options{MSS: uint16(program[2]), WindowScale: int8(mode>>4&3) - 1,
			SACKPermitted: true, HasTimestamps: true}
		if mode&128 != 0 {
			z.c.Connect(z.now, simID(false), 0xffffff00, 0)
		} else {
			z.c.Accept(z.now, simID(true), 0xffffff00, 0, &syn)
		}
		for p := program[3:]; len(p) >= 3; p = p[3:] {
			z.step(p[0], p[1], p[2])
			if err := z.c.broken(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

type fuzzer struct {
	t        *testing.T
	c        *Conn
	now      int64
	peer     Seq
	got      map[uint64]bool
	next     Handle
	released Handle
}

func (z *fuzzer) step(op, x, y byte) {
	c := z.c
	switch op % 12 {
	case 0: // what an honest peer may send: in order
		z.input(Segment{Seq: c.rcvNxt(), Ack: c.seqOf(c.sndNxt), Flags: ACK, Window: 1000, Len: int(y)},
			x)
	case 1, 2: // anything near the windows
		z.input(Segment{Seq: c.rcvNxt() + Seq(int8(x))*16, Ack: c.seqOf(c.sndUna) + Seq(int8(y))*8,
			Flags: ACK | Flags(op>>4)&(FIN|PSH), Window: uint16(x) * 8, Len: int(y) * int(op>>6)}, op)
	case 3: // any flags
		z.input(Segment{Seq: c.rcvNxt() + Seq(int8(y)), Ack: c.seqOf(c.sndUna) + Seq(op>>4),
			Flags: Flags(x), Window: uint16(y) << 8, Len: int(op)}, y)
	case 4: // acknowledge some, SACK some
		s := Segment{Seq: c.rcvNxt(), Ack: c.seqOf(c.sndUna) + Seq(x&15)*10, Flags: ACK, Window: 5000}
		s.Options.SACKCount = int(op>>4)%4 + 1
		for i := range s.Options.SACKCount {
			left := c.seqOf(c.sndUna) + Seq(int8(y))*4 + Seq(i*300)
			s.Options.SACK[i] = SACKBlock{left, left + Seq(x)*2}
		}
		z.input(s, 1)
	case 5:
		if n := roomOf(c, z.now); n > 0 {
			pushOne(c, z.now, z.next, 1+(int(x)<<8|int(y))%n, x&1 != 0)
			z.next++
		}
	case 6, 7:
		z.output(int(x) + 1)
	case 8:
		z.now += int64(x)*int64(y)*ms + int64(y)
		c.Expire(z.now)
	case 9:
		z.now = max(z.now, min(c.Deadline(), z.now+1000*sc))
		c.Expire(z.now)
		z.output(100)
	case 10:
		c.SetReceiveWindow(int(x) * int(y))
	case 11:
		switch {
		case x < 128:
			c.SetEMSSLimit(int(y))
		case x < 190:
			c.CloseSend(z.now)
		case x < 195:
			c.SetOrphaned(z.now)
		case x < 205:
			c.SetKeepAlive(z.now, int64(y)*ms, int64(x)*ms, int(y&3))
		case x < 210:
			c.SetUserTimeout(int64(y) * 100 * ms)
		case x == 255 && y == 255:
			c.Abort(z.now)
		}
	}
	for {
		h, ok := c.Release()
		if !ok {
			break
		}
		if h != z.released {
			z.t.Fatalf("handle %d released, want %d", h, z.released)
		}
		z.released++
	}
}

func (z *fuzzer) input(s Segment, how byte) {
	if s.Options.SACKCount == 0 {
		s.Options.clear()
	}
	s.Options.HasTimestamps = how&1 != 0
	s.Options.TSval = uint32(z.now/ms) - uint32(how>>6)
	s.Options.TSecr = uint32(z.now/ms) - uint32(how>>5)
	s.Options.MSS = uint16(how)
	s.TOS = how >> 2
	before, edge := s, z.c.Edge()
	a := z.c.Input(z.now, &s)
	if a.Len > 0 {
		if a.Skip < 0 || a.Skip+a.Len > before.Len || Seq(a.Offset)+z.c.irs+1 != before.Seq+Seq(a.Skip) ||
			a.Offset < edge {
			z.t.Fatalf("arrival %+v of %+v at edge %d", a, before, edge)
		}
		for o := a.Offset; o < a.Offset+uint64(a.Len); o++ {
			if z.got[o] {
				z.t.Fatalf("octet %d twice", o)
			}
		}
	}
	refused := how&0x30 == 0x30
	if !refused {
		for o := a.Offset; o < a.Offset+uint64(a.Len); o++ {
			z.got[o] = true
		}
	}
	z.c.Commit(z.now, &a, refused)
	if z.c.Edge() < edge {
		z.t.Fatalf("edge moved back from %d to %d", edge, z.c.Edge())
	}
}

func (z *fuzzer) output(n int) {
	var t Transmit
	for i := 0; i < n && z.c.Next(z.now, 1, &t); i++ {
		if i == 99 && n == 100 {
			z.t.Fatal("Next does not end")
		}
		most := z.c.EMSS()
		if z.c.mtu.size != 0 && !t.Retransmit {
			most = z.c.mssMax() - z.c.optionsLen()
		}
		if t.HeaderLen() > headerLenMax || t.Len > most || t.Len < 0 || t.Off < 0 {
			z.t.Fatalf("%+v with EMSS %d", t, z.c.EMSS())
		}
		if t.Len > 0 && (t.Handle < z.released || t.Handle >= z.next) {
			z.t.Fatalf("handle %d sent, released %d, pushed %d", t.Handle, z.released, z.next)
		}
	}
}
