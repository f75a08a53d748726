/* Tokenizing that is stopped on the way goes on, and its output has the bytes
 * of an undisturbed one, whatever the number of threads, the kind of input and
 * the way of cutting; and what a sample is made of. */
#include <dirent.h>

#include "src/base/digest.h"
#include "src/base/rng.h"
#include "src/data/set/dataset.h"
#include "src/data/prepare/tokenize.h"
#include "tests/data_fixture.h"

#define SAMPLE 50

/* The digest of all files of a folder, by name. */
static void add_folder(struct digest *digest, const char *path)
{
    struct dirent **names = NULL;
    int count = scandir(path, &names, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char inner[FSIO_PATH_MAX];
        char *data = NULL;
        size_t bytes = 0;
        fixture_need(fsio_path(inner, "%s/%s", path, names[i]->d_name));
        if (names[i]->d_type == DT_DIR && names[i]->d_name[0] != '.') {
            add_folder(digest, inner);
        } else if (names[i]->d_type != DT_DIR) {
            data = fixture_read(inner, &bytes);
            fixture_need(digest_update(digest, inner + strlen(path),
                                       strlen(inner + strlen(path))));
            fixture_need(digest_update(digest, data, bytes));
            free(data);
        }
        free(names[i]);
    }
    free(names);
}

static const char *digest_of(const char *path)
{
    static char hex[2][65];
    static int next;
    struct digest *digest = NULL;
    fixture_need(digest_create(&digest));
    add_folder(digest, path);
    fixture_need(digest_finish(digest, hex[next ^= 1]));
    digest_destroy(digest);
    return hex[next];
}

/* Documents of random lengths: words, divided by lines of '%'. */
static void write_text(const char *path, size_t bytes, uint64_t seed)
{
    FILE *file = fopen(path, "wb");
    for (uint64_t at = 0, i = 0; at < bytes; i++) {
        uint64_t word = rng_u64(seed, 0, i);
        uint64_t long_one = word % 4001 == 0 ? 300000 : 0;
        if (word % 97 == 0) {
            fputs("\n%\n", file);
            continue;
        }
        for (uint64_t c = 0; c < word % 7 + 1 + long_one; c++, at++)
            fputc((int)('a' + (word + c) % 26), file);
        fputc(word % 11 == 0 ? '\n' : ' ', file);
    }
    fclose(file);
}

static void write_lines(const char *path, size_t bytes, uint64_t seed)
{
    FILE *file = fopen(path, "wb");
    for (uint64_t at = 0, i = 0; at < bytes; i++) {
        uint64_t word = rng_u64(seed, 0, i);
        uint64_t length = word % 1009 == 0 ? 2500000 : word % 900;
        fprintf(file, "{\"id\": %d, \"text\": \"", (int)i);
        for (uint64_t c = 0; c < length; c++, at++)
            fputs(c % 50 == 49 ? "\\n\\u00e4" : "x", file);
        fputs("\"}\n", file);
    }
    fclose(file);
}

static int polls, polls_max;
static int stop_after(void)
{
    return ++polls > polls_max ? 15 : 0;
}

/* Stop every few polls, until it is made. */
static int make_in_parts(struct tokenize_options options, char **files,
                         int count, struct tokenize_result *result)
{
    enum err rc = ERR_IO;
    int parts = 0;
    options.stop = stop_after;
    while (rc == ERR_IO) {
        polls = 0;
        polls_max = 2 + parts * (options.eval_fraction > 0 ? 16 : 1);
        rc = tokenize_files(&options, files, count, result);
        parts++;
        options.threads = 1 + parts % 3;
    }
    fixture_need(rc);
    return parts;
}

static void test_again(const char *folder)
{
    char paths[3][FSIO_PATH_MAX], whole[FSIO_PATH_MAX], again[FSIO_PATH_MAX];
    char *files[] = { paths[0], paths[1], paths[2] };
    struct tokenize_result result, other;
    snprintf(paths[0], FSIO_PATH_MAX, "%s/a.txt", folder);
    snprintf(paths[1], FSIO_PATH_MAX, "%s/b.jsonl", folder);
    snprintf(paths[2], FSIO_PATH_MAX, "%s/c.txt", folder);
    write_text(paths[0], 2500000, 1);
    write_lines(paths[1], 3200000, 2);
    write_text(paths[2], 1500000, 3);
    for (int i = 0; i < 8; i += 1 + i / 2) { /* 0, 1, 2, 4, 7 */
        struct tokenize_options options = { .out = whole,
                                            .tokenizer = "bytes",
                                            .seq_len = i & 4 ? 30000 : 512,
                                            .shard_bytes = 3000000,
                                            .no_wrap = (i & 1) != 0,
                                            .bos_given = (i & 2) != 0,
                                            .bos_token = 7,
                                            .eval_fraction = i & 2 ? 0.3 : 0,
                                            .separator = i & 4 ? NULL : "%",
                                            .threads = 3 };
        snprintf(whole, sizeof whole, "%s/whole", folder);
        snprintf(again, sizeof again, "%s/again", folder);
        fixture_need(tokenize_files(&options, files, 3, &result));
        options.out = again;
        int parts = make_in_parts(options, files, 3, &other);
        tap_is_str(digest_of(again), digest_of(whole),
                   "case %d: the same bytes in %d parts", i, parts);
        tap_ok(memcmp(&result, &other, sizeof result) == 0 &&
                   (result.dropped > 0) == options.no_wrap && result.empty > 0,
               "... and the same counts");
        fixture_need(fsio_remove_tree(again));
        options.threads = 1;
        fixture_need(tokenize_files(&options, files, 3, &other));
        tap_ok(strcmp(digest_of(again), digest_of(whole)) == 0 &&
                   memcmp(&result, &other, sizeof result) == 0,
               "... and by one thread");
        fixture_need(fsio_remove_tree(again));
        fixture_need(fsio_remove_tree(whole));
    }
}

static void test_changed(const char *folder)
{
    char out[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
    char *files[] = { path };
    struct tokenize_result result;
    struct tokenize_options options = { .out = out,
                                        .tokenizer = "bytes",
                                        .seq_len = 512,
                                        .shard_bytes = 1000000,
                                        .stop = stop_after };
    snprintf(out, sizeof out, "%s/out", folder);
    snprintf(path, sizeof path, "%s/a.txt", folder);
    polls = 0;
    polls_max = 2;
    tap_is_int(tokenize_files(&options, files, 1, &result), ERR_IO, "stopped");
    tap_ok(strstr(err_text(), "the same command goes on") != NULL, "%s",
           err_text());
    tap_ok(!fsio_exists(out) &&
               fsio_exists(fixture_path(folder, ".out.tokenize")),
           "what is done stays, hidden");
    options.stop = NULL;
    options.seq_len = 256;
    tap_ok(tokenize_files(&options, files, 1, &result) == ERR_USAGE &&
               strstr(err_text(), "other options: --seq-len") != NULL,
           "%s", err_text());
    options.seq_len = 512;
    write_text(path, 2000000, 9);
    tap_ok(tokenize_files(&options, files, 1, &result) == ERR_USAGE &&
               strstr(err_text(), "a.txt") != NULL,
           "%s", err_text());
    options.fresh = true;
    tap_is_int(tokenize_files(&options, files, 1, &result), ERR_OK,
               "--fresh begins anew");
    tap_ok(!fsio_exists(fixture_path(folder, ".out.tokenize")),
           "and nothing stays");
}

/* The tokens of a set, a space between them, a bar between samples. */
static void show(const char *path, char *text)
{
    int32_t tokens[SAMPLE];
    struct dataset *dataset = fixture_open(path);
    *text = '\0';
    for (int64_t s = 0; s < dataset_contents(dataset)->samples; s++) {
        int64_t length = 0;
        fixture_need(dataset_read(dataset, s, tokens, SAMPLE, &length));
        for (int64_t t = 0; t < length; t++)
            text += tokens[t] < 128 ? sprintf(text, "%c", tokens[t])
                                    : sprintf(text, "<%d>", tokens[t]);
        text += sprintf(text, "|");
    }
    dataset_close(dataset);
}

static const struct {
    struct tokenize_options options; /* out, tokenizer: filled in */
    const char *text, *want;
} samples[] = {
    { { .seq_len = 4 },
      "abcdefg\n%\nhi\n%\nj",
      "abcd|efg\n|<256>hi\n|<256>j<256>|" },
    { { .seq_len = 4, .no_eos = true },
      "abcdefg\n%\nhi\n%\nj",
      "abcd|efg\n|hi\nj|" },
    { { .seq_len = 4, .bos_given = true, .bos_token = 200 },
      "abc\n%\nd",
      "<200>abc|\n<256><200>d|<256>|" },
    { { .seq_len = 4, .eos_given = true, .eos_token = 0x2e, .no_wrap = true },
      "abcdefg\n%\nhi\n%\nj",
      "abcd|hi\n.|j.|" },
    { { .seq_len = 4, .no_wrap = true },
      "a\n%\nbcdefghijkl\n%\nm",
      "a\n<256>b|m<256>|" },
};

static void test_samples(const char *folder)
{
    char out[FSIO_PATH_MAX], path[FSIO_PATH_MAX], got[1024];
    char *files[] = { path };
    struct tokenize_result result;
    snprintf(out, sizeof out, "%s/samples", folder);
    snprintf(path, sizeof path, "%s/text", folder);
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        struct tokenize_options options = samples[i].options;
        options.out = out;
        options.tokenizer = "bytes";
        options.separator = "%";
        options.shard_bytes = 1000;
        options.replace = true;
        fixture_write_file(path, samples[i].text, strlen(samples[i].text));
        fixture_need(tokenize_files(&options, files, 1, &result));
        show(out, got);
        tap_is_str(got, samples[i].want, "samples, case %d", (int)i);
    }
}

int main(void)
{
    const char *folder = tap_folder();
    test_again(folder);
    test_changed(folder);
    test_samples(folder);
    return tap_done();
}
