/* Checkpoints saved, read and kept in order while memory or files fail, by one
 * rank; of several ranks tests/soak/matrix. */
#include "checkpoint/files/ckpt_index.h"
#include "tests/faults.h"
#include "tests/ckpt_fixture.h"

static struct comm *comm;

static void need(enum err rc)
{
    if (rc == ERR_OK)
        return;
    tap_ok(false, "fixture: %s", err_text());
    exit(1);
}

static struct ckpt_item items[FIXTURE_ITEMS];
static json_t *state;

/* Once more step 30. */
static enum err save(void)
{
    const struct ckpt_options options = { .attempt = "1.1", .keep = 2 };
    return ckpt_save(comm, "work/run", 30, state, items, FIXTURE_ITEMS,
                     &options, NULL);
}

static enum err load(void)
{
    int64_t step = 0;
    json_t *loaded = NULL;
    enum err rc = ckpt_load(comm, "work/run", NULL, items, FIXTURE_ITEMS, &step,
                            &loaded, NULL);
    json_decref(loaded);
    TRY(rc);
    return step == 30 && fixture_holds(items, FIXTURE_ITEMS, 30)
               ? ERR_OK
               : err_set(ERR_INTERNAL, "other values");
}

static enum err sweep(void)
{
    return ckpt_index_sweep("work/litter");
}

static enum err identify(void)
{
    return ckpt_index_uuid_write("work/run", "u-1");
}

#define STEP(root, n) root "run/checkpoints/step-0000000" #n
#define UNREADABLE (1u << ERR_CHECKPOINT)
static const struct faults_row rows[] = {
    { .line = "ckpt ls run" },
    { .line = "ckpt show --stats " STEP("", 20) },
    { .line = "ckpt show --json " STEP("", 20) },
    { .line = "ckpt verify run" },
    { .line = "ckpt verify --json " STEP("", 20) },
    { .line = "ckpt digest " STEP("", 20) },
    { .line = "ckpt diff " STEP("", 20) " " STEP("", 20) },
    { .line = "ckpt reshard --ranks 3 " STEP("", 20) " work/step-000000020",
      .then = "ckpt verify work/step-000000020",
      .varies = true },
    { .line = "ckpt pin --reason why " STEP("work/", 20), .copy = "run" },
    { .line = "ckpt unpin " STEP("work/", 10), .copy = "run" },
    { .line = "ckpt prune --keep 1 work/run",
      .copy = "run",
      .leaves = true,
      .varies = true,
      .then = "ckpt verify work/run" },
    { .line = "ckpt view work/torn/step-000000030", .copy = "torn" },
    { .name = "save again",
      .call = save,
      .copy = "run",
      .then = "ckpt verify work/run",
      .also = 1u << ERR_COMM,
      .leaves = true,
      .varies = true },
    { .name = "load", .call = load, .copy = "run" },
    { .name = "sweep", .call = sweep, .copy = "litter", .leaves = true },
    { .name = "identify", .call = identify, .copy = "run", .leaves = true },
};

int main(int argc, char **argv)
{
    faults_begin();
    need(comm_create("self", NULL, NULL, 60.0, &comm));
    for (int64_t step = 10; step <= 30; step += 10)
        need(fixture_save(comm, "run", step, step, 0));
    faults_need("ckpt pin --reason because " STEP("", 10));
    state = fixture_state(30);
    memcpy(items, fixture_tensors, sizeof items);
    fixture_make(items, FIXTURE_ITEMS, 0, 1);
    fixture_fill(items, FIXTURE_ITEMS, 30);
    need(fixture_save(comm, "old", 30, 30, 0));
    need(fsio_mkdirs("torn"));
    need(fsio_mkdirs("litter/checkpoints/.tmp-step-000000040.1.1/inner"));
    need(fsio_mkdirs("litter/checkpoints/.trash-step-000000040.1"));
    if (rename("old/checkpoints/step-000000030", "torn/step-000000030") != 0 ||
        unlink("torn/step-000000030/checkpoint.h5") != 0)
        need(err_errno("torn"));
    faults_sweep(rows, sizeof rows / sizeof *rows, argc, argv);
    fixture_free(items, FIXTURE_ITEMS);
    json_decref(state);
    comm_destroy(comm);
    return faults_done();
}
