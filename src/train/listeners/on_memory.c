/* Listener: memory, planned against taken. Once at the start a line of the log
 * says what a rank's is planned for; every monitor.memory, in bytes:
 *
 *   memory/planned/KIND    of the rank that needs most, as `tessera plan` has it;
 *                          kinds that need nothing are left out. What lies in
 *                          arenas is laid out by the code that plans it
 *   memory/planned/total   where tensors lie
 *   memory/resident, memory/peak   a process's, of the rank that has most
 *   memory/device          in use on the GPU that has most, by whomever */
#include <assert.h>
#include <stdio.h>

#include "src/base/clean.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/train/listeners/monitor_due.h"
#include "src/train/start/start.h"

struct on_memory {
    const struct run *run;
    struct monitor_due due;
};

static enum err on_memory_create(void *self, const struct run *run)
{
    struct on_memory *on = self;
    on->run = run;
    return monitor_due_create(run, "monitor.memory",
                              run->settings.monitor.memory, true, &on->due);
}

/* The plan's kinds as words, and what is resident already. */
static enum err log_kinds(const struct run *run)
{
    struct memory_plan plan;
    struct memory_plan_kind kinds[MEMORY_PLAN_KINDS];
    char text[1024] = "", bytes[32];
    TRY(trainer_memory_plan(run, &plan));
    memory_plan_kinds(&plan, kinds);
    for (int i = 0; i < MEMORY_PLAN_KINDS; i++) {
        units_bytes((double)kinds[i].bytes, bytes, sizeof bytes);
        if (kinds[i].bytes > 0)
            clean_join(text, sizeof text, ", ", "%s %s", kinds[i].name, bytes);
    }
    units_bytes((double)memory_resident(), bytes, sizeof bytes);
    if (run->rank == 0)
        log_info("memory of a rank: %s; resident now: %s", text, bytes);
    return ERR_OK;
}

enum taken { TAKEN_RESIDENT, TAKEN_PEAK, TAKEN_DEVICE, TAKEN_COUNT };
static const char *const taken_names[TAKEN_COUNT] = { "memory/resident",
                                                      "memory/peak",
                                                      "memory/device" };

static enum err tell_taken(const struct run *run,
                           const struct step_record *step)
{
    const struct kernel_memory *memory = run->engine.kernels->memory;
    size_t device = 0;
    int64_t taken[TAKEN_COUNT];
    if (memory->used != NULL)
        TRY(comm_agree(run->comm, memory->used(&device)));
    taken[TAKEN_RESIDENT] = (int64_t)memory_resident();
    taken[TAKEN_PEAK] = (int64_t)memory_peak();
    taken[TAKEN_DEVICE] = (int64_t)device;
    TRY(comm_all_reduce_i64(run->comm, taken, TAKEN_COUNT, COMM_MAX));
    for (int i = 0; i < TAKEN_COUNT; i++)
        if (taken[i] > 0)
            tracking_list_add(step->scalars, taken_names[i], (double)taken[i]);
    return ERR_OK;
}

static enum err tell(const struct run *run, const struct step_record *step)
{
    struct memory_plan plan;
    struct memory_plan_kind kinds[MEMORY_PLAN_KINDS];
    char name[64];
    assert(step->step > 0);
    TRY(comm_agree(run->comm, trainer_memory_plan(run, &plan)));
    memory_plan_kinds(&plan, kinds);
    for (int i = 0; i < MEMORY_PLAN_KINDS; i++) {
        snprintf(name, sizeof name, "memory/planned/%s", kinds[i].name);
        if (kinds[i].bytes > 0)
            tracking_list_add(step->scalars, name, (double)kinds[i].bytes);
    }
    tracking_list_add(step->scalars, "memory/planned/total",
                      (double)plan.total);
    return tell_taken(run, step);
}

static enum err on_memory_handle(void *self, enum event event,
                                 const struct step_record *step,
                                 struct asks *asks)
{
    struct on_memory *on = self;
    (void)asks;
    if (!monitor_due_ever(&on->due))
        return ERR_OK;
    if (event == EVENT_FIT_START)
        return step->finished ? ERR_OK
                              : comm_agree(on->run->comm, log_kinds(on->run));
    return monitor_due_now(&on->due, step) ? tell(on->run, step) : ERR_OK;
}

const struct listener_ops on_memory_ops = { LISTENER_OF(struct on_memory),
                                            .create = on_memory_create,
                                            .handle = on_memory_handle };
