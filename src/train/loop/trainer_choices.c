/* Chooses the algorithms of matrix products and attention once per run, by
 * measurement on rank 0, and brings them to all ranks, to the run directory and
 * to checkpoints. The measurement itself is the kernel table's.
 *
 * Algorithms of a library differ in bits, and which one is fastest differs from
 * measurement to measurement: so it is decided once, for all ranks, and kept with
 * the run as long as it lives. What is measured are the shapes that a microbatch
 * has asked for, which is why one is computed before. */
#include "src/train/loop/trainer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/rng.h"
#include "src/train/start/start.h"

/* For the operands that are measured: the first that can be had, unless a
 * leaf's own memory is larger. Products that need more keep what the library
 * proposes.
 */
static const size_t room_bytes[] = { (size_t)2 << 30, (size_t)512 << 20,
                                     (size_t)64 << 20 };
#define FILL_BYTES ((size_t)1 << 20)
#define CHOICES_BYTES_MAX ((size_t)16 << 20)

static enum err path_of(const struct run *run, char *path)
{
    return fsio_path(path, "%s/choices", run->settings.run.dir);
}

/* On rank 0; *text stays NULL where there is no file. */
static enum err read_file(const struct run *run, char **text)
{
    char path[FSIO_PATH_MAX];
    size_t bytes = 0;
    TRY(path_of(run, path));
    if (fsio_exists(path))
        TRY(fsio_read_file(path, CHOICES_BYTES_MAX, text, &bytes));
    return ERR_OK;
}

/* Fills the operands with numbers that are ordinary in bf16 as in fp32: times
 * depend on them. */
static enum err fill(const struct run *run, struct arena *room)
{
    enum err rc = ERR_OK;
    const struct kernel_memory *memory = run->engine.kernels->memory;
    struct arena host = { 0 };
    TRY_OUT(memory->host_create(FILL_BYTES, &host));
    uint16_t *numbers = arena_take(&host, FILL_BYTES);
    for (size_t i = 0; i < FILL_BYTES / sizeof *numbers; i++) {
        uint64_t word = rng_u64(1, 2, i);
        /* sign and fraction by chance, exponents from 2^-4 to 2^-1 */
        numbers[i] =
            (uint16_t)((word & 0x807f) | (123 + (word >> 16) % 4) << 7);
    }
    for (size_t at = 0; at < room->capacity; at += FILL_BYTES) {
        size_t left = room->capacity - at;
        TRY_OUT(memory->upload(run->engine.stream,
                               left < FILL_BYTES ? left : FILL_BYTES, numbers,
                               room->base + at));
    }
    TRY_OUT(memory->wait(run->engine.stream));
out:
    memory->host_destroy(&host);
    return rc;
}

struct measuring {
    const struct run *run;
    char *text;
};

/* Memory of its own, or between leaves the model's, which attention's operands
 * fit into, having been there. */
static void take_room(const struct run *run, struct arena *own,
                      struct arena *room)
{
    const struct kernel_memory *memory = run->engine.kernels->memory;
    void *spare;
    size_t count = sizeof room_bytes / sizeof *room_bytes;
    *room = (struct arena){ 0 };
    model_spare(run->engine.model, &spare, &room->capacity);
    room->base = spare;
    for (size_t i = 0; i < count && room_bytes[i] > room->capacity; i++)
        if (memory->tensors_create(room_bytes[i], own) == ERR_OK) {
            *room = *own;
            return;
        }
    *own = (struct arena){ 0 };
}

/* On rank 0, after a microbatch, in a thread of its own: it takes minutes. */
static enum err measure(void *arg)
{
    enum err rc = ERR_OK;
    struct measuring *measuring = arg;
    const struct run *run = measuring->run;
    const struct kernels *kernels = run->engine.kernels;
    const struct kernel_ctx *ctx = model_ctx(run->engine.model);
    struct arena own = { 0 }, room;
    TRY_OUT(kernels->memory->use(comm_local_rank(run->comm)));
    TRY_OUT(kernels->memory->wait(run->engine.stream));
    take_room(run, &own, &room);
    TRY_OUT(fill(run, &room));
    TRY_OUT(kernels->measure(ctx, room.base, room.capacity));
    if (own.base == NULL) /* as it was when the model was made */
        TRY_OUT(kernels->zero(ctx, DTYPE_F32,
                              (int64_t)(room.capacity / sizeof(float)),
                              room.base));
    TRY_OUT(kernels->memory->wait(run->engine.stream));
    TRY_OUT(kernels->choices(&measuring->text));
out:
    kernels->memory->tensors_destroy(&own);
    return rc;
}

/* Stores the choices before they are used: who starts again after a kill takes
 * the same. */
static enum err write_file(const struct run *run, const char *text)
{
    char path[FSIO_PATH_MAX];
    TRY(path_of(run, path));
    return fsio_write_atomic(path, text, strlen(text));
}

/* Collective. */
static enum err measure_together(struct run *run, char **text)
{
    enum err rc = ERR_OK;
    struct measuring measuring = { .run = run };
    assert(*text == NULL);
    TRY(trainer_warm_up(run));
    /* so that rank 0 waits for its own work only, and not for peers */
    TRY(replica_settle(run->engine.replica));
    rc = start_alone(run->comm, measure, &measuring);
    *text = measuring.text;
    TRY(rc);
    if (run->rank == 0)
        rc = write_file(run, *text);
    TRY(comm_agree(run->comm, rc));
    return run_share(run->comm, text);
}

/* Collective. */
static enum err find(struct run *run)
{
    enum err rc = ERR_OK;
    if (run->engine.choices == NULL && run->rank == 0)
        rc = read_file(run, &run->engine.choices);
    TRY(comm_agree(run->comm, rc));
    TRY(run_share(run->comm, &run->engine.choices));
    if (run->engine.choices == NULL)
        TRY(measure_together(run, &run->engine.choices));
    return rc;
}

/* What was kept of leaves would go on with other algorithms. */
static enum err choose(struct run *run)
{
    TRY(model_graph_forget(run->engine.model));
    return run->engine.kernels->choose(model_ctx(run->engine.model),
                                       run->engine.choices);
}

/* Collective. */
static enum err choose_together(struct run *run)
{
    return comm_agree(run->comm, choose(run));
}

enum err trainer_choices_settle(struct run *run)
{
    enum err rc = ERR_OK;
    if (run->engine.kernels->measure == NULL)
        return ERR_OK;
    TRY(find(run));
    /* a file of a start that made no step binds nothing */
    bool may_change = run->position.step == 0 ||
                      run->settings.parallel.determinism == DETERMINISM_FAST ||
                      run->settings.parallel.allow_arithmetic_change;
    rc = choose_together(run);
    if (rc != ERR_UNSUPPORTED || !may_change)
        return rc;
    if (run->rank == 0)
        log_warn("algorithms are measured anew: %s", err_text());
    free(run->engine.choices);
    run->engine.choices = NULL;
    TRY(measure_together(run, &run->engine.choices));
    return choose_together(run);
}
