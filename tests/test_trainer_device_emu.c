/* Training on a device whose tensors the host can't touch and where everything
 * is done late (cuda_emulator_memory.h): against the processor, and to the same
 * bits after saving, ending and loading. */

#include "src/base/log.h"
#include "src/model/model.h"
#include "src/train/loop/trainer.h"
#include "tests/cuda_emulator_memory.h"
#include "tests/data_fixture.h"
#include "tests/run_settings.h"

#define SAMPLES 24
#define SEQ_LEN 16
#define STEPS 6
#define PART 4 /* steps of the run that is interrupted */

/* Of the host in a step: two leaves may be under way (model_input.c), and there
 * are four. */
#define WAITS (2 + 1)

/* Relative, of losses: ops differ by some 1e-6 and bf16 by 2^-9, and steps add
 * to that. */
#define TOLERANCE_FP32 1e-4
#define TOLERANCE_BF16 2e-2
#define TOLERANCE_FP8 4e-2 /* operands of products by up to 2^-4 */

struct world {
    struct comm *comm;
    const char *folder;
};

/* What is set besides the model. */
struct variant {
    const char *name;
    const char *settings; /* separated by blanks */
    double tolerance;
};

struct results {
    double losses[STEPS];
    double eval_loss;
    int64_t waits; /* of the host, in the first step, and in any later one */
    int64_t later_waits;
    int64_t launches; /* of leaves as graphs */
    char arithmetic[256];
};

#define DEVICE "hardware.backend=cuda hardware.kernel_set=emulated "
#define EXPERTS                                                                \
    "model.experts=4 model.experts_top_k=2 model.ffn=glu "                     \
    "memory.compression=int8 optimizer.lr=1e-2 "

static enum err load_settings(const struct world *world, const char *run,
                              const char *more, struct train_settings *out)
{
    return run_settings(
        out,
        "model.d_model=32 model.n_heads=2 model.n_layers=2 "
        "model.vocab_size=257 train.max_duration=6ba train.global_batch=4 "
        "parallel.slots=2 train.microbatch=1 data.seq_len=16 "
        "hardware.threads=1 checkpoint.interval=2ba optimizer.lr=3e-3 "
        "eval.samples=3 run.dir=%s/%s data.train=%s/data data.eval=%s/data %s",
        world->folder, run, world->folder, world->folder, more);
}

/* Up to `steps`, with the checkpoints that are due, the last of them awaited.
 */
static enum err train(struct run *run, int64_t steps, struct results *out)
{
    while (run->position.step < steps) {
        int64_t before = cuda_emulator_memory_waits();
        TRY(trainer_step(run));
        int64_t waits = cuda_emulator_memory_waits() - before;
        /* there is no saver's thread yet that waits */
        if (run->position.step == 1)
            out->waits = waits;
        else if (waits > out->later_waits)
            out->later_waits = waits;
        out->losses[run->position.step - 1] = run->now.record.loss;
        run->now.finished = run->position.step == steps;
        TRY(trainer_event(run, EVENT_BATCH_CHECKPOINT));
    }
    snprintf(out->arithmetic, sizeof out->arithmetic, "%s",
             run->engine.arithmetic);
    out->launches = model_graph_launches(run->engine.model);
    return ERR_OK;
}

/* Begin or go on in the run directory. */
static enum err run_to(const struct world *world, const char *name,
                       const char *more, int64_t steps, struct results *out)
{
    enum err rc = ERR_OK;
    struct run *run = NULL;
    struct train_settings *settings = calloc(1, sizeof *settings);
    TRY_OUT(load_settings(world, name, more, settings));
    TRY_OUT(fsio_mkdirs(settings->run.dir));
    TRY_OUT(trainer_create(world->comm, settings, 1, &run));
    TRY_OUT(events_listen_table(&run->events, "evaluation", run));
    TRY_OUT(events_listen_table(&run->events, "checkpoint", run));
    TRY_OUT(trainer_start(run));
    TRY_OUT(trainer_calibrate(run));
    TRY_OUT(train(run, steps, out));
    run->now.finished = true;
    TRY_OUT(trainer_event(run, EVENT_FIT_END));
    out->eval_loss = run->now.record.eval.loss;
out:
    if (rc != ERR_OK)
        tap_note("%s: %s", name, err_text());
    trainer_destroy(run);
    free(settings);
    return rc;
}

static bool near(const struct results *a, const struct results *b,
                 double tolerance)
{
    double worst = fabs(a->eval_loss / b->eval_loss - 1.0);
    for (int i = 0; i < STEPS; i++)
        worst = fmax(worst, fabs(a->losses[i] / b->losses[i] - 1.0));
    tap_note("losses %.6f to %.6f, evaluated %.6f, largest difference %.2g",
             a->losses[0], a->losses[STEPS - 1], a->eval_loss, worst);
    return worst <= tolerance; /* false for NaN */
}

static bool same_checkpoint(const struct world *world, const char *a,
                            const char *b, int64_t step)
{
    char path[FSIO_PATH_MAX], one[65] = "", other[65] = "-";
    enum err rc = ERR_OK;
    TRY_OUT(fsio_path(path, "%s/%s/checkpoints/step-%09lld", world->folder, a,
                      (long long)step));
    TRY_OUT(ckpt_digest(path, one));
    TRY_OUT(fsio_path(path, "%s/%s/checkpoints/step-%09lld", world->folder, b,
                      (long long)step));
    TRY_OUT(ckpt_digest(path, other));
out:
    if (rc != ERR_OK)
        tap_note("%s", err_text());
    return rc == ERR_OK && strcmp(one, other) == 0;
}

/* So that an attempt that has nothing to train evaluates again. */
static void forget_evaluations(const struct world *world, const char *run)
{
    char path[FSIO_PATH_MAX];
    if (fsio_path(path, "%s/%s/eval.jsonl", world->folder, run) == ERR_OK)
        (void)unlink(path);
}

static void test_variant(const struct world *world,
                         const struct variant *variant,
                         const struct results *reference)
{
    struct results whole = { 0 }, parts = { 0 };
    char again[64];
    snprintf(again, sizeof again, "%s-again", variant->name);
    enum err rc =
        run_to(world, variant->name, variant->settings, STEPS, &whole);
    tap_ok(rc == ERR_OK, "%s trains", variant->name);
    tap_ok(strncmp(whole.arithmetic, "cuda/emulated ", 14) == 0,
           "on the device");
    tap_ok(rc == ERR_OK && near(&whole, reference, variant->tolerance),
           "as the processor within %g", variant->tolerance);
    tap_ok(whole.eval_loss < whole.losses[0], "the loss falls");
    tap_is_int(whole.waits, WAITS,
               "the host waits where it must, and once at the end of a step");
    rc = run_to(world, again, variant->settings, PART, &parts);
    tap_ok(rc == ERR_OK && same_checkpoint(world, variant->name, again, PART),
           "what is saved beside the training is what was there");
    if (rc == ERR_OK)
        rc = run_to(world, again, variant->settings, STEPS, &parts);
    tap_ok(rc == ERR_OK && same_checkpoint(world, variant->name, again, STEPS),
           "loaded and gone on with to the same bits");
    tap_ok(memcmp(whole.losses, parts.losses, sizeof whole.losses) == 0 &&
               whole.eval_loss == parts.eval_loss,
           "and the same losses");
    forget_evaluations(world, again);
    rc = run_to(world, again, variant->settings, STEPS, &parts);
    tap_ok(rc == ERR_OK && whole.eval_loss == parts.eval_loss,
           "what was loaded is evaluated the same");
}

/* The run that goes on as graphs has begun without. Leaves with several
 * documents and those without would be two kinds. */
static void test_graphs(const struct world *world)
{
    const char *run = "kept";
    const char *on = DEVICE "checkpoint.async=false "
                            "model.attn_uses_sequence_id=false";
    const char *off = DEVICE "checkpoint.async=false "
                             "model.attn_uses_sequence_id=false "
                             "hardware.graphs=off";
    struct results without = { 0 }, with = { 0 };
    enum err rc = run_to(world, run, on, STEPS, &with);
    if (rc == ERR_OK)
        rc = run_to(world, "without", off, PART, &without);
    tap_ok(rc == ERR_OK && without.launches == 0 &&
               same_checkpoint(world, run, "without", PART),
           "%s: as graphs and op by op, the same bits", run);
    rc = run_to(world, "without", on, STEPS, &with);
    /* four leaves a step, whose gradients come into two slots in two ways */
    tap_is_int(with.launches, 4 * (STEPS - PART) - 4,
               "all leaves but the first ones of their kinds are launched");
    tap_ok(rc == ERR_OK && same_checkpoint(world, run, "without", STEPS),
           "which may change within a run");
    tap_is_int(with.later_waits, without.later_waits,
               "and the host waits as often");
    tap_ok(with.later_waits <= WAITS, "which is where it must");
}

/* Of three leaves in a slot the third one is the second of its kind, whose
 * calls are made twice then. */
static void test_refused(const struct world *world)
{
    struct results refused = { 0 }, plain = { 0 };
    const char *three = DEVICE "checkpoint.async=false train.global_batch=6";
    enum err rc = run_to(world, "plain",
                         DEVICE "checkpoint.async=false train.global_batch=6 "
                                "hardware.graphs=off",
                         2, &plain);
    cuda_emulator_memory_refuse_graphs(true);
    if (rc == ERR_OK)
        rc = run_to(world, "refused", three, 2, &refused);
    cuda_emulator_memory_refuse_graphs(false);
    tap_ok(rc == ERR_OK && refused.launches == 0 &&
               same_checkpoint(world, "plain", "refused", 2),
           "a leaf that could not be kept has the same bits");
}

/* Masters are fp32, so the processor can go on with either. */
static void test_change(const struct world *world, const char *run,
                        const struct results *reference)
{
    struct results other = *reference;
    struct results device = { 0 };
    enum err rc =
        run_to(world, "crossing", DEVICE "train.precision=fp32", PART, &device);
    tap_ok(rc == ERR_OK, "a run begins on the device");
    rc = run_to(world, "crossing", "hardware.backend=cpu", STEPS, &other);
    tap_ok(rc == ERR_CHECKPOINT, "elsewhere it has other bits: refused");
    rc = run_to(world, "crossing",
                "hardware.backend=cpu parallel.allow_arithmetic_change=true",
                STEPS, &other);
    tap_ok(rc == ERR_OK && near(&other, reference, TOLERANCE_FP32),
           "and goes on there if that is wanted");
    rc = run_to(world, run, DEVICE "train.precision=fp32", STEPS, &device);
    tap_ok(rc == ERR_CHECKPOINT &&
               strstr(err_text(), "train.precision") != NULL,
           "the precision stays for a run");
    rc = run_to(world, run, DEVICE "train.precision=fp8", STEPS, &device);
    tap_ok(rc == ERR_CHECKPOINT &&
               strstr(err_text(), "train.precision") != NULL,
           "also that of its products");
}

int main(int argc, char **argv)
{
    static const struct variant variants[] = {
        { "fp32", DEVICE "train.precision=fp32", TOLERANCE_FP32 },
        { "bf16", DEVICE, TOLERANCE_BF16 },
        { "zero3", DEVICE "parallel.strategy=zero3 checkpoint.async=false",
          TOLERANCE_BF16 },
        { "fp8", DEVICE "train.precision=fp8", TOLERANCE_FP8 },
    };
    struct world world = { 0 };
    static const struct variant experts = { "experts", DEVICE EXPERTS,
                                            TOLERANCE_BF16 };
    struct results reference = { 0 };
    int64_t lengths[SAMPLES];
    const struct kernels *table = NULL;
    log_init("test", 0, LOG_ERROR);
    if (kernels_find("cuda", "emulated", &table) != ERR_OK) {
        tap_skip("no emulated device: %s", err_text());
        return tap_done();
    }
    if (comm_create("self", &argc, &argv, 60.0, &world.comm) != ERR_OK)
        return 1;
    for (int i = 0; i < SAMPLES; i++)
        lengths[i] = SEQ_LEN;
    world.folder = tap_folder();
    fixture_dataset(world.folder, "data", lengths, SAMPLES, 1 << 20, false);
    enum err rc =
        run_to(&world, "cpu", "hardware.backend=cpu", STEPS, &reference);
    tap_ok(rc == ERR_OK, "the processor trains");
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++)
        test_variant(&world, &variants[i], &reference);
    test_graphs(&world);
    test_refused(&world);
    test_change(&world, "bf16", &reference);
    rc = run_to(&world, "cpu-experts", EXPERTS "hardware.backend=cpu", STEPS,
                &reference);
    tap_ok(rc == ERR_OK, "the processor trains experts");
    test_variant(&world, &experts, &reference);
    comm_destroy(world.comm);
    return tap_done();
}
