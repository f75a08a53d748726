/* Batches: labels, padding, documents, epochs. */
#include "src/data/set/loader.h"

#include "src/data/set/order.h"

#include "src/data/mds/mds_encoding.h"
#include "tests/data_fixture.h"

#define IGNORE LOADER_IGNORE

/* One data set whose samples are chosen for their rows. */
static void write_rows(const char *folder, const char *name, int64_t eos)
{
    static const int32_t rows[][6] = {
        { 5, 6, 7, 8, 9, 10 }, { 1, 2, 256, 3, 256, 4 }, { 7 }, { 1, 256 },
        { 256, 256, 1, 0, 2 },
    };
    static const int64_t lengths[] = { 6, 6, 1, 2, 5 };
    struct mds_writer *writer = NULL;
    struct sidecar sidecar = fixture_sidecar(5, 20);
    sidecar.eos_token = eos;
    const char *path = fixture_path(folder, name);
    fixture_need(fsio_mkdirs(path));
    fixture_need(mds_writer_create_tokens(path, 400, false, &writer));
    for (int s = 0; s < 5; s++)
        fixture_need(mds_writer_add(writer, rows[s], lengths[s]));
    fixture_need(mds_writer_finish(writer));
    fixture_need(sidecar_write(path, &sidecar));
    mds_writer_destroy(writer);
}

static bool same(const int32_t *got, const int32_t *want, const char *what)
{
    for (int t = 0; t < 6; t++)
        if (got[t] != want[t]) {
            tap_note("%s at %d: got %d, want %d", what, t, got[t], want[t]);
            return false;
        }
    return true;
}

static const struct row {
    int64_t sample;
    int32_t tokens[6], labels[6], ids[6];
    int64_t loss_tokens;
} rows[] = {
    { 0, TUPLE(5, 6, 7, 8, 9, 10), TUPLE(6, 7, 8, 9, 10, IGNORE),
      TUPLE(0, 0, 0, 0, 0, 0), 5 },
    { 1, TUPLE(1, 2, 256, 3, 256, 4), TUPLE(2, 256, 3, 256, 4, IGNORE),
      TUPLE(0, 0, 0, 1, 1, 2), 5 },
    { 2, TUPLE(7, 0, 0, 0, 0, 0),
      TUPLE(IGNORE, IGNORE, IGNORE, IGNORE, IGNORE, IGNORE),
      TUPLE(0, 0, 0, 0, 0, 0), 0 },
    { 3, TUPLE(1, 256, 0, 0, 0, 0),
      TUPLE(256, IGNORE, IGNORE, IGNORE, IGNORE, IGNORE),
      TUPLE(0, 0, 0, 0, 0, 0), 1 },
    { 4, TUPLE(256, 256, 1, 0, 2, 0), TUPLE(256, 1, 0, 2, IGNORE, IGNORE),
      TUPLE(0, 1, 2, 2, 2, 2), 4 },
};

static struct order *make_order(enum order_kind kind, uint64_t seed,
                                int64_t samples)
{
    struct order *order = NULL;
    struct stream stream = { .samples = samples };
    struct order_spec spec = {
        .kind = kind, .seed = seed, .count = 1, .streams = &stream
    };
    fixture_need(order_create(&spec, &order));
    return order;
}

/* A set in its own order, and a batch of it. */
struct reading {
    struct dataset *dataset;
    struct order *order;
    struct batch *batch;
};

static struct reading begin(const char *path, int64_t samples, int64_t seq_len)
{
    struct reading reading = { .dataset = fixture_open(path) };
    reading.order = make_order(ORDER_STRAIGHT, 0,
                               dataset_contents(reading.dataset)->samples);
    fixture_need(batch_create(samples, seq_len, &reading.batch));
    return reading;
}

static enum err read_rows(struct reading *reading, int64_t first, int64_t count)
{
    return loader_read(&reading->dataset, reading->order, first, count,
                       reading->batch);
}

static void end(struct reading *reading)
{
    batch_destroy(reading->batch);
    order_destroy(reading->order);
    dataset_close(reading->dataset);
}

static void test_rows(const char *folder)
{
    struct reading reading = begin(fixture_path(folder, "rows"), 5, 6);
    struct batch *batch = reading.batch;
    fixture_need(read_rows(&reading, 0, 5));
    tap_is_int(batch->samples, 5, "rows");
    tap_is_int(batch->loss_tokens, 15, "labels that bear loss");
    for (int r = 0; r < 5; r++) {
        tap_is_int(batch->sample_ids[r], rows[r].sample, "sample id %d", r);
        tap_ok(same(batch->tokens + 6 * r, rows[r].tokens, "tokens") &&
                   same(batch->labels + 6 * r, rows[r].labels, "labels") &&
                   same(batch->sequence_ids + 6 * r, rows[r].ids, "ids"),
               "row %d", r);
    }
    /* Rows are filled afresh: a long one leaves nothing in a short one. */
    for (int r = 0; r < 5; r++) {
        fixture_need(read_rows(&reading, r, 1));
        tap_ok(batch->samples == 1 &&
                   batch->loss_tokens == rows[r].loss_tokens &&
                   same(batch->tokens, rows[r].tokens, "tokens") &&
                   same(batch->labels, rows[r].labels, "labels") &&
                   same(batch->sequence_ids, rows[r].ids, "ids"),
               "sample %d alone", r);
    }
    fixture_need(read_rows(&reading, 3, 0));
    tap_ok(batch->samples == 0 && batch->loss_tokens == 0, "no rows at all");
    end(&reading);
}

/* Sample 1 is 1, 2, 256, 3, 256, 4. */
static void test_no_eos(const char *folder)
{
    static const int32_t zeros[6] = { 0 }, ids[6] = { 0, 0, 1, 1, 2, 2 };
    char path[FSIO_PATH_MAX];
    struct sidecar sidecar;
    snprintf(path, sizeof path, "%s", fixture_path(folder, "no-eos"));
    struct reading reading = begin(path, 1, 6);
    fixture_need(read_rows(&reading, 1, 1));
    tap_ok(same(reading.batch->sequence_ids, zeros, "ids"),
           "one document where no token ends one");
    end(&reading);
    fixture_need(sidecar_read(path, &sidecar));
    sidecar.bos_token = 256;
    fixture_need(sidecar_write(path, &sidecar));
    sidecar_release(&sidecar);
    reading = begin(path, 1, 6);
    fixture_need(read_rows(&reading, 1, 1));
    tap_ok(same(reading.batch->sequence_ids, ids, "ids"),
           "a document begins with the token that begins one");
    end(&reading);
}

static void test_epochs(const char *folder)
{
    struct batch *batch = NULL;
    struct order *straight = make_order(ORDER_STRAIGHT, 0, 5);
    struct order *shuffled = make_order(ORDER_CANONICAL, 17, 5);
    struct dataset *dataset = fixture_open(fixture_path(folder, "rows"));
    fixture_need(batch_create(12, 6, &batch));
    fixture_need(loader_read(&dataset, straight, 3, 12, batch));
    int bad = 0;
    for (int r = 0; r < 12; r++)
        bad += batch->sample_ids[r] != (3 + r) % 5;
    tap_is_int(bad, 0, "positions beyond the data set wrap");
    fixture_need(loader_read(&dataset, shuffled, 2, 12, batch));
    for (int r = 0; r < 12; r++) {
        int64_t sample = order_canonical(17, 5, 2 + r);
        bad += batch->sample_ids[r] != sample ||
               !same(batch->tokens + 6 * r, rows[sample].tokens, "tokens");
    }
    tap_is_int(bad, 0, "the order decides, across epochs");
    batch_destroy(batch);
    order_destroy(straight);
    order_destroy(shuffled);
    dataset_close(dataset);
}

static void test_failures(const char *folder)
{
    struct reading reading = begin(fixture_path(folder, "rows"), 5, 5);
    struct batch *batch = reading.batch;
    tap_is_int(read_rows(&reading, 0, 5), ERR_DATA,
               "a sample longer than seq_len");
    tap_ok(strstr(err_text(), "seq_len") != NULL &&
               strstr(err_text(), "6 tokens") != NULL,
           "the text names the setting: %s", err_text());
    fixture_need(read_rows(&reading, 2, 3));
    batch->truncate = true;
    fixture_need(read_rows(&reading, 0, 5));
    static const int32_t first[] = { 5, 6, 7, 8, 9 };
    static const int32_t labels[] = { 6, 7, 8, 9, LOADER_IGNORE };
    tap_ok(memcmp(batch->tokens, first, sizeof first) == 0 &&
               memcmp(batch->labels, labels, sizeof labels) == 0,
           "... or is cut as asked, without the label beyond");
    end(&reading);
    tap_is_int(batch_create(INT64_MAX / 2, INT64_MAX / 2, &batch), ERR_MEMORY,
               "a batch that does not fit");
    batch_destroy(NULL);
}

/* Sets whose samples say where documents lie and what is learned, and the batch
 * that they give: each with either column alone, and both. */
static const int32_t marked_tokens[6] = { 5, 256, 7, 8, 256, 9 };
static const struct marked {
    bool mask, lengths;
    int32_t labels[6], ids[6];
    int64_t loss_tokens;
} marked[] = {
    { true, true, TUPLE(256, 7, IGNORE, 256, IGNORE, IGNORE),
      TUPLE(0, 0, 0, 1, 1, 1), 3 },
    { true, false, TUPLE(256, 7, IGNORE, 256, IGNORE, IGNORE),
      TUPLE(0, 0, 1, 1, 1, 2), 3 },
    { false, true, TUPLE(256, 7, IGNORE, 256, 9, IGNORE),
      TUPLE(0, 0, 0, 1, 1, 1), 4 },
};

static void write_marked(const char *path, const struct marked *row)
{
    static const uint8_t mask[6] = { 1, 1, 1, 0, 1, 0 };
    static const int32_t lengths[2] = { 3, 3 };
    static const struct mds_column columns[] = {
        { "tokens", "ndarray:int32" },
        { "loss_mask", "ndarray:uint8" },
        { "lengths", "ndarray:int32" },
    };
    const void *data[] = { marked_tokens, mask, lengths };
    struct mds_column used[3];
    struct mds_field fields[3];
    struct buffer buffer[3] = { { 0 } };
    struct mds_writer_options options = { .columns = used, .size_limit = 4000 };
    struct mds_writer *writer = NULL;
    const struct sidecar sidecar = fixture_sidecar(1, 6);
    for (int c = 0; c < 3; c++) {
        if ((c == 1 && !row->mask) || (c == 2 && !row->lengths))
            continue;
        int at = options.count++;
        used[at] = columns[c];
        fixture_need(mds_encode_ndarray(
            values_code(strchr(columns[c].encoding, ':') + 1), data[c],
            c == 2 ? 2 : 6, &buffer[at]));
        fields[at] = (struct mds_field){ buffer[at].data, buffer[at].bytes };
    }
    fixture_need(fsio_mkdirs(path));
    fixture_need(mds_writer_create(path, &options, &writer));
    fixture_need(mds_writer_add_fields(writer, fields));
    fixture_need(mds_writer_finish(writer));
    fixture_need(sidecar_write(path, &sidecar));
    mds_writer_destroy(writer);
    for (int c = 0; c < 3; c++)
        free(buffer[c].data);
}

static void test_marks(const char *folder)
{
    for (size_t m = 0; m < sizeof marked / sizeof *marked; m++) {
        char path[FSIO_PATH_MAX];
        snprintf(path, sizeof path, "%s/marked%d", folder, (int)m);
        write_marked(path, &marked[m]);
        struct reading reading = begin(path, 1, 6);
        struct batch *batch = reading.batch;
        fixture_need(read_rows(&reading, 0, 1));
        tap_ok(same(batch->tokens, marked_tokens, "tokens") &&
                   same(batch->labels, marked[m].labels, "labels") &&
                   same(batch->sequence_ids, marked[m].ids, "ids") &&
                   batch->loss_tokens == marked[m].loss_tokens,
               "loss_mask %d, lengths %d", marked[m].mask, marked[m].lengths);
        batch->joined = true;
        tap_ok(read_rows(&reading, 0, 1) ==
                       (marked[m].lengths ? ERR_DATA : ERR_OK) &&
                   (!marked[m].lengths ||
                    strstr(err_text(), "attn_uses_sequence_id") != NULL),
               "packed samples are not read as one text");
        end(&reading);
        /* cut within the second document */
        reading = begin(path, 1, 4);
        batch = reading.batch;
        batch->truncate = true;
        fixture_need(read_rows(&reading, 0, 1));
        tap_ok(batch->labels[3] == IGNORE && batch->loss_tokens == 2 &&
                   batch->labels[2] == IGNORE &&
                   batch->sequence_ids[3] == marked[m].ids[3],
               "... cut");
        end(&reading);
    }
}

int main(void)
{
    const char *folder = tap_folder();
    write_rows(folder, "rows", 256);
    write_rows(folder, "no-eos", -1);
    test_rows(folder);
    test_no_eos(folder);
    test_epochs(folder);
    test_failures(folder);
    test_marks(folder);
    return tap_done();
}
