/* Data sets that are fetched or unpacked into a cache: by one process and
 * several, killed, bounded, poisoned. */
#include <dirent.h>
#include <glob.h>
#include <signal.h>
#include <sys/wait.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/data/set/dataset.h"
#include "tests/data_packed.h"
#include "tests/http_server.h"

#define SAMPLES 60
#define LENGTH 64

static const char *folder;
static struct http_server server;
static char address[5][64];

enum { RAW, PACKED, BROKEN, OTHER, TWISTED };
static const char *const names[] = { "raw", "packed", "broken", "other",
                                     "twisted" };

static struct cache_options options_of(const char *cache, int64_t limit,
                                       double deadline_s)
{
    struct cache_options options = cache_defaults;
    options.folder = cache;
    options.limit = limit;
    options.deadline_s = deadline_s;
    return options;
}

/* SAMPLES samples in some 12 shards, with hashes. */
static void make_set(const char *name, const char *compression)
{
    packed_set(fixture_path(folder, name), SAMPLES, LENGTH, 2048, compression);
}

static bool read_one(struct dataset *set, int64_t s)
{
    int32_t tokens[LENGTH];
    int64_t length = 0;
    if (dataset_read(set, s, tokens, LENGTH, &length) != ERR_OK)
        return false;
    for (int t = 0; t < LENGTH; t++)
        if (tokens[t] != fixture_token(s, t))
            return false;
    return length == LENGTH;
}

/* In a stride that changes the shard with every sample. */
static bool read_all(struct dataset *set)
{
    for (int64_t s = 0; s < SAMPLES; s++)
        if (!read_one(set, s * 7 % SAMPLES))
            return false;
    return true;
}

static enum err open_set(const char *path, const struct cache_options *options,
                         struct dataset **set)
{
    return dataset_open_as(path, NULL, false, options, set);
}

/* Files of the only cache in `root` whose names have `part`, or end with it if
 * it is ".mds", and their bytes. */
static int files_in(const char *root, const char *part, int64_t *bytes,
                    char *path)
{
    struct stat status;
    int files = 0;
    DIR *dir = opendir(root), *sets = NULL;
    struct dirent *entry = NULL;
    if (bytes != NULL)
        *bytes = 0;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        char name[FSIO_PATH_MAX];
        fixture_need(fsio_path(name, "%s/%s", root, entry->d_name));
        if (entry->d_name[0] == '.' || (sets = opendir(name)) == NULL)
            continue;
        while ((entry = readdir(sets)) != NULL) {
            char file[FSIO_PATH_MAX];
            fixture_need(fsio_path(file, "%s/%s", name, entry->d_name));
            const char *at = strstr(entry->d_name, part);
            if (at == NULL || stat(file, &status) != 0 ||
                (strcmp(part, ".mds") == 0 && at[4] != '\0'))
                continue;
            files++;
            if (bytes != NULL)
                *bytes += status.st_size;
            if (path != NULL)
                snprintf(path, FSIO_PATH_MAX, "%s", file);
        }
        closedir(sets);
    }
    if (dir != NULL)
        closedir(dir);
    return files;
}

static void test_reading(void)
{
    const char *cases[] = { address[RAW], address[PACKED],
                            fixture_path(folder, "packed") };
    char local[FSIO_PATH_MAX + 8];
    snprintf(local, sizeof local, "file://%s", fixture_path(folder, "packed"));
    struct cache_options options = options_of("", 0, 10.0);
    for (int c = 0; c < 4; c++) {
        struct dataset *set = NULL, *raw = NULL;
        const char *path = c < 3 ? cases[c] : local;
        bool opened = open_set(path, &options, &set) == ERR_OK;
        if (!opened)
            tap_note("%s", err_text());
        tap_ok(opened && read_all(set), "%s: all samples", path);
        tap_ok(opened && dataset_is_cached(set), "through a cache");
        if (!opened)
            return;
        tap_is_str(dataset_path(set), path, "by its own name");
        raw = fixture_open(fixture_path(folder, c == 0 ? "raw" : "packed"));
        tap_is_str(dataset_id(set), dataset_id(raw), "of the same identity");
        dataset_close(raw);
        dataset_close(set);
        tap_is_int(files_in(fixture_path(folder, "tmp"), "", NULL, NULL), 0,
                   "which is gone in the end");
    }
    tap_ok(!fsio_exists(fixture_path(folder, "packed/shard.00000.mds")),
           "nothing is unpacked beside a packed set");
}

/* A child that reads everything; its exit code is 0 if that was right. */
static pid_t reader(const char *path, const struct cache_options *options)
{
    pid_t child = fork();
    if (child != 0)
        return child;
    struct dataset *set = NULL;
    bool right = open_set(path, options, &set) == ERR_OK && read_all(set);
    if (!right)
        fprintf(stderr, "# %s\n", err_text());
    dataset_close(set);
    _exit(right ? 0 : 1);
}

static bool ends_well(pid_t child)
{
    int status = 0;
    return waitpid(child, &status, 0) == child && status == 0;
}

static void test_sharing(void)
{
    pid_t children[4];
    struct cache_options options = options_of("", 0, 20.0);
    int shards = files_in(folder, "none", NULL, NULL);
    http_server_rules(&server, "* delay 0.02 -");
    int before = server.requests;
    for (int c = 0; c < 4; c++)
        children[c] = reader(address[PACKED], &options);
    bool right = true;
    for (int c = 0; c < 4; c++)
        right = ends_well(children[c]) && right;
    http_server_rules(&server, "");
    tap_ok(right, "four processes read all of it");
    struct dataset *set = fixture_open(fixture_path(folder, "raw"));
    shards = (int)dataset_contents(set)->shards;
    dataset_close(set);
    /* one that ends early may be the last user, and another one begins anew */
    tap_ok(server.requests - before >= shards + 3 &&
               server.requests - before <= shards + 3 + 9,
           "each shard was fetched once: %d requests for %d shards",
           server.requests - before, shards);
}

static void test_kill(void)
{
    char part[FSIO_PATH_MAX] = "";
    const char *cache = fixture_path(folder, "kept");
    struct cache_options options = options_of(cache, 0, 20.0);
    struct dataset *set = NULL;
    http_server_rules(&server, "shard.00003 stall 900 1");
    pid_t child = reader(address[RAW], &options);
    for (int i = 0; i < 1000 && part[0] == '\0'; i++) {
        int64_t bytes = 0;
        if (files_in(cache, ".part", &bytes, part) == 1 &&
            (bytes < 900 || strstr(part, "_shard.00003") == NULL))
            part[0] = '\0';
        usleep(5000);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    tap_ok(strstr(part, "_shard.00003.mds.part") != NULL,
           "a process was killed in the middle of a shard");
    int there = files_in(cache, ".mds", NULL, NULL);
    int before = server.requests;
    tap_ok(open_set(address[RAW], &options, &set) == ERR_OK && read_all(set),
           "the next one reads it all");
    int shards = (int)dataset_contents(set)->shards;
    tap_is_int(server.requests - before, shards - there + 3,
               "and fetches what was missing, and the three files beside");
    dataset_close(set);
    tap_is_int(files_in(cache, ".part", NULL, NULL), 0, "no part is left");
    tap_is_int(files_in(cache, ".mds", NULL, NULL), shards,
               "a folder that was named stays");
    http_server_rules(&server, "");
}

/* The kept folder of test_kill(), changed behind the cache's back. */
static void test_poison(void)
{
    char path[FSIO_PATH_MAX], index[FSIO_PATH_MAX], *data = NULL;
    size_t bytes = 0;
    const char *cache = fixture_path(folder, "kept");
    struct cache_options options = options_of(cache, 0, 20.0);
    struct dataset *set = NULL;
    files_in(cache, "_shard.00001.mds", NULL, path);
    fixture_write_file(path, "short", 5);
    int before = server.requests;
    tap_ok(open_set(address[RAW], &options, &set) == ERR_OK && read_all(set),
           "a file of another length is fetched again");
    tap_is_int(server.requests - before, 4, "it alone");
    dataset_close(set);
    files_in(cache, "boot", NULL, path);
    fixture_write_file(path, "another", 7);
    before = server.requests;
    fixture_need(open_set(address[RAW], &options, &set));
    tap_is_int(files_in(cache, ".mds", NULL, NULL), 0,
               "what was there before the machine started is thrown away");
    tap_ok(read_all(set), "and fetched again");
    dataset_close(set);
    snprintf(index, sizeof index, "%s", fixture_path(folder, "raw/index.json"));
    data = fixture_read(index, &bytes);
    char *more = malloc(bytes + 1);
    memcpy(more, data, bytes);
    more[bytes] = '\n';
    fixture_write_file(index, more, bytes + 1);
    fixture_need(open_set(address[RAW], &options, &set));
    tap_is_int(files_in(cache, ".mds", NULL, NULL), 0,
               "as are the shards of another index");
    dataset_close(set);
    fixture_write_file(index, data, bytes);
    free(data);
    free(more);
}

/* Bits that flip in a cache while nobody uses it: of what is fetched, and of
 * what is unpacked from a server or from a folder. */
static void test_rot(void)
{
    char path[FSIO_PATH_MAX], *data = NULL;
    size_t bytes = 0;
    const char *from[] = { address[RAW], address[PACKED],
                           fixture_path(folder, "packed") };
    for (int c = 0; c < 3; c++) {
        const char *cache = fixture_path(folder, "rotten");
        struct cache_options options = options_of(cache, 0, 20.0);
        struct dataset *set = NULL;
        fixture_need(fsio_remove_tree(cache));
        fixture_need(open_set(from[c], &options, &set));
        tap_ok(read_all(set), "%s fills a cache", from[c]);
        dataset_close(set);
        files_in(cache, "_shard.00001.mds", NULL, path);
        data = fixture_read(path, &bytes);
        data[bytes - 8] ^= 1;
        fixture_write_file(path, data, bytes);
        free(data);
        options.sizes_only = true;
        fixture_need(open_set(from[c], &options, &set));
        tap_ok(!read_all(set), "a flipped bit is seen by no size");
        dataset_close(set);
        options.sizes_only = false;
        int before = server.requests;
        fixture_need(open_set(from[c], &options, &set));
        tap_ok(read_all(set), "but when the shard is first read");
        tap_is_int(server.requests - before, c == 2 ? 0 : 4,
                   "it alone is fetched again");
        dataset_close(set);
    }
}

/* A set that becomes another one at the same address while one still reads it, and a
 * store that goes away. */
static void test_changed(void)
{
    char index[FSIO_PATH_MAX], *data;
    size_t bytes;
    struct dataset *first = NULL, *second = NULL;
    struct cache_options options =
        options_of(fixture_path(folder, "asked"), 0, 1.0);
    fixture_need(open_set(address[RAW], &options, &first));
    int before = server.requests;
    tap_ok(open_set(address[RAW], &options, &second) == ERR_OK &&
               server.requests - before == 1 && read_all(second),
           "who finds an index asks for it, once");
    dataset_close(second);
    options.asked = true;
    before = server.requests;
    tap_ok(open_set(address[RAW], &options, &second) == ERR_OK &&
               server.requests == before,
           "and not where another has");
    dataset_close(second);
    options.asked = false;
    snprintf(index, sizeof index, "%s", fixture_path(folder, "raw/index.json"));
    data = fixture_read(index, &bytes);
    data[bytes++] = '\n'; /* where a NUL was */
    fixture_write_file(index, data, bytes);
    tap_ok(open_set(address[RAW], &options, &second) == ERR_DATA &&
               strstr(err_text(), "another data set") != NULL,
           "an older index is not taken because others use it: %s", err_text());
    tap_ok(read_all(first), "who has it goes on");
    http_server_rules(&server, "raw/ drop - -");
    tap_ok(open_set(address[RAW], &options, &second) == ERR_OK &&
               read_all(second),
           "nor is it asked for ever: what is there is used");
    dataset_close(second);
    dataset_close(first);
    tap_ok(open_set(address[RAW], &options, &second) == ERR_OK &&
               read_all(second) &&
               files_in(options.folder, ".part", NULL, NULL) == 0,
           "also by the first who comes");
    dataset_close(second);
    files_in(options.folder, "boot", NULL, index);
    fixture_write_file(index, "another", 7);
    tap_ok(open_set(address[RAW], &options, &second) == ERR_IO,
           "but nothing of before the machine started: %s", err_text());
    http_server_rules(&server, "");
    tap_ok(open_set(address[RAW], &options, &second) == ERR_OK &&
               read_all(second),
           "and all is well when it is back");
    dataset_close(second);
    /* credentials that have run out */
    http_server_rules(&server, "raw/ status 403 -");
    tap_ok(open_set(address[RAW], &options, &second) != ERR_OK,
           "a store that refuses is an error: %s", err_text());
    http_server_rules(&server, "");
    before = server.requests;
    tap_ok(open_set(address[RAW], &options, &second) == ERR_OK &&
               read_all(second),
           "and all is well when it does not");
    tap_ok(server.requests - before < 5,
           "what was there has stayed: %d requests", server.requests - before);
    dataset_close(second);
    fixture_write_file(fixture_path(folder, "raw/index.json"), data, bytes - 1);
    free(data);
}

static void test_limit(void)
{
    int64_t bytes = 0, largest = 0;
    const char *cache = fixture_path(folder, "small");
    struct cache_options options = options_of(cache, 10000, 20.0);
    struct dataset *set = NULL;
    fixture_need(open_set(address[RAW], &options, &set));
    bool right = true;
    for (int64_t s = 0; s < 3 * SAMPLES; s++) {
        right = read_one(set, s * 7 % SAMPLES) && right;
        files_in(cache, "_shard", &bytes, NULL);
        largest = bytes > largest ? bytes : largest;
    }
    tap_ok(right, "all samples through a cache of five shards");
    tap_ok(largest <= 10000 && largest > 4000, "which has %lld bytes at most",
           (long long)largest);
    /* used again and again, a shard stays */
    int before = server.requests;
    for (int64_t s = 0; s < 100; s++)
        right = read_one(set, s % 2 == 0 ? 0 : s % 15) && right;
    tap_ok(right && server.requests - before < 40,
           "those used least recently go: %d requests",
           server.requests - before);
    dataset_close(set);
    pid_t children[3];
    for (int c = 0; c < 3; c++)
        children[c] = reader(address[PACKED], &options);
    right = true;
    for (int c = 0; c < 3; c++)
        right = ends_well(children[c]) && right;
    tap_ok(right, "three processes in a cache of five shards");
    options.limit = 1000;
    tap_ok(open_set(address[RAW], &options, &set) == ERR_USAGE &&
               strstr(err_text(), "data.cache_limit = 1000 is less") != NULL,
           "a limit below one shard: %s", err_text());
}

/* Who has read a file's times looks at them again to see whether it has changed. */
static void test_times(void)
{
    const char *cache = fixture_path(folder, "times");
    struct cache_options options = options_of(cache, 0, 20.0);
    char path[FSIO_PATH_MAX] = "";
    struct stat was, is;
    bool right = true;
    for (int time = 0; time < 2; time++) {
        struct dataset *set = NULL;
        fixture_need(open_set(address[RAW], &options, &set));
        right = read_all(set) && right;
        dataset_close(set);
        files_in(cache, "_shard", NULL, path);
        right = stat(path, time == 0 ? &was : &is) == 0 && right;
        usleep(50000);
    }
    tap_ok(right && was.st_mtim.tv_sec == is.st_mtim.tv_sec &&
               was.st_mtim.tv_nsec == is.st_mtim.tv_nsec,
           "a file that is used has the time at which it came");
}

static void fails(const char *what, int set_of, enum err code,
                  const char *const *texts)
{
    struct cache_options options =
        options_of(fixture_path(folder, "bad"), 0, 1.0);
    struct dataset *set = NULL;
    bool right = true;
    fsio_remove_tree(fixture_path(folder, "bad"));
    enum err rc = open_set(address[set_of], &options, &set);
    for (int64_t s = 0; s < SAMPLES && rc == ERR_OK; s++)
        if (!read_one(set, s))
            rc = dataset_read(set, s, NULL, 0, &(int64_t){ 0 });
    for (int t = 0; texts[t] != NULL; t++)
        right = right && strstr(err_text(), texts[t]) != NULL;
    right = right && rc == code;
    tap_ok(right, "%s", what);
    if (!right)
        tap_note("%s: %s", err_name(rc), err_text());
    dataset_close(set);
}

#define FAILS(what, set, code, ...)                                            \
    fails(what, set, code, (const char *const[]){ __VA_ARGS__, NULL })

/* How many files of this pattern there are. */
static int cached(const char *pattern)
{
    glob_t found;
    int rc = glob(fixture_path(folder, pattern), 0, NULL, &found);
    int count = rc == 0 ? (int)found.gl_pathc : 0;
    globfree(&found);
    return count;
}

/* What is packed is right, and what comes out of it is not what it should be. */
static void test_twisted(void)
{
    const char *path = fixture_path(folder, "twisted/index.json");
    size_t bytes = 0;
    make_set("twisted", "zstd:3");
    char *text = fixture_read(path, &bytes);
    char *hex = strstr(text, "shard.00002.mds\"");
    hex = hex != NULL ? strstr(hex, "\"sha1\": \"") : NULL;
    if (hex != NULL) {
        hex[9] = hex[9] == '0' ? '1' : '0';
        fixture_write_file(path, text, bytes);
    }
    FAILS("a shard that unpacks to something else", TWISTED, ERR_DATA,
          "http://", "twisted/shard.00002.mds.zstd", "sha1 should be",
          "damaged there");
    tap_ok(cached("bad/*/1_shard.00001.mds") == 1 &&
               cached("bad/*/2_shard.00002.mds*") == 0,
           "... gets no name, nor stays in part");
    free(text);
}

static void test_damage(void)
{
    char path[FSIO_PATH_MAX], *data = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s",
             fixture_path(folder, "broken/shard.00002.mds"));
    data = fixture_read(path, &bytes);
    data[bytes - 1] ^= 1;
    fixture_write_file(path, data, bytes);
    FAILS("a shard that is damaged there", BROKEN, ERR_DATA, "http://",
          "broken/shard.00002.mds", "sha1 should be", "damaged there");
    fixture_write_file(path, data, bytes - 1);
    FAILS("one that is short there", BROKEN, ERR_DATA, "but the index says");
    unlink(path);
    FAILS("one that is missing", BROKEN, ERR_DATA, "shard.00002.mds",
          "status 404");
    free(data);
    FAILS("no data set", OTHER, ERR_DATA, "other/index.json", "status 404");
    http_server_rules(&server, "shard.00002 stall 100 -");
    FAILS("a server that stalls", RAW, ERR_IO, "raw/shard.00002.mds", " of 1",
          "bytes came in 1 s");
    http_server_rules(&server, "");
}

static void test_places(void)
{
    struct dataset *set = NULL;
    const char *link = fixture_path(folder, "link");
    fixture_need(fsio_mkdirs(fixture_path(folder, "open")));
    chmod(fixture_path(folder, "open"), 0777);
    if (symlink(fixture_path(folder, "kept"), link) != 0)
        tap_ok(false, "link");
    struct cache_options options = options_of(link, 0, 5.0);
    tap_ok(open_set(address[RAW], &options, &set) == ERR_SPACE &&
               strstr(err_text(), "is a link") != NULL,
           "a cache behind a link is refused");
    options.folder = fixture_path(folder, "open");
    tap_ok(open_set(address[RAW], &options, &set) == ERR_SPACE &&
               strstr(err_text(), "written to by others") != NULL,
           "one that others can write to is refused");
    options.folder = fixture_path(folder, "raw/index.json");
    tap_ok(open_set(address[RAW], &options, &set) == ERR_SPACE, "a file is");
    options.folder = fixture_path(folder, "deep/er/cache");
    fixture_need(open_set(address[RAW], &options, &set));
    struct stat status;
    tap_ok(stat(options.folder, &status) == 0 &&
               (status.st_mode & 0777) == 0700,
           "a new one is for the user alone");
    dataset_close(set);
}

static void test_ahead(void)
{
    struct cache_options options =
        options_of(fixture_path(folder, "ahead"), 0, 20.0);
    struct dataset *set = NULL;
    fixture_need(open_set(address[RAW], &options, &set));
    int shards = (int)dataset_contents(set)->shards;
    for (int64_t s = 0; s < SAMPLES; s++)
        dataset_want(set, s);
    for (int i = 0;
         i < 1000 && files_in(options.folder, ".mds", NULL, NULL) < shards; i++)
        usleep(5000);
    tap_is_int(files_in(options.folder, ".mds", NULL, NULL), shards,
               "shards that are wanted come by themselves");
    int before = server.requests;
    tap_ok(read_all(set) && server.requests == before, "before they are read");
    dataset_close(set);
    /* what is stopped is not taken for a failure later */
    for (int pause = 0; pause <= 150000; pause += 150000) {
        http_server_rules(&server, "shard delay 0.3 -");
        options.folder = fixture_path(folder, pause == 0 ? "stop1" : "stop2");
        fixture_need(open_set(address[RAW], &options, &set));
        for (int64_t s = 0; s < SAMPLES; s++)
            dataset_want(set, s);
        usleep(50000);
        dataset_stop(set, true);
        usleep((unsigned)pause);
        dataset_stop(set, false);
        http_server_rules(&server, "");
        bool right = read_all(set);
        tap_ok(right, "read after a stop of %d ms", pause / 1000);
        if (!right)
            tap_note("%s", err_text());
        dataset_close(set);
    }
    http_server_rules(&server, "shard stall 10 -");
    options.folder = fixture_path(folder, "ahead2");
    options.deadline_s = 100.0;
    fixture_need(open_set(address[RAW], &options, &set));
    for (int64_t s = 0; s < SAMPLES; s++)
        dataset_want(set, s);
    usleep(100000);
    double begin = clock_now();
    dataset_close(set);
    tap_ok(clock_now() - begin < 50.0,
           "a close does not wait for a stalled one");
    http_server_rules(&server, "");
}

int main(void)
{
    log_init("test", -1, LOG_ERROR);
    folder = tap_folder();
    fixture_need(fsio_mkdirs(fixture_path(folder, "tmp")));
    setenv("TMPDIR", fixture_path(folder, "tmp"), 1);
    unsetenv("http_proxy");
    make_set("raw", NULL);
    make_set("packed", "zstd:3");
    make_set("broken", NULL);
    http_server_start(&server, folder);
    for (int a = 0; a < 5; a++)
        snprintf(address[a], sizeof address[a], "http://127.0.0.1:%d/%s",
                 server.port, names[a]);
    test_reading();
    test_sharing();
    test_kill();
    test_poison();
    test_rot();
    test_changed();
    test_limit();
    test_times();
    test_damage();
    test_twisted();
    test_places();
    test_ahead();
    http_server_stop(&server);
    return tap_done();
}
