/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What a law hears, and the arithmetic of windows that laws share. A law is a header law_NAME.h with a state
 * `struct law_NAME`, whose first member is `struct law_base base`, and these functions. They know integers only: no kernel
 * type, no clock, no socket.
 *
 *   void  law_NAME_init(s, setup)   before the first packet
 *   void  law_NAME_sample(s, ack)   every acknowledgment, also in recovery and when the application is the limit;
 *                                   changes nothing but the law's own state
 *   void  law_NAME_grow(s, ack)     after sample(), where the window may grow: it was the limit, and no recovery is
 *                                   under way. Changes ack->cwnd, and ack->ssthresh where slow start ends otherwise
 *   __u32 law_NAME_loss(s, loss)    a new episode of losses: answers the new ssthresh, to which the kernel brings the
 *                                   window by itself. The kernel asks before it says what
 *                                   has happened: the first call for a cut always says LAW_GAP, and a second one, with
 *                                   the window and fraction from before the cut, says LAW_TIMEOUT or LAW_MARK
 *   void  law_NAME_timeout(s)       nothing arrived for a timeout; follows loss() if that episode is new. The window
 *                                   becomes the host's least one
 *   void  law_NAME_undo(s)          the last cut was a mistake: the host restores window and ssthresh
 *
 * Windows and amounts are in segments, times in microseconds. The kernel keeps whole segments; the fraction a law
 * has earned beyond them waits in `base.frac`.
 */
#ifndef SKY_LAW_H
#define SKY_LAW_H

#include "fix.h"

#define LAW_INLINE FIX_INLINE

/* The kernel's "no threshold yet" (TCP_INFINITE_SSTHRESH). */
#define LAW_NO_SSTHRESH 0x7fffffffU
/* Least and greatest window in segments, as skyhaul_cc::window has them. */
#define LAW_LEAST 2U
#define LAW_MOST (1U << 24)
/* More segments in one acknowledgment count as this many: products must fit 64 bits. */
#define LAW_ACKED_MOST (1U << 20)
/*
 * Greatest window, in flights: growth beyond what was really sent is not earned. Hybla's 2^rho alone reaches ten
 * million segments within seconds. Above slow start's doubling, so an overshoot takes at most two halvings.
 */
#define LAW_FLIGHTS 4U

struct law_setup {
	__u32 cwnd;          /* first window */
	__u32 ssthresh;      /* first threshold, or LAW_NO_SSTHRESH */
	__u32 mss;           /* payload bytes of a full segment */
	__u32 reference_us;  /* reference round trip; 0: the paper's */
	__u32 step_q8;       /* HSWA's S in 1/256 segments; 0: from the losses */
};

struct law_ack {
	__u64 now_us;        /* any clock that never goes back */
	__u32 acked;         /* sample: newly delivered, also by SACK; grow: what the window may grow for */
	__u32 lost;          /* declared lost since the last sample or loss */
	__u32 rtt_us;        /* sample of the newest segment; 0: none */
	__u32 min_rtt_us;    /* least of the connection; 0: none yet */
	__u32 srtt_us;       /* smoothed; 0: none yet */
	__u32 flight;        /* in flight before this acknowledgment took its segments away */
	__u32 flight_sent;   /* in flight when the newest acknowledged segment left, less losses; 0: unknown */
	__u32 rwnd;          /* the peer's window */
	__u32 mss;           /* as in the setup; may change */
	__u32 round_start;   /* 1: first acknowledgment of something sent since the last round began */
	__u32 limited;       /* 1: the window, not the application, was the limit */
	__u32 cwnd;          /* window; grow() changes it */
	__u32 ssthresh;      /* threshold, or LAW_NO_SSTHRESH */
};

enum law_signal {
	LAW_GAP,             /* later segments arrived, this one did not */
	LAW_TIMEOUT,
	LAW_MARK,            /* a queue said so: ECN, or this host's own queue refused a packet */
};

struct law_loss {
	__u64 now_us;
	__u32 signal;        /* enum law_signal */
	__u32 lost;          /* declared lost since the last sample or loss */
	__u32 rtt_us;        /* newest sample; 0: none yet */
	__u32 min_rtt_us;    /* 0: none yet */
	__u32 flight;        /* still in flight, the lost ones taken away */
	__u32 cwnd;          /* window before the cut */
	__u32 ssthresh;      /* threshold before the cut */
};

/* What every law keeps. */
struct law_base {
	__u32 limit;         /* greatest window of this round */
	__u16 frac;          /* of the window beyond whole segments, in 2^-16 segments */
	__u16 part;          /* the same of the threshold */
};

/* The window in Q16: whole segments and a fraction. */
LAW_INLINE __u64 law_window(__u32 cwnd, __u16 frac)
{
	return (fix_min(cwnd, LAW_MOST) << 16) + frac;
}

/* Stores a window, kept within its bounds: whole segments as the answer, the rest in the fraction. */
LAW_INLINE __u32 law_store(struct law_base *base, __u64 window)
{
	window = fix_min(fix_max(window, (__u64)LAW_LEAST << 16), (__u64)LAW_MOST << 16);
	base->frac = (__u16)window;
	return (__u32)(window >> 16);
}

LAW_INLINE void law_begin(struct law_base *base, const struct law_setup *setup)
{
	base->limit = setup->cwnd;
	base->frac = 0;
	base->part = 0;
}

/* What every law does with an acknowledgment: one that starts a round says what the greatest window is. */
LAW_INLINE void law_round(struct law_base *base, const struct law_ack *ack)
{
	if (ack->round_start)
		base->limit = (__u32)fix_min((__u64)ack->flight * LAW_FLIGHTS, LAW_MOST);
}

/* Window, threshold and greatest window of this round in Q16. */
LAW_INLINE __u64 law_now(const struct law_base *base, const struct law_ack *ack)
{
	return law_window(ack->cwnd, base->frac);
}

LAW_INLINE __u64 law_top(const struct law_base *base, const struct law_ack *ack)
{
	return law_window(ack->ssthresh, base->part);
}

LAW_INLINE __u64 law_limit(const struct law_base *base)
{
	return (__u64)base->limit << 16;
}

/* Adds `step` (Q16) up to `top` (Q16; less than the window: nothing); answers what was not used. */
LAW_INLINE __u64 law_grow_to(__u64 *window, __u64 top, __u64 step)
{
	__u64 used = fix_min(step, fix_less(top, *window));

	*window += used;
	return step - used;
}

/* rho = rtt / reference in Q16, from 1 to 256 (6.4 s over 25 ms). */
LAW_INLINE __u64 law_rho(__u32 rtt_us, __u32 reference_us)
{
	__u64 rho = fix_div((__u64)rtt_us << 16, reference_us);

	return fix_min(fix_max(rho, FIX_ONE), 256 * FIX_ONE);
}

/* 2^rho - 1 in Q16, rho cut off at 16 as in Linux. */
LAW_INLINE __u64 law_leap(__u64 rho)
{
	return fix_exp2(fix_min(rho, 16 * FIX_ONE)) - FIX_ONE;
}

/*
 * Congestion avoidance: gain * acked / window in Q16, for a gain in Q16 up to 2^16 segments per round trip and acked
 * segments in Q8 up to LAW_ACKED_MOST.
 */
LAW_INLINE __u64 law_avoid(__u64 window, __u64 gain, __u64 acked_q8)
{
	return fix_div(gain * acked_q8, window >> 8);
}

/* Segments acknowledged, in Q8. */
LAW_INLINE __u64 law_acked_q8(const struct law_ack *ack)
{
	return fix_min(ack->acked, LAW_ACKED_MOST) << 8;
}

/* Segments of ours in queues, W (RTT - BaseRTT) / RTT, in Q7. No round trip is no queue. */
LAW_INLINE __u64 law_backlog_q7(__u64 window, __u32 rtt_us, __u32 base_us)
{
	return fix_div((window >> 9) * fix_less(rtt_us, base_us), rtt_us);
}

/* A share (Q16) of a window (Q16) as the new threshold, which the window follows. */
LAW_INLINE __u32 law_cut(struct law_base *base, __u64 window, __u64 kept)
{
	__u32 ssthresh = law_store(base, (window * kept + (FIX_ONE >> 1)) >> 16);

	base->part = base->frac;
	return ssthresh;
}

#endif
