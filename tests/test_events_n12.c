/* The events of short runs in their order, the record that listeners read, what
 * they may ask for, and failures that one rank has alone. */

#include "src/job/lock.h"
#include "src/train/loop/trainer.h"
#include "tests/trainer_world.h"

#define SAMPLES 8
#define BATCH 4 /* two steps are an epoch */
#define SEQ_LEN 16
#define STEPS 3
#define NEVER (-1)

/* A listener of everything that notes what it hears and does what a test has
 * told it to. */
static struct notes {
    char events[2048];
    char last[32];
    double losses[STEPS + 1];
    bool records; /* so far each was right */
    int64_t stored;
    /* what to do, on which rank, in which event, after how many steps */
    int rank;
    enum event event;
    int64_t step;
    enum err fails;
    enum ask ask;
    int64_t asks;
    int called_after; /* after it had failed */
    bool failed;
} notes;

static bool repeats(const char *name)
{
    return (strcmp(name, "before_dataloader") == 0 &&
            strcmp(notes.last, "after_dataloader") == 0) ||
           (strcmp(name, "after_dataloader") == 0 &&
            strcmp(notes.last, "again") == 0) ||
           (strcmp(name, "eval_batch_start") == 0 &&
            strcmp(notes.last, "eval_batch_end") == 0) ||
           (strcmp(name, "eval_batch_end") == 0 &&
            strcmp(notes.last, "eval again") == 0);
}

/* Batches that follow each other directly count once: ranks have different
 * numbers of them. */
static void note(const char *name)
{
    const char *last = name;
    size_t length = strlen(notes.events);
    if (!repeats(name))
        snprintf(notes.events + length, sizeof notes.events - length, " %s",
                 name);
    else if (strcmp(name, "before_dataloader") == 0)
        last = "again";
    else if (strcmp(name, "eval_batch_start") == 0)
        last = "eval again";
    snprintf(notes.last, sizeof notes.last, "%s", last);
}

static bool whole_record(const struct step_record *step)
{
    bool right =
        step->samples == step->step * BATCH &&
        step->tokens == step->samples * SEQ_LEN && step->loss_tokens > 0 &&
        isfinite(step->loss) && step->grad_norm > 0.0 && step->step_s > 0.0 &&
        step->loader_s >= 0.0 && step->attempt == 1 &&
        step->max_steps == STEPS && step->finished == (step->step == STEPS) &&
        step->tokens_per_s == BATCH * SEQ_LEN / step->step_s;
    for (int r = 0; r < step->ranks; r++) {
        right = right && step->of_rank[r].step_s > 0.0 &&
                step->of_rank[r].failed == ERR_OK;
    }
    return right && step->of_rank[step->rank].step_s == step->step_s &&
           step->of_rank[step->rank].loader_s == step->loader_s;
}

static enum err notes_handle(void *self, enum event event,
                             const struct step_record *step, struct asks *asks)
{
    (void)self;
    note(events_name(event));
    notes.called_after += notes.failed;
    if (event == EVENT_AFTER_TRAIN_BATCH && step->step < STEPS)
        notes.losses[step->step] = step->loss;
    if (event == EVENT_AFTER_TRAIN_BATCH)
        tracking_list_add(step->scalars, "notes/loss", step->loss + 1000);
    if (event == EVENT_BATCH_END)
        notes.records = notes.records && whole_record(step);
    if (event == EVENT_EVAL_END)
        notes.records = notes.records && step->eval.step == step->step &&
                        step->eval.loss > 0.0 && step->eval.tokens > 0;
    if (step->rank != notes.rank || event != notes.event ||
        step->step != notes.step)
        return ERR_OK;
    events_ask(asks, notes.ask, notes.asks);
    notes.failed = notes.fails != ERR_OK;
    return notes.failed ? err_set(notes.fails, "as told") : ERR_OK;
}

static enum err notes_store(const void *self, json_t *state)
{
    (void)self;
    json_object_set_new(state, "notes", json_integer(17));
    return ERR_OK;
}

static enum err notes_restore(void *self, const json_t *state)
{
    (void)self;
    notes.stored = json_integer_value(json_object_get(state, "notes"));
    return ERR_OK;
}

static const struct listener_ops notes_ops = { .handle = notes_handle,
                                               .store = notes_store,
                                               .restore = notes_restore };
static const struct listener listens_to_all = { "notes", LISTEN_EACH_RANK,
                                                EVENT_BIT(EVENT_COUNT) - 1,
                                                &notes_ops, NULL };

/* Nobody but notes is told anything. */
static void forget(void)
{
    notes = (struct notes){ .records = true, .rank = NEVER };
}

/* Set: ranks up to this one ask to leave out each update. */
static int leave_out_to = NEVER;

static enum err leave_out(void *self, enum event event,
                          const struct step_record *step, struct asks *asks)
{
    (void)self;
    (void)event;
    events_ask(asks, ASK_SKIP, step->rank <= leave_out_to);
    return ERR_OK;
}

static const struct listener_ops leave_out_ops = { .handle = leave_out };
static const struct listener leaves_out = { "skip", LISTEN_TOGETHER,
                                            EVENT_BIT(EVENT_AFTER_TRAIN_BATCH),
                                            &leave_out_ops, NULL };

static struct lock *run_lock; /* rank 0's; NULL: none */

/* A run of all listeners and those two, in a folder of this name. */
static enum err run_all(struct world *world, const char *name, const char *more,
                        struct run **out)
{
    enum err rc = ERR_OK;
    struct train_settings *settings = calloc(1, sizeof *settings);
    *out = NULL;
    TRY_OUT(run_settings(
        settings,
        "run.dir=%s/%s data.train=%s/data data.eval=%s/data %s "
        "hardware.backend=cpu hardware.threads=1 train.max_duration=3ba "
        "train.global_batch=4 train.microbatch=1 parallel.slots=4 "
        "data.seq_len=16 eval.interval=2ba checkpoint.interval=2ba "
        "model.d_model=32 model.n_heads=2 model.n_layers=1",
        world->folder, name, world->folder, world->folder, more));
    TRY_OUT(fsio_mkdirs(settings->run.dir));
    TRY_OUT(trainer_create(world->comm, settings, 1, out));
    (*out)->lock = run_lock;
    TRY_OUT(comm_agree(world->comm,
                       events_listen_table(&(*out)->events, NULL, *out)));
    TRY_OUT(events_listen(&(*out)->events, &leaves_out, *out));
    TRY_OUT(events_listen(&(*out)->events, &listens_to_all, *out));
    TRY_OUT(trainer_start(*out));
    TRY_OUT(trainer_fit(*out));
out:
    free(settings);
    return rc;
}

static void test_order(struct world *world)
{
    struct run *run;
    forget();
    enum err rc = run_all(world, "order", "log.interval=1", &run);
#define STEP                                                                   \
    " batch_start before_train_batch before_dataloader after_dataloader"       \
    " after_train_batch batch_ask"
#define EVALUATION " eval_start eval_batch_start eval_batch_end eval_end"
    /* notes hears of batch_end and fit_end after the evaluation has */
    const char *wanted =
        " init before_load after_load fit_start batch_ask"
        " epoch_start" STEP " batch_end batch_checkpoint" STEP EVALUATION
        " batch_end batch_checkpoint epoch_end epoch_checkpoint"
        " epoch_start" STEP " batch_end batch_checkpoint" EVALUATION " fit_end";
    if (strcmp(notes.events, wanted) != 0)
        tap_note("%s", notes.events);
    everywhere(world, rc == ERR_OK && strcmp(notes.events, wanted) == 0,
               "the events of a run come in their order");
    everywhere(world, notes.records, "each record is whole");
    everywhere(world, run->now.finished && !run->now.incomplete,
               "the run is complete");
    trainer_destroy(run);
}

/* One rank fails by itself in this event: all end with its error. */
static void test_failure(struct world *world, const char *name,
                         enum event event, int64_t step, int64_t ends_at)
{
    struct run *run;
    char text[64], folder[64];
    forget();
    notes.rank = world->ranks - 1;
    notes.event = event;
    notes.step = step;
    notes.fails = ERR_SPACE;
    snprintf(folder, sizeof folder, "fails-%s-%lld", name, (long long)step);
    enum err rc = run_all(world, folder, "eval.samples=2", &run);
    bool mine = world->rank == notes.rank;
    snprintf(text, sizeof text, mine ? "notes: as told" : "rank %d (",
             notes.rank);
    everywhere(world,
               rc == ERR_SPACE &&
                   strncmp(err_text(), text, strlen(text)) == 0 &&
                   strstr(err_text(), "notes: as told") != NULL,
               "a failure of one rank's listener ends all");
    everywhere(world, run->position.step == ends_at && notes.called_after == 0,
               "at the next exchange, and it is not called again");
    trainer_destroy(run);
}

static void test_stop(struct world *world)
{
    struct run *run;
    forget();
    notes.rank = world->ranks - 1;
    notes.event = EVENT_BATCH_START;
    notes.step = 1;
    notes.ask = ASK_STOP;
    notes.asks = 12;
    enum err rc = run_all(world, "stop", "eval.samples=2", &run);
    everywhere(world,
               rc == ERR_OK && run->position.step == 2 && !run->now.finished &&
                   run->now.stop_signal == 12,
               "what one rank asks for, all do");
    trainer_destroy(run);
    forget();
    rc = run_all(world, "stop", "eval.samples=2", &run);
    everywhere(world,
               rc == ERR_OK && run->position.step == STEPS && run->now.finished,
               "the next attempt goes on");
    everywhere(world, notes.stored == 17, "with what its listeners had stored");
    trainer_destroy(run);
}

/* The file of rank 0's lock has gone. */
static void test_lost(struct world *world)
{
    struct run *run;
    char dir[FSIO_PATH_MAX + 8], path[FSIO_PATH_MAX + 16];
    forget();
    snprintf(dir, sizeof dir, "%s/lost", world->folder);
    snprintf(path, sizeof path, "%s/.lock", dir);
    bool ready = world->rank != 0 ||
                 (fsio_mkdirs(dir) == ERR_OK &&
                  lock_acquire(dir, LOCK_BEAT_S, &run_lock) == ERR_OK &&
                  unlink(path) == 0 && lock_check(run_lock) == ERR_BUSY);
    enum err rc = run_all(world, "lost", "eval.samples=2", &run);
    everywhere(world,
               ready && rc == ERR_BUSY && run->position.step == 0 &&
                   strstr(err_text(), "another process has taken") != NULL,
               "a lock that rank 0 has lost ends all before a step");
    trainer_destroy(run);
    lock_release(run_lock);
    run_lock = NULL;
}

static void test_skip(struct world *world)
{
    struct run *run;
    double trained[STEPS], still[STEPS], left_out[STEPS];
    forget();
    enum err rc = run_all(world, "trained", "eval.samples=2", &run);
    memcpy(trained, notes.losses, sizeof trained);
    trainer_destroy(run);
    forget();
    if (rc == ERR_OK)
        rc = run_all(world, "still", "optimizer.lr=0", &run);
    memcpy(still, notes.losses, sizeof still);
    trainer_destroy(run);
    forget();
    leave_out_to = world->ranks - 1;
    if (rc == ERR_OK)
        rc = run_all(world, "left-out", "eval.samples=2", &run);
    memcpy(left_out, notes.losses, sizeof left_out);
    everywhere(world,
               rc == ERR_OK && run->now.record.skipped &&
                   memcmp(left_out, still, sizeof still) == 0 &&
                   memcmp(trained, still, sizeof still) != 0,
               "an update that is left out leaves the weights");
    trainer_destroy(run);
    leave_out_to = 0;
    rc = run_all(world, "torn", "eval.samples=2", &run);
    bool torn = world->ranks > 1;
    everywhere(world,
               rc == (torn ? ERR_INTERNAL : ERR_OK) &&
                   run->position.step == (torn ? 1 : STEPS),
               "left out by some ranks only, it ends the run");
    trainer_destroy(run);
    leave_out_to = NEVER;
}

static bool has_text(struct world *world, const char *name, const char *text)
{
    char path[FSIO_PATH_MAX + 32];
    char *data = NULL;
    size_t bytes;
    snprintf(path, sizeof path, "%s/tracked/%s", world->folder, name);
    bool has = fsio_read_file(path, 1 << 20, &data, &bytes) == ERR_OK &&
               strstr(data, text) != NULL;
    free(data);
    return has;
}

/* A listener has measured something: nobody else has to know. */
static void test_scalars(struct world *world)
{
    struct run *run;
    forget();
    char prometheus[FSIO_PATH_MAX + 64];
    snprintf(prometheus, sizeof prometheus,
             "tracking.prometheus=%s/tracked/run.prom", world->folder);
    enum err rc = run_all(world, "tracked", prometheus, &run);
    trainer_destroy(run);
    everywhere(world,
               rc == ERR_OK &&
                   (world->rank != 0 ||
                    has_text(world, "metrics.jsonl", ", \"notes/loss\": 100")),
               "what a listener adds to a step is in metrics.jsonl");
    everywhere(world,
               world->rank != 0 ||
                   (has_text(world, "run.prom", "tessera_notes_loss{") &&
                    has_text(world, "run.prom", "tessera_eval_loss{")),
               "and in a tracker's file, with each step's evaluation");
}

static void run_tests(struct world *world)
{
    test_order(world);
    test_scalars(world);
    test_failure(world, "init", EVENT_INIT, 0, 0);
    test_failure(world, "batch-start", EVENT_BATCH_START, 0, 1);
    test_failure(world, "dataloader", EVENT_AFTER_DATALOADER, 1, 2);
    test_failure(world, "batch-end", EVENT_BATCH_END, 1, 2);
    test_failure(world, "last", EVENT_BATCH_CHECKPOINT, STEPS, STEPS);
    test_failure(world, "fit-end", EVENT_FIT_END, STEPS, STEPS);
    test_stop(world);
    test_lost(world);
    test_skip(world);
}

int main(int argc, char **argv)
{
    return world_main(argc, argv, SAMPLES, SEQ_LEN, run_tests);
}
