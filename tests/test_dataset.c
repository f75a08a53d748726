/* Data sets: reading any sample, and refusing what is not right by name. */
#include "src/data/set/dataset.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include "src/base/digest.h"
#include "src/text/tokenizer/tokenizer.h"
#include "tests/data_fixture.h"

/* Shards, and files that a process may have open, of which a quarter is a data
 * set's. */
#define MANY 200
#define LIMIT 256

static const int64_t lengths[] = { 300, 1, 255, 256, 5, 40, 700, 2 };
#define SAMPLES ((int64_t)(sizeof lengths / sizeof lengths[0]))

/* A good set, and a copy of it that is damaged. */
static char good[FSIO_PATH_MAX], bad[FSIO_PATH_MAX];

static bool same_sample(struct dataset *dataset, int64_t sample, int64_t length,
                        int64_t capacity)
{
    int32_t *tokens = malloc((size_t)(capacity + 1) * sizeof *tokens);
    int64_t got = -1;
    tokens[capacity] = -77;
    bool right =
        dataset_read(dataset, sample, tokens, capacity, &got) == ERR_OK &&
        got == length && tokens[capacity] == -77;
    for (int64_t t = 0; right && t < length && t < capacity; t++)
        right = tokens[t] == fixture_token(sample, t);
    free(tokens);
    return right;
}

/* Of the seven shard files together, or of the largest. */
static int64_t shard_bytes(const char *path, bool largest)
{
    int64_t sum = 0, most = 0;
    for (int s = 0; s < 7; s++) {
        char file[FSIO_PATH_MAX];
        struct stat status;
        fixture_need(fsio_path(file, "%s/shard.%05d.mds", path, s));
        if (stat(file, &status) != 0)
            return -1;
        sum += status.st_size;
        most = status.st_size > most ? status.st_size : most;
    }
    return largest ? most : sum;
}

static void test_read(const char *folder)
{
    struct dataset *dataset = NULL;
    fixture_dataset(folder, "good", lengths, SAMPLES, 1400, true);
    tap_is_int(dataset_open(good, &dataset), ERR_OK, "opens");
    tap_is_int(dataset_contents(dataset)->samples, SAMPLES, "samples");
    tap_is_int(dataset_contents(dataset)->shards, 7,
               "shards, one of them empty");
    tap_is_int(dataset_sidecar(dataset)->tokens, 1559, "tokens");
    tap_is_int(dataset_contents(dataset)->bytes, shard_bytes(good, false),
               "bytes");
    tap_is_int(dataset_contents(dataset)->largest, shard_bytes(good, true),
               "largest");
    tap_is_int(dataset_contents(dataset)->unchecked, 0,
               "shards without a checksum");
    tap_is_str(dataset_index(dataset), "index.json", "index");
    tap_is_int(dataset_sidecar(dataset)->vocab_size, FIXTURE_VOCAB, "words");
    tap_is_int(dataset_sidecar(dataset)->eos_token, 256, "end of document");
    tap_is_str(dataset_sidecar(dataset)->tokenizer, "bytes", "tokenizer");
    tap_is_str(dataset_path(dataset), good, "path");
    for (int64_t s = SAMPLES - 1; s >= 0; s--) {
        tap_ok(same_sample(dataset, s, lengths[s], 1000), "sample %d", (int)s);
        tap_ok(same_sample(dataset, s, lengths[s], 3), "... its first tokens");
        tap_ok(same_sample(dataset, s, lengths[s], 0), "... its length");
    }
    for (int64_t s = 0; s < dataset_contents(dataset)->shards; s++)
        tap_ok(dataset_verify_shard(dataset, s, NULL) == ERR_OK,
               "verify shard %d", (int)s);
    dataset_close(dataset);
    dataset_close(NULL);
}

/* Files that are open here below `folder`. */
static int open_files(const char *folder)
{
    int count = 0;
    char link[64], path[FSIO_PATH_MAX];
    for (int fd = 0; fd < LIMIT; fd++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t bytes = readlink(link, path, sizeof path);
        count += bytes > (ssize_t)strlen(folder) &&
                 strncmp(path, folder, strlen(folder)) == 0;
    }
    return count;
}

/* More shards than are open at a time: back and forth. */
static void test_many_shards(const char *folder)
{
    static int64_t ones[MANY];
    int wrong = 0;
    for (int i = 0; i < MANY; i++)
        ones[i] = 1;
    fixture_dataset(folder, "many", ones, MANY, 200, false);
    struct rlimit low = { LIMIT, LIMIT };
    struct dataset *dataset = fixture_open(fixture_path(folder, "many"));
    for (int64_t s = 0; s < MANY; s++)
        wrong += !same_sample(dataset, s, 1, 4);
    tap_is_int(open_files(folder), MANY, "all shards stay open, if they may");
    dataset_close(dataset);
    setrlimit(RLIMIT_NOFILE, &low);
    dataset = fixture_open(fixture_path(folder, "many"));
    tap_is_int(dataset_contents(dataset)->shards, MANY,
               "a shard for each sample");
    for (int64_t s = 0; s < MANY; s++)
        wrong += !same_sample(dataset, s, 1, 4);
    for (int64_t s = MANY - 1; s >= 0; s--)
        wrong += !same_sample(dataset, s, 1, 4);
    for (int64_t i = 0; i < 3 * MANY; i++)
        wrong += !same_sample(dataset, i * 7919 % MANY, 1, 4);
    tap_is_int(wrong, 0, "shards are opened anew when needed");
    tap_is_int(open_files(folder), LIMIT / 4, "no more than a quarter is open");
    dataset_close(dataset);
}

static void copy_set(const char *from, const char *to)
{
    char name[FSIO_PATH_MAX];
    fixture_need(fsio_remove_tree(to));
    fixture_need(fsio_mkdirs(to));
    for (int i = -2; i < 7; i++) {
        size_t bytes = 0;
        snprintf(name, sizeof name, "shard.%05d.mds", i);
        if (i < 0)
            snprintf(name, sizeof name,
                     i == -2 ? "index.json" : "tessera.json");
        char *data = fixture_read(fixture_path(from, name), &bytes);
        fixture_write_file(fixture_path(to, name), data, bytes);
        free(data);
    }
}

/* Replace the first `old` in the file. */
static void edit(const char *path, const char *old, const char *new)
{
    size_t bytes = 0;
    char *data = fixture_read(path, &bytes);
    char *at = strstr(data, old);
    if (at == NULL) {
        tap_ok(false, "fixture: no '%s' in %s", old, path);
        exit(1);
    }
    FILE *out = fopen(path, "wb");
    fprintf(out, "%.*s%s%s", (int)(at - data), data, new, at + strlen(old));
    fclose(out);
    free(data);
}

static void id_of(const char *path, char id[65])
{
    struct dataset *dataset = fixture_open(path);
    snprintf(id, 65, "%s", dataset_id(dataset));
    dataset_close(dataset);
}

static void test_id(const char *folder)
{
    char first[65], other[65];
    id_of(good, first);
    tap_is_int((long long)strlen(first), 64, "the id is a SHA-256");
    static const int64_t swapped[] = { 300, 1, 255, 256, 5, 40, 700, 3 };
    fixture_dataset(folder, "swapped", swapped, SAMPLES, 1400, true);
    id_of(fixture_path(folder, "swapped"), other);
    tap_ok(strcmp(first, other) != 0, "another content, another id");
}

/* What an edited tessera.json makes of the identity. */
static void test_id_of_sidecar(void)
{
    static const struct {
        const char *name, *old, *new;
        bool same;
    } edits[] = {
        { "another vocabulary, the same data", ": 257", ": 300", true },
        { "another end of documents", "\"eos_token\": 256", "\"eos_token\": 7",
          false },
        { "what begins documents", "eos_token", "bos_token", false },
        { "another tokenizer", "\"tokenizer_sha256\": \"aa",
          "\"tokenizer_sha256\": \"bb", false },
    };
    char first[65], other[65];
    id_of(good, first);
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        copy_set(good, bad);
        edit(fixture_path(bad, "tessera.json"), edits[i].old, edits[i].new);
        id_of(bad, other);
        tap_ok((strcmp(first, other) == 0) == edits[i].same,
               "the id after an edit: %s", edits[i].name);
    }
}

/* Sets of our own have the identity that they had before it took more in. */
static void test_id_stays(void)
{
    char hex[65];
    struct digest *digest = NULL;
    struct tokenizer *tokenizer = NULL;
    size_t bytes = 0;
    copy_set(good, bad);
    fixture_need(tokenizer_create("bytes", &tokenizer));
    const char *sha256 = tokenizer_sha256(tokenizer);
    char aaaa[65];
    memset(aaaa, 'a', 64);
    aaaa[64] = '\0';
    edit(fixture_path(bad, "tessera.json"), aaaa, sha256);
    char *index = fixture_read(fixture_path(bad, "index.json"), &bytes);
    fixture_need(digest_create(&digest));
    fixture_need(digest_update(digest, index, bytes));
    fixture_need(digest_update(digest, sha256, strlen(sha256)));
    fixture_need(digest_finish(digest, hex));
    struct dataset *dataset = fixture_open(bad);
    tap_is_str(dataset_id(dataset), hex,
               "index and tokenizer identify a set "
               "of ours");
    dataset_close(dataset);
    digest_destroy(digest);
    tokenizer_destroy(tokenizer);
    free(index);
}

#define DIGEST                                                                 \
    "00000000000000000000000000000000"                                         \
    "00000000000000000000000000000000"

/* One change to a good data set, and the refusal that it has to meet. */
static const struct damage {
    const char *name;
    const char *file;      /* in the data set */
    const char *old, *new; /* text in it; old NULL: remove the file */
    const char *text;      /* in the message, beside the file's name */
} damages[] = {
    { "no index", "index.json", NULL, NULL, "no such file" },
    { "no sidecar", "tessera.json", NULL, NULL, "tessera-data adopt" },
    { "no shard", "shard.00001.mds", NULL, NULL, "no such file" },
    { "no empty shard", "shard.00000.mds", NULL, NULL, "no such file" },
    { "index no JSON", "index.json", "{\"shards\"", "{\"shards", "JSON" },
    { "index no object", "index.json", "{", "[{", "JSON" },
    { "index without version", "index.json", "], \"version\": 2}", "]}",
      "version" },
    { "a later version", "index.json", "], \"version\": 2", "], \"version\": 3",
      "version" },
    { "no list of shards", "index.json", "\"shards\"", "\"shard\"",
      "'shards' is not a list" },
    { "no file name", "index.json", "\"basename\": \"shard.00001.mds\"",
      "\"basename\": 7", "shard 1: 'raw_data.basename'" },
    { "a huge size", "index.json", "\"bytes\": 193", "\"bytes\": 4294967296",
      "'bytes'" },
    { "another size", "index.json", "\"bytes\": 193", "\"bytes\": 194",
      "shard.00000.mds: has 193 bytes, but the index says 194" },
    { "no number of samples", "index.json", "\"samples\": 0", "\"sample\": 0",
      "'samples'" },
    { "more samples than bytes", "index.json", "\"samples\": 0",
      "\"samples\": 99", "'samples'" },
    { "another number of samples", "index.json", "\"samples\": 0",
      "\"samples\": 1", "" },
    { "no column tokens", "index.json", "[\"tokens\"]", "[\"text\"]",
      "no column 'tokens'" },
    { "two columns tokens", "index.json",
      "[\"ndarray:int32\"], \"column_names\": [\"tokens\"], "
      "\"column_sizes\": [null]",
      "[\"ndarray:int32\", \"ndarray:int32\"], \"column_names\": [\"tokens\", "
      "\"tokens\"], \"column_sizes\": [null, null]",
      "two columns" },
    { "no type of tokens", "index.json", "ndarray:int32", "ndarray:float32",
      "'ndarray:float32'" },
    { "pickled tokens", "index.json", "ndarray:int32", "pkl", "a pickle" },
    { "tokens as text", "index.json", "ndarray:int32", "str", "'str'" },
    { "fewer encodings", "index.json", "[\"ndarray:int32\"]", "[]",
      "not lists of one length" },
    { "fewer sizes", "index.json", "[null]", "[]", "not lists of one length" },
    { "a size that is a text", "index.json", "[null]", "[\"4\"]",
      "column's size" },
    { "a name that is a number", "index.json", "[\"tokens\"]", "[3]",
      "no string" },
    { "a bad digest", "index.json", "\"sha256\": \"", "\"sha256\": \"zz",
      "sha256" },
    { "sidecar no JSON", "tessera.json", "{", "", "JSON" },
    { "sidecar of another format", "tessera.json", "tessera-data/1",
      "tessera-data/2", "tessera-data/2" },
    { "no vocabulary", "tessera.json", "vocab_size", "vocab", "vocab_size" },
    { "a vocabulary of 0", "tessera.json", "257", "0", "vocab_size" },
    { "a huge vocabulary", "tessera.json", "257", "4294967297", "vocab_size" },
    { "no tokenizer", "tessera.json", "\"bytes\"", "\"\"", "'tokenizer'" },
    { "tokenizer digest", "tessera.json", "aaaa\"", "\"", "tokenizer_sha256" },
    { "samples of another set", "tessera.json", "\"samples\": 8",
      "\"samples\": 9", "says 9 samples, but the index has 8" },
    { "an impossible end token", "tessera.json", ": 256", ": 257",
      "eos_token" },
    { "both ends", "tessera.json", "\"eos_token\"",
      "\"bos_token\": 1, \"eos_token\"", "bos_token" },
    { "no type of bytes", "tessera.json", "\"eos_token\"",
      "\"token_type\": \"float32\", \"eos_token\"", "token_type" },
    { "digests that are no list", "tessera.json", "\"eos_token\"",
      "\"shards_sha256\": 1, \"eos_token\"", "has to be a list" },
    { "digests of fewer shards", "tessera.json", "\"eos_token\"",
      "\"shards_sha256\": [\"" DIGEST "\"], \"eos_token\"", "1 shards" },
    { "a digest of another length", "tessera.json", "\"eos_token\"",
      "\"shards_sha256\": [\"00\"], \"eos_token\"", "64 hexadecimal" },
};

/* Open and read everything; the first error. */
static enum err read_all(const char *path)
{
    enum err rc = ERR_OK;
    int32_t tokens[1000];
    int64_t length = 0;
    struct dataset *dataset = NULL;
    TRY_OUT(dataset_open(path, &dataset));
    for (int64_t s = 0; s < dataset_contents(dataset)->shards; s++)
        TRY_OUT(dataset_verify_shard(dataset, s, NULL));
    for (int64_t s = 0; s < dataset_contents(dataset)->samples; s++)
        TRY_OUT(dataset_read(dataset, s, tokens, 1000, &length));
out:
    dataset_close(dataset);
    return rc;
}

static void test_damages(void)
{
    copy_set(good, bad);
    tap_is_int(read_all(bad), ERR_OK, "an undamaged copy");
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        const struct damage *damage = &damages[i];
        copy_set(good, bad);
        const char *file = fixture_path(bad, damage->file);
        if (damage->old == NULL)
            unlink(file);
        else
            edit(file, damage->old, damage->new);
        enum err rc = read_all(bad);
        bool named = strstr(err_text(), bad) != NULL;
        tap_ok(rc == ERR_DATA && named &&
                   strstr(err_text(), damage->text) != NULL,
               "%s", damage->name);
        if (rc != ERR_DATA || strstr(err_text(), damage->text) == NULL)
            tap_note("%s: %s", err_name(rc), rc ? err_text() : "accepted");
    }
}

/* A flipped byte that leaves a valid token is found by the digest. */
static void test_digest(void)
{
    size_t bytes = 0;
    copy_set(good, bad);
    const char *shard = fixture_path(bad, "shard.00006.mds");
    char *data = fixture_read(shard, &bytes);
    data[bytes - 4] = (char)(data[bytes - 4] ^ 1);
    fixture_write_file(shard, data, bytes);
    free(data);
    tap_is_int(read_all(bad), ERR_DATA, "one flipped bit in a token");
    tap_ok(strstr(err_text(), "shard.00006.mds") != NULL &&
               strstr(err_text(), "sha256") != NULL,
           "... is found by the checksum");
}

static void test_vocabulary(void)
{
    copy_set(good, bad);
    edit(fixture_path(bad, "tessera.json"), ": 256", ": 3");
    edit(fixture_path(bad, "tessera.json"), ": 257", ": 256");
    tap_is_int(read_all(bad), ERR_DATA, "a token outside the vocabulary");
    tap_ok(strstr(err_text(), "shard.00001.mds: sample 0: token 256 at "
                              "position 110") != NULL,
           "... with shard, sample and value: %s", err_text());
}

static void test_paths(const char *folder)
{
    static const int64_t one[] = { 1 };
    struct dataset *dataset = NULL;
    fixture_dataset(folder, "both/train", one, 1, 400, false);
    fixture_dataset(folder, "both/eval", one, 1, 400, false);
    tap_is_int(dataset_open(fixture_path(folder, "both"), &dataset), ERR_DATA,
               "a folder of two data sets");
    tap_ok(strstr(err_text(), "both/train") != NULL, "... which are named");
    tap_is_int(dataset_open(fixture_path(folder, "none"), &dataset), ERR_DATA,
               "no folder");
    tap_ok(strstr(err_text(), "tessera-data tokenize") != NULL,
           "... and how to make one");
}

int main(void)
{
    const char *folder = tap_folder();
    fixture_need(fsio_path(good, "%s/good", folder));
    fixture_need(fsio_path(bad, "%s/bad", folder));
    test_read(folder);
    test_many_shards(folder);
    test_id(folder);
    test_id_of_sidecar();
    test_id_stays();
    test_damages();
    test_digest();
    test_vocabulary();
    test_paths(folder);
    return tap_done();
}
