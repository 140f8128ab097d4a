/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * HSWA-TCP, paper 003: the window grows by S segments per round trip, more the fewer bit errors there are, and less
 * the more of the delay is queueing. Rules, symbols and readings: crates/cc/src/controllers/hswa.rs. Beyond those,
 * growth stays within LAW_FLIGHTS flights.
 */
#ifndef SKY_LAW_HSWA_H
#define SKY_LAW_HSWA_H

#include "law.h"

/* A lg 2 = 10 lg 2 in Q16: segments per doubling of the bit error rate. */
#define HSWA_PER_DOUBLING FIX_Q16(3.0102999566)
/* S for the bit error rates that are believed, 1e-2 and 1e-10, in Q16. */
#define HSWA_STEP_LEAST (20 * FIX_ONE)
#define HSWA_STEP_MOST (100 * FIX_ONE)
/* ln 2 in Q16. */
#define HSWA_LN2 FIX_Q16(0.6931471806)
/* Segments over which losses are counted. */
#define HSWA_MEMORY 10000U
/* Rounds after which BaseTD is forgotten. */
#define HSWA_PERIODS 10
/* gamma: doubling goes on while no more segments than this wait in queues. */
#define HSWA_GAMMA 1U

struct law_hswa {
	struct law_base base;
	__u64 sum_us;        /* of this round's samples of the round trip */
	__u32 samples;
	__u32 step;          /* growth of this round in Q16 segments */
	__u16 doubling;      /* bit 0; bit 1: as it was before the last cut */
	__u32 fixed_step;    /* S in Q16; 0: from the losses */
	__u32 seen;          /* segments acknowledged or lost, HSWA_MEMORY at most */
	__u32 lost;          /* of those, lost, in 2^-18 segments */
	__u32 delay[HSWA_PERIODS]; /* TD of the last rounds, newest first */
};

LAW_INLINE void law_hswa_init(struct law_hswa *s, const struct law_setup *setup)
{
	law_begin(&s->base, setup);
	s->sum_us = 0;
	s->samples = 0;
	s->step = 0;
	s->doubling = 3;
	s->fixed_step = (__u32)fix_min((__u64)setup->step_q8 << 8, HSWA_STEP_MOST);
	s->seen = 0;
	s->lost = 0;
#pragma GCC unroll 10
	for (int i = 0; i < HSWA_PERIODS; i++)
		s->delay[i] = ~0U;
}

LAW_INLINE void law_hswa_count(struct law_hswa *s, __u32 acked, __u32 lost)
{
	__u64 seen = s->seen + fix_min(acked, LAW_ACKED_MOST) + fix_min(lost, LAW_ACKED_MOST);
	__u64 gone = s->lost + (fix_min(lost, LAW_ACKED_MOST) << 18);

	if (seen > HSWA_MEMORY && seen <= HSWA_MEMORY + HSWA_MEMORY / 64) {
		/* 1 / (1 + x) = 1 - x + x^2 for small x, here in Q32: on most ACKs, and faster than a division. */
		__u64 x = (seen - HSWA_MEMORY) * (((1ULL << 32) + HSWA_MEMORY / 2) / HSWA_MEMORY);
		__u64 first = (gone * x + 0xffffffffULL) >> 32;

		gone = gone - first + (first * x >> 32);
		seen = HSWA_MEMORY;
	} else if (seen > HSWA_MEMORY) {
		gone = (gone * HSWA_MEMORY + seen / 2) / seen;
		seen = HSWA_MEMORY;
	}
	s->seen = (__u32)seen;
	s->lost = (__u32)gone;
}

/* S = -10 lg p in Q16, with p = -ln(1 - share lost) / bits of a segment. */
LAW_INLINE __u64 law_hswa_step(const struct law_hswa *s, __u32 mss)
{
	__u64 share = fix_div((__u64)s->lost << 14, s->seen), errors, bits;

	if (s->fixed_step)
		return s->fixed_step;
	if (!share)
		return HSWA_STEP_MOST;
	if (share >= 1ULL << 32)
		return HSWA_STEP_LEAST;
	if (share < 1ULL << 28) {
		/* The series of -ln(1 - x), whose rest is below 4e-6 of it here. */
		__u64 square = share * share >> 32;

		errors = share + square / 2 + (square * share >> 32) / 3 + (square * square >> 32) / 4;
	} else {
		errors = HSWA_LN2 * ((32ULL << 16) - fix_log2((1ULL << 32) - share));
	}
	bits = fix_less(fix_log2((__u64)mss * 8) + (32ULL << 16), fix_log2(errors));
	return fix_min(fix_max(bits * HSWA_PER_DOUBLING >> 16, HSWA_STEP_LEAST), HSWA_STEP_MOST);
}

/* A round is over: its mean round trip says what the next one may add. */
LAW_INLINE void law_hswa_judge(struct law_hswa *s, const struct law_ack *ack, __u32 mean_us)
{
	__u64 window = law_now(&s->base, ack), delay = fix_less(mean_us, ack->min_rtt_us / 2), base = delay;
	__u64 step = law_hswa_step(s, ack->mss);

#pragma GCC unroll 9
	for (int i = HSWA_PERIODS - 1; i > 0; i--) {
		s->delay[i] = s->delay[i - 1];
		base = fix_min(base, s->delay[i]);
	}
	s->delay[0] = (__u32)delay;
	if (100 * delay <= 101 * base)
		s->step = (__u32)step;
	else
		s->step = (__u32)fix_div(step * fix_less(2 * base, delay), base);
	if ((window >> 9) * fix_less(mean_us, ack->min_rtt_us) > ((__u64)mean_us * HSWA_GAMMA << 7) ||
	    window >= law_top(&s->base, ack))
		s->doubling &= 2;
}

LAW_INLINE void law_hswa_sample(struct law_hswa *s, const struct law_ack *ack)
{
	law_round(&s->base, ack);
	law_hswa_count(s, ack->acked, ack->lost);
	if (ack->round_start && s->samples) {
		law_hswa_judge(s, ack, (__u32)(s->sum_us / s->samples));
		s->sum_us = 0;
		s->samples = 0;
	}
	if (ack->rtt_us) {
		s->sum_us += ack->rtt_us;
		s->samples++;
	}
}

LAW_INLINE void law_hswa_grow(struct law_hswa *s, struct law_ack *ack)
{
	__u64 window = law_now(&s->base, ack), limit = law_limit(&s->base);
	__u64 acked_q8 = law_acked_q8(ack);

	if (s->doubling & 1) {
		law_grow_to(&window, fix_min(law_top(&s->base, ack), limit), acked_q8 << 8);
		ack->cwnd = law_store(&s->base, window);
		return;
	}
	law_grow_to(&window, limit, fix_min(law_avoid(window, s->step, acked_q8), s->step));
	ack->cwnd = law_store(&s->base, window);
	/* The kernel paces by it: twice the window per round trip below, 1.2 times above. */
	if (ack->ssthresh == LAW_NO_SSTHRESH)
		ack->ssthresh = ack->cwnd;
}

LAW_INLINE __u32 law_hswa_loss(struct law_hswa *s, const struct law_loss *loss)
{
	__u32 ssthresh = law_cut(&s->base, law_window(loss->cwnd, s->base.frac), FIX_Q16(0.5));

	law_hswa_count(s, 0, loss->lost);
	/* The first call for a cut. */
	if (loss->signal == LAW_GAP)
		s->doubling = (__u16)(s->doubling << 1 & 2);
	return ssthresh;
}

LAW_INLINE void law_hswa_timeout(struct law_hswa *s)
{
	s->base.frac = 0;
	s->doubling |= 1;
}

LAW_INLINE void law_hswa_undo(struct law_hswa *s)
{
	s->doubling |= (__u16)(s->doubling >> 1);
}

#endif
