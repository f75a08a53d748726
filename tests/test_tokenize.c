/* From text to samples: tokenizer, documents, cutting, holding out, publishing,
 * and what is computed over a whole data set. */
#include "src/data/prepare/tokenize.h"

#include <dirent.h>

#include "src/data/set/dataset.h"
#include "src/data/prepare/census.h"
#include "src/data/prepare/finished_sets.h"
#include "src/data/prepare/progress.h"
#include "src/data/prepare/scan.h"
#include "src/data/texts/text.h"
#include "src/text/tokenizer/tokenizer.h"
#include "tests/data_fixture.h"

static void test_tokenizer(void)
{
    struct tokenizer *tokenizer = NULL;
    struct tokenizer_encoder *encoder = NULL;
    struct token_list list = { 0 };
    uint8_t text[256];
    size_t bytes = 0;
    const uint8_t *back = NULL;
    for (int b = 0; b < 256; b++)
        text[b] = (uint8_t)b;
    fixture_need(tokenizer_create("bytes", &tokenizer));
    tap_is_int(tokenizer_vocab_size(tokenizer), 257, "vocabulary");
    tap_is_int(tokenizer_eos(tokenizer), 256, "end of document");
    tap_is_str(tokenizer_name(tokenizer), "bytes", "name");
    tap_is_str(
        tokenizer_sha256(tokenizer),
        "8e342d4508933bc0c040983514104d360f24c7b7ee19fa8c89347f0498342858",
        "digest, which must never change");
    fixture_need(tokenizer_encoder_create(tokenizer, &encoder));
    fixture_need(tokenizer_encode(encoder, text, 256, 0, &list));
    int bad = list.count != 256;
    for (int b = 0; b < 256; b++) {
        bad += list.token[b] != b;
        bad += tokenizer_decode(tokenizer, b, &back, &bytes) != ERR_OK;
        bad += bytes != 1 || *back != b;
    }
    tap_is_int(bad, 0, "every byte there and back");
    tap_ok(tokenizer_decode(tokenizer, 256, &back, &bytes) == ERR_OK &&
               bytes == 0,
           "the end of a document has no text");
    tap_is_int(tokenizer_decode(tokenizer, 257, &back, &bytes), ERR_DATA,
               "a token above");
    tap_is_int(tokenizer_decode(tokenizer, -1, &back, &bytes), ERR_DATA,
               "a token below");
    free(list.token);
    tokenizer_encoder_destroy(encoder);
    tokenizer_destroy(tokenizer);
    tap_is_int(tokenizer_create("bpe", &tokenizer), ERR_USAGE,
               "a tokenizer that there is not");
}

static const struct documents {
    const char *text, *separator, *want;
} documents[] = {
    { "abc", NULL, "abc|" },
    { "", NULL, "" },
    { "a\n--\nb\n", NULL, "a\n--\nb\n|" },
    { "a\n--\nb\n", "--", "a\n|b\n|" },
    { "a\n--\n--\n\n--\nb", "--", "a\n|\n|b|" },
    { "--\na\n--", "--", "a\n|" },
    { "a\n---\n-\n--x\n --\n", "--", "a\n---\n-\n--x\n --\n|" },
    { "x--\ny\n-", "--", "x--\ny\n-|" },
    { "--", "--", "" },
    { "-", "--", "-|" },
    { "\n\na\n\nb\nc\n\n\n", "", "a\n|b\nc\n|" },
    { "aab\naa\nab\n", "aa", "aab\n|ab\n|" },
};

/* The documents of a text from a place on, joined, each followed by '|'. */
static void join(const char *path, const char *separator,
                 struct text_place place, char *out)
{
    struct text *text = NULL;
    bool more = true;
    fixture_need(text_open(path, separator, true, NULL, &text));
    fixture_need(text_go(text, place));
    while (more) {
        struct text_span span;
        fixture_need(text_next(text, &span, &more));
        if (!more)
            break;
        memcpy(out, span.text, span.bytes);
        out += span.bytes;
        if (span.ends)
            *out++ = '|';
    }
    *out = '\0';
    text_close(text);
}

static void test_documents(const char *folder)
{
    const char *path = fixture_path(folder, "documents");
    char got[64];
    for (size_t i = 0; i < sizeof documents / sizeof documents[0]; i++) {
        struct text_place start = { .offset = 0 };
        fixture_write_file(path, documents[i].text, strlen(documents[i].text));
        join(path, documents[i].separator, start, got);
        tap_is_str(got, documents[i].want, "documents, case %d", (int)i);
    }
    fixture_write_file(path, "ab\n--\nc--\nd", 11);
    join(path, "--",
         (struct text_place){ .offset = 7, .inside = true, .midline = true },
         got);
    tap_is_str(got, "--\nd|", "from the middle of a line on");
    join(path, "--", (struct text_place){ .offset = 3, .inside = true }, got);
    tap_is_str(got, "|c--\nd|", "from a separator on");
    tap_is_int(text_check_separator("a\nb"), ERR_USAGE,
               "a separator of two lines");
}

/* Whether the samples of a set are the stream's tokens first..first+n-1. */
static bool holds(const char *path, const int32_t *stream, int64_t first,
                  int64_t n, int64_t seq_len)
{
    int32_t *tokens = malloc((size_t)seq_len * sizeof *tokens);
    int64_t at = 0;
    struct dataset *dataset = fixture_open(path);
    bool good = dataset_sidecar(dataset)->tokens == n &&
                dataset_contents(dataset)->samples == (n - 1) / seq_len + 1;
    for (int64_t s = 0; good && s < dataset_contents(dataset)->samples; s++) {
        int64_t length = 0;
        fixture_need(dataset_read(dataset, s, tokens, seq_len, &length));
        good = length == (n - at < seq_len ? n - at : seq_len) &&
               memcmp(tokens, stream + first + at, 4 * (size_t)length) == 0;
        at += length;
    }
    dataset_close(dataset);
    free(tokens);
    return good;
}

static struct tokenize_options make_options(const char *out)
{
    return (struct tokenize_options){ .binary = true,
                                      .out = out,
                                      .tokenizer = "bytes",
                                      .seq_len = 8,
                                      .shard_bytes = 1000 };
}

/* The files of the tests: 20 bytes, nothing, 33 bytes; the stream has 55. */
#define STREAM 55
static int32_t stream[STREAM];
static char *files[3];

static void write_files(const char *folder)
{
    static const size_t sizes[] = { 20, 0, 33 };
    static char paths[3][FSIO_PATH_MAX];
    int32_t *next = stream;
    for (int f = 0; f < 3; f++) {
        uint8_t text[64];
        for (size_t b = 0; b < sizes[f]; b++)
            text[b] = (uint8_t)(200 - 3 * b - (size_t)f);
        fixture_need(fsio_path(paths[f], "%s/text%d", folder, f));
        fixture_write_file(paths[f], text, sizes[f]);
        files[f] = paths[f];
        for (size_t b = 0; b < sizes[f]; b++)
            *next++ = text[b];
        if (sizes[f] > 0)
            *next++ = 256;
    }
}

static void test_cutting(const char *folder)
{
    static const int64_t seq_lens[] = { 2, 3, 5, 8, 11, 54, 55, 56, 1000 };
    struct tokenize_result result;
    char out[FSIO_PATH_MAX];
    snprintf(out, sizeof out, "%s", fixture_path(folder, "cut"));
    for (size_t i = 0; i < sizeof seq_lens / sizeof seq_lens[0]; i++) {
        struct tokenize_options options = make_options(out);
        options.seq_len = seq_lens[i];
        options.shard_bytes = 8192;
        options.replace = i > 0;
        enum err rc = tokenize_files(&options, files, 3, &result);
        tap_ok(rc == ERR_OK && result.tokens == STREAM &&
                   result.documents == 2 && result.bytes == 53 &&
                   holds(out, stream, 0, STREAM, seq_lens[i]),
               "samples of %d tokens", (int)seq_lens[i]);
    }
}

static const struct division {
    double fraction;
    int64_t train, eval; /* samples of 8 tokens, of 7 */
} divisions[] = {
    { 1e-9, 6, 1 }, { 0.2, 6, 1 },   { 0.3, 5, 2 },
    { 0.5, 3, 4 },  { 0.999, 1, 6 },
};

static void test_division(const char *folder)
{
    struct tokenize_result result;
    char out[FSIO_PATH_MAX];
    snprintf(out, sizeof out, "%s", fixture_path(folder, "divided"));
    for (size_t i = 0; i < sizeof divisions / sizeof divisions[0]; i++) {
        const struct division *want = &divisions[i];
        struct tokenize_options options = make_options(out);
        options.eval_fraction = want->fraction;
        options.replace = i > 0;
        enum err rc = tokenize_files(&options, files, 3, &result);
        int64_t cut = 8 * want->train;
        tap_ok(
            rc == ERR_OK && result.samples == want->train &&
                result.eval_samples == want->eval &&
                holds(fixture_path(out, "train"), stream, 0, cut, 8) &&
                holds(fixture_path(out, "eval"), stream, cut, STREAM - cut, 8),
            "hold out %g", want->fraction);
    }
}

/* Entries of a folder beside . and .. */
static int entries(const char *path)
{
    DIR *folder = opendir(path);
    int count = -2;
    while (folder != NULL && readdir(folder) != NULL)
        count++;
    if (folder != NULL)
        closedir(folder);
    return count;
}

static int stop_now(void)
{
    return 15;
}

/* What is refused leaves the folder as it was. */
static void refused(const char *folder, struct tokenize_options options,
                    char *file, enum err want, const char *text)
{
    struct tokenize_result result;
    char out[FSIO_PATH_MAX];
    int before = entries(folder);
    snprintf(out, sizeof out, "%s/refused", folder);
    if (options.out == NULL)
        options.out = out;
    enum err rc = tokenize_files(&options, &file, 1, &result);
    tap_ok(rc == want && strstr(err_text(), text) != NULL &&
               entries(folder) == before,
           "refused: %s: %s", err_name(rc), err_text());
}

/* Of make_options() what is 0 here. */
static const struct {
    struct tokenize_options options;
    enum err want;
    const char *text;
} refusals[] = {
    { { .seq_len = 1 }, ERR_USAGE, "--seq-len" },
    { { .seq_len = TOKENIZE_SEQ_LEN_MAX + 1 }, ERR_USAGE, "--seq-len" },
    { { .shard_bytes = 200 }, ERR_USAGE, "--shard-bytes" },
    { { .shard_bytes = (int64_t)1 << 32 }, ERR_USAGE, "32-bit" },
    { { .eval_fraction = 1 }, ERR_USAGE, "--eval-fraction" },
    { { .eval_fraction = (double)NAN }, ERR_USAGE, "--eval-fraction" },
    { { .eval_fraction = 0.5, .seq_len = 21 }, ERR_DATA, "one sample" },
    { { .tokenizer = "bpe" }, ERR_USAGE, "bpe" },
    { { .stop = stop_now }, ERR_IO, "interrupted" },
    { { .no_eos = true, .eos_given = true }, ERR_USAGE, "exclude" },
    { { .eos_given = true, .eos_token = 257 }, ERR_USAGE, "vocabulary" },
    { { .bos_given = true, .bos_token = 1000 }, ERR_USAGE, "--bos-id 1000" },
    { { .threads = 1000 }, ERR_USAGE, "--threads" },
    { { .field = "text" }, ERR_DATA, ":1: not valid" },
};

static void test_refusals(const char *folder)
{
    struct tokenize_options options = make_options(NULL), text = options;
    char path[FSIO_PATH_MAX];
    snprintf(path, sizeof path, "%s", fixture_path(folder, "missing"));
    refused(folder, options, path, ERR_DATA, path);
    snprintf(path, sizeof path, "%s", folder);
    refused(folder, options, path, ERR_DATA, "is a data set, not text");
    snprintf(path, sizeof path, "%s", fixture_path(folder, "hollow"));
    fixture_need(fsio_mkdirs(path));
    refused(folder, options, path, ERR_DATA, "is a folder without files");
    refused(folder, options, files[1], ERR_DATA, "no text");
    snprintf(path, sizeof path, "%s", fixture_path(folder, "packed"));
    fixture_write_file(path, "\x1f\x8b\x08\0\0\0\0\0\0\0\0\0", 12);
    refused(folder, options, path, ERR_DATA, "packed");
    fixture_write_file(path, "\x28\xb5\x2f\xfd\0", 5);
    refused(folder, options, path, ERR_DATA, "packed");
    fixture_write_file(path, "\xfd\x37zXZ\0\0", 7);
    text.binary = false;
    refused(folder, text, path, ERR_DATA, "xz -dc");
    for (size_t r = 0; r < sizeof refusals / sizeof *refusals; r++) {
        struct tokenize_options other = refusals[r].options;
        other.binary = true;
        if (other.tokenizer == NULL)
            other.tokenizer = options.tokenizer;
        if (other.seq_len == 0)
            other.seq_len = options.seq_len;
        if (other.shard_bytes == 0)
            other.shard_bytes = options.shard_bytes;
        refused(folder, other, files[0], refusals[r].want, refusals[r].text);
    }
}

static void test_replacing(const char *folder)
{
    struct tokenize_options options = make_options(NULL);
    char path[FSIO_PATH_MAX];
    snprintf(path, sizeof path, "%s", fixture_path(folder, "cut"));
    options.out = path;
    refused(folder, options, files[0], ERR_USAGE, "--force");
    options.replace = true;
    snprintf(path, sizeof path, "%s", folder);
    refused(folder, options, files[0], ERR_USAGE, "--force does not replace");
    snprintf(path, sizeof path, "%s", files[0]);
    refused(folder, options, files[0], ERR_USAGE, "--force does not replace");
    snprintf(path, sizeof path, "%s/..", folder);
    refused(folder, options, files[0], ERR_USAGE, "does not name");
    snprintf(path, sizeof path, "%s", fixture_path(folder, "empty"));
    struct tokenize_result result;
    fixture_need(fsio_mkdirs(path));
    tap_is_int(tokenize_files(&options, files, 3, &result), ERR_OK,
               "an empty folder is replaced");
    snprintf(path, sizeof path, "%s/new/er//", folder);
    tap_is_int(tokenize_files(&options, files, 3, &result), ERR_OK,
               "folders on the way are made");
    tap_is_int(entries(fixture_path(folder, "new/er")), 3,
               "... and hold index, sidecar and shard");
    tap_is_int(entries(fixture_path(folder, "new")), 1, "... and nothing else");
}

/* Same input, same bytes. */
static void test_reproducible(const char *folder)
{
    struct tokenize_result result;
    char ids[2][65], out[FSIO_PATH_MAX];
    for (int i = 0; i < 2; i++) {
        struct tokenize_options options = make_options(out);
        snprintf(out, sizeof out, "%s/same%d", folder, i);
        fixture_need(tokenize_files(&options, files, 3, &result));
        struct dataset *dataset = fixture_open(out);
        snprintf(ids[i], sizeof ids[i], "%s", dataset_id(dataset));
        dataset_close(dataset);
    }
    tap_is_str(ids[1], ids[0], "the same text gives the same id");
}

static void test_entropy(void)
{
    static const int64_t even[] = { 3, 0, 3, 3, 3 }, one[] = { 0, 9, 0 };
    static const int64_t uneven[] = { 1, 2, 1 };
    tap_is_close(census_entropy(even, 5), log(4), 1e-15, "even counts");
    tap_is_close(census_entropy(uneven, 3), 1.5 * log(2), 1e-15, "1, 2 and 1");
    tap_is_close(census_entropy(one, 3), 0, 0, "one token only");
    tap_is_close(census_entropy(even, 0), 0, 0, "no token");
}

/* So far, by this process. */
static int64_t calls_to_read(void)
{
    long long calls = 0;
    char line[128];
    FILE *file = fopen("/proc/self/io", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        (void)sscanf(line, "syscr: %lld", &calls);
    fclose(file);
    return calls;
}

static void test_describe(const char *folder)
{
    struct census census;
    const struct census *info = &census;
    const struct show_options last = { 6, 9, NULL, true };
    const struct show_options none = { 7, 1, NULL, true };
    struct scan_result result;
    char *text = NULL, *lines = NULL;
    size_t bytes = 0;
    const char *path = fixture_path(folder, "same0");
    fixture_need(census_dataset(path, false, NULL, &census));
    tap_ok(info->samples == 7 && info->tokens == STREAM && info->longest == 8 &&
               info->vocab_size == 257,
           "description");
    fixture_need(census_format(&census, true, &text));
    tap_ok(strstr(text, "\"tokens\": 55") != NULL, "as JSON");
    free(text);
    int64_t before = calls_to_read();
    struct dataset *dataset = fixture_open(path);
    fixture_need(scan_samples(dataset, NULL, false, NULL, &result));
    dataset_close(dataset);
    int64_t once = calls_to_read() - before;
    fixture_need(census_dataset(path, false, NULL, &census));
    int64_t told = calls_to_read() - before - once;
    tap_ok(once >= 7 && told < once + 7,
           "no sample is read twice to describe the set: %lld and %lld",
           (long long)once, (long long)told);
    dataset = fixture_open(path);
    tap_is_int(scan_verify(dataset, false, NULL, &result), ERR_OK, "verified");
    tap_is_int(scan_verify(dataset, false, stop_now, &result), ERR_IO,
               "verifying can be interrupted");
    FILE *out = open_memstream(&lines, &bytes);
    fixture_need(show_samples(dataset, &last, out));
    fclose(out);
    char want[64];
    snprintf(want, sizeof want, "%d %d %d %d %d %d 256\n", stream[48],
             stream[49], stream[50], stream[51], stream[52], stream[53]);
    tap_is_str(lines, want, "printed tokens");
    free(lines);
    tap_is_int(show_samples(dataset, &none, stdout), ERR_USAGE,
               "no such sample");
    dataset_close(dataset);
}

static enum err adopt(const char *path, const char *tokenizer,
                      int64_t vocab_size)
{
    struct scan_result result;
    struct scan_adoption adoption = { .tokenizer = tokenizer,
                                      .vocab_size = vocab_size,
                                      .eos_token = -1,
                                      .bos_token = -1 };
    return scan_adopt(path, &adoption, false, NULL, &result);
}

static void test_adopt(const char *folder)
{
    static const int64_t lengths[] = { 4, 300, 1 };
    char path[FSIO_PATH_MAX];
    snprintf(path, sizeof path, "%s", fixture_path(folder, "adopted"));
    fixture_dataset(folder, "adopted", lengths, 3, 900, false);
    tap_is_int(adopt(path, "x", 257), ERR_USAGE,
               "a data set that is described already");
    unlink(fixture_path(path, SIDECAR_NAME));
    tap_is_int(adopt(path, "x", 256), ERR_DATA,
               "a vocabulary that is too small");
    tap_is_int(adopt(path, "bytes", 300), ERR_USAGE,
               "another vocabulary than the tokenizer's");
    tap_is_int(adopt(path, "", 300), ERR_USAGE, "a tokenizer without a name");
    tap_is_int(adopt(path, "x", 0), ERR_USAGE, "no vocabulary");
    tap_ok(!fsio_exists(fixture_path(path, SIDECAR_NAME)),
           "a refusal writes nothing");
    tap_is_int(adopt(path, "some-bpe", 300), ERR_OK, "adopted");
    struct dataset *dataset = fixture_open(path);
    tap_ok(dataset_sidecar(dataset)->vocab_size == 300 &&
               dataset_sidecar(dataset)->tokens == 305 &&
               dataset_sidecar(dataset)->eos_token == -1,
           "... with what was counted");
    dataset_close(dataset);
}

static void test_progress(void)
{
    char text[256];
    struct progress progress;
    progress_begin(&progress, "tokenizing", NULL, 4096);
    progress.done = 1024;
    progress_format(&progress, 2, text, sizeof text);
    tap_ok(strstr(text, "tokenizing: 1") != NULL &&
               strstr(text, "(25%)") != NULL && strstr(text, "512") != NULL &&
               strstr(text, "ETA 6") != NULL,
           "%s", text);
    progress_begin(&progress, "reading", "samples", -1);
    progress.done = 30;
    progress_format(&progress, 10, text, sizeof text);
    tap_ok(strstr(text, "30 samples, 3/s") != NULL ||
               strstr(text, "30 samples, 3.0/s") != NULL,
           "%s", text);
    tap_ok(strstr(text, "ETA") == NULL, "no end in sight, no ETA");
    progress_update(NULL, 3);
    progress_end(&progress);
}

int main(void)
{
    const char *folder = tap_folder();
    write_files(folder);
    test_tokenizer();
    test_documents(folder);
    test_cutting(folder);
    test_division(folder);
    test_refusals(folder);
    test_replacing(folder);
    test_reproducible(folder);
    test_entropy();
    test_describe(folder);
    test_adopt(folder);
    test_progress();
    return tap_done();
}
