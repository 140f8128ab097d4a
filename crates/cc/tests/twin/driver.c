/*
 * Runs one law of bpf/ on the host: events as lines of numbers on standard input, the window after each as a line on
 * standard output. It plays the kernel's part as skyhaul_cc's controllers see it: after a cut the window is the
 * threshold at once, after a timeout two segments.
 *
 * Compiled with -DLAW=hybla -include law_hybla.h.
 */
#include <stdio.h>
#include <stdlib.h>

#define JOIN2(a, b, c) a##b##c
#define JOIN(a, b, c) JOIN2(a, b, c)
#define STATE struct JOIN(law_, LAW, )
#define CALL(what) JOIN(law_, LAW, what)

static STATE law;
static __u32 cwnd, ssthresh, mss, lost;
/* Before the last cut. */
static __u32 prior_cwnd, prior_ssthresh, prior_frac;

static __u64 number(void)
{
	__u64 value;

	if (scanf("%llu", &value) != 1) {
		fprintf(stderr, "a number is missing\n");
		exit(2);
	}
	return value;
}

static void begin(void)
{
	struct law_setup setup = {};

	setup.cwnd = cwnd = (__u32)number();
	setup.ssthresh = ssthresh = (__u32)number();
	setup.mss = mss = (__u32)number();
	setup.reference_us = (__u32)number();
	setup.step_q8 = (__u32)number();
	CALL(_init)(&law, &setup);
}

static void hear_ack(void)
{
	struct law_ack ack = {};
	__u64 may_grow;

	ack.now_us = number();
	ack.acked = (__u32)number();
	ack.rtt_us = (__u32)number();
	ack.min_rtt_us = (__u32)number();
	ack.srtt_us = (__u32)number();
	ack.flight = (__u32)number();
	ack.flight_sent = (__u32)number();
	ack.rwnd = (__u32)number();
	ack.round_start = (__u32)number();
	ack.limited = (__u32)number();
	may_grow = number();
	ack.mss = mss;
	ack.lost = lost;
	ack.cwnd = cwnd;
	ack.ssthresh = ssthresh;
	lost = 0;
	CALL(_sample)(&law, &ack);
	if (!may_grow)
		return;
	ack.lost = 0;
	CALL(_grow)(&law, &ack);
	cwnd = ack.cwnd;
	ssthresh = ack.ssthresh;
}

static void hear_loss(void)
{
	struct law_loss loss = {};
	__u32 frac = law.base.frac, signal, new_episode;

	loss.now_us = number();
	lost += (__u32)number();
	loss.rtt_us = (__u32)number();
	loss.min_rtt_us = (__u32)number();
	loss.flight = (__u32)number();
	signal = (__u32)number();
	new_episode = (__u32)number();
	loss.cwnd = cwnd;
	loss.ssthresh = ssthresh;
	if (new_episode) {
		/* As the kernel asks: first without knowing why. */
		loss.lost = lost;
		lost = 0;
		loss.signal = LAW_GAP;
		prior_cwnd = cwnd;
		prior_ssthresh = ssthresh;
		prior_frac = frac;
		ssthresh = CALL(_loss)(&law, &loss);
		if (signal != LAW_GAP) {
			law.base.frac = frac;
			loss.lost = 0;
			loss.signal = signal;
			ssthresh = CALL(_loss)(&law, &loss);
		}
		cwnd = ssthresh;
	}
	if (signal == LAW_TIMEOUT) {
		CALL(_timeout)(&law);
		cwnd = LAW_LEAST;
	}
}

/* The cut was a mistake: window and threshold are the host's to restore. */
static void undo(void)
{
	cwnd = prior_cwnd;
	ssthresh = prior_ssthresh;
	law.base.frac = prior_frac;
	CALL(_undo)(&law);
}

int main(void)
{
	char kind;

	while (scanf(" %c", &kind) == 1) {
		switch (kind) {
		case 'b':
			begin();
			break;
		case 'a':
			hear_ack();
			break;
		case 'l':
			hear_loss();
			break;
		case 'u':
			undo();
			break;
		case 's':
			number();
			printf("%u 0 0\n", (unsigned int)sizeof(law));
			continue;
		case '2':
			printf("%llu 0 0\n", fix_exp2(number()));
			continue;
		case 'g':
			printf("%llu 0 0\n", fix_log2(number()));
			continue;
		case '3':
			printf("%llu 0 0\n", fix_cbrt(number()));
			continue;
		case 'i':
			printf("%u 0 0\n", fix_ilog2(number()));
			continue;
		default:
			fprintf(stderr, "no such event: %c\n", kind);
			return 2;
		}
		printf("%u %u %u\n", cwnd, law.base.frac, ssthresh);
	}
	return 0;
}
