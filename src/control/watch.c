/* One tick of watching an attempt: watch.h says by which rules. */
#include "src/control/watch.h"

#include <assert.h>
#include <math.h>

#define STANDSTILL_S 5
/* Ranks that have lost each other say why and leave, all within half a second of signs
 * of life; Slurm's own patience with those on a node that does not answer is KillWait,
 * 30 s. */
#define APART_S 1
#define COLD_S 10
#define GAP_FIRST_S 60
#define ASK_S 60 /* while steps come */
#define ASK_MIN_S 2
#define ASK_MAX_S 15

double watch_start_s(double most_s, double took_s, int failed)
{
    if (took_s <= 0)
        return most_s;
    return fmin(most_s, ldexp(4 * took_s + COLD_S, failed));
}

/* As far as time has passed for the job as well. */
static double passed(struct watch *watch, double now_s)
{
    double passed_s = now_s - watch->tick_at_s;
    watch->tick_at_s = now_s;
    watch->still_s = passed_s > watch->tick_s + STANDSTILL_S ? passed_s : 0;
    return watch->still_s > 0 ? watch->tick_s : passed_s;
}

static void listen(struct watch *watch, const struct watch_seen *seen)
{
    double passed_s = passed(watch, seen->now_s);
    watch->quiet_s += passed_s;
    watch->apart_s = seen->apart ? watch->apart_s + passed_s : 0;
    if (!watch->beaten || seen->beat != watch->beat) {
        if (watch->beaten)
            watch->gap_s = watch->quiet_s;
        watch->beaten = true;
        watch->beat = seen->beat;
        watch->quiet_s = 0;
    }
    /* a slow start does not eat the time of the first step */
    if (seen->started && !watch->started)
        watch->quiet_s = 0;
    watch->started = watch->started || seen->started;
}

static bool time_to_ask(const struct watch *watch)
{
    double pause_s = ASK_S, usual_s = 5 + 2 * watch->gap_s;
    if (!watch->started && watch->took_s > 0)
        usual_s = fmin(usual_s, 2 + 2 * watch->took_s);
    if (watch->quiet_s > usual_s) {
        pause_s = watch->quiet_s / 8;
        pause_s = pause_s < ASK_MIN_S   ? ASK_MIN_S
                  : pause_s > ASK_MAX_S ? ASK_MAX_S
                                        : pause_s;
    }
    return watch->tick_at_s - watch->asked_at_s >= pause_s;
}

enum watch_what watch_tick(struct watch *watch, const struct watch_seen *seen)
{
    assert(watch->start_s > 0 && watch->hang_s > 0 && watch->tick_s > 0);
    if (!watch->begun) {
        watch->begun = true;
        watch->tick_at_s = watch->asked_at_s = seen->now_s;
        watch->gap_s = GAP_FIRST_S;
    }
    listen(watch, seen);
    if (!watch->started && watch->quiet_s >= watch->start_s)
        return WATCH_START;
    if (watch->started && watch->quiet_s >= watch->hang_s)
        return WATCH_HANG;
    if (watch->apart_s >= APART_S)
        return WATCH_APART;
    if (!time_to_ask(watch))
        return WATCH_ON;
    watch->asked_at_s = seen->now_s;
    return WATCH_ASK;
}
