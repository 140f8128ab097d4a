/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * BoostTCP. It owns window and pace also in recovery, so its hook is cong_control; what to send again stays the kernel's
 * business. Its state does not fit a socket's 104 bytes and lies in socket storage.
 */
#include "view.h"
#include "sky.h"
#include "learn.h"
#include "law_boost.h"

/* Rounds are told not more often. */
#define TELL_MS 200

const volatile struct tun tun SEC(".rodata.tun") = {};
const char sky_name[16] SEC(".rodata.name") = "sky_boost";

struct boost_private {
	struct law_boost law;
	struct boost_heard heard;
	struct boost_lost loss;
	__u64 episode_us;    /* when the last episode of losses began */
	__u32 round_end;     /* tp->delivered when the round began */
	__u32 told_ms;       /* time of the last event for people */
	__u32 rtt_us;        /* newest sample */
	__u64 paced_us;      /* when the pace was last computed, and for which window, with `filling` as its last bit */
	__u64 paced_for;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct boost_private);
} boost_sockets SEC(".maps");

static __always_inline struct boost_private *boost_of(struct sock *sk, __u64 flags)
{
	return bpf_sk_storage_get(&boost_sockets, sk, 0, flags);
}

static __always_inline void apply(struct sock *sk, struct boost_private *own)
{
	struct tcp_sock *tp = sky_tcp(sk);
	__u64 window = law_boost_window(&own->law), what = window << 1 | own->law.filling, pace;

	tp->snd_cwnd = (__u32)fix_min(window >> 16, tp->snd_cwnd_clamp);
	/* While the window stays, the round trip alone moves the pace: 16 times per round trip is enough. */
	if (what == own->paced_for && tp->tcp_mstamp - own->paced_us < own->law.srtt_us / 16)
		return;
	own->paced_us = tp->tcp_mstamp;
	own->paced_for = what;
	pace = law_boost_pace(&own->law);
	if (pace)
		learn_pace(sk, learn_bytes(pace, tp->mss_cache));
}

/* Losses since the last answer, or a signal of the kernel's. */
static __always_inline void tell_loss(struct sock *sk, struct boost_private *own, __u32 signal, __u32 lost)
{
	struct tcp_sock *tp = sky_tcp(sk);
	struct boost_lost *loss = &own->loss;

	loss->now_us = tp->tcp_mstamp;
	/* What is lost was sent before the newest that has arrived, and not by much. */
	loss->sent_us = tp->rack.mstamp;
	loss->lost = lost;
	loss->rtt_us = own->rtt_us;
	loss->min_rtt_us = sky_min_rtt_us(tp);
	loss->signal = signal;
	loss->new_episode = signal != LAW_GAP || !own->episode_us || loss->sent_us > own->episode_us;
	if (loss->new_episode)
		own->episode_us = loss->now_us;
	law_boost_lose(&own->law, loss);
}

SEC("struct_ops")
void BPF_PROG(boost_init, struct sock *sk)
{
	struct tcp_sock *tp = sky_tcp(sk);
	struct boost_private *own = boost_of(sk, BPF_SK_STORAGE_GET_F_CREATE);
	__u32 srtt = sky_srtt_us(tp), mss = tp->mss_cache, least = 0;
	__u64 window = tp->snd_cwnd, known = 0, rate;

	if (!own)
		return;
	own->round_end = tp->delivered;
	own->told_ms = 0;
	own->rtt_us = srtt;
	own->episode_us = 0;
	own->paced_us = 0;
	own->paced_for = 0;
	law_boost_init(&own->law, window, mss);
	/* Until the first answer: what the handshake took for a round trip, or a millisecond, and the start's pace. */
	rate = ((window << 24) / fix_max(srtt, 1000)) * 1648 / 1000;
	/* Only a new connection begins with what is known of the path. */
	if (tp->delivered <= 1)
		known = learn_known(sk, srtt, &least);
	if (known) {
		rate = learn_rate(known, mss);
		law_boost_know(&own->law, rate, least);
		tp->snd_cwnd = (__u32)fix_min(law_boost_window(&own->law) >> 16, tp->snd_cwnd_clamp);
	}
	learn_pace(sk, learn_bytes(rate, mss));
	sky_pace(sk);
	sky_tell(sk, EVENT_START, sky_name);
}

SEC("struct_ops")
void boost_cong_control(unsigned long long *ctx)
{
	struct sock *sk = (struct sock *)ctx[0];
	struct tcp_sock *tp = sky_tcp(sk);
	const struct rate_sample *rs = learn_sample(ctx);
	struct boost_private *own = boost_of(sk, 0);
	struct boost_heard *heard;

	if (!own)
		return;
	heard = &own->heard;
	if (rs->rtt_us > 0)
		own->rtt_us = (__u32)rs->rtt_us;
	heard->now_us = tp->tcp_mstamp;
	heard->sent_us = tp->rack.mstamp;
	heard->rtt_us = own->rtt_us;
	heard->srtt_us = sky_srtt_us(tp);
	heard->min_rtt_us = sky_min_rtt_us(tp);
	heard->acked = rs->acked_sacked;
	/* A window that is hardly used, because the peer's is smaller, says as little of the path. */
	heard->app_limited = rs->is_app_limited || rs->prior_in_flight * 2ULL < law_boost_window(&own->law) >> 16;
	heard->rate = 0;
	heard->round = 0;
	if (rs->delivered > 0 && rs->interval_us > 0) {
		heard->rate = ((__u64)(__u32)rs->delivered << 24) / (__u64)rs->interval_us;
		if (!fix_after(own->round_end, rs->prior_delivered)) {
			own->round_end = tp->delivered;
			heard->round = 1;
		}
	}
	/* As a host in Rust tells it: first what was lost, then what has arrived. */
	if (rs->losses > 0)
		tell_loss(sk, own, LAW_GAP, (__u32)rs->losses);
	if (heard->acked && heard->rtt_us)
		law_boost_hear(&own->law, heard);
	apply(sk, own);
	if (heard->round && (__u32)(heard->now_us >> 10) - own->told_ms >= TELL_MS) {
		own->told_ms = (__u32)(heard->now_us >> 10);
		sky_tell(sk, EVENT_ROUND, sky_name);
	}
	if (heard->round)
		learn_room(sk);
}

SEC("struct_ops")
__u32 BPF_PROG(boost_ssthresh, struct sock *sk)
{
	/* There is none, and nothing is cut before it is known why. */
	return sky_tcp(sk)->snd_ssthresh;
}

SEC("struct_ops")
__u32 BPF_PROG(boost_undo_cwnd, struct sock *sk)
{
	return sky_tcp(sk)->snd_cwnd;
}

SEC("struct_ops")
void BPF_PROG(boost_set_state, struct sock *sk, __u8 state)
{
	struct boost_private *own = boost_of(sk, 0);

	if (!own)
		return;
	if (state == TCP_CA_Loss)
		tell_loss(sk, own, LAW_TIMEOUT, 0);
	else if (state == TCP_CA_CWR)
		tell_loss(sk, own, LAW_MARK, 0);
	if (state == TCP_CA_Loss || state == TCP_CA_CWR)
		sky_tell(sk, EVENT_LOSS, sky_name);
}

SEC("struct_ops")
void BPF_PROG(boost_release, struct sock *sk)
{
	struct boost_private *own = boost_of(sk, 0);
	__u64 usual;

	if (!own)
		return;
	/* While the path is not full, the rate is that of the start. */
	if (!own->law.filling && !own->law.known_rate) {
		usual = own->law.usual;
		learn_store(sk, learn_bytes(own->law.rate >> 8, sky_tcp(sk)->mss_cache), own->law.least,
			    (__u32)((usual * 1000000) >> 20));
	}
	bpf_sk_storage_delete(&boost_sockets, sk);
	sky_tell(sk, EVENT_END, sky_name);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops boost_ops = {
	.init = (void *)boost_init,
	.release = (void *)boost_release,
	.ssthresh = (void *)boost_ssthresh,
	.cong_control = (void *)boost_cong_control,
	.set_state = (void *)boost_set_state,
	.undo_cwnd = (void *)boost_undo_cwnd,
	.name = "sky_boost",
};

char LICENSE[] SEC("license") = "Dual MIT/GPL";
