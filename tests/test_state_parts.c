/* The parts of a checkpoint's state, row by row: what a run stores it stores
 * again after it was restored into a new trainer; a state without the row's
 * keys is refused or begins anew, as the row says; no key is two rows'. */
#include "src/train/loop/trainer.h"
#include "src/train/state/state_parts.h"
#include "tests/trainer_world.h"

#define SAMPLES 32
#define SEQ_LEN 16
#define OPERANDS 3 /* whose scales are kept; no step uses them here */

static json_t *arithmetics;

static struct run *open_run(struct world *world)
{
    struct train_settings *settings = calloc(1, sizeof *settings);
    struct run *run = NULL;
    enum err rc = run_settings(
        settings,
        "run.dir=%s/run data.train=%s/data data.eval=%s/data "
        "hardware.backend=cpu hardware.threads=1 train.max_duration=9ba "
        "train.global_batch=4 train.microbatch=1 model.freeze=*.blocks.0.* "
        "train.on_spike=skip data.seq_len=16 model.d_model=32 "
        "model.n_heads=2 model.n_layers=2 "
        "optimizer.groups=({match=\"*blocks.1.*\";lr=0.5;}) "
        "algorithms=({name=\"ema\";half_life=\"4ba\";},"
        "{name=\"gradient_noise\";}) "
        "finish=({name=\"early_stop\";metric=\"train/loss\";"
        "patience=\"5ba\";})",
        world->folder, world->folder, world->folder);
    if (rc == ERR_OK)
        rc = fsio_mkdirs(settings->run.dir);
    if (rc == ERR_OK)
        rc = trainer_create(world->comm, settings, 2, &run);
    if (rc == ERR_OK)
        rc = events_listen_table(&run->events, "finish", run);
    if (rc == ERR_OK)
        rc = events_listen_table(&run->events, "spike", run);
    if (rc == ERR_OK)
        rc = trainer_start(run);
    if (rc == ERR_OK)
        rc = trainer_fp8_create(&kernel_memory_cpu, OPERANDS, &run->engine.fp8);
    if (rc != ERR_OK)
        tap_note("%s", err_text());
    free(settings);
    return rc == ERR_OK ? run : NULL;
}

/* A run of one step, of which every row has something to tell. */
static struct run *run_with_all(struct world *world)
{
    struct run *run = open_run(world);
    struct rollback back = { .from = 1, .to = 0, .first = 0, .batches = 1 };
    int count = 0;
    struct trainer_fp8 *fp8 = run != NULL ? run->engine.fp8 : NULL;
    if (run == NULL)
        return NULL;
    run->engine.fp8 = NULL;
    enum err rc = trainer_step(run);
    run->engine.fp8 = fp8;
    for (int i = 0; i < OPERANDS; i++)
        trainer_fp8_found(fp8)[i] = 3.0f;
    if (rc != ERR_OK || trainer_fp8_learn(fp8, world->comm) != ERR_OK)
        return run;
    replica_items(run->engine.replica, &count);
    for (int i = 0; i < count; i++)
        replica_set_began(run->engine.replica, i, i % 2);
    snprintf(run->uuid, sizeof run->uuid,
             "01234567-89ab-4def-8123-456789abcdef");
    run->position.elapsed_s = 3.25;
    run->position.lr0 = 0.125;
    run->position.groups_lr0[0] = 0.75;
    run->engine.choices = strdup("some choices");
    run->position.ended_early = true;
    snprintf(run->now.record.why, sizeof run->now.record.why, "because");
    run->position.tokens_left_out = 5;
    if (rollback_add(&run->position.rollbacks, &back) != ERR_OK)
        tap_note("%s", err_text());
    return run;
}

static json_t *stored(const struct state_part *part, struct run *run)
{
    json_t *json = json_object();
    struct state_run its = { run, .arithmetics = arithmetics };
    if (part->store(&its, json) != ERR_OK) {
        tap_note("%s", err_text());
        json_decref(json);
        return NULL;
    }
    return json;
}

static bool equal(const char *name, json_t *a, json_t *b)
{
    bool same = a != NULL && b != NULL && json_equal(a, b);
    char *texts[2] = { json_dumps(a, 0), json_dumps(b, 0) };
    if (!same)
        tap_note("%s: %.800s, now %.800s", name, texts[0], texts[1]);
    free(texts[0]);
    free(texts[1]);
    return same;
}

static enum err restore(const struct state_part *part, struct state_run *its,
                        const json_t *state)
{
    enum err rc = part->accept != NULL ? part->accept(its, state) : ERR_OK;
    return rc == ERR_OK && part->restore != NULL ? part->restore(its, state)
                                                 : rc;
}

static void test_row(struct world *world, const struct state_part *part,
                     struct run *old, json_t *state)
{
    const char *key;
    json_t *value;
    json_t *then = stored(part, old);
    struct state_run its = { open_run(world), .step = old->position.step };
    /* what some tell follows from other rows, too */
    its.run->position.step = old->position.step;
    its.run->position.tokens_left_out = old->position.tokens_left_out;
    if (strcmp(part->name, "data") == 0)
        (void)rollback_restore(&its.run->position.rollbacks, 1, state, NULL,
                               "");
    tap_ok(json_object_size(then) > 0, "%s: stores something", part->name);
    enum err rc = restore(part, &its, state);
    json_t *now = stored(part, its.run);
    tap_ok(rc == ERR_OK && equal(part->name, then, now),
           "%s: the same after it was restored", part->name);
    trainer_destroy(its.run);
    json_decref(its.arithmetics);

    json_t *less = json_deep_copy(state);
    its = (struct state_run){ open_run(world), .step = old->position.step };
    json_object_foreach(then, key, value) json_object_del(less, key);
    rc = restore(part, &its, less);
    tap_ok(rc == (part->absent == STATE_REFUSED ? ERR_CHECKPOINT : ERR_OK),
           "%s: a state without it %s", part->name,
           part->absent == STATE_REFUSED ? "is refused" : "begins it anew");
    trainer_destroy(its.run);
    json_decref(its.arithmetics);
    json_decref(less);
    json_decref(then);
    json_decref(now);
}

static void test_keys(const struct state_part *parts, int count,
                      struct run *run, json_t *state)
{
    size_t keys = 0;
    for (int i = 0; i < count; i++) {
        json_t *own = stored(&parts[i], run);
        keys += json_object_size(own);
        json_decref(own);
    }
    tap_ok(keys == json_object_size(state), "no key is two rows'");
}

/* All rows at once, as a start does. */
static void test_whole(struct world *world, struct run *old, json_t *state)
{
    json_t *again = NULL;
    struct state_run its = { .run = open_run(world) };
    enum err rc = state_parts_accept(&its, old->position.step, state);
    if (rc == ERR_OK)
        rc = state_parts_restore(&its, old->position.step, state);
    if (rc == ERR_OK)
        rc = state_parts_store(&its, &again);
    tap_ok(rc == ERR_OK && equal("state", state, again),
           "a whole state is the same after it was restored: %s",
           rc == ERR_OK ? "" : err_text());
    for (int64_t wrong = -1; wrong <= 65; wrong += 66) { /* a step has 64 */
        json_object_set_new(again, "tokens_left_out", json_integer(wrong));
        tap_ok(state_parts_restore(&its, old->position.step, again) ==
                   ERR_CHECKPOINT,
               "%lld tokens left out of a step: %s", (long long)wrong,
               err_text());
    }
    json_object_set_new(again, "tokens_left_out", json_integer(0));
    json_object_set_new(again, "elapsed_s", json_real(-1.0));
    tap_ok(state_parts_restore(&its, old->position.step, again) ==
               ERR_CHECKPOINT,
           "a run of less than no time: %s", err_text());
    trainer_destroy(its.run);
    json_decref(its.arithmetics);
    json_decref(again);
}

/* Another run takes over what its rows say, and begins the others anew. */
static void test_taken(struct world *world, const struct state_part *parts,
                       int count, struct run *old, json_t *state)
{
    struct run *fresh = open_run(world);
    struct state_run its = { open_run(world), .other = "/nowhere/1" };
    enum err rc = state_parts_accept(&its, old->position.step, state);
    if (rc == ERR_OK)
        rc = state_parts_restore(&its, old->position.step, state);
    tap_ok(rc == ERR_OK, "another run takes a state over: %s",
           rc == ERR_OK ? "" : err_text());
    for (int i = 1; i < count; i++) {
        json_t *now = stored(&parts[i], its.run);
        json_t *then = stored(&parts[i], parts[i].take != NULL ? old : fresh);
        tap_ok(equal(parts[i].name, then, now), "%s: %s", parts[i].name,
               parts[i].take != NULL ? "is taken over" : "begins anew");
        json_decref(now);
        json_decref(then);
    }
    trainer_destroy(its.run);
    trainer_destroy(fresh);
}

static void tests(struct world *world)
{
    int count;
    json_t *state = NULL;
    const struct state_part *parts = state_parts(&count);
    struct run *old = run_with_all(world);
    if (!tap_ok(old != NULL && old->position.step == 1, "a run of one step"))
        return;
    arithmetics = json_pack("[s]", old->engine.arithmetic);
    struct state_run its = { old, .arithmetics = arithmetics };
    enum err rc = state_parts_store(&its, &state);
    tap_ok(rc == ERR_OK, "stores its state");
    test_keys(parts, count, old, state);
    for (int i = 0; i < count; i++)
        test_row(world, &parts[i], old, state);
    test_whole(world, old, state);
    test_taken(world, parts, count, old, state);
    trainer_destroy(old);
    json_decref(state);
    json_decref(arithmetics);
}

int main(int argc, char **argv)
{
    return world_main(argc, argv, SAMPLES, SEQ_LEN, tests);
}
