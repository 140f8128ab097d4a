/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * HYBIC, paper 004: Hybla's slow start and CUBIC's curve, both in the time of a reference round trip. Rules, symbols
 * and readings: crates/cc/src/controllers/hybic.rs. Beyond those, growth stays within LAW_FLIGHTS flights.
 *
 * Time on the curve is in 1/1024 s, so that a cube fits 64 bits.
 */
#ifndef SKY_LAW_HYBIC_H
#define SKY_LAW_HYBIC_H

#include "law.h"

/* RTT_ref. */
#define HYBIC_REFERENCE_US 100000U
/* gamma, in segments. */
#define HYBIC_GAMMA 128U
/* beta, the share kept. */
#define HYBIC_KEPT FIX_Q16(0.7)
/* A in 1/65536 segments per cubic second. */
#define HYBIC_SCALE FIX_Q16(0.4)
/* 3 (1 - beta) / (1 + beta): segments per reference round trip in the friendly region. */
#define HYBIC_FRIENDLY FIX_Q16(3.0 * 0.3 / 1.7)
/* Longest time on the curve, 1024 s: 0.4 * 1024^3 segments are beyond any window. */
#define HYBIC_TIME_MOST (1ULL << 20)

struct law_hybic {
	struct law_base base;
	__u32 reference_us;
	__u32 gamma;
	__u32 cut;           /* 1: ssthresh comes from a loss; 0: it is rho gamma */
	__u32 slow_start;
	__u32 slope;         /* of the friendly region, in 2^-40 segments per microsecond */
	__u32 running;       /* 1: an epoch lasts */
	__u32 k;             /* K in 1/1024 s, while it does */
	__u16 before;        /* before the last cut: bit 0 as `cut`, bit 1 as `slow_start` */
	__u64 w_max;         /* Q16; zero before the first loss */
	__u64 w_max_before;  /* the same before the last cut */
	__u64 start_us;      /* of the epoch */
	__u64 window;        /* at its start, Q16 */
	__u64 last_us;       /* of the newest acknowledgment */
};

LAW_INLINE void law_hybic_init(struct law_hybic *s, const struct law_setup *setup)
{
	law_begin(&s->base, setup);
	s->reference_us = (__u32)fix_max(setup->reference_us ? setup->reference_us : HYBIC_REFERENCE_US, 1000);
	s->slope = (__u32)((HYBIC_FRIENDLY << 24) / s->reference_us);
	s->gamma = setup->ssthresh < LAW_NO_SSTHRESH ? setup->ssthresh : HYBIC_GAMMA;
	s->cut = 0;
	s->slow_start = 1;
	s->before = 2;
	s->running = 0;
	s->k = 0;
	s->w_max = 0;
	s->w_max_before = 0;
	s->start_us = 0;
	s->window = 0;
	s->last_us = 0;
}

LAW_INLINE void law_hybic_sample(struct law_hybic *s, const struct law_ack *ack)
{
	/* RFC 9438 section 5.8: idle time does not move the curve on. */
	if (!ack->limited && s->last_us)
		s->start_us += fix_less(ack->now_us, s->last_us);
	s->last_us = fix_max(s->last_us, ack->now_us);
	law_round(&s->base, ack);
}

/* Microseconds in 1/1024 s. */
LAW_INLINE __u64 law_hybic_ticks(__u64 us)
{
	/* 1024 / 10^6 in Q40: a division would take longer than all the rest. */
	return fix_min(us, 2000000000ULL) * 1125899907ULL >> 40;
}

/* A (t - K)^3 + W_max in Q16, zero where that is negative. */
LAW_INLINE __u64 law_hybic_curve(const struct law_hybic *s, __u64 ticks)
{
	__u64 plateau = fix_max(s->w_max, s->window);
	__u64 x = fix_min(ticks > s->k ? ticks - s->k : s->k - ticks, HYBIC_TIME_MOST);
	__u64 rise = ((x * x * x >> 14) * HYBIC_SCALE) >> 16;

	return ticks > s->k ? plateau + rise : fix_less(plateau, rise);
}

LAW_INLINE void law_hybic_begin(struct law_hybic *s, __u64 now_us, __u64 window)
{
	/* K cubed in cubic ticks, (W_max - W) / A * 2^30; the difference, below 2^24, in 1/16 segments. */
	__u64 below = fix_min(fix_less(s->w_max, window), (__u64)LAW_MOST << 16) >> 12;

	s->k = (__u32)fix_cbrt((below << 34) / HYBIC_SCALE << 8);
	s->start_us = now_us;
	s->window = window;
	s->running = 1;
}

LAW_INLINE __u64 law_hybic_avoid(struct law_hybic *s, const struct law_ack *ack, __u64 window, __u64 acked_q8)
{
	__u64 elapsed, ticks, k, risen, friendly, curve, target, share;

	if (!s->running)
		law_hybic_begin(s, ack->now_us, window);
	elapsed = fix_min(fix_less(ack->now_us, s->start_us), 2000000000ULL);
	ticks = fix_min(law_hybic_ticks(elapsed), HYBIC_TIME_MOST);
	/*
	 * Where an epoch begins the two meet, and rounding must not decide: what each has risen per second since then is
	 * compared, in 2^-36 segments. For the curve, A (K^3 - (K - t)^3) / t.
	 */
	k = s->k;
	risen = (ticks * ticks + 3 * k * k - 3 * k * ticks) * HYBIC_SCALE;
	if (elapsed && s->slope * 1000000ULL >> 4 > risen) {
		friendly = s->window + (s->slope * elapsed >> 24);
		/* As far as acknowledgments allow: 1.5 windows per round trip, like the curve. */
		return fix_min(fix_less(friendly, window), acked_q8 << 7);
	}
	curve = law_hybic_curve(s, law_hybic_ticks(elapsed + ack->srtt_us));
	target = fix_min(fix_max(curve, window), window + window / 2);
	share = fix_min(fix_div(acked_q8 << 32, window), 1ULL << 24);
	return ((target - window) * share) >> 24;
}

LAW_INLINE void law_hybic_grow(struct law_hybic *s, struct law_ack *ack)
{
	__u64 window = law_now(&s->base, ack), limit = law_limit(&s->base);
	__u64 acked_q8 = law_acked_q8(ack);

	if (s->slow_start) {
		__u64 rho = law_rho(ack->min_rtt_us, s->reference_us), leap = law_leap(rho);
		__u64 top = s->cut ? law_top(&s->base, ack) : fix_min(rho * s->gamma, (__u64)LAW_MOST << 16);
		__u64 rest = law_grow_to(&window, fix_min(top, limit), leap * (acked_q8 >> 8));

		s->slow_start = window < top;
		acked_q8 = s->slow_start ? 0 : fix_div(rest << 8, leap);
	}
	if (acked_q8)
		law_grow_to(&window, limit, law_hybic_avoid(s, ack, window, acked_q8));
	ack->cwnd = law_store(&s->base, window);
	/* The kernel paces by it: twice the window per round trip below, 1.2 times above. */
	if (!s->slow_start && ack->ssthresh == LAW_NO_SSTHRESH)
		ack->ssthresh = ack->cwnd;
}

LAW_INLINE __u32 law_hybic_loss(struct law_hybic *s, const struct law_loss *loss)
{
	__u64 window = law_window(loss->cwnd, s->base.frac);

	/* The first call for a cut. */
	if (loss->signal == LAW_GAP) {
		s->w_max_before = s->w_max;
		s->before = (__u16)(s->cut | s->slow_start << 1);
	}
	s->w_max = window;
	s->cut = 1;
	s->running = 0;
	s->slow_start = 0;
	/* The fraction counts: half a segment of the threshold moves K for seconds. */
	return law_cut(&s->base, window, HYBIC_KEPT);
}

LAW_INLINE void law_hybic_timeout(struct law_hybic *s)
{
	s->base.frac = 0;
	s->running = 0;
	s->slow_start = 1;
}

LAW_INLINE void law_hybic_undo(struct law_hybic *s)
{
	s->w_max = s->w_max_before;
	s->cut = s->before & 1;
	s->slow_start = s->before >> 1;
}

#endif
