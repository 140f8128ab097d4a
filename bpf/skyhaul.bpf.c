/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Our own controller, plain form. It owns window and pace also in recovery, so its hook is cong_control; what to send
 * again stays the kernel's business.
 */
#include "view.h"
#include "sky.h"
#include "learn.h"
#include "law_skyhaul.h"

#define CA_EVENT_TX_START 0
#define OLD_MS 600000
/* Rounds are told not more often. */
#define TELL_MS 200

const volatile struct tun tun SEC(".rodata.tun") = {};
const char sky_name[16] SEC(".rodata.name") = "skyhaul";

struct skyhaul_private {
	struct law_skyhaul law;
	__u32 round_end;     /* tp->delivered when the round began */
	__u32 told_ms;       /* time of the last event for people */
};

_Static_assert(sizeof(struct skyhaul_private) <= 13 * 8, "a socket has 104 bytes for its controller");

/* In 1.024 ms, which costs no division. */
static __always_inline __u32 now_ms(const struct tcp_sock *tp)
{
	return (__u32)(tp->tcp_mstamp >> 10);
}

static __always_inline void apply_window(struct tcp_sock *tp, const struct skyhaul_private *own)
{
	tp->snd_cwnd = (__u32)fix_min(law_skyhaul_window(&own->law) >> 8, tp->snd_cwnd_clamp);
}

static __always_inline void apply(struct sock *sk, struct skyhaul_private *own)
{
	struct tcp_sock *tp = sky_tcp(sk);
	__u64 pace = law_skyhaul_pace(&own->law);

	apply_window(tp, own);
	if (pace)
		learn_pace(sk, learn_bytes(pace, tp->mss_cache));
}

SEC("struct_ops")
void BPF_PROG(skyhaul_init, struct sock *sk)
{
	struct tcp_sock *tp = sky_tcp(sk);
	struct skyhaul_private *own = sky_private(sk);
	__u32 srtt = sky_srtt_us(tp), mss = tp->mss_cache, least = 0;
	__u64 window = tp->snd_cwnd, known = 0, rate;

	own->round_end = tp->delivered;
	own->told_ms = 0;
	law_skyhaul_init(&own->law, window);
	/* Until the first answer: what the handshake took for a round trip, or a millisecond, and the start's pace. */
	rate = ((window << 24) / fix_max(srtt, 1000)) * SKYHAUL_PACE_TRIPLE / 256;
	/* Only a new connection begins with what is known of the path. */
	if (tp->delivered <= 1)
		known = learn_known(sk, srtt, &least);
	if (known) {
		rate = learn_rate(known, mss);
		law_skyhaul_know(&own->law, fix_max((rate * least) >> 24, window), least);
		tp->snd_cwnd = (__u32)fix_min(law_skyhaul_window(&own->law) >> 8, tp->snd_cwnd_clamp);
	}
	learn_pace(sk, learn_bytes(rate, mss));
	sky_pace(sk);
	sky_tell(sk, EVENT_START, sky_name);
}

SEC("struct_ops")
void skyhaul_cong_control(unsigned long long *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = sky_tcp(sk);
	struct skyhaul_private *own = sky_private(sk);
	struct skyhaul_heard heard = {};
	struct law_skyhaul law;
	const struct rate_sample *rs = learn_sample(ctx);
	__u64 delivered, interval;
	__u32 least, round;

	heard.now_ms = now_ms(tp);
	if (rs->rtt_us > 0 && !rs->is_ack_delayed)
		heard.rtt = (__u32)rs->rtt_us;
	heard.acked = rs->acked_sacked;
	heard.flight = rs->prior_in_flight;
	heard.app_limited = rs->is_app_limited;
	if (rs->delivered > 0 && rs->interval_us > 0) {
		delivered = (__u64)(__u32)rs->delivered << 24;
		interval = (__u32)rs->interval_us;
		if (!fix_after(own->round_end, rs->prior_delivered)) {
			own->round_end = tp->delivered;
			heard.round = 1;
		}
		/* A rate below this round's greatest tells nothing, and a division takes its time. */
		if (heard.round || delivered > own->law.rate * interval)
			heard.rate = fix_div(delivered, interval);
	}
	if (rs->losses <= 0 && (heard.acked || heard.rtt) && law_skyhaul_only_notes(&own->law, &heard)) {
		least = own->law.least;
		round = own->law.round;
		law_skyhaul_note(&own->law, &heard);
		/* The window is set all the same: after a timeout it is the kernel's. */
		if (own->law.least != least || own->law.round != round)
			apply(sk, own);
		else
			apply_window(tp, own);
		return;
	}
	/* On the stack, because the law's functions take plain memory only. */
	law = own->law;
	if (rs->losses > 0)
		law_skyhaul_lose(&law, (__u32)rs->losses);
	if (heard.acked || heard.rtt)
		law_skyhaul_hear(&law, &heard);
	own->law = law;
	apply(sk, own);
	if (heard.round && heard.now_ms - own->told_ms >= TELL_MS) {
		own->told_ms = heard.now_ms;
		sky_tell(sk, EVENT_ROUND, sky_name);
	}
	if (heard.round)
		learn_room(sk);
}

SEC("struct_ops")
__u32 BPF_PROG(skyhaul_ssthresh, struct sock *sk)
{
	/* There is none, and nothing is cut before it is known why. */
	return sky_tcp(sk)->snd_ssthresh;
}

SEC("struct_ops")
__u32 BPF_PROG(skyhaul_undo_cwnd, struct sock *sk)
{
	return sky_tcp(sk)->snd_cwnd;
}

SEC("struct_ops")
void BPF_PROG(skyhaul_set_state, struct sock *sk, __u8 state)
{
	struct skyhaul_private *own = sky_private(sk);

	if (state == TCP_CA_Loss)
		law_skyhaul_timeout(&own->law);
	else if (state == TCP_CA_CWR)
		law_skyhaul_mark(&own->law);
	if (state == TCP_CA_Loss || state == TCP_CA_CWR)
		sky_tell(sk, EVENT_LOSS, sky_name);
}

SEC("struct_ops")
void BPF_PROG(skyhaul_cwnd_event, struct sock *sk, __u32 event)
{
	struct skyhaul_private *own = sky_private(sk);

	if (event == CA_EVENT_TX_START && own->law.least && now_ms(sky_tcp(sk)) - own->law.seen_ms > OLD_MS) {
		law_skyhaul_grow_old(&own->law);
		apply(sk, own);
	}
}

SEC("struct_ops")
void BPF_PROG(skyhaul_release, struct sock *sk)
{
	struct skyhaul_private *own = sky_private(sk);

	if (own->law.stage == SKYHAUL_CRUISE)
		learn_store(sk, learn_bytes((skyhaul_through(&own->law) << 16) / (65536 - own->law.noise),
					    sky_tcp(sk)->mss_cache),
			    own->law.least, (__u32)(((__u64)own->law.noise * 1000000) >> 16));
	sky_tell(sk, EVENT_END, sky_name);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops skyhaul_ops = {
	.init = (void *)skyhaul_init,
	.release = (void *)skyhaul_release,
	.ssthresh = (void *)skyhaul_ssthresh,
	.cong_control = (void *)skyhaul_cong_control,
	.set_state = (void *)skyhaul_set_state,
	.undo_cwnd = (void *)skyhaul_undo_cwnd,
	.cwnd_event = (void *)skyhaul_cwnd_event,
	.name = "skyhaul",
};

char LICENSE[] SEC("license") = "Dual MIT/GPL";
