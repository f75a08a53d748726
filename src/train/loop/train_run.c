/* One attempt from the run lock to the exit code: makes the run directory and
 * the parts of a run, trains, and records how it ended. The steps themselves
 * are trainer.c and trainer_step.c. */
#include "src/train/loop/train_run.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/ckpt.h"
#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/lines.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/job/exit_code.h"
#include "src/job/ledger.h"
#include "src/job/lock.h"
#include "src/job/slurm.h"
#include "src/job/stop.h"
#include "src/train/start/train_access.h"
#include "src/train/settings/secret_settings.h"
#include "src/train/start/start_changes.h"
#include "src/train/start/trainer_choices.h"
#include "src/train/loop/trainer.h"
#include "src/train/start/trainer_memory.h"

#define ROOM_S 60.0 /* that a full file system is waited for */
#define ROOM_PAUSE_S 0.5

struct run {
    struct comm *comm;
    const struct train_settings *settings;
    int rank;
    int attempt;
    struct lock *lock;
    struct trainer *trainer;
    struct rollback_cause back; /* why the trainer before this one has ended */
    double peak_flops;          /* of it, and how it was found */
    const char *peak_source;
    struct memory_plan plan;
};

/* The folders above the run directory, which are not the run's. */
static enum err make_parents(const char *dir)
{
    char parent[FSIO_PATH_MAX];
    enum err rc = fsio_path(parent, "%s", dir);
    size_t length = strlen(dir);
    if (rc != ERR_OK)
        return rc;
    while (length > 0 && dir[length - 1] == '/')
        length--;
    while (length > 0 && dir[length - 1] != '/')
        length--;
    parent[length] = '\0';
    return length > 0 ? fsio_mkdirs(parent) : ERR_OK;
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
static enum err run_open(struct run *run)
{
    const char *dir = run->settings->run.dir;
    char path[FSIO_PATH_MAX];
    TRY(make_run_dir(run->settings));
    TRY(train_access_give(run->settings));
    TRY(lock_acquire(dir, LOCK_BEAT_S, &run->lock));
    TRY(fsio_path(path, "%s/checkpoints", dir));
    TRY(fsio_mkdirs(path));
    TRY(ckpt_sweep(dir));
    return ledger_next_attempt(dir, &run->attempt);
}

static json_t *run_hosts(const struct comm *comm)
{
    json_t *hosts = json_array();
    const char *last = NULL;
    for (int r = 0; r < comm_size(comm); r++) {
        const char *host = comm_host(comm, r);
        if (last == NULL || strcmp(last, host) != 0)
            json_array_append_new(hosts, json_string(host));
        last = host;
    }
    return hosts;
}

static enum err record_start(const struct run *run)
{
    struct slurm slurm;
    slurm_read(&slurm);
    return ledger_append(
        run->settings->run.dir, "start", run->attempt,
        json_pack("{s:I, s:i, s:i, s:o, s:s}", "job", (json_int_t)slurm.job_id,
                  "restart", slurm.restart_count, "ranks", comm_size(run->comm),
                  "hosts", run_hosts(run->comm), "version", TESSERA_VERSION));
}

/* What computes, and how tensors travel: for the log and the ledger. */
static void describe(const struct trainer *t, char exchange[64],
                     struct kernel_chosen *chosen)
{
    *chosen = (struct kernel_chosen){ .products = NULL };
    replica_exchange(t->replica, exchange, 64);
    if (t->kernels->chosen != NULL)
        t->kernels->chosen(chosen);
}

/* After "start", which stands there whatever happens meanwhile. */
static enum err record_hardware(const struct run *run)
{
    const struct trainer *t = run->trainer;
    struct kernel_chosen chosen;
    char exchange[64];
    describe(t, exchange, &chosen);
    if (t->kernels->memory->device)
        log_info("%s, exchange %s%s%s", t->devices, exchange,
                 chosen.text[0] != '\0' ? ", " : "", chosen.text);
    return ledger_append(
        run->settings->run.dir, "hardware", run->attempt,
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I}", "arithmetic",
                  t->arithmetic, "kernel_set", t->kernels->kernel_set,
                  "devices", t->devices, "exchange", exchange, "algorithms",
                  chosen.text, "fallback",
                  hardware_fallback_names[t->settings.hardware.fallback],
                  "step", (json_int_t)t->step, "memory_planned",
                  (json_int_t)run->plan.total, "threads",
                  (json_int_t)t->ctx.threads));
}

static enum err record_stop(const struct run *run, int code, const char *reason)
{
    return ledger_append(
        run->settings->run.dir, "stop", run->attempt,
        json_pack("{s:I, s:i, s:o}", "step",
                  (json_int_t)(run->trainer ? run->trainer->step : -1), "code",
                  code, "reason", jsontext_string(reason)));
}

/* The log's last line: what has come of the attempt, and what to type next.
 * Without a trainer's step there is nothing to type. */
static void tell_end(const struct run *run, int code)
{
    const struct trainer *t = run->trainer;
    const struct step_record *record = &t->record;
    char loss[64] = "", eval[64] = "";
    if (record->loss_tokens > 0)
        snprintf(loss, sizeof loss, "; loss %.4f", record->loss);
    if (record->eval.step == t->step)
        snprintf(eval, sizeof eval, "; eval loss %.4f", record->eval.loss);
    if (code == EXIT_DONE)
        log_info("finished after step %lld: %s%s%s; next: tessera-generate %s, "
                 "or tessera-report %s",
                 (long long)t->step, record->why, loss, eval,
                 t->settings.run.dir, t->settings.run.dir);
    else
        log_info("ended after step %lld with code %d: %s; the same command "
                 "goes on from there",
                 (long long)t->step, code, record->why);
}

/* Why this rank leaves: for the launch script and for people. */
static void write_reason(const struct run *run, enum err code)
{
    char path[FSIO_PATH_MAX];
    char line[FSIO_PATH_MAX];
    struct err_kept kept;
    err_keep(&kept, code);
    int n =
        snprintf(line, sizeof line, "%d %s %s: %s\n", err_exit_code(code),
                 err_name(code), comm_host(run->comm, run->rank), kept.text);
    if (fsio_path(path, "%s/reasons", run->settings->run.dir) == ERR_OK &&
        fsio_mkdirs(path) == ERR_OK &&
        fsio_path(path, "%s/reasons/attempt-%04d.rank-%04d",
                  run->settings->run.dir, run->attempt, run->rank) == ERR_OK)
        (void)fsio_write_atomic(path, line, (size_t)n);
    err_again(&kept);
}

static enum err write_config(const struct run *run)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *text = NULL;
    TRY_OUT(start_changes_tell(run->trainer));
    TRY_OUT(settings_format(train_settings_schema, train_settings_count,
                            &run->trainer->settings, &text));
    TRY_OUT(fsio_path(path, "%s/config.cfg", run->settings->run.dir));
    /* commands may hold tokens: then nobody else reads it */
    if (secret_settings_any(&run->trainer->settings))
        TRY_OUT(fsio_write_private(path, text, strlen(text)));
    else
        TRY_OUT(fsio_write_atomic(path, text, strlen(text)));
out:
    free(text);
    return rc;
}

/* From here on Composer warns, too. */
#define DECAY_USUAL 1e-3

/* PyTorch's usual 0.1 would be the end of the weights. */
static void warn_of_decay(const char *where, double decay,
                          const struct optimizer_ops *optimizer)
{
    if (!optimizer->decay_by_lr && decay >= DECAY_USUAL)
        log_warn("%sweight_decay = %g: with %s weights shrink by that in every "
                 "step at the peak rate; where it is to be multiplied by lr, "
                 "as in PyTorch, use torch_adamw",
                 where, decay, optimizer->name);
}

static void warn_of_decays(const struct train_settings *s)
{
    const struct optimizer_ops *rest = optimizer_at(s->optimizer.name);
    warn_of_decay("optimizer.", s->optimizer.weight_decay, rest);
    for (int i = 0; i < s->groups.count; i++) {
        char where[64];
        const struct optimizer_ops *optimizer = s->groups.list[i].optimizer;
        double decay = s->groups.own[i].weight_decay;
        snprintf(where, sizeof where, "optimizer.groups: item %d: ", i + 1);
        if (optimizer != rest || decay != s->optimizer.weight_decay)
            warn_of_decay(where, decay, optimizer);
    }
}

static void log_plan(const struct run *run)
{
    const struct trainer *t = run->trainer;
    const struct params *frozen = t->params->frozen;
    int64_t all = t->params->numel + (frozen != NULL ? frozen->numel : 0);
    char count[32], trained[48] = "", some[32];
    char memory[32];
    units_count((double)all, count, sizeof count);
    units_count((double)t->params->numel, some, sizeof some);
    if (frozen != NULL)
        snprintf(trained, sizeof trained, " of which %s train", some);
    units_bytes((double)run->plan.total, memory, sizeof memory);
    log_info("%s parameters%s, %d ranks x %d threads, %lld slots of %lld "
             "samples, %s per rank, %s (%s)",
             count, trained, t->ranks, t->ctx.threads,
             (long long)t->settings.parallel.slots,
             (long long)(t->settings.train.global_batch /
                         t->settings.parallel.slots),
             memory, t->arithmetic, t->kernels->kernel_set);
}

/* What was planned against the largest that any rank has taken; of a device
 * what is in use, its driver's and libraries' share included. */
static enum err log_memory(const struct run *run)
{
    enum err rc = ERR_OK;
    const struct kernel_memory *memory = run->trainer->kernels->memory;
    size_t bytes = memory_peak();
    if (memory->used != NULL)
        rc = memory->used(&bytes);
    TRY(comm_agree(run->comm, rc));
    int64_t peak = (int64_t)bytes;
    TRY(comm_all_reduce_i64(run->comm, &peak, 1, COMM_MAX));
    if (run->rank == 0) {
        log_info("memory: planned %zu MiB, %s %lld MiB", run->plan.total >> 20,
                 memory->used != NULL ? "in use on the GPU" : "peak",
                 (long long)(peak >> 20));
        rc = ledger_append(
            run->settings->run.dir, "memory", run->attempt,
            json_pack("{s:I, s:I, s:b}", "planned", (json_int_t)run->plan.total,
                      "peak", (json_int_t)peak, "device", memory->device));
    }
    return comm_agree(run->comm, rc);
}

/* Rank 0, at an attempt's start and end: for lines that found no room so far
 * there is waited a little, as the other ranks do for this one. */
static enum err settle_lines(const struct run *run)
{
    enum err rc;
    double wait_s = fmin(ROOM_S, run->settings->parallel.timeout_s / 2.0);
    double end_s = clock_now() + wait_s;
    while ((rc = lines_settle()) == ERR_FULL && clock_now() < end_s &&
           stop_requested() == 0)
        clock_sleep(ROOM_PAUSE_S);
    return rc;
}

/* The run's parts, up to its state. */
static enum err start_trainer(struct run *run)
{
    struct trainer *trainer = NULL;
    TRY(trainer_create(run->comm, run->settings, run->attempt, &run->trainer));
    trainer = run->trainer;
    trainer->lock = run->lock;
    trainer->came_back = run->back;
    if (run->back.asked) {
        trainer->record.peak_flops = run->peak_flops;
        trainer->record.peak_source = run->peak_source;
    } else if (run->rank == 0) {
        warn_of_decays(run->settings);
        step_record_find_peak(trainer);
    }
    TRY(comm_agree(run->comm,
                   events_listen_table(&trainer->events, NULL, trainer)));
    TRY(trainer_start(trainer));
    return comm_agree(run->comm, trainer_memory_plan(trainer, &run->plan));
}

#define FEW_RANKS 8

/* At the first start: what the batch settles for good. */
static void tell_slots(const struct train_settings *s)
{
    int most = train_memory_ranks_max(s);
    const struct setting *slots = train_settings_setting("parallel.slots");
    int64_t batch = s->train.global_batch;
    int64_t wanted = FEW_RANKS;
    log_info("this run can have at most %d ranks, at any start: parallel.slots "
             "(%lld) stays",
             most, (long long)s->parallel.slots);
    if (most >= FEW_RANKS || s->given[slots - train_settings_schema])
        return;
    while (wanted < batch && batch % wanted != 0)
        wanted++;
    if (wanted <= batch)
        log_warn("train.global_batch = %lld gives %lld slots: if more than %d "
                 "ranks are ever to train this run, start it anew with "
                 "parallel.slots=%lld",
                 (long long)batch, (long long)s->parallel.slots, most,
                 (long long)wanted);
}

/* Rank 0: what an attempt begins with. */
static enum err tell_start(const struct run *run)
{
    const struct trainer *trainer = run->trainer;
    TRY(write_config(run));
    if (trainer->finished) {
        log_info("finished at step %lld already", (long long)trainer->step);
        return ERR_OK;
    }
    log_plan(run);
    if (run->attempt == 1)
        tell_slots(&trainer->settings);
    run_data_tell(trainer->run_data, &trainer->settings, trainer->order,
                  trainer->max_steps, trainer->eval_data);
    return ERR_OK;
}

/* A trainer that stands where the attempt began, or where it goes back to. */
static enum err run_begin(struct run *run)
{
    enum err rc = ERR_OK;
    bool tells = run->rank == 0 && !run->back.asked;
    TRY(start_trainer(run));
    if (tells)
        rc = tell_start(run);
    TRY(comm_agree(run->comm, rc));
    if (run->trainer->finished)
        return ERR_OK;
    TRY(trainer_choices_settle(run->trainer));
    if (tells)
        rc = record_hardware(run);
    TRY(comm_agree(run->comm, rc));
    return trainer_calibrate(run->trainer);
}

/* The trainer's end, where the run goes back: a save in flight is awaited and
 * may be what the next one begins with. */
static enum err go_back(struct run *run)
{
    run->back = run->trainer->back;
    run->peak_flops = run->trainer->record.peak_flops;
    run->peak_source = run->trainer->record.peak_source;
    if (!trainer_destroy(run->trainer))
        return err_set(ERR_COMM,
                       "the run cannot go back from step %lld: a "
                       "save of this rank does not end",
                       (long long)run->back.from);
    run->trainer = NULL;
    return ERR_OK;
}

static enum err run_train(struct run *run, int *exit_code)
{
    enum err rc = ERR_OK;
    TRY_OUT(run_begin(run));
    TRY_OUT(trainer_fit(run->trainer));
    while (run->trainer->back.asked) {
        TRY_OUT(go_back(run));
        TRY_OUT(run_begin(run));
        TRY_OUT(trainer_fit(run->trainer));
    }
    TRY_OUT(log_memory(run));
    *exit_code = run->trainer->finished && !run->trainer->incomplete
                     ? EXIT_DONE
                     : EXIT_REQUEUE;
    if (run->trainer->incomplete)
        snprintf(run->trainer->record.why, sizeof run->trainer->record.why,
                 "%s stopped it before its last evaluation was done",
                 stop_text(stop_requested()));
out:
    if (rc != ERR_OK && run->trainer != NULL)
        rc = trainer_roll_call(run->trainer, rc);
    return rc;
}

/* A save in flight is awaited, with the other ranks. Where they are not
 * together, or its thread hangs (false), the process ends by comm_abort(), and
 * what the thread still reads stays until then. */
static bool run_close(struct run *run, bool together)
{
    if (together && !trainer_destroy(run->trainer))
        return false;
    if (!together && run->trainer != NULL)
        (void)events_leave(&run->trainer->events, false);
    lock_release(run->lock);
    return together;
}

static bool is_adrift(const struct run *run)
{
    return run->trainer != NULL && run->trainer->adrift;
}

enum err train_run(struct comm *comm, const struct train_settings *settings,
                   int *exit_code, bool *adrift)
{
    enum err rc = ERR_OK;
    int64_t attempt = 0;
    struct run run = {
        .comm = comm,
        .settings = settings,
        .rank = comm_rank(comm),
    };
    if (run.rank == 0)
        rc = run_open(&run);
    else
        train_access_mask(settings);
    TRY_OUT(comm_agree(comm, rc));
    attempt = run.attempt;
    TRY_OUT(comm_all_reduce_i64(comm, &attempt, 1, COMM_MAX));
    run.attempt = (int)attempt;
    lines_keep();
    if (run.rank == 0)
        rc = record_start(&run);
    if (run.rank == 0 && rc == ERR_OK)
        rc = settle_lines(&run);
    TRY_OUT(comm_agree(comm, rc));
    stop_watch_run(run.rank == 0 ? settings->run.dir : NULL, run.attempt);
    rc = run_train(&run, exit_code);
    if (rc != ERR_OK)
        write_reason(&run, rc);
    stop_watch_run(NULL, 0);
    if (run.rank == 0) {
        struct err_kept kept;
        err_keep(&kept, rc);
        int code = rc == ERR_OK ? *exit_code : err_exit_code(rc);
        enum err recorded = record_stop(
            &run, code, rc != ERR_OK ? kept.text : run.trainer->record.why);
        if (recorded == ERR_OK)
            recorded = rc == ERR_OK ? settle_lines(&run) : lines_settle();
        if (rc == ERR_OK) {
            rc = recorded;
            tell_end(&run, code);
        } else
            err_again(&kept);
    }
    if (rc != ERR_COMM && !is_adrift(&run))
        rc = comm_agree(comm, rc);
out:
    *adrift = rc == ERR_COMM || is_adrift(&run);
    *adrift = !run_close(&run, !*adrift);
    return rc;
}
