/* A child that has had no processor yet does not hang: node_child() waits longer for
 * it than for one that sleeps, and not for ever for one that goes on and on. */
#include <sched.h>
#include <sys/wait.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/node/node_child.h"
#include "tests/tap.h"

#define SECONDS 0.5

/* Both are of the real-time class where that is allowed: who keeps the processor before
 * the starved child, and that before whatever else a busy machine has to do. */
static bool realtime;

static int one_processor(int policy, int priority)
{
    const struct sched_param urgent = { .sched_priority = priority };
    cpu_set_t all, one;
    int cpu = 0;
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return -1;
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0
               ? sched_setscheduler(0, policy, &urgent)
               : -1;
}

static void spin(clockid_t clock, double seconds)
{
    struct timespec now;
    double begin_s = -1;
    do {
        clock_gettime(clock, &now);
        double s = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
        begin_s = begin_s < 0 ? s : begin_s;
        if (s - begin_s >= seconds)
            return;
    } while (true);
}

/* work that gets next to nothing of its processor while the other is there */
static int starve(void *arg)
{
    (void)arg;
    if (one_processor(realtime ? SCHED_FIFO : SCHED_IDLE, realtime ? 1 : 0))
        return 1;
    spin(CLOCK_PROCESS_CPUTIME_ID, 0.07);
    printf("written\n");
    return 7;
}

static int doze(void *arg)
{
    (void)arg;
    clock_sleep(60);
    return 0;
}

static int go_on(void *arg)
{
    (void)arg;
    spin(CLOCK_MONOTONIC, 60);
    return 0;
}

static int result_of(int (*run)(void *), char *const *argv, double *seconds)
{
    struct buffer out = { 0 };
    struct node_child child = { .seconds = SECONDS, .run = run, .argv = argv };
    double begin_s = clock_now();
    int code = node_child(&child, &out);
    *seconds = clock_now() - begin_s;
    buffer_free(&out);
    return code;
}

int main(void)
{
    static const struct sched_param least = { .sched_priority = 1 }, none;
    double seconds;
    realtime = sched_setscheduler(0, SCHED_FIFO, &least) == 0 &&
               sched_setscheduler(0, SCHED_OTHER, &none) == 0;
    int ready[2];
    char byte = 1;
    if (pipe(ready) != 0)
        abort();
    pid_t hog = fork();
    if (hog == 0) {
        (void)one_processor(realtime ? SCHED_FIFO : SCHED_OTHER,
                            realtime ? 2 : 0);
        if (write(ready[1], &byte, 1) != 1)
            abort();
        spin(CLOCK_MONOTONIC, 3 * SECONDS);
        _exit(0);
    }
    if (read(ready[0], &byte, 1) != 1) /* it has the processor */
        abort();
    int code = result_of(starve, NULL, &seconds);
    tap_ok(code == 7 && seconds > SECONDS,
           "one without a processor is waited for: %d after %.2f s", code,
           seconds);
    (void)waitpid(hog, NULL, 0);
    code = result_of(doze, NULL, &seconds);
    tap_ok(code == NODE_NO_ANSWER && seconds < 60,
           "one that sleeps has hung: %d after %.2f s", code, seconds);
    code = result_of(go_on, NULL, &seconds);
    tap_ok(code == NODE_NO_ANSWER && seconds < 60,
           "one that goes on and on has an end: %d after %.2f s", code,
           seconds);
    char *const argv[] = { "sh", "-c", "while :; do :; done", NULL };
    code = result_of(NULL, argv, &seconds);
    tap_ok(code == NODE_NO_ANSWER && seconds < 60,
           "a program has its time and no more: %d after %.2f s", code,
           seconds);
    return tap_done();
}
