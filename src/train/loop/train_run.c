/* One attempt from the run lock to the exit code: makes the run directory and
 * the parts of a run, trains, and records how it ended. The steps themselves
 * are trainer.c and trainer_step.c.
 *
 * A run that goes back ends its trainer and makes another one, within the same
 * attempt: with the lock held and the ranks together, but everything that a step
 * has touched made anew, as a restart of the process would. What follows a failure
 * depends on whether the ranks are still together. If they are, all have the same
 * code and leave in order; if one has left the others amid a computation, nothing
 * collective may follow, and comm_abort() ends the process. */

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/files/ckpt_index.h"
#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/lines.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/base/timeline.h"
#include "src/base/exit_code.h"
#include "src/job/ledger.h"
#include "src/job/lock.h"
#include "src/job/slurm.h"
#include "src/job/stop.h"
#include "src/train/start/start.h"
#include "src/train/loop/train_run_tell.h"
#include "src/train/loop/train_stages.h"
#include "src/train/loop/trainer.h"
#include "src/train/start/run_data.h"

#define ROOM_S 60.0 /* that a full file system is waited for */
#define ROOM_PAUSE_S 0.5

struct attempt {
    struct comm *comm;
    const struct train_settings *settings;
    int rank;
    int number;
    struct lock *lock;
    struct run *run;
    struct train_stages *stages; /* of the start; NULL: it is over */
    struct rollback_cause back;  /* why the trainer before this one has ended */
    double peak_flops;           /* of it, and how it was found */
    const char *peak_source;
    struct memory_plan plan;
};

/* The folders above the run directory, which are not the run's. */
static enum err make_parents(const char *dir)
{
    char path[FSIO_PATH_MAX], parent[FSIO_PATH_MAX];
    size_t length = strlen(dir);
    while (length > 1 && dir[length - 1] == '/')
        length--;
    TRY(fsio_path(path, "%.*s", (int)length, dir));
    TRY(fsio_parent(path, parent));
    return fsio_mkdirs(parent);
}

/* A path that can never become a folder is a matter of the configuration; other
 * failures may pass. Only what is the run's has its permissions. */
static enum err make_run_dir(const struct train_settings *settings)
{
    struct stat status;
    const char *dir = settings->run.dir;
    enum err rc = make_parents(dir);
    train_access_mask(settings);
    if (rc == ERR_OK)
        rc = fsio_mkdirs(dir);
    if (rc != ERR_IO && rc != ERR_FULL && rc != ERR_SPACE)
        return rc;
    bool found = stat(dir, &status) == 0;
    if (found ? !S_ISDIR(status.st_mode)
              : errno == ENOTDIR || errno == ENAMETOOLONG || errno == ELOOP)
        return err_prefix(ERR_USAGE, "run.dir cannot be this folder");
    return rc;
}

/* Rank 0 owns the run directory. */
static enum err attempt_open(struct attempt *try)
{
    const char *dir = try->settings->run.dir;
    char path[FSIO_PATH_MAX];
    TRY(make_run_dir(try->settings));
    TRY(train_access_give(try->settings));
    TRY(lock_acquire(dir, LOCK_BEAT_S, &try->lock));
    TRY(fsio_path(path, "%s/checkpoints", dir));
    TRY(fsio_mkdirs(path));
    TRY(ckpt_index_sweep(dir));
    return ledger_next_attempt(dir, &try->number);
}

static json_t *run_nodes(const struct comm *comm, bool names)
{
    json_t *list = json_array();
    int first = 0;
    for (int r = 0; r < comm_size(comm); r++) {
        if (r + 1 < comm_size(comm) && comm_same_host(comm, r, r + 1))
            continue;
        json_array_append_new(list, names ? json_string(comm_host(comm, r))
                                          : json_integer(r + 1 - first));
        first = r + 1;
    }
    return list;
}

static enum err record_start(const struct attempt *try)
{
    struct slurm slurm;
    slurm_read(&slurm);
    return ledger_append(
        try->settings->run.dir, "start", try->number,
        json_pack("{s:I, s:i, s:i, s:o, s:o, s:s}", "job",
                  (json_int_t)slurm.job_id, "restart", slurm.restart_count,
                  "ranks", comm_size(try->comm), "hosts",
                  run_nodes(try->comm, true), "node_ranks",
                  run_nodes(try->comm, false), "version", TESSERA_VERSION));
}

/* What computes, and how tensors travel. After "start", which stands there
 * whatever happens meanwhile. */
static enum err record_hardware(struct attempt *try)
{
    json_t *start_s = train_stages_end(try->stages);
    try->stages = NULL;
    const struct run *t = try->run;
    struct kernel_chosen chosen = { .products = NULL };
    char exchange[64], why[512];
    replica_exchange(t->engine.replica, exchange, sizeof exchange);
    replica_exchange_why(t->engine.replica, why, sizeof why);
    if (t->engine.kernels->chosen != NULL)
        t->engine.kernels->chosen(&chosen);
    if (t->engine.kernels->memory->device)
        log_info("%s, exchange %s%s%s", t->engine.devices, exchange,
                 chosen.text[0] != '\0' ? ", " : "", chosen.text);
    return ledger_append(
        try->settings->run.dir, "hardware", try->number,
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:s*, s:o*}",
                  "arithmetic", t->engine.arithmetic, "kernel_set",
                  t->engine.kernels->kernel_set, "devices", t->engine.devices,
                  "exchange", exchange, "algorithms", chosen.text, "fallback",
                  hardware_fallback_names[t->settings.hardware.fallback],
                  "step", (json_int_t)t->position.step, "memory_planned",
                  (json_int_t)try->plan.total, "threads",
                  (json_int_t)t->engine.ctx.threads, "exchange_why",
                  why[0] != '\0' ? why : NULL, "start_s", start_s));
}

static enum err record_stop(const struct attempt *try, int code, bool apart,
                            const char *reason)
{
    return ledger_append(
        try->settings->run.dir, "stop", try->number,
        json_pack("{s:I, s:i, s:o, s:b}", "step",
                  (json_int_t)(try->run ? try->run->position.step : -1), "code",
                  code, "reason", jsontext_string(reason), "apart", apart));
}

/* The log's last line: what has come of the attempt, and what to type next.
 * Without a trainer's step there is nothing to type. */
static void tell_end(const struct attempt *try, int code)
{
    const struct run *t = try->run;
    const struct step_record *record = &t->now.record;
    char loss[64] = "", eval[64] = "";
    if (record->loss_tokens > 0)
        snprintf(loss, sizeof loss, "; loss %.4f", record->loss);
    if (record->eval.step == t->position.step)
        snprintf(eval, sizeof eval, "; eval loss %.4f", record->eval.loss);
    if (code == EXIT_DONE)
        log_info("finished after step %lld: %s%s%s; next: tessera-generate %s, "
                 "or tessera-report %s",
                 (long long)t->position.step, record->why, loss, eval,
                 t->settings.run.dir, t->settings.run.dir);
    else
        log_info("ended after step %lld with code %d: %s; the same command "
                 "goes on from there",
                 (long long)t->position.step, code, record->why);
}

/* Why this rank leaves: for the launch script and for people. */
static void write_reason(void *arg, enum err code)
{
    const struct attempt *try = arg;
    char path[FSIO_PATH_MAX], line[FSIO_PATH_MAX];
    struct err_kept kept;
    err_keep(&kept, code);
    int n =
        snprintf(line, sizeof line, "%d %s %s: %s\n", err_exit_code(code),
                 err_name(code), comm_host(try->comm, try->rank), kept.text);
    if (fsio_path(path, "%s/reasons", try->settings->run.dir) == ERR_OK &&
        fsio_mkdirs(path) == ERR_OK &&
        fsio_path(path, "%s/reasons/attempt-%04d.rank-%04d",
                  try->settings->run.dir, try->number, try->rank) == ERR_OK)
        (void)fsio_write_atomic(path, line, (size_t)n);
    err_again(&kept);
}

static enum err write_config(const struct attempt *try)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *text = NULL;
    TRY_OUT(start_changes_tell(try->run));
    TRY_OUT(settings_format(train_settings_schema, train_settings_count,
                            &try->run->settings, &text));
    TRY_OUT(fsio_path(path, "%s/config.cfg", try->settings->run.dir));
    /* commands may hold tokens: then nobody else reads it */
    if (train_settings_any_secret(&try->run->settings))
        TRY_OUT(fsio_write_private(path, text, strlen(text)));
    else
        TRY_OUT(fsio_write_atomic(path, text, strlen(text)));
out:
    free(text);
    return rc;
}

static void log_plan(const struct attempt *try)
{
    const struct run *t = try->run;
    const struct params *frozen = t->engine.params->frozen;
    int64_t all =
        t->engine.params->numel + (frozen != NULL ? frozen->numel : 0);
    char count[32], trained[48] = "", some[32];
    char memory[32];
    units_count((double)all, count, sizeof count);
    units_count((double)t->engine.params->numel, some, sizeof some);
    if (frozen != NULL)
        snprintf(trained, sizeof trained, " of which %s train", some);
    units_bytes((double)try->plan.total, memory, sizeof memory);
    log_info("%s parameters%s, %d ranks x %d threads, %lld slots of %lld "
             "samples, %s per rank, %s (%s)",
             count, trained, t->ranks, t->engine.ctx.threads,
             (long long)t->settings.parallel.slots,
             (long long)(t->settings.train.global_batch /
                         t->settings.parallel.slots),
             memory, t->engine.arithmetic, t->engine.kernels->kernel_set);
}

/* What was planned against the largest that any rank has taken; of a device
 * what is in use, its driver's and libraries' share included. */
static enum err log_memory(const struct attempt *try)
{
    enum err rc = ERR_OK;
    const struct kernel_memory *memory = try->run->engine.kernels->memory;
    size_t bytes = memory_peak();
    if (memory->used != NULL)
        rc = memory->used(&bytes);
    TRY(comm_agree(try->comm, rc));
    int64_t peak = (int64_t)bytes;
    TRY(comm_all_reduce_i64(try->comm, &peak, 1, COMM_MAX));
    if (try->rank == 0) {
        log_info("memory: planned %zu MiB, %s %lld MiB", try->plan.total >> 20,
                 memory->used != NULL ? "in use on the GPU" : "peak",
                 (long long)(peak >> 20));
        rc = ledger_append(
            try->settings->run.dir, "memory", try->number,
            json_pack("{s:I, s:I, s:b}", "planned", (json_int_t)try->plan.total,
                      "peak", (json_int_t)peak, "device", memory->device));
    }
    return comm_agree(try->comm, rc);
}

/* Rank 0, at an attempt's start and end: for lines that found no room so far
 * there is waited a little, as the other ranks do for this one. */
static enum err settle_lines(const struct attempt *try)
{
    enum err rc;
    double wait_s = fmin(ROOM_S, try->settings->parallel.timeout_s / 2.0);
    double end_s = clock_now() + wait_s;
    while ((rc = lines_settle()) == ERR_FULL && clock_now() < end_s &&
           stop_requested() == 0)
        clock_sleep(ROOM_PAUSE_S);
    return rc;
}

/* The run's parts, up to its state. */
static enum err start_trainer(struct attempt *try)
{
    struct run *run = NULL;
    train_stages_next(try->stages, "data");
    TRY(trainer_create(try->comm, try->settings, try->number, &try->run));
    run = try->run;
    run->lock = try->lock;
    run->position.came_back = try->back;
    if (try->back.asked) {
        run->now.record.peak_flops = try->peak_flops;
        run->now.record.peak_source = try->peak_source;
    } else if (try->rank == 0) {
        train_run_tell_decay(try->settings);
        train_stages_next(try->stages, "speed");
        trainer_record_find_peak(run);
    }
    train_stages_next(try->stages, "listeners");
    TRY(comm_agree(try->comm, events_listen_table(&run->events, NULL, run)));
    train_stages_next(try->stages, "weights");
    TRY(trainer_start(run));
    return comm_agree(try->comm, trainer_memory_plan(run, &try->plan));
}

/* Rank 0: what an attempt begins with. */
static enum err tell_start(const struct attempt *try)
{
    const struct run *run = try->run;
    TRY(write_config(try));
    if (run->now.finished) {
        log_info("finished at step %lld already",
                 (long long)run->position.step);
        return ERR_OK;
    }
    log_plan(try);
    if (try->number == 1)
        train_run_tell_slots(&run->settings);
    run_data_tell(run->inputs.sets, &run->settings, run->inputs.order,
                  run->plan.max_steps, run->inputs.eval_data);
    return ERR_OK;
}

/* A trainer that stands where the attempt began, or where it goes back to. */
static enum err attempt_begin(struct attempt *try)
{
    enum err rc = ERR_OK;
    bool tells = try->rank == 0 && !try->back.asked;
    assert(try->run == NULL);
    TRY(start_trainer(try));
    if (tells)
        rc = tell_start(try);
    TRY(comm_agree(try->comm, rc));
    train_stages_next(try->stages, try->run->now.finished ? NULL : "kernels");
    if (try->run->now.finished) {
        try->stages = NULL;
        return ERR_OK;
    }
    TRY(trainer_choices_settle(try->run));
    if (tells)
        rc = record_hardware(try);
    TRY(comm_agree(try->comm, rc));
    return trainer_calibrate(try->run);
}

/* The trainer's end, where the run goes back: a save in flight is awaited and
 * may be what the next one begins with. */
static enum err go_back(struct attempt *try)
{
    assert(try->run->now.back.asked && !try->run->now.finished);
    timeline_unmark(0);
    try->back = try->run->now.back;
    try->peak_flops = try->run->now.record.peak_flops;
    try->peak_source = try->run->now.record.peak_source;
    if (!trainer_destroy(try->run))
        return err_set(ERR_COMM,
                       "the run cannot go back from step %lld: a "
                       "save of this rank does not end",
                       (long long)try->back.from);
    try->run = NULL;
    return ERR_OK;
}

static enum err attempt_train(struct attempt *try, int *exit_code)
{
    enum err rc = ERR_OK;
    do {
        if (try->run != NULL)
            TRY_OUT(go_back(try));
        TRY_OUT(attempt_begin(try));
        TRY_OUT(trainer_fit(try->run));
    } while (try->run->now.back.asked);
    TRY_OUT(log_memory(try));
    *exit_code = try->run->now.finished && !try->run->now.incomplete
                     ? EXIT_DONE
                     : EXIT_REQUEUE;
    if (try->run->now.incomplete)
        snprintf(try->run->now.record.why, sizeof try->run->now.record.why,
                 "%s stopped it before its last evaluation was done",
                 stop_text(stop_requested()));
out:
    if (rc != ERR_OK && try->run != NULL)
        rc = trainer_roll_call(try->run, rc);
    return rc;
}

/* A save in flight is awaited, with the other ranks. Where they are not
 * together, or its thread hangs (false), the process ends by comm_abort(), and
 * what the thread still reads stays until then. */
static bool attempt_close(struct attempt *try, bool together)
{
    if (together && !trainer_destroy(try->run))
        return false;
    if (!together && try->run != NULL)
        (void)events_leave(&try->run->events, false);
    lock_release(try->lock);
    return together;
}

static bool is_adrift(const struct attempt *try)
{
    return try->run != NULL && try->run->engine.adrift;
}

enum err train_run(struct comm *comm, const struct train_settings *settings,
                   struct train_stages *stages, int *exit_code, bool *adrift)
{
    enum err rc = ERR_OK;
    int64_t number = 0;
    struct attempt try = {
        .comm = comm,
        .settings = settings,
        .stages = stages,
        .rank = comm_rank(comm),
    };
    train_stages_next(stages, "run directory");
    if (try.rank == 0)
        rc = attempt_open(&try);
    else
        train_access_mask(settings);
    TRY_OUT(comm_agree(comm, rc));
    number = try.number;
    TRY_OUT(comm_all_reduce_i64(comm, &number, 1, COMM_MAX));
    try.number = (int)number;
    lines_keep();
    if (try.rank == 0)
        rc = record_start(&try);
    if (try.rank == 0 && rc == ERR_OK)
        rc = settle_lines(&try);
    TRY_OUT(comm_agree(comm, rc));
    stop_watch_run(try.rank == 0 ? settings->run.dir : NULL, try.number);
    comm_on_leave(comm, write_reason, &try);
    rc = attempt_train(&try, exit_code);
    if (rc != ERR_OK)
        write_reason(&try, rc);
    stop_watch_run(NULL, 0);
    if (try.rank == 0) {
        struct err_kept kept;
        err_keep(&kept, rc);
        int code = rc == ERR_OK ? *exit_code : err_exit_code(rc);
        enum err recorded =
            record_stop(&try, code, rc == ERR_COMM || is_adrift(&try),
                        rc != ERR_OK ? kept.text : try.run->now.record.why);
        if (recorded == ERR_OK)
            recorded = rc == ERR_OK ? settle_lines(&try) : lines_settle();
        if (rc == ERR_OK) {
            rc = recorded;
            tell_end(&try, code);
        } else
            err_again(&kept);
    }
    if (rc != ERR_COMM && !is_adrift(&try))
        rc = comm_agree(comm, rc);
out:
    comm_on_leave(comm, NULL, NULL);
    *adrift = rc == ERR_COMM || is_adrift(&try);
    *adrift = !attempt_close(&try, !*adrift);
    return rc;
}
