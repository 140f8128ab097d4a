/*
 * Runs our own law of bpf/ on the host: events as lines of numbers on standard input, window and pace after each as a
 * line on standard output. Which law is chosen by the header that is included in front.
 */
#include <stdio.h>

#ifdef SKY_LAW_SKYHAUL_H
#define PER_SEGMENT 256
static struct law_skyhaul law;

static void hear(char kind, const __u64 n[10])
{
	struct skyhaul_heard heard = { .now_ms = (__u32)(n[0] / 1000), .rtt = (__u32)n[2], .acked = (__u32)n[5],
				       .flight = (__u32)n[9], .rate = n[6], .round = (__u32)n[7],
				       .app_limited = (__u32)n[8] };

	if (kind == 'i')
		law_skyhaul_init(&law, n[0]);
	else if (kind == 'k')
		law_skyhaul_know(&law, n[2], (__u32)n[1]);
	else if (kind == 'a' && law_skyhaul_only_notes(&law, &heard))
		law_skyhaul_note(&law, &heard);
	else if (kind == 'a')
		law_skyhaul_hear(&law, &heard);
	else if (n[5] == LAW_TIMEOUT)
		law_skyhaul_timeout(&law);
	else if (n[5] == LAW_GAP)
		law_skyhaul_lose(&law, (__u32)n[2]);
	else if (n[6])
		law_skyhaul_mark(&law);
}

#define WINDOW law_skyhaul_window(&law)
#define PACE law_skyhaul_pace(&law)
#else
#define PER_SEGMENT 65536
static struct law_boost law;

static void hear(char kind, const __u64 n[10])
{
	struct boost_heard heard = { .now_us = n[0], .sent_us = n[1], .rtt_us = (__u32)n[2], .srtt_us = (__u32)n[3],
				     .min_rtt_us = (__u32)n[4], .acked = (__u32)n[5], .rate = n[6],
				     .round = (__u32)n[7], .app_limited = (__u32)n[8] };
	struct boost_lost lost = { .now_us = n[0], .sent_us = n[1], .lost = (__u32)n[2], .rtt_us = (__u32)n[3],
				   .min_rtt_us = (__u32)n[4], .signal = (__u32)n[5], .new_episode = (__u32)n[6] };

	if (kind == 'i')
		law_boost_init(&law, (__u32)n[0], (__u32)n[1]);
	else if (kind == 'k')
		law_boost_know(&law, n[0], (__u32)n[1]);
	else if (kind == 'a')
		law_boost_hear(&law, &heard);
	else
		law_boost_lose(&law, &lost);
}

#define WINDOW law_boost_window(&law)
#define PACE law_boost_pace(&law)
#endif

int main(void)
{
	__u64 n[10];
	char kind;

	while (scanf(" %c", &kind) == 1) {
		/* Start, known path, loss, acknowledgment. */
		int wanted = kind == 'i' ? 2 : kind == 'k' ? 3 : kind == 'l' ? 7 : 10;

		for (int i = 0; i < wanted; i++)
			if (scanf("%llu", &n[i]) != 1)
				return 2;
		hear(kind, n);
		printf("%.6f %llu\n", (double)WINDOW / PER_SEGMENT, PACE);
	}
	return 0;
}
