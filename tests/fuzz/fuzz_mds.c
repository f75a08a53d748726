/* An MDS shard whose index agrees about its length and number of samples: all
 * of them are read as training does and column by column. The first byte says
 * which columns there are, the rest is the file. */

#include "src/data/mds/mds.h"
#include "src/data/mds/mds_table.h"
#include "tests/fuzz/fuzz.h"

#define SAMPLES_MAX 64

static const char *const encodings[] = {
    "ndarray:int32", "ndarray",       "bytes",   "ndarray:uint8:2,2",
    "uint16",        "ndarray:int64", "str",     "json",
    "str_int",       "str_float",     "float16", "ndarray:float32",
    "jpeg",          "str_decimal",   "int",     "nobody knows",
};

struct fuzz_set {
    struct mds_layout_column columns[3];
    struct mds_layout layout;
    struct mds_shard_info info;
};

static void lay_out(struct fuzz_set *set, unsigned choice)
{
    static char names[3][8] = { "tokens", "a", "b" };
    memset(set, 0, sizeof *set);
    set->layout.columns = 1 + (int)(choice >> 4) % 3;
    set->layout.column = set->columns;
    for (int r = 0; r < MDS_ROLES; r++)
        set->layout.role[r] = -1;
    set->layout.role[MDS_TOKENS] = 0;
    for (int c = 0; c < set->layout.columns; c++) {
        struct mds_layout_column *column = &set->columns[c];
        unsigned which = (choice + 5 * (unsigned)c) % 16;
        column->name = names[c];
        column->text = (char *)encodings[which];
        mds_encoding_parse(encodings[which], &column->encoding);
        column->bytes = mds_encoding_bytes(&column->encoding);
        set->layout.head_bytes += column->bytes < 0 ? 4 : 0;
    }
    set->info.layout = &set->layout;
}

static void read_sample(const struct mds_shard *shard, int64_t sample,
                        const struct fuzz_set *set, FILE *null)
{
    struct buffer buffer = { 0 };
    struct mds_span spans[3];
    struct mds_sample out;
    struct mds_value value;
    if (mds_encoding_check_tokens(&set->columns[0].encoding, "") == ERR_OK &&
        mds_shard_read(shard, sample, 0, &buffer, &out) == ERR_OK) {
        const struct values *tokens = &out.value[MDS_TOKENS];
        int32_t *copy = malloc((size_t)tokens->count * sizeof *copy);
        assert(tokens->count > 0 && copy != NULL);
        (void)values_tokens(tokens, tokens->count, 257, copy);
        free(copy);
    }
    if (mds_shard_columns(shard, sample, &buffer, spans) == ERR_OK)
        for (int c = 0; c < set->layout.columns; c++)
            if (mds_column_decode(&set->columns[c], &spans[c], &value) ==
                ERR_OK)
                assert(mds_column_print(&value, null) == ERR_OK);
    free(buffer.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static FILE *null;
    struct fuzz_set set;
    struct mds_shard *shard = NULL;
    uint32_t samples = 0;
    if (bytes < 13)
        return 0;
    if (null == NULL)
        null = fopen("/dev/null", "w");
    lay_out(&set, data[0]);
    memcpy(&samples, data + 1, sizeof samples);
    set.info.bytes = (int64_t)bytes - 1;
    set.info.samples = samples;
    /* what an index with these figures is refused for */
    if (samples > SAMPLES_MAX || 4 * (int64_t)samples + 8 > set.info.bytes)
        return 0;
    assert(null != NULL);
    const char *path = fuzz_file(data + 1, bytes - 1);
    if (mds_shard_open(path, path, &set.info, false, 65536, &shard) != ERR_OK)
        return 0;
    for (int64_t s = 0; s < samples; s++)
        read_sample(shard, s, &set, null);
    mds_shard_close(shard);
    return 0;
}
