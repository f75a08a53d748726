/* A model of goodput at Llama 3's rate of failures, by the terms of the goodput
 * page: detect, restart (check, launch, load), replay, stall, control.
 *
 *   goodput = (1 - control)(1 - stall / interval) /
 *             (1 + rate x (detect + restart + interval / 2 + persist))
 *
 * It says what a budget of seconds is worth, and is no measurement. Rates are
 * of arXiv:2407.21783, table 5: 419 unexpected interruptions of 16,384 GPUs in
 * 54 days, in proportion to GPUs; 226 end a process, 124 hang and 63 take a
 * node, an estimate from their causes. Every other number is assumed and printed.
 * checkpoint/ckpt_interval.c, with which tessera-plan works, has the same
 * failures at random times, and must agree. */
#include "checkpoint/ckpt_interval.h"

#include "tests/tap.h"

struct budget {
    const char *name;
    double ends_s, hangs_s, node_s; /* until a failure is known */
    double restart_s;               /* check, launch, load */
    double control;                 /* of a step */
    double stall_s, persist_s;      /* of a save */
    double least;                   /* goodput that is asked for; 0: none */
};

/* Deadlines of 300 s, two in a row under zero3, as they were; or signs of life and
 * limits that follow measured steps. The control of trees, 2 us a message. */
static const struct scale {
    int gpus;
    struct budget budget[2];
} scales[] = {
    { 1024,
      { { "deadlines", 12, 654, 308, 60, 0.0004, 0.2, 20, 0 },
        { "signs", 2, 30, 15, 60, 0.0004, 0.2, 20, 0.995 } } },
    { 16384,
      { { "deadlines", 12, 654, 308, 123, 0.0016, 0.2, 20, 0 },
        { "signs", 2, 30, 15, 123, 0.0016, 0.2, 20, 0.97 } } },
    { 131072,
      { { "deadlines", 12, 654, 308, 180, 0.0020, 0.2, 20, 0 },
        { "signs", 2, 30, 15, 180, 0.0020, 0.2, 20, 0 } } },
};

static double model(int gpus, const struct budget *b)
{
    double mtbf_s = 54 * 86400.0 / 419 * 16384 / gpus;
    double detect_s =
        (226 * b->ends_s + 124 * b->hangs_s + 63 * b->node_s) / 419;
    struct ckpt_interval best;
    struct ckpt_interval_input input = { .cost_s = b->stall_s,
                                         .persist_s = b->persist_s,
                                         .mtbf_s = mtbf_s,
                                         .restart_s = b->restart_s,
                                         .detect_s = detect_s };
    if (ckpt_interval(&input, &best) != ERR_OK) {
        tap_ok(false, "interval: %s", err_text());
        return 0;
    }
    double every = best.recommended_s;
    double lost = detect_s + b->restart_s + every / 2 + b->persist_s;
    double goodput =
        (1 - b->control) * (1 - b->stall_s / every) / (1 + lost / mtbf_s);
    printf("# %6d GPUs, %-8s a failure in %.2f h; known after %.0f s (process "
           "%.0f, hang %.0f, node %.0f), restart %.0f s, saved every %.0f s "
           "(stall %.1f, written in %.0f): goodput %.2f %%\n",
           gpus, b->name, mtbf_s / 3600, detect_s, b->ends_s, b->hangs_s,
           b->node_s, b->restart_s, every, b->stall_s, b->persist_s,
           100 * goodput);
    /* one fails again while it starts, as often as exp() is above 1 + x */
    double bound = lost / mtbf_s * lost / mtbf_s;
    tap_ok(fabs((1 - b->control) * best.goodput - goodput) <= bound + 1e-3,
           "as by the plan's formula");
    return goodput;
}

int main(void)
{
    for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++) {
        double before = 0;
        for (int i = 0; i < 2; i++) {
            const struct budget *b = &scales[s].budget[i];
            double goodput = model(scales[s].gpus, b);
            tap_ok(goodput >= b->least && goodput > before,
                   "%d GPUs, %s: %.2f %%, at least %.2f", scales[s].gpus,
                   b->name, 100 * goodput, 100 * b->least);
            before = goodput;
        }
    }
    return tap_done();
}
