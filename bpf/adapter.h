/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The hooks of a law that leaves recovery and pacing to the kernel: all but its name. Use:
 *
 *     #include "view.h"
 *     #include "law_hybla.h"
 *     #define LAW hybla
 *     #define LAW_REGISTERED "sky_hybla"
 *     #include "adapter.h"
 *
 * The kernel asks ssthresh() before it says what has happened; set_state() then tells a timeout and a mark from a
 * gap, and the answer is given anew. Nothing is sent between the two.
 */
#include "sky.h"

#define SKY_JOIN2(a, b, c) a##b##c
#define SKY_JOIN(a, b, c) SKY_JOIN2(a, b, c)
#define LAW_STATE struct SKY_JOIN(law_, LAW, )
#define LAW_CALL(what) SKY_JOIN(law_, LAW, what)
#define LAW_HOOK(what) SKY_JOIN(LAW, what, )
/* One more step, so that the name is put together before BPF_PROG pastes it. */
#define SKY_PROG(name, args...) BPF_PROG(name, ##args)

/* As long as the member of struct event that takes it. In a section of its own: libbpf knows no merged constants. */
const char sky_name[16] SEC(".rodata.name") = LAW_REGISTERED;

const volatile struct tun tun SEC(".rodata.tun") = {};

struct sky_private {
	struct sky_base base;
	LAW_STATE law;
};

_Static_assert(sizeof(struct sky_private) <= 13 * 8, "a socket has 104 bytes for its controller");

SEC("struct_ops")
void SKY_PROG(LAW_HOOK(_init), struct sock *sk)
{
	struct tcp_sock *tp = sky_tcp(sk);
	struct sky_private *own = sky_private(sk);
	struct law_setup setup;

	own->base.delivered = tp->delivered;
	own->base.lost = tp->lost;
	own->base.round_end = tp->delivered;
	own->base.rtt_us = 0;
	own->base.cut_cwnd = tp->snd_cwnd;
	own->base.cut_frac = 0;
	own->base.cut_pending = 0;
	own->base.told = 0;
	sky_setup(tp, &setup);
	LAW_CALL(_init)(&own->law, &setup);
	sky_pace(sk);
	sky_tell(sk, EVENT_START, sky_name);
}

SEC("struct_ops")
void SKY_PROG(LAW_HOOK(_pkts_acked), struct sock *sk, const struct ack_sample *sample)
{
	struct sky_private *own = sky_private(sk);
	struct law_ack ack;

	sky_sample(sky_tcp(sk), &own->base, sample, &ack);
	LAW_CALL(_sample)(&own->law, &ack);
	if (ack.round_start && sky_told_long_ago(sky_tcp(sk), &own->base))
		sky_tell(sk, EVENT_ROUND, sky_name);
}

SEC("struct_ops")
void SKY_PROG(LAW_HOOK(_cong_avoid), struct sock *sk, __u32 seq, __u32 acked)
{
	struct tcp_sock *tp = sky_tcp(sk);
	struct sky_private *own = sky_private(sk);
	struct law_ack ack;

	(void)seq;
	sky_fill(tp, &own->base, &ack);
	if (!ack.limited)
		return;
	ack.acked = acked;
	ack.flight += acked;
	LAW_CALL(_grow)(&own->law, &ack);
	tp->snd_cwnd = (__u32)fix_min(ack.cwnd, tp->snd_cwnd_clamp);
	if (ack.ssthresh != tp->snd_ssthresh)
		tp->snd_ssthresh = ack.ssthresh;
}

SEC("struct_ops")
__u32 SKY_PROG(LAW_HOOK(_ssthresh), struct sock *sk)
{
	struct sky_private *own = sky_private(sk);
	struct law_loss loss;

	sky_loss(sky_tcp(sk), &own->base, LAW_GAP, &loss);
	own->base.cut_cwnd = loss.cwnd;
	own->base.cut_frac = own->law.base.frac;
	own->base.cut_pending = 1;
	return LAW_CALL(_loss)(&own->law, &loss);
}

SEC("struct_ops")
void SKY_PROG(LAW_HOOK(_set_state), struct sock *sk, __u8 state)
{
	struct tcp_sock *tp = sky_tcp(sk);
	struct sky_private *own = sky_private(sk);
	struct law_loss loss;

	if (own->base.cut_pending && (state == TCP_CA_Loss || state == TCP_CA_CWR)) {
		sky_loss(tp, &own->base, state == TCP_CA_Loss ? LAW_TIMEOUT : LAW_MARK, &loss);
		loss.cwnd = own->base.cut_cwnd;
		own->law.base.frac = own->base.cut_frac;
		tp->snd_ssthresh = LAW_CALL(_loss)(&own->law, &loss);
	}
	if (state >= TCP_CA_CWR) {
		if (own->base.cut_pending)
			sky_tell(sk, EVENT_LOSS, sky_name);
		own->base.cut_pending = 0;
	}
	if (state == TCP_CA_Loss)
		LAW_CALL(_timeout)(&own->law);
}

SEC("struct_ops")
__u32 SKY_PROG(LAW_HOOK(_undo_cwnd), struct sock *sk)
{
	struct tcp_sock *tp = sky_tcp(sk);
	struct sky_private *own = sky_private(sk);

	own->law.base.frac = own->base.cut_frac;
	LAW_CALL(_undo)(&own->law);
	return (__u32)fix_max(tp->snd_cwnd, tp->prior_cwnd);
}

SEC("struct_ops")
void SKY_PROG(LAW_HOOK(_release), struct sock *sk)
{
	sky_tell(sk, EVENT_END, sky_name);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops LAW_HOOK(_ops) = {
	.init = (void *)LAW_HOOK(_init),
	.release = (void *)LAW_HOOK(_release),
	.ssthresh = (void *)LAW_HOOK(_ssthresh),
	.cong_avoid = (void *)LAW_HOOK(_cong_avoid),
	.set_state = (void *)LAW_HOOK(_set_state),
	.undo_cwnd = (void *)LAW_HOOK(_undo_cwnd),
	.pkts_acked = (void *)LAW_HOOK(_pkts_acked),
	.name = LAW_REGISTERED,
};

char LICENSE[] SEC("license") = "Dual MIT/GPL";
