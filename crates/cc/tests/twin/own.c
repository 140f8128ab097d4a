/*
 * Runs our own law of bpf/ on the host: events as lines of numbers on standard input, window and pace after each as a
 * line on standard output. Which law is chosen by the header that is included in front.
 */
#include <stdio.h>

#ifdef SKY_LAW_SKYHAUL_H
#define STATE struct law_skyhaul
#define HEARD struct skyhaul_heard
#define CALL(what) law_skyhaul_##what
#endif

int main(void)
{
	static STATE law;
	__u64 n[8];
	char kind;

	while (scanf(" %c", &kind) == 1) {
		int wanted = kind == 'a' ? 7 : kind == 'k' ? 2 : kind == 't' || kind == 'm' || kind == 'o' ? 0 : 1;

		for (int i = 0; i < wanted; i++)
			if (scanf("%llu", &n[i]) != 1)
				return 2;
		if (kind == 'i')
			CALL(init)(&law, n[0]);
		else if (kind == 'k')
			CALL(know)(&law, n[0], (__u32)n[1]);
		else if (kind == 'l')
			CALL(lose)(&law, (__u32)n[0]);
		else if (kind == 't')
			CALL(timeout)(&law);
		else if (kind == 'm')
			CALL(mark)(&law);
		else if (kind == 'o')
			CALL(grow_old)(&law);
		else if (kind == 'a')
			CALL(hear)(&law, &(HEARD){ .now_ms = (__u32)n[0], .rtt = (__u32)n[1], .acked = (__u32)n[2],
						   .flight = (__u32)n[3], .rate = n[4], .round = (__u32)n[5],
						   .app_limited = (__u32)n[6] });
		else
			return 2;
		printf("%llu %llu\n", CALL(window)(&law), CALL(pace)(&law));
	}
	return 0;
}
