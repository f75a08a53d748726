/* Items in a memory that the program can't reach but through the callbacks: it
 * is mapped without any right, so that every other access dies. Copies for a
 * save are made late, by the saver's thread. Works with any number of ranks. */
#include <pthread.h>
#include <sys/mman.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/ckpt_place.h"
#include "checkpoint/files/ckpt_index.h"
#include "tests/ckpt_ranks.h"

/* Larger than the pieces in which elements are converted. */
static const struct ckpt_item larger = { .name = "larger",
                                         .dims = 2,
                                         .shape = { 300, 1024 } };

/* What a copy of an item is to do later. */
struct copy {
    void *to;
    const void *from;
    size_t bytes;
};

struct device {
    char *base; /* all items' data */
    size_t bytes;
    pthread_t main;
    struct copy late[ITEMS];
    int late_count;
    bool late_wanted; /* copy_out only notes what to do */
    bool out_fails, in_fails, finish_fails;
    int copies_in;
    bool by_main; /* finish was called by the training's thread */
};

struct world {
    struct comm *comm;
    int rank, ranks;
    char run[FSIO_PATH_MAX], local[FSIO_PATH_MAX];
    struct device device;
    struct ckpt_memory memory;
};

/* --- the memory --- */

static void reach(struct device *device, bool may)
{
    mprotect(device->base, device->bytes,
             may ? PROT_READ | PROT_WRITE : PROT_NONE);
}

static enum err copy_out(void *arg, void *to, const void *from, size_t bytes)
{
    struct device *device = arg;
    if (device->out_fails)
        return err_set(ERR_IO, "the device is away");
    if (device->late_wanted) {
        device->late[device->late_count++] = (struct copy){ to, from, bytes };
        return ERR_OK;
    }
    reach(device, true);
    memcpy(to, from, bytes);
    reach(device, false);
    return ERR_OK;
}

static enum err finish(void *arg)
{
    struct device *device = arg;
    device->by_main |= pthread_equal(pthread_self(), device->main) != 0;
    reach(device, true);
    for (int i = 0; i < device->late_count; i++)
        memcpy(device->late[i].to, device->late[i].from, device->late[i].bytes);
    reach(device, false);
    device->late_count = 0;
    if (device->finish_fails)
        return err_set(ERR_IO, "a copy has failed");
    return ERR_OK;
}

static enum err copy_in(void *arg, void *to, const void *from, size_t bytes)
{
    struct device *device = arg;
    device->copies_in++;
    if (device->in_fails)
        return err_set(ERR_IO, "the device takes nothing");
    reach(device, true);
    memcpy(to, from, bytes);
    reach(device, false);
    return ERR_OK;
}

static enum err no_stage(size_t bytes, struct arena *out)
{
    (void)out;
    return err_set(ERR_MEMORY, "no %zu bytes of such memory", bytes);
}

/* --- items --- */

enum sharding { SPREAD, TURNED, WHOLE };

static size_t part_bytes(const struct ckpt_item *item)
{
    return (size_t)(item->part.end - item->part.begin) *
           dtype_bytes(item->dtype);
}

/* Items of this rank in the device's memory, which drop_items() releases. */
static void make_items(struct world *world, enum sharding sharding,
                       struct ckpt_item items[ITEMS])
{
    struct device *device = &world->device;
    int part =
        sharding == TURNED ? world->ranks - 1 - world->rank : world->rank;
    size_t used = 0;
    memcpy(items, fixture_tensors, sizeof fixture_tensors);
    items[FIXTURE_ITEMS] = larger;
    for (int i = 0; i < ITEMS; i++) {
        int64_t elements = fixture_elements(&items[i]);
        items[i].part.begin =
            sharding == WHOLE ? 0 : elements * part / world->ranks;
        items[i].part.end =
            sharding == WHOLE ? elements : elements * (part + 1) / world->ranks;
        used += (part_bytes(&items[i]) + 63) / 64 * 64;
    }
    device->bytes = (used / 4096 + 1) * 4096;
    device->base = mmap(NULL, device->bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    used = 0;
    for (int i = 0; i < ITEMS; i++) {
        items[i].data = device->base + used;
        used += (part_bytes(&items[i]) + 63) / 64 * 64;
    }
}

static void drop_items(struct world *world)
{
    munmap(world->device.base, world->device.bytes);
}

static void fill(struct world *world, struct ckpt_item items[ITEMS],
                 int64_t step)
{
    reach(&world->device, true);
    fixture_fill(items, ITEMS, step);
    reach(&world->device, false);
}

/* The stored value as the item's dtype, where that may be another one. */
static bool holds(struct world *world, const struct ckpt_item *items,
                  int64_t step)
{
    bool good = true;
    reach(&world->device, true);
    for (int i = 0; i < ITEMS && good; i++) {
        enum dtype stored =
            i < FIXTURE_ITEMS ? fixture_tensors[i].dtype : larger.dtype;
        size_t size = dtype_bytes(items[i].dtype);
        for (int64_t e = items[i].part.begin; e < items[i].part.end; e++) {
            uint64_t value = fixture_value(step, i, e);
            char want[8];
            const char *at = (const char *)items[i].data +
                             (size_t)(e - items[i].part.begin) * size;
            ckpt_place_convert(stored, &value, items[i].dtype, want, 1);
            good = good && memcmp(at, want, size) == 0;
        }
    }
    reach(&world->device, false);
    return good;
}

/* --- points --- */

static void check_load(struct world *world, enum sharding sharding,
                       bool convert, int64_t want, bool local, const char *what)
{
    struct ckpt_item items[ITEMS];
    struct ckpt_load_options options = { .memory = &world->memory,
                                         .convert = convert,
                                         .local_dir =
                                             local ? world->local : NULL };
    struct ckpt_load_stats stats;
    json_t *state = NULL;
    int64_t step = -2;
    make_items(world, sharding, items);
    /* conversion keeps the places: each element has 8 bytes at most */
    if (convert) {
        drop_items(world);
        for (int i = 0; i < ITEMS; i++)
            if (dtype_is_real(items[i].dtype))
                items[i].dtype =
                    items[i].dtype == DTYPE_F32 ? DTYPE_BF16 : DTYPE_F32;
        world->device.bytes = (size_t)ITEMS * (2u << 20);
        world->device.base = mmap(NULL, world->device.bytes, PROT_NONE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (int i = 0; i < ITEMS; i++)
            items[i].data = world->device.base + (size_t)i * (2u << 20);
    }
    world->device.copies_in = 0;
    enum err rc = ckpt_load(world->comm, world->run, &options, items, ITEMS,
                            &step, &state, &stats);
    everywhere(world->comm,
               rc == ERR_OK && step == want && stats.local == local &&
                   world->device.copies_in > 0 && holds(world, items, want),
               "%s", what);
    json_decref(state);
    drop_items(world);
}

/* Start a save of `step`, and change the items as soon as the copies are made.
 */
static enum err save(struct world *world, struct ckpt_saver *saver,
                     struct ckpt_item *items, int64_t step, bool local,
                     struct ckpt_progress *progress)
{
    enum err rc = ERR_OK;
    json_t *state = fixture_state(step);
    fill(world, items, step);
    TRY_OUT(local ? ckpt_saver_start_local(saver, step, state)
                  : ckpt_saver_start(saver, step, state));
    TRY_OUT(ckpt_saver_wait(saver, progress));
    fill(world, items, step + 1000);
out:
    json_decref(state);
    return rc;
}

static void check_failure(struct world *world, struct ckpt_saver *saver,
                          struct ckpt_item *items, int64_t step, bool local,
                          bool *fails, const char *what)
{
    struct ckpt_progress progress = { 0 };
    *fails = world->rank == world->ranks - 1;
    enum err rc = save(world, saver, items, step, local, &progress);
    *fails = false;
    everywhere(world->comm,
               rc == ERR_OK && progress.phase == CKPT_FAILED &&
                   progress.error == ERR_IO,
               "%s", what);
    rc = save(world, saver, items, step + 1, local, &progress);
    everywhere(world->comm, rc == ERR_OK && progress.phase == CKPT_COMMITTED,
               "and the next save works");
}

static void test_saver(struct world *world)
{
    struct device *device = &world->device;
    struct ckpt_item items[ITEMS];
    struct ckpt_progress progress = { 0 };
    struct ckpt_saver *saver = NULL;
    struct ckpt_options options = { .attempt = "1.1",
                                    .timeout_s = TIMEOUT_S,
                                    .local_dir = world->local,
                                    .memory = &world->memory };
    make_items(world, SPREAD, items);
    enum err rc = ckpt_saver_create(world->comm, world->run, &options, items,
                                    ITEMS, &saver);
    everywhere(world->comm, rc == ERR_OK, "a saver is made");
    device->late_wanted = true;
    rc = save(world, saver, items, 20, false, &progress);
    everywhere(world->comm, rc == ERR_OK && progress.phase == CKPT_COMMITTED,
               "late copies are saved");
    everywhere(world->comm, !device->by_main && device->late_count == 0,
               "they were made by the saver's thread");
    rc = save(world, saver, items, 21, true, &progress);
    everywhere(world->comm,
               rc == ERR_OK && progress.phase == CKPT_COMMITTED &&
                   !device->by_main,
               "on the node, too");
    check_failure(world, saver, items, 30, false, &device->out_fails,
                  "a copy that can't begin fails the save");
    check_failure(world, saver, items, 32, false, &device->finish_fails,
                  "one that fails later does");
    check_failure(world, saver, items, 34, true, &device->finish_fails,
                  "on the node, too,");
    ckpt_saver_destroy(saver);
    drop_items(world);
    device->late_wanted = false;
    everywhere(world->comm, device->late_count == 0, "no copy is left over");
}

static void test_save(struct world *world, int64_t step)
{
    struct ckpt_item items[ITEMS];
    struct ckpt_options options = { .attempt = "1.1",
                                    .memory = &world->memory };
    json_t *state = fixture_state(step);
    make_items(world, SPREAD, items);
    fill(world, items, step);
    enum err rc = ckpt_save(world->comm, world->run, step, state, items, ITEMS,
                            &options, NULL);
    everywhere(world->comm, rc == ERR_OK,
               "one call saves through the callbacks");
    struct ckpt_memory none = world->memory;
    none.stage_create = no_stage;
    options.memory = &none;
    rc = ckpt_save(world->comm, world->run, step + 1, state, items, ITEMS,
                   &options, NULL);
    everywhere(world->comm, rc == ERR_MEMORY,
               "no memory for the copy is an error");
    json_decref(state);
    drop_items(world);
}

static void test_load_failure(struct world *world)
{
    struct ckpt_item items[ITEMS];
    struct ckpt_load_options options = { .memory = &world->memory };
    static const enum sharding shardings[] = { TURNED, WHOLE };
    for (int i = 0; i < 2; i++) {
        json_t *state = NULL;
        int64_t step = -2;
        make_items(world, shardings[i], items);
        world->device.in_fails = world->rank == world->ranks - 1;
        enum err rc = ckpt_load(world->comm, world->run, &options, items, ITEMS,
                                &step, &state, NULL);
        world->device.in_fails = false;
        everywhere(world->comm, rc == ERR_IO && state == NULL,
                   "a rank that can't take the data ends the load of all");
        drop_items(world);
    }
    everywhere(world->comm, fixture_count(world->run, ".bad") == 0,
               "the checkpoint is not to blame");
}

static void run_tests(struct world *world)
{
    test_save(world, 10);
    check_load(world, SPREAD, false, 10, false, "it loads as it was saved");
    check_load(world, TURNED, false, 10, false, "spread in another way");
    check_load(world, WHOLE, false, 10, false, "whole on every rank");
    check_load(world, TURNED, true, 10, false, "in other dtypes");
    check_load(world, WHOLE, true, 10, false, "whole, in other dtypes");
    test_load_failure(world);
    test_saver(world);
    check_load(world, TURNED, false, 35, true, "the node's newest loads");
    if (world->rank == 0)
        fsio_remove_tree(world->local);
    comm_barrier(world->comm);
    check_load(world, TURNED, false, 33, false, "the run's newest loads");
}

int main(int argc, char **argv)
{
    struct world world = { .device.main = pthread_self(),
                           .comm = ranks_begin(&argc, &argv) };
    char folder[FSIO_PATH_MAX] = "";
    world.rank = comm_rank(world.comm);
    world.ranks = comm_size(world.comm);
    world.memory = (struct ckpt_memory){ .arg = &world.device,
                                         .copy_out = copy_out,
                                         .finish = finish,
                                         .stage_create = arena_create,
                                         .stage_destroy = arena_destroy,
                                         .copy_in = copy_in };
    ranks_folder(world.comm, folder);
    fsio_path(world.run, "%s/run", folder);
    fsio_path(world.local, "%s/node", folder);
    if (world.rank == 0)
        ckpt_index_uuid_write(world.run, "u-1");
    comm_barrier(world.comm);
    run_tests(&world);
    return ranks_end(world.comm);
}
