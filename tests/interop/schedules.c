/* Multipliers for a Python peer: reads lines of a schedule's name, its numbers
 * in the order of `struct schedule`, its milestones and a step, all with blanks
 * between, and writes one multiplier a line. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/train/settings/schedule.h"

static void bad(const char *what)
{
    fprintf(stderr, "schedules: %s\n", what);
    exit(1);
}

static int choice(const char *const *names, const char *name)
{
    for (int i = 0; names[i] != NULL; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    bad(name);
    return 0;
}

static void read_milestones(struct schedule *s)
{
    if (scanf("%d", &s->milestone_count) != 1 || s->milestone_count < 0 ||
        s->milestone_count > SCHEDULE_MILESTONES)
        bad("no number of milestones");
    for (int i = 0; i < s->milestone_count; i++)
        if (scanf("%" SCNd64, &s->milestones[i]) != 1)
            bad("half a list of milestones");
}

int main(void)
{
    char name[32];
    while (scanf("%31s", name) == 1) {
        struct schedule s = { 0 };
        char shape[32];
        int64_t step;
        s.kind = (enum schedule_kind)choice(schedule_kind_names, name);
        if (scanf("%" SCNd64 "%" SCNd64 "%lf%lf%lf%lf%lf%" SCNd64 "%lf%" SCNd64
                  "%" SCNd64 "%31s",
                  &s.warmup, &s.t_max, &s.alpha_final, &s.alpha_initial,
                  &s.alpha_decay, &s.power, &s.gamma, &s.period, &s.t_mult,
                  &s.t_scale, &s.cooldown, shape) != 12)
            bad("half a schedule");
        s.cooldown_shape =
            (enum cooldown_shape)choice(cooldown_shape_names, shape);
        read_milestones(&s);
        if (scanf("%" SCNd64, &step) != 1)
            bad("no step");
        printf("%.17g\n", schedule_multiplier(&s, step));
    }
    return fflush(stdout) != 0;
}
