package engine

import (
	"cmp"
	"errors"
	"syscall"
	"unsafe"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// Access flags as enum ibv_access_flags numbers them. ON_DEMAND, HUGETLB and the optional ones ask
// for nothing that a region of ours would have otherwise.
const (
	accessLocalWrite = 1 << iota
	accessRemoteWrite
	accessRemoteRead
	accessRemoteAtomic
	accessWindows
	accessZeroBased
	accessKnown = 1<<8 - 1 | 0x3ff<<20
)

// accessOf is flags as rnic has them. An atomic needs both remote rights here.
func accessOf(flags uint64) (a rnic.Access) {
	for _, f := range []struct {
		flag uint64
		a    rnic.Access
	}{
		{accessLocalWrite, rnic.LocalWrite},
		{accessRemoteWrite, rnic.RemoteWrite},
		{accessRemoteRead, rnic.RemoteRead},
		{accessRemoteAtomic, rnic.RemoteRead | rnic.RemoteWrite},
	} {
		if flags&f.flag != 0 {
			a |= f.a
		}
	}
	return a
}

func (e *Engine) allocPD(c *call) error {
	err := e.limits.pds.take()
	if err == nil {
		c.out[0] = e.objects.add(e.adapter.AllocPD())
	}
	return err
}

func (e *Engine) freePD(c *call) error {
	_, err := take[*rnic.ProtectionDomain](&e.objects, c.arg[0])
	if err == nil {
		e.limits.pds.give()
	}
	return err
}

// memoryAt is memory of the program's.
func memoryAt(addr, length uint64) []byte {
	return unsafe.Slice((*byte)(pointer(addr)), length)
}

// pointer is addr, which is no Go memory.
func pointer(addr uint64) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) //nolint:govet // an address that C gave us
}

// rightsOf are the rights of a region that is registered with flags, and those of windows onto it.
func rightsOf(flags uint64) (a, windows rnic.Access, err error) {
	// ibv_reg_mr(3)
	if flags&^accessKnown != 0 || flags&(accessRemoteWrite|accessRemoteAtomic) != 0 &&
		flags&accessLocalWrite == 0 {
		return 0, 0, syscall.EINVAL
	}
	if flags&accessWindows != 0 {
		windows = rnic.RemoteRead
		if flags&accessLocalWrite != 0 {
			windows |= rnic.RemoteWrite
		}
	}
	return accessOf(flags), windows, nil
}

// register makes a region. RegisterWith has the kernel look whether the program may reach its
// memory.
func (e *Engine) register(c *call) (err error) {
	pd, err := find[*rnic.ProtectionDomain](&e.objects, c.arg[0])
	if err != nil {
		return err
	}
	addr, length, iova := c.arg[1], c.arg[2], c.arg[3]
	if addr == 0 || length == 0 || length > ring.MRSizeMax || addr > 1<<47-length {
		return syscall.EINVAL
	}
	opt := rnic.RegisterOptions{Base: iova}
	if opt.Access, opt.Windows, err = rightsOf(c.arg[4]); err != nil {
		return err
	}
	if err = e.limits.mrs.take(); err != nil {
		return err
	}
	defer e.limits.mrs.giveIf(&err)
	m, err := pd.RegisterWith(memoryAt(addr, length), opt)
	if err != nil {
		return err
	}
	c.out[0], c.out[1] = e.objects.add(m), uint64(m.STag())
	return nil
}

// permit changes the rights of a region, which keeps its key.
func (e *Engine) permit(c *call) error {
	m, err := find[*rnic.MemoryRegion](&e.objects, c.arg[0])
	if err != nil {
		return err
	}
	access, windows, err := rightsOf(c.arg[1])
	if err != nil {
		return err
	}
	return m.Permit(access, windows)
}

// revoke is for a region whose memory the program unmaps. It returns when no placement can follow.
func (e *Engine) revoke(c *call) error {
	m, err := find[*rnic.MemoryRegion](&e.objects, c.arg[0])
	if err == nil {
		m.Revoke()
		e.tellLog("%d octets of registered memory at %#x are unmapped: their key is not valid any more",
			m.Len(), m.Base())
	}
	return err
}

// findMR says where octets of a region are in the program's memory.
func (e *Engine) findMR(c *call) error {
	m := e.regionOf(rnic.STag(c.arg[0]))
	addr, length := c.arg[1], c.arg[2]
	if m == nil || addr < m.Base() || length > uint64(m.Len()) ||
		addr-m.Base() > uint64(m.Len())-length || accessOf(c.arg[3])&^m.Access() != 0 {
		return syscall.EFAULT
	}
	c.out[0] = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.Bytes())))) + addr - m.Base()
	return nil
}

// regionOf looks through all objects: few programs ask, and seldom.
func (e *Engine) regionOf(key rnic.STag) *rnic.MemoryRegion {
	e.objects.mu.Lock()
	defer e.objects.mu.Unlock()
	for _, o := range e.objects.all {
		if m, ok := o.(*rnic.MemoryRegion); ok && m.STag() == key && m.Valid() {
			return m
		}
	}
	return nil
}

// deregister returns when no placement into the region can follow.
func (e *Engine) deregister(c *call) error {
	m, err := take[*rnic.MemoryRegion](&e.objects, c.arg[0])
	if err == nil {
		m.Deregister()
		e.limits.mrs.give()
	}
	return err
}

func (e *Engine) allocWindow(c *call) (err error) {
	pd, err := find[*rnic.ProtectionDomain](&e.objects, c.arg[0])
	if err != nil {
		return err
	}
	if err = e.limits.mws.take(); err != nil {
		return err
	}
	defer e.limits.mws.giveIf(&err)
	w, err := pd.NewWindow()
	if err == nil {
		c.out[0], c.out[1] = e.objects.add(w), uint64(w.STag())
	}
	return err
}

// bindWindow lays a window of type 1 over part of a region; of no octets it unbinds.
func (e *Engine) bindWindow(c *call) error {
	w, err := find[*rnic.Window](&e.objects, c.arg[0])
	if err != nil {
		return err
	}
	addr, length, flags := c.arg[2], c.arg[3], c.arg[4]
	if length == 0 {
		w.Unbind()
		c.out[0] = uint64(w.STag())
		return nil
	}
	m, err := find[*rnic.MemoryRegion](&e.objects, c.arg[1])
	if err != nil {
		return err
	}
	if off := addr - m.Base(); addr < m.Base() || off > uint64(m.Len()) ||
		length > uint64(m.Len())-off {
		return syscall.EINVAL
	}
	base := addr
	if flags&accessZeroBased != 0 {
		base = 0
	}
	stag, err := w.Bind(m, rnic.WindowOptions{Off: int(addr - m.Base()), Len: int(length), Base: base,
		Access: accessOf(flags) &^ rnic.LocalWrite})
	c.out[0] = uint64(stag)
	return err
}

// bind carries out r, which binds a window of type 2, and makes it a Write of no octets, which
// completes in its turn. All that was posted before was begun: the engine asks for r after that.
// Goroutine that drives the connection.
func (q *qp) bind(r *wq.Request) bool {
	if !q.bound {
		if err := q.bindWindow(&r.WQE); err != nil {
			q.engine.tellLog("queue pair 0x%06x: %v", q.number, err)
			return false
		}
		q.bound = true
	}
	r.WQE = wq.WQE{ID: r.ID, Op: wq.OpWrite, Flags: r.Flags &^ wq.FlagInline}
	return true
}

func (q *qp) bindWindow(r *wq.WQE) error {
	w, err1 := find[*rnic.Window](&q.engine.objects, r.Operands[0])
	m, err2 := find[*rnic.MemoryRegion](&q.engine.objects, r.Operands[1])
	err := cmp.Or(err1, err2)
	if err != nil {
		return err
	}
	if (w.STag()^r.RemoteSTag)>>8 != 0 {
		return errors.New("bind a window: the key is another one's")
	}
	addr, length, flags := r.RemoteOffset, r.Operands[2], uint64(r.Local.STag)
	off := addr - m.Base()
	if addr < m.Base() || off > uint64(m.Len()) || length > uint64(m.Len())-off {
		return errors.New("bind a window: outside of the region")
	}
	base, key := addr, uint8(r.RemoteSTag)
	if flags&accessZeroBased != 0 {
		base = 0
	}
	to := boundTo{r: q.receiver()}
	to.stag, err = w.Bind(m, rnic.WindowOptions{Off: int(off), Len: int(length), Base: base,
		Access: accessOf(flags) &^ rnic.LocalWrite, For: to.r, Key: &key})
	if err == nil {
		q.windows.add(w, to)
	}
	return err
}

// receiver is the connection by which the peer reaches memory.
func (q *qp) receiver() *rnic.QueuePair {
	if r := q.rnic.Load(); r != nil {
		return r
	}
	return q.way.receiver()
}

func (e *Engine) freeWindow(c *call) error {
	w, err := take[*rnic.Window](&e.objects, c.arg[0])
	if err == nil {
		w.Free()
		e.limits.mws.give()
	}
	return err
}
