/*
 * Which moves of a queue pair there are, and what each needs to be told: the table of the
 * InfiniBand specification (11.2.5.3, "Modify Queue Pair"), as Linux has it in ib_modify_qp_is_ok.
 */
#include "shim.h"

enum { RC, UD, KINDS };

#define RC_INIT (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define UD_INIT (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)
#define RC_RUNNING                                                                \
	(IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | \
	 IBV_QP_PATH_MIG_STATE)
#define UD_RUNNING (IBV_QP_CUR_STATE | IBV_QP_QKEY)

/* To RESET and ERR there is a move from everywhere, which needs nothing; RESET has none to ERR. */
static const struct {
	uint8_t from, to;
	struct {
		int needs, may;
	} of[KINDS];
} moves[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT, { { RC_INIT, 0 }, { UD_INIT, 0 } } },
	{ IBV_QPS_INIT, IBV_QPS_INIT, { { 0, RC_INIT }, { 0, UD_INIT } } },
	{ IBV_QPS_INIT,
	  IBV_QPS_RTR,
	  { { IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	      IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX },
	    { 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY } } },
	{ IBV_QPS_RTR,
	  IBV_QPS_RTS,
	  { { IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		      IBV_QP_MAX_QP_RD_ATOMIC,
	      RC_RUNNING },
	    { IBV_QP_SQ_PSN, UD_RUNNING } } },
	{ IBV_QPS_RTS, IBV_QPS_RTS, { { 0, RC_RUNNING }, { 0, UD_RUNNING } } },
	{ IBV_QPS_RTS,
	  IBV_QPS_SQD,
	  { { 0, IBV_QP_EN_SQD_ASYNC_NOTIFY }, { 0, IBV_QP_EN_SQD_ASYNC_NOTIFY } } },
	{ IBV_QPS_SQD, IBV_QPS_RTS, { { 0, RC_RUNNING }, { 0, UD_RUNNING } } },
	{ IBV_QPS_SQD,
	  IBV_QPS_SQD,
	  { { 0, IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			 IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ALT_PATH |
			 IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
			 IBV_QP_PATH_MIG_STATE },
	    { 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY } } },
};

static const char *const states[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };

static const char *state_name(enum ibv_qp_state s)
{
	return s < sizeof states / sizeof *states ? states[s] : "none";
}

/* By bit of enum ibv_qp_attr_mask. */
static const char *const attributes[] = {
	"STATE", "CUR_STATE", "EN_SQD_ASYNC_NOTIFY", "ACCESS_FLAGS", "PKEY_INDEX", "PORT", "QKEY", "AV",
	"PATH_MTU", "TIMEOUT", "RETRY_CNT", "RNR_RETRY", "RQ_PSN", "MAX_QP_RD_ATOMIC", "ALT_PATH",
	"MIN_RNR_TIMER", "SQ_PSN", "MAX_DEST_RD_ATOMIC", "PATH_MIG_STATE", "CAP", "DEST_QPN",
};

/* What is wrong with the attributes of a mask, for an operator who asks (--verbose). */
static void tell(const struct rv_qp *q, enum ibv_qp_state from, enum ibv_qp_state to, int mask,
		 const char *what)
{
	struct rv_args a;
	char text[600];
	int n = snprintf(text, sizeof text, "ibv_modify_qp of queue pair 0x%06x, %s to %s: %s",
			 q->qp.qp_base.qp_num, state_name(from), state_name(to), what);

	for (unsigned bit = 0; bit < 32; bit++) {
		if (!((unsigned)mask >> bit & 1))
			continue;
		if (bit < sizeof attributes / sizeof *attributes)
			n += snprintf(text + n, sizeof text - (size_t)n, " IBV_QP_%s", attributes[bit]);
		else
			n += snprintf(text + n, sizeof text - (size_t)n, " 0x%x", 1u << bit);
	}
	a = (struct rv_args){ .data = text, .size = (size_t)n };
	rv_call(RV_TELL, &a);
}

/* EINVAL unless there is such a move of q, which has and needs no others than those of mask. */
int rv_check_move(struct rv_qp *q, enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	int kind = rv_is_ud(q) ? UD : RC, needs = 0, may = 0, rest = mask & ~IBV_QP_STATE;
	bool possible = to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET);

	for (size_t i = 0; i < sizeof moves / sizeof *moves; i++)
		if (moves[i].from == from && moves[i].to == to) {
			possible = true;
			needs = moves[i].of[kind].needs;
			may = moves[i].of[kind].may;
		}
	if (!possible)
		tell(q, from, to, 0, "there is no such move");
	else if ((rest & needs) != needs)
		tell(q, from, to, needs & ~rest, "it lacks");
	else if (rest & ~(needs | may))
		tell(q, from, to, rest & ~(needs | may), "it must not have");
	else
		return 0;
	return EINVAL;
}

/* An attribute has a value that cannot be, or that this device does not have: error. */
int rv_wrong_value(struct rv_qp *q, enum ibv_qp_state from, enum ibv_qp_state to, int attribute,
		   int error)
{
	tell(q, from, to, attribute,
	     error == EINVAL ? "impossible value of" : "the device does not have this value of");
	return error;
}

/* Attributes that queue pairs which librdmacm connects do not have: EOPNOTSUPP. */
int rv_refuse(struct rv_qp *q, enum ibv_qp_state to, int attributes)
{
	bool by_number = attributes & (IBV_QP_AV | IBV_QP_DEST_QPN);

	tell(q, rv_state_of(q), to, attributes,
	     by_number && !rv_roce() ? "only with --device roce, RNICD_DEVICE=roce:" :
				       "a connection of librdmacm does not have");
	return EOPNOTSUPP;
}
