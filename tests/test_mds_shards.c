/* Open shards of a data set that has more of them than files may be open: which
 * are open, how many, and what a sample costs beside 100,000 others. */
#include "src/data/mds/mds_shards.h"

#include <dirent.h>
#include <sys/resource.h>
#include <time.h>

#include "tests/data_fixture.h"

#define LIMIT 256        /* files of the process */
#define OPEN (LIMIT / 4) /* shards of them */
#define MANY 100000

/* Whether a shard of the folder is open here, by its number; how many files
 * are. */
static int open_files(bool *is_open, int shards)
{
    int count = 0;
    DIR *files = opendir("/proc/self/fd");
    for (struct dirent *file; (file = readdir(files)) != NULL;) {
        char link[64], path[FSIO_PATH_MAX] = "";
        int shard = 0;
        if (file->d_name[0] == '.' || atoi(file->d_name) == dirfd(files))
            continue;
        snprintf(link, sizeof link, "/proc/self/fd/%.20s", file->d_name);
        (void)!readlink(link, path, sizeof path - 1);
        const char *name = strrchr(path, '/');
        count++;
        if (name != NULL && sscanf(name, "/shard.%d.mds", &shard) == 1 &&
            shard < shards)
            is_open[shard] = true;
    }
    closedir(files);
    return count;
}

/* So many shards of one sample each; `same`: all are one file, whose name no
 * rule tells. */
static void make_set(const char *folder, const char *name, int shards,
                     bool same, char set[FSIO_PATH_MAX])
{
    static const int64_t one[] = { 3 };
    char first[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
    fixture_dataset(folder, name, one, 1, 4096, true);
    snprintf(set, FSIO_PATH_MAX, "%s/%s", folder, name);
    size_t bytes = 0;
    char *text = fixture_read(fixture_path(set, MDS_INDEX_NAME), &bytes);
    const char *begin = strstr(text, "[{") + 1,
               *end = strstr(text, "}], \"ver");
    char *number = strstr(text, "shard.00000") + 6;
    snprintf(first, sizeof first, "%s/shard.00000.mds", set);
    FILE *file = fopen(fixture_path(set, "new"), "w");
    fprintf(file, "{\"shards\": [");
    for (int s = 0; s < shards; s++) {
        char digits[8];
        snprintf(digits, sizeof digits, "%05d", same ? 0 : s);
        memcpy(number, digits, 5);
        snprintf(path, sizeof path, "%s/shard.%s.mds", set, digits);
        if (s > 0 && !same && link(first, path) != 0)
            perror(path);
        fprintf(file, "%s%.*s", s > 0 ? ", " : "", (int)(end + 1 - begin),
                begin);
    }
    fprintf(file, "], \"version\": 2}");
    fclose(file);
    rename(fixture_path(set, "new"), fixture_path(set, MDS_INDEX_NAME));
    free(text);
}

static struct mds_shards *open_set(const char *set)
{
    struct mds_shards *shards = NULL;
    fixture_need(mds_shards_open(set, NULL, &shards));
    return shards;
}

/* Against a list that is searched: after each use the OPEN last used are open,
 * and no others. */
static void test_order(const char *folder)
{
    enum { SHARDS = 150, USES = 2000 };
    static int last[SHARDS]; /* when; 0: never */
    int wrong = 0, most = 0, damaged = 0;
    struct mds_shard *shard = NULL;
    char set[FSIO_PATH_MAX];
    make_set(folder, "order", SHARDS, false, set);
    struct mds_shards *shards = open_set(set);
    bool none[1];
    int before = open_files(none, 0);
    uint32_t random = 1;
    for (int use = 1; use <= USES; use++) {
        bool is_open[SHARDS] = { false };
        random = random * 1664525 + 1013904223;
        /* some far more often than others */
        int s = (int)((random >> 8) % (random >> 31 ? SHARDS : 40));
        struct cache_shard files;
        mds_pack_files(&mds_shards_index(shards)->pack, s, &files);
        if (mds_shards_get(shards, s, &shard) != ERR_OK ||
            mds_shard_verify(shard, &files.raw, NULL) != ERR_OK)
            damaged++;
        last[s] = use;
        int count = open_files(is_open, SHARDS) - before;
        most = count > most ? count : most;
        for (int a = 0; a < SHARDS; a++) {
            int later = 0;
            for (int b = 0; b < SHARDS; b++)
                later += last[b] > last[a];
            wrong += is_open[a] != (last[a] > 0 && later < OPEN);
        }
    }
    tap_is_int(damaged, 0, "each use has its shard, whole");
    tap_is_int(wrong, 0, "those used last are open, and no others");
    tap_is_int(most, OPEN, "never more files than a quarter of the limit");
    mds_shards_close(shards);
    tap_is_int(open_files(none, 0), before, "all are closed at the end");
}

/* A shard that is not there costs nobody else's place. */
static void test_missing(const char *folder)
{
    enum { SHARDS = OPEN + 8 };
    struct mds_shard *shard = NULL;
    bool none[1];
    int failed = 0, good = 0;
    char set[FSIO_PATH_MAX];
    make_set(folder, "missing", SHARDS, false, set);
    struct mds_shards *shards = open_set(set);
    int before = open_files(none, 0);
    unlink(fixture_path(set, "shard.00005.mds"));
    for (int round = 0; round < 3; round++)
        for (int s = 0; s < SHARDS; s++) {
            enum err rc = mds_shards_get(shards, s, &shard);
            failed += s == 5 && rc == ERR_DATA &&
                      strstr(err_text(), "shard.00005.mds: no such file");
            good += s != 5 && rc == ERR_OK &&
                    strstr(mds_shard_path(shard), set) != NULL;
        }
    tap_is_int(failed, 3, "the one that is gone is named: %s", err_text());
    tap_is_int(good, 3 * (SHARDS - 1), "the others are there");
    tap_ok(open_files(none, 0) - before <= OPEN, "no more files than allowed");
    mds_shards_close(shards);
}

/* Processor microseconds of a sample, each in another shard. */
static double sample_us(struct mds_shards *shards, int count)
{
    enum { SAMPLES = 20000 };
    struct mds_shard *shard = NULL;
    struct timespec begin, end;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    for (int i = 0; i < SAMPLES; i++)
        fixture_need(mds_shards_get(shards, (int64_t)i * 7919 % count, &shard));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    return ((double)(end.tv_sec - begin.tv_sec) * 1e9 +
            (double)(end.tv_nsec - begin.tv_nsec)) /
           1e3 / SAMPLES;
}

/* Time is printed and not judged. */
static void test_many(const char *folder)
{
    bool none[1];
    char set[FSIO_PATH_MAX];
    make_set(folder, "few", 2 * OPEN, true, set);
    struct mds_shards *few = open_set(set);
    make_set(folder, "many", MANY, true, set);
    struct mds_shards *many = open_set(set);
    tap_is_int(mds_shards_index(many)->samples, MANY, "samples of %d shards",
               MANY);
    struct mds_index *index = mds_shards_index(many);
    double bytes = (double)mds_pack_bytes(&index->pack) / MANY;
    tap_ok(bytes <= 96, "the names of no rule are told in %.0f bytes a shard",
           bytes);
    double a = sample_us(few, 2 * OPEN), b = sample_us(many, MANY);
    tap_ok(open_files(none, 0) < LIMIT, "files are within the limit");
    printf("# a sample of %d shards takes %.2f us, of %d %.2f: ratio %.2f\n",
           2 * OPEN, a, MANY, b, b / a);
    mds_shards_close(few);
    mds_shards_close(many);
}

/* Where the hard limit allows it, a set of 2,000 shards has all of them open. */
static void test_raised(const char *folder)
{
    struct rlimit limit, now;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < 512 ? limit.rlim_max : 512;
    setrlimit(RLIMIT_NOFILE, &limit);
    char set[FSIO_PATH_MAX];
    make_set(folder, "raised", 2000, true, set);
    struct mds_shards *shards = open_set(set);
    getrlimit(RLIMIT_NOFILE, &now);
    rlim_t want = limit.rlim_max < 8000 ? limit.rlim_max : 8000;
    tap_is_int((long long)now.rlim_cur, (long long)want,
               "the limit is raised to what the set can use");
    mds_shards_close(shards);
}

int main(void)
{
    const char *folder = tap_folder();
    test_raised(folder);
    const struct rlimit limit = { LIMIT, LIMIT };
    fixture_need(setrlimit(RLIMIT_NOFILE, &limit) == 0 ? ERR_OK : ERR_IO);
    test_order(folder);
    test_missing(folder);
    test_many(folder);
    return tap_done();
}
