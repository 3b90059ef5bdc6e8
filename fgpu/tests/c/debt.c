/* A session of 25 % says for so many days that it is busy, without a turn, and wants one then: debt <days>. Prints in
 * how many days the arbiter gives it one. */
#include <stdio.h>
#include <stdlib.h>

#include "../../arbiter/run_queue.c"

static void publish_nothing(struct member *member) { (void)member; }

int main(int argc, char **argv)
{
    static const uint64_t DAY_NS = 86400000000000ull;
    struct run_queue queue = {.publish = publish_nothing};
    struct member member = {.share = SHARE_WHOLE / 4};
    uint64_t now = 1, until = argc > 1 ? strtoull(argv[1], NULL, 10) * DAY_NS : 0;
    queue_add(&queue, &member, now);
    queue_change(&queue, &member, 1, 0, now);
    for (; now < until; now += GRANT_STALE_NS)
        queue_run(&queue, now);
    queue_change(&queue, &member, 0, 1, now);
    printf("%.2f\n", (double)(queue_run(&queue, now) - now) / (double)DAY_NS);
    return 0;
}
