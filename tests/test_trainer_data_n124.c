/* The indexes of a run's data sets are read by one rank of a node, and are there once
 * for its ranks, as each would have read them itself. */
#include <malloc.h>

#include "src/base/regular.h"
#include "src/train/start/start.h"
#include "tests/trainer_world.h"

/* SHARDS=118750 for the figures of a large set. */
static int shards = 20000;

/* A set of so many shards that are not there. */
static void make_index(const char *set, const char *sum)
{
    fixture_need(fsio_mkdirs(set));
    FILE *out = fopen(fixture_path(set, "index.json"), "w");
    fprintf(out, "{\"version\": 2, \"shards\": [");
    for (int s = 0; s < shards; s++)
        fprintf(out,
                "%s{\"column_encodings\": [\"%s\"], \"column_names\": "
                "[\"tokens\"], \"column_sizes\": [null], \"compression\": "
                "null, \"format\": \"mds\", \"hashes\": [\"sha256\"], "
                "\"raw_data\": {\"basename\": \"shard.%05d.mds\", \"bytes\": "
                "%d, \"hashes\": {\"sha256\": \"%s%08x\"}}, \"samples\": %d, "
                "\"size_limit\": 67108864, \"version\": 2, \"zip_data\": null}",
                s > 0 ? ", " : "", s < 9 ? "ndarray:int32" : "ndarray", s,
                5000 + s, sum, s, s % 7);
    fprintf(out, "]}");
    fclose(out);
    int64_t samples = 0;
    for (int s = 0; s < shards; s++)
        samples += s % 7;
    const struct sidecar sidecar = fixture_sidecar(samples, 16 * samples);
    fixture_need(sidecar_write(set, &sidecar));
}

/* A number of a file of /proc/self, behind a word. */
static int64_t number(const char *path, const char *word)
{
    char line[256];
    long long value = -1;
    FILE *file = fopen(path, "r");
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, word, strlen(word)) == 0)
            value = atoll(line + strlen(word));
    fclose(file);
    return value;
}

static struct run *new_run(const struct world *world, const char *train,
                           const char *eval)
{
    struct run *run = calloc(1, sizeof *run);
    char sets[2][FSIO_PATH_MAX + 32];
    snprintf(sets[0], sizeof sets[0], "data.train=%s", train);
    snprintf(sets[1], sizeof sets[1], "data.eval=%s", eval);
    char *options[] = { sets[0], sets[1], "train.max_duration=1ba",
                        "model.vocab_size=512", "data.seq_len=16" };
    fixture_need(train_settings_read(NULL, options, 5, true, &run->settings));
    run->comm = world->comm;
    run->rank = world->rank;
    run->ranks = world->ranks;
    return run;
}

static bool same_set(const struct dataset *a, const struct dataset *b)
{
    const struct dataset_contents *x = dataset_contents(a);
    bool same = strcmp(dataset_id(a), dataset_id(b)) == 0 &&
                memcmp(x, dataset_contents(b), sizeof *x) == 0 &&
                dataset_sidecar(a)->tokens == dataset_sidecar(b)->tokens &&
                strcmp(dataset_folder(a), dataset_folder(b)) == 0;
    for (int64_t s = 0; same && s < x->shards; s++) {
        same = dataset_shard_samples(a, s) == dataset_shard_samples(b, s);
        /* nothing is there: the name is in the message */
        char text[512] = "";
        if (s % 997 == 0 && dataset_look(a, s) != ERR_OK)
            snprintf(text, sizeof text, "%s", err_text());
        same = same && (s % 997 != 0 || (dataset_look(b, s) == ERR_DATA &&
                                         strcmp(text, err_text()) == 0));
    }
    return same;
}

/* What this rank has read from files since `before`. */
static int64_t read_since(int64_t before)
{
    return number("/proc/self/io", "rchar:") - before;
}

/* Memory of all ranks, what they share by parts. */
static int64_t memory_kib(struct world *world)
{
    malloc_trim(0);
    comm_barrier(world->comm);
    int64_t kib = number("/proc/self/smaps_rollup", "Pss:");
    comm_all_reduce_i64(world->comm, &kib, 1, COMM_SUM);
    return kib;
}

static void test_shared(struct world *world, const char *train,
                        const char *eval)
{
    struct dataset *alone = NULL;
    char text[FSIO_PATH_MAX + 16];
    int64_t bytes = 0;
    fixture_need(regular_size(fixture_path(train, "index.json"), &bytes));
    int64_t before = number("/proc/self/io", "rchar:");
    int64_t memory = memory_kib(world);
    struct run *run = new_run(world, train, eval);
    enum err rc = trainer_data_open(run);
    int64_t read = read_since(before);
    everywhere(world, rc == ERR_OK, "sets are opened");
    everywhere(world, world->rank == 0 ? read > 2 * bytes : read < bytes / 4,
               "one rank reads them");
    int64_t together = memory_kib(world) - memory;
    fixture_need(dataset_open_as(train, NULL, false, &cache_defaults, &alone));
    int64_t apart = memory_kib(world) - memory - together;
    tap_note("%d shards on %d ranks: two sets take %lld KiB together, one that "
             "each reads for itself %lld",
             shards, world->ranks, (long long)together, (long long)apart);
    everywhere(world, same_set(run->inputs.train_data[0], alone),
               "all have what is read alone");
    everywhere(world,
               strcmp(dataset_id(run->inputs.eval_data), dataset_id(alone)) !=
                   0,
               "the other one is another");
    dataset_close(alone);
    trainer_data_close(run);
    free(run);
    snprintf(text, sizeof text, "%s/none", train);
    run = new_run(world, text, eval);
    rc = trainer_data_open(run);
    everywhere(world, rc == ERR_DATA && strstr(err_text(), text) != NULL,
               "all know which is missing");
    trainer_data_close(run);
    free(run);
}

/* The last rank has another path, to the same files, or a copy of its own. */
static void test_apart(struct world *world, const char *train,
                       const char *other)
{
    int last = world->ranks - 1;
    int64_t bytes = 0;
    fixture_need(regular_size(fixture_path(train, "index.json"), &bytes));
    int64_t before = number("/proc/self/io", "rchar:");
    struct run *run = new_run(world, world->rank == last ? other : train, "");
    enum err rc = trainer_data_open(run);
    int64_t read = read_since(before);
    everywhere(world, rc == ERR_OK, "sets of two paths are opened");
    everywhere(world,
               world->rank == 0 || world->rank == last ? read > bytes
                                                       : read < bytes / 4,
               "who has another path reads for itself");
    trainer_data_close(run);
    free(run);
}

/* Between one process and another the file may change. */
static void test_changed(const char *train)
{
    struct buffer images = { 0 };
    static const uint64_t end = 0;
    struct dataset *taken = NULL, *set = NULL;
    size_t bytes = 0;
    fixture_need(dataset_open_as(train, NULL, false, &cache_defaults, &set));
    fixture_need(dataset_image(set, &images));
    fixture_need(buffer_add(&images, &end, sizeof end));
    enum err rc =
        dataset_open_image(images.data, train, &cache_defaults, &taken);
    tap_ok(rc == ERR_OK && taken != NULL && same_set(taken, set),
           "a set that another has read");
    dataset_close(taken);
    rc = dataset_open_image(images.data, "elsewhere", &cache_defaults, &taken);
    tap_ok(rc == ERR_OK && taken == NULL, "none that it has not");
    const char *path = fixture_path(train, "index.json");
    char *text = fixture_read(path, &bytes);
    unlink(path);
    fixture_write_file(path, text, bytes);
    rc = dataset_open_image(images.data, train, &cache_defaults, &taken);
    tap_ok(rc == ERR_OK && taken == NULL, "nor one that was replaced since");
    free(text);
    dataset_close(set);
    buffer_free(&images);
}

static void tests(struct world *world)
{
    char train[FSIO_PATH_MAX + 8], eval[FSIO_PATH_MAX + 8];
    char other[FSIO_PATH_MAX + 8];
    snprintf(train, sizeof train, "%s/train", world->folder);
    snprintf(eval, sizeof eval, "%s/eval", world->folder);
    snprintf(other, sizeof other, "%s/other", world->folder);
    if (getenv("SHARDS") != NULL)
        shards = atoi(getenv("SHARDS"));
    if (world->rank == 0) {
        make_index(train, "0123456789abcdef0123456789abcdef0123456789abcdef"
                          "01234567");
        make_index(eval, "ffffffffffffffffffffffffffffffffffffffffffffffff"
                         "ffffffff");
        if (symlink(train, other) != 0)
            perror(other);
    }
    comm_barrier(world->comm);
    test_shared(world, train, eval);
    if (world->ranks > 1)
        test_apart(world, train, other);
    if (world->rank == 0)
        test_changed(train);
}

int main(int argc, char **argv)
{
    return world_main(argc, argv, 4, 16, tests);
}
