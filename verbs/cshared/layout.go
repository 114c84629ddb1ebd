package main

// #include "../internal/ring/rnicd_ring.h"
import "C"

import (
	"unsafe"

	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// A wrong index, or a length below zero, does not compile: the two layouts are the same.
var (
	wqe   ring.WQE
	queue ring.Queue
	cqe   ring.CQE
	cq    ring.CQ
	waits ring.Waits
	call  ring.Call
	cm    ring.CMEvent
	async ring.AsyncEvent
	area  ring.Area

	_ = [1]struct{}{}[unsafe.Sizeof(wqe)-C.sizeof_struct_rv_wqe]
	_ = [1]struct{}{}[unsafe.Sizeof(queue)-C.sizeof_struct_rv_queue]
	_ = [1]struct{}{}[unsafe.Sizeof(cqe)-C.sizeof_struct_rv_cqe]
	_ = [1]struct{}{}[unsafe.Sizeof(cq)-C.sizeof_struct_rv_cq]
	_ = [1]struct{}{}[unsafe.Sizeof(waits)-C.sizeof_struct_rv_waits]
	_ = [1]struct{}{}[unsafe.Sizeof(call)-C.sizeof_struct_rv_call]
	_ = [1]struct{}{}[unsafe.Sizeof(cm)-C.sizeof_struct_rv_cm_event]
	_ = [1]struct{}{}[unsafe.Sizeof(async)-C.sizeof_struct_rv_async_event]
	_ = [1]struct{}{}[unsafe.Sizeof(area)-C.sizeof_struct_rv_area]
	_ = [1]struct{}{}[unsafe.Sizeof(wqe)-ring.EntryLen]
	_ = [1]struct{}{}[unsafe.Sizeof(cqe)-ring.EntryLen]

	_ = [1]struct{}{}[unsafe.Offsetof(wqe.RKey)-unsafe.Offsetof(C.struct_rv_wqe{}.rkey)]
	_ = [1]struct{}{}[unsafe.Offsetof(wqe.More)-unsafe.Offsetof(C.struct_rv_wqe{}.more)]
	_ = [1]struct{}{}[unsafe.Offsetof(wqe.Operand)-unsafe.Offsetof(C.struct_rv_wqe{}.operand)]
	_ = [1]struct{}{}[unsafe.Offsetof(queue.Over)-unsafe.Offsetof(C.struct_rv_queue{}.over)]
	_ = [1]struct{}{}[unsafe.Offsetof(cqe.Invalidated)-unsafe.Offsetof(C.struct_rv_cqe{}.invalidated)]
	_ = [1]struct{}{}[unsafe.Offsetof(cqe.Seq)-unsafe.Offsetof(C.struct_rv_cqe{}.seq)]
	_ = [1]struct{}{}[unsafe.Offsetof(cq.Armed)-unsafe.Offsetof(C.struct_rv_cq{}.armed)]
	_ = [1]struct{}{}[unsafe.Offsetof(cq.Written)-unsafe.Offsetof(C.struct_rv_cq{}.written)]
	_ = [1]struct{}{}[unsafe.Offsetof(waits.Written)-unsafe.Offsetof(C.struct_rv_waits{}.written)]
	_ = [1]struct{}{}[unsafe.Offsetof(call.Arg)-unsafe.Offsetof(C.struct_rv_call{}.arg)]
	_ = [1]struct{}{}[unsafe.Offsetof(cm.Local)-unsafe.Offsetof(C.struct_rv_cm_event{}.local)]
	_ = [1]struct{}{}[unsafe.Offsetof(cm.Private)-unsafe.Offsetof(C.struct_rv_cm_event{}.private_data)]
	_ = [1]struct{}{}[unsafe.Offsetof(area.Dozing)-unsafe.Offsetof(C.struct_rv_area{}.dozing)]
	_ = [1]struct{}{}[unsafe.Offsetof(area.Crowded)-unsafe.Offsetof(C.struct_rv_area{}.crowded)]
	_ = [1]struct{}{}[unsafe.Offsetof(area.Progress)-unsafe.Offsetof(C.struct_rv_area{}.progress)]
	_ = [1]struct{}{}[unsafe.Offsetof(area.Process)-unsafe.Offsetof(C.struct_rv_area{}.process)]
	_ = [1]struct{}{}[unsafe.Offsetof(area.Doorbells)-unsafe.Offsetof(C.struct_rv_area{}.doorbells)]
	_ = [1]struct{}{}[unsafe.Offsetof(area.Calls)-unsafe.Offsetof(C.struct_rv_area{}.calls)]

	_ = [1]struct{}{}[(ring.OpWriteImmediate^C.RV_OP_WRITE_IMMEDIATE)|(ring.Inline^C.RV_INLINE)|(ring.CallDone^C.RV_CALL_DONE)]
	_ = [1]struct{}{}[(ring.Adopt^C.RV_ADOPT)|(ring.ResizeCQ^C.RV_RESIZE_CQ)|(ring.CreateQP^C.RV_CREATE_QP)|(ring.CMAccept^C.RV_CM_ACCEPT)]
	_ = [1]struct{}{}[(ring.Forget^C.RV_FORGET)|(ring.RevokeMR^C.RV_REVOKE_MR)]
	_ = [1]struct{}{}[(ring.QPsMax^C.RV_QPS_MAX)|(ring.CQsMax^C.RV_CQS_MAX)|(ring.PDsMax^C.RV_PDS_MAX)|(ring.SRQsMax^C.RV_SRQS_MAX)]
	_ = [1]struct{}{}[(ring.MRsMax^C.RV_MRS_MAX)|(ring.MWsMax^C.RV_MWS_MAX)|(ring.MRSizeMax^C.RV_MR_SIZE_MAX)|(ring.MessageMax^C.RV_MESSAGE_MAX)]
)
