/* Making, reading and looking at data sets while memory or files fail. */

#include "src/data/prepare/scan.h"
#include "src/data/set/loader_ahead.h"
#include "tests/faults.h"
#include "tests/data_packed.h"

#define SAMPLES 24
#define LENGTH 8

static const char text[] = "one two three\n--\nfour five six, seven eight\n--\n"
                           "nine ten eleven twelve thirteen fourteen\n";
static const char lines[] =
    "{\"text\": \"one two three four five six\"}\n\n{\"id\": 1, \"text\": "
    "\"three \\u00e9 four five six seven eight nine\"}\n";
static const char talks[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": "
    "\"assistant\", \"content\": \"Hello\"}, {\"role\": \"user\", "
    "\"content\": \"Bye\"}, {\"role\": \"assistant\", \"content\": \"So "
    "long\"}]}\n{\"prompt\": \"1 + 1\", \"response\": \"2\"}\n";
static const char *const packed[] = { "gz", "zstd", "bz2", "snappy", "br" };

/* All samples of a set, through a cache where it needs one. */
static enum err read_set(const char *path)
{
    enum err rc = ERR_OK;
    struct dataset *set = NULL;
    struct scan_result result = { 0 };
    TRY_OUT(dataset_open(path, &set));
    TRY_OUT(scan_verify(set, false, NULL, &result));
    if (result.tokens != SAMPLES * LENGTH)
        rc = err_set(ERR_INTERNAL, "other tokens");
out:
    dataset_close(set);
    return rc;
}

static enum err read_address(void)
{
    char here[FSIO_PATH_MAX / 2], address[FSIO_PATH_MAX];
    if (getcwd(here, sizeof here) == NULL)
        return err_errno("the folder");
    TRY(fsio_path(address, "file://%s/packed0", here));
    return read_set(address);
}

/* Batches of a mixture, read ahead. */
static enum err load(enum order_kind kind, int count)
{
    static const struct mixture_curve curves[] = {
        { 2, { { 0, 1, false }, { 4, 3, false } } }, { 1, { { 0, 2, false } } }
    };
    static const char *const names[] = { "a", "b" };
    static const int64_t begin[] = { 0, 0 }, offsets[] = { 0, 4 },
                         shard[] = { 8, 8, 8 };
    enum err rc = ERR_OK;
    struct dataset *sets[2] = { NULL, NULL };
    struct order *order = NULL;
    struct loader_ahead *ahead = NULL;
    struct batch *batch = NULL;
    const struct stream stream = { .samples = SAMPLES,
                                   .shards = shard,
                                   .shard_count = 3 };
    const struct stream streams[] = { stream, stream };
    const struct order_spec spec = {
        .kind = kind,
        .seed = 1,
        .batch = 8,
        .count = count,
        .streams = streams,
        .curves = count > 1 ? curves : NULL,
        .names = names,
        .begin = begin,
        .streaming = { .nodes = 2, .block = 8, .seed = 7 },
    };
    TRY_OUT(dataset_open("base", &sets[0]));
    TRY_OUT(dataset_open("base", &sets[1]));
    TRY_OUT(order_create(&spec, &order));
    const struct loader_ahead_plan plan = { .datasets = sets,
                                            .dataset_count = count,
                                            .order = order,
                                            .depth = 2,
                                            .samples = 4,
                                            .seq_len = LENGTH,
                                            .stride = 8,
                                            .offsets = offsets,
                                            .count = 2 };
    TRY_OUT(loader_ahead_create(&plan, &ahead));
    TRY_OUT(batch_create(4, LENGTH, &batch));
    for (int64_t first = 0; first < 64; first += 4)
        TRY_OUT(loader_ahead_read(ahead, first, batch));
out:
    loader_ahead_destroy(ahead);
    batch_destroy(batch);
    order_destroy(order);
    dataset_close(sets[0]);
    dataset_close(sets[1]);
    return rc;
}

static enum err load_mixture(void)
{
    return load(ORDER_CANONICAL, 2);
}

static enum err load_streaming(void)
{
    return load(ORDER_PY1E, 1);
}

#define PACKED(n)                                                              \
    static enum err read_packed##n(void)                                       \
    {                                                                          \
        return read_set("packed" #n);                                          \
    }
PACKED(0)
PACKED(1)
PACKED(2)
PACKED(3)
PACKED(4)

#define TOKENIZE "data tokenize --seq-len 16 --shard-bytes 266 --out "
/* A folder of caches that cannot be looked at is not used. */
#define CLOSED (1u << ERR_SPACE)
static const struct faults_row rows[] = {
    { .line = TOKENIZE "work/set --threads 2 --separator -- a.txt",
      .leaves = true },
    { .line = TOKENIZE "work/set --threads 1 --eval-fraction 0.3 --no-wrap "
                       "lines.jsonl",
      .leaves = true },
    { .line = TOKENIZE "work/set --threads 1 --force --bos-id 3 --no-eos a.txt",
      .copy = "set",
      /* what cannot be looked at is not replaced */
      .also = 1u << ERR_USAGE | 1u << ERR_DATA,
      .leaves = true },
    { .line = "data tokenize --chat --template chatml --seq-len 126 --out "
              "work/set talks.jsonl" },
    { .line = "data tokenize --chat --seq-len 126 --packing on --tokenizer "
              "t.json --template none --eos-id 0 --target-responses all "
              "--eval-fraction "
              "0.5 --out "
              "work/set talks.jsonl" },
    { .line = "data tokenize --seq-len 16 --out work/set --threads 1 "
              "--holdout 0.5 --encoding LATIN1 table.parquet table.arrow "
              "lines.jsonl",
      .leaves = true },
    { .line = "data tokenize --chat --template chatml --seq-len 126 --fields "
              "messages --out work/set talks.parquet" },
    { .line = "data verify set" },
    { .line = "data info set" },
    { .line = "data info --json base" },
    { .line = "data info --columns set" },
    { .line = "data head set" },
    { .line = "data head --tokens base" },
    { .line = "data merge --out work/set base base" },
    { .line = "data split --parts 3 --out work/sets base" },
    { .line = "data split --fraction 0.2 --out work/sets packed0",
      .also = CLOSED },
    { .line = "data adopt --vocab-size 257 --eos-token-id 7 work/bare",
      .copy = "bare" },
    { .line = "data train-tokenizer --vocab-size 280 --threads 2 --out "
              "work/t.json a.txt" },
    { .name = "a set that is packed by gz",
      .call = read_packed0,
      .also = CLOSED },
    { .name = "a set that is packed by zstd",
      .call = read_packed1,
      .also = CLOSED },
    { .name = "a set that is packed by bz2",
      .call = read_packed2,
      .also = CLOSED },
    { .name = "a set that is packed by snappy",
      .call = read_packed3,
      .also = CLOSED },
    { .name = "a set that is packed by br",
      .call = read_packed4,
      .also = CLOSED },
    { .name = "a set at an address", .call = read_address, .also = CLOSED },
    { .name = "a mixture", .call = load_mixture },
    { .name = "Streaming's order", .call = load_streaming },
};

int main(int argc, char **argv)
{
    size_t table_bytes = 0, talk_bytes = 0, arrow_bytes = 0;
    char *table = fixture_read("tests/fuzz/corpus/parquet/delta", &table_bytes);
    char *talk = fixture_read("tests/fuzz/corpus/parquet/talks", &talk_bytes);
    char *arrow =
        fixture_read("tests/fuzz/corpus/arrow/dictionary-zstd", &arrow_bytes);
    faults_begin();
    fixture_write_file("a.txt", text, sizeof text - 1);
    fixture_write_file("lines.jsonl", lines, sizeof lines - 1);
    fixture_write_file("talks.jsonl", talks, sizeof talks - 1);
    fixture_write_file("table.parquet", table, table_bytes);
    fixture_write_file("table.arrow", arrow, arrow_bytes);
    fixture_write_file("talks.parquet", talk, talk_bytes);
    free(table);
    free(talk);
    free(arrow);
    faults_need("data train-tokenizer --vocab-size 280 --out t.json a.txt");
    faults_need(TOKENIZE "set --separator -- a.txt");
    packed_set("base", SAMPLES, LENGTH, 400, NULL);
    packed_set("bare", SAMPLES, LENGTH, 400, NULL);
    fixture_need(fsio_remove_tree("bare/tessera.json"));
    for (int p = 0; p < 5; p++) {
        char name[] = "packed0";
        name[6] = (char)('0' + p);
        packed_set(name, SAMPLES, LENGTH, 400, packed[p]);
    }
    faults_sweep(rows, sizeof rows / sizeof *rows, argc, argv);
    return faults_done();
}
