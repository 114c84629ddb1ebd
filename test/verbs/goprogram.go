//go:build ignore

// A program in Go that uses libibverbs by cgo, so that two of Go's runtimes are in one process,
// with their signals, stacks and garbage. Goroutines send there and back and compare.
package main

/*
#cgo LDFLAGS: -libverbs
#include <infiniband/verbs.h>
#include <stdlib.h>

enum { SIZE = 4096 };

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *memory;
};

static int make(struct ibv_pd *pd, struct end *e)
{
	struct ibv_qp_init_attr init = { .cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	e->memory = calloc(1, SIZE);
	e->mr = ibv_reg_mr(pd, e->memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
	e->cq = init.send_cq = init.recv_cq = ibv_create_cq(pd->context, 8, NULL, NULL, 0);
	e->qp = ibv_create_qp(pd, &init);
	return !e->mr || !e->cq || !e->qp ||
	       ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int join(struct end *e, struct end *other)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024,
		.dest_qp_num = other->qp->qp_num, .min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } } };
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7 };

	return ibv_query_gid(e->qp->context, 1, 0, &a.ah_attr.grh.dgid) ||
	       ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ||
	       ibv_modify_qp(e->qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static int receive(struct end *e)
{
	struct ibv_sge s = { (uintptr_t)e->memory, SIZE, e->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &s, .num_sge = 1 }, *bad;

	return ibv_post_recv(e->qp, &wr, &bad);
}

static int transmit(struct end *e)
{
	struct ibv_sge s = { (uintptr_t)e->memory, SIZE, e->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	return ibv_post_send(e->qp, &wr, &bad);
}

// What it returns: 0, there is none; 1, a good one; 2, another.
static int poll(struct end *e)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(e->cq, 1, &wc);

	return n == 1 && wc.status != IBV_WC_SUCCESS ? 2 : n;
}
*/
import "C"

import (
	"bytes"
	"fmt"
	"log"
	"math/rand/v2"
	"runtime"
	"sync"
	"unsafe"
)

const talkers, rounds = 4, 1000

func main() {
	list := C.ibv_get_device_list(nil)
	if list == nil || *list == nil {
		log.Fatal("no device")
	}
	pd := C.ibv_alloc_pd(C.ibv_open_device(*list))
	var all sync.WaitGroup
	for range talkers {
		all.Go(func() { talk(pd) })
	}
	all.Wait()
	runtime.GC()
	fmt.Println("all well")
}

func talk(pd *C.struct_ibv_pd) {
	ends := (*[2]C.struct_end)(C.calloc(2, C.sizeof_struct_end))
	for i := range ends {
		check(C.make(pd, &ends[i]))
	}
	for i := range ends {
		check(C.join(&ends[i], &ends[1-i]))
	}
	for n := range rounds {
		from, to := &ends[n%2], &ends[1-n%2]
		sent := make([]byte, C.SIZE) // garbage
		for i := range sent {
			sent[i] = byte(rand.Uint32())
		}
		copy(octets(from), sent)
		check(C.receive(to))
		check(C.transmit(from))
		await(to)
		await(from)
		if !bytes.Equal(octets(to), sent) {
			log.Fatal("what came is not what was sent")
		}
	}
}

func octets(e *C.struct_end) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(e.memory)), C.SIZE)
}

func await(e *C.struct_end) {
	for {
		switch C.poll(e) {
		case 1:
			return
		case 2:
			log.Fatal("a request failed")
		}
	}
}

func check(failed C.int) {
	if failed != 0 {
		log.Fatal("a call failed")
	}
}
