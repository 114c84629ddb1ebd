package engine

import (
	"math"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// call is a copy of a control call, which the program cannot change any more.
type call struct {
	op   uint32
	arg  [ring.CallArgs]uint64
	data []byte // to the call
	buf  [ring.CallData]byte

	out [ring.CallArgs]uint64
	ret []byte // data that goes back
}

// serve carries out a call and answers it.
func (e *Engine) serve(from *ring.Call) {
	c := &call{op: from.Op, arg: from.Arg, buf: from.Data}
	c.data = c.buf[:min(from.Size, ring.CallData)]
	err := e.carryOut(c)
	from.Arg, from.Error = c.out, int32(errnoOf(err))
	from.Size = uint32(copy(from.Data[:], c.ret))
	atomic.StoreUint32(&from.State, ring.CallDone)
	futexWake(&from.State)
}

const futexWakePrivate = 1 | 128

func futexWake(word *uint32) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWakePrivate,
		math.MaxInt32, 0, 0, 0)
}

// carryOut is one call; without a device there is none.
func (e *Engine) carryOut(c *call) error {
	if e.adapter == nil {
		return syscall.ENODEV
	}
	switch c.op {
	case ring.Leave:
		e.leave()
		return nil
	case ring.Open:
		return e.openContext(c)
	case ring.Close:
		return e.closeContext(c)
	case ring.Addresses:
		return e.tellAddresses(c)
	case ring.WatchPort:
		return e.watchPort(c)
	case ring.AllocPD:
		return e.allocPD(c)
	case ring.FreePD:
		return e.freePD(c)
	case ring.DestroySRQ:
		return e.destroySRQ(c)
	case ring.RegMR:
		return e.register(c)
	case ring.PermitMR:
		return e.permit(c)
	case ring.FindMR:
		return e.findMR(c)
	case ring.RevokeMR:
		return e.revoke(c)
	case ring.DeregMR:
		return e.deregister(c)
	case ring.AllocMW:
		return e.allocWindow(c)
	case ring.BindMW:
		return e.bindWindow(c)
	case ring.FreeMW:
		return e.freeWindow(c)
	case ring.CreateCQ:
		return e.createCQ(c)
	case ring.ResizeCQ:
		return e.resizeCQ(c)
	case ring.DestroyCQ:
		return e.destroyCQ(c)
	case ring.CreateSRQ:
		return e.createSRQ(c)
	case ring.QuerySRQ:
		return e.querySRQ(c)
	case ring.ArmSRQ:
		return e.armSRQ(c)
	case ring.CreateQP:
		return e.createQP(c)
	case ring.QueryQP:
		return e.queryQP(c)
	case ring.PermitQP:
		return e.permitQP(c)
	case ring.PauseQP:
		return e.pauseQP(c)
	case ring.ConnectQP:
		return e.connectQP(c)
	case ring.TimeQP:
		return e.timeQP(c)
	case ring.ResetQP:
		return e.resetQP(c)
	case ring.AbortQP:
		return e.abortQP(c)
	case ring.DestroyQP:
		return e.destroyQP(c)
	case ring.CreateUD:
		return e.createUD(c)
	case ring.ModifyUD:
		return e.modifyUD(c)
	case ring.AttachUD:
		return e.attachUD(c)
	case ring.DestroyUD:
		return e.destroyUD(c)
	case ring.Tell:
		e.tellLog("%s", c.data)
		return nil
	case ring.CloseChannel:
		e.channels.close(int(int64(c.arg[0])))
		return nil
	case ring.Forget:
		return e.channels.forget(c)
	}
	return e.manage(c)
}
