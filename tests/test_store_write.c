/* Files put into, listed in and removed from S3, by a server that fails in every way:
 * what is there is whole, and an upload that was cut off is gone on with. */

#include "src/base/log.h"
#include "src/data/remote/store_write.h"
#include "tests/data_fixture.h"
#include "tests/http_server.h"

#define LARGE ((size_t)40 << 20)

static const char *folder;
static struct http_server server;
static uint8_t *large;

static struct store *open_store(double deadline_s)
{
    struct store *store = NULL;
    struct store_options options = { .deadline_s = deadline_s };
    fixture_need(store_open("s3://bucket/a b", &options, &store));
    return store;
}

static bool is_there(const char *name, const void *data, size_t bytes)
{
    char path[1024];
    size_t got = 0;
    snprintf(path, sizeof path, "%s/bucket/a b/%s", folder, name);
    char *read = s3_read(path, &got);
    bool same = read != NULL && got == bytes && memcmp(read, data, bytes) == 0;
    free(read);
    return same;
}

static int left_uploads(void)
{
    char command[1100];
    int count = -1;
    snprintf(command, sizeof command,
             "ls -d '%s'/bucket/.up-* 2>/dev/null | "
             "wc -l",
             folder);
    FILE *pipe = popen(command, "r");
    if (pipe == NULL || fscanf(pipe, "%d", &count) != 1)
        count = -1;
    if (pipe != NULL)
        pclose(pipe);
    return count;
}

static void test_small(void)
{
    struct store *store = open_store(20);
    struct store_names names;
    int64_t bytes = 0;
    bool good = true;
    for (int i = 0; i < 8; i++) {
        char name[32];
        snprintf(name, sizeof name, "x/%d/f&%d", i / 4, i);
        good = good && store_put(store, name, "text", 4) == ERR_OK &&
               is_there(name, "text", 4);
    }
    tap_ok(good, "small files, in a folder with a blank and names with '&'");
    tap_ok(store_list(store, "x/", false, &names) == ERR_OK &&
               names.count == 8 && strcmp(names.list[7].name, "x/1/f&7") == 0 &&
               names.list[7].bytes == 4,
           "a list of three pages has them in order");
    store_names_free(&names);
    tap_ok(store_list(store, "x/", true, &names) == ERR_OK &&
               names.count == 2 && strcmp(names.list[1].name, "x/1/") == 0 &&
               names.list[1].bytes == -1,
           "and one of folders");
    store_names_free(&names);
    tap_ok(store_size(store, "x/0/f&1", &bytes) == ERR_OK && bytes == 4 &&
               store_size(store, "x/0/f", &bytes) == ERR_OK && bytes == -1,
           "a file has a length, and what only begins so is none");
    static const char *const texts[] = {
        "<html>",
        "<ListBucketResult><Contents><Key>a",
        "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        "<ListBucketResult><NextContinuationToken>x</NextContinuationToken>"
        "</ListBucketResult>",
        "<ListBucketResult><Contents><Key>a</Key><Size>-5</Size></Contents>"
        "</ListBucketResult>",
        "<ListBucketResult><Contents><Key>a</Key><Size>9999999999999999999"
        "</Size></Contents></ListBucketResult>"
    };
    good = true;
    for (int i = 0; i < 6; i++) {
        char rule[256];
        snprintf(rule, sizeof rule, "list-type text %s -", texts[i]);
        http_server_rules(&server, rule);
        good = good && store_list(store, "x/", false, &names) == ERR_IO &&
               names.count == 0;
    }
    http_server_rules(&server, "");
    tap_ok(good, "what is no whole list is no empty one: %s", err_text());
    tap_ok(store_remove(store, "x/0/f&0", "x/0/") == ERR_OK &&
               store_list(store, "", false, &names) == ERR_OK &&
               names.count == 4,
           "a folder is removed, and nothing else");
    store_names_free(&names);
    store_close(store);
}

static void test_tags(void)
{
    struct store *store = NULL;
    struct store_names names;
    const struct store_options options = { .deadline_s = 20 };
    fixture_need(store_open("s3://bucket", &options, &store));
    http_server_rules(&server,
                      "list-type text <ListBucketResult><Contents><Key>x</Key>"
                      "<LastModified>2026</LastModified><Size>3</Size>"
                      "</Contents></ListBucketResult> -");
    tap_ok(store_list(store, "", false, &names) == ERR_OK && names.count == 1 &&
               strcmp(names.list[0].etag, "2026") == 0,
           "where a store has no signs of contents, times are taken");
    http_server_rules(&server, "");
    store_names_free(&names);
    store_close(store);
}

static enum err put_large(double deadline_s)
{
    struct store *store = open_store(deadline_s);
    enum err rc =
        store_put_file(store, "large", fixture_path(folder, "large"), LARGE);
    store_close(store);
    return rc;
}

static void test_large(void)
{
    tap_ok(put_large(20) == ERR_OK && is_there("large", large, LARGE) &&
               left_uploads() == 0,
           "a file in three parts");
    http_server_rules(&server, "partNumber=3 status 403 -");
    enum err rc = put_large(20);
    tap_ok(rc == ERR_DATA && strstr(err_text(), "may not be written") != NULL &&
               strstr(err_text(), "credentials") != NULL,
           "denied is told at once: %s", err_text());
    tap_ok(left_uploads() == 1, "what was sent stays as an upload");
    large[0] ^= 1; /* the first part is another one */
    fixture_write_file(fixture_path(folder, "large"), large, LARGE);
    http_server_rules(&server, "partNumber=2 status 403 -");
    tap_ok(put_large(20) == ERR_OK && is_there("large", large, LARGE) &&
               left_uploads() == 0,
           "an upload that was cut off goes on: a part that is there is not "
           "sent again, one that differs is");
    http_server_rules(&server, "POST lose - 2\nPUT lose - 1");
    large[1] ^= 1;
    fixture_write_file(fixture_path(folder, "large"), large, LARGE);
    tap_ok(put_large(20) == ERR_OK && is_there("large", large, LARGE),
           "answers that are lost, also that of the last request");
    http_server_rules(&server, "");
    struct store *store = open_store(20);
    for (int i = 0; i < 90; i++) {
        char path[1100];
        snprintf(path, sizeof path, "%s/bucket/.up-n%d/key", folder, i);
        s3_write(path, "a b/large", strlen("a b/large"));
    }
    tap_ok(left_uploads() >= 90 &&
               store_remove(store, "large", "large") == ERR_OK &&
               left_uploads() == 0,
           "removing takes what uploads have left, also more than a page");
    store_close(store);
}

static void test_failures(void)
{
    struct store *store = open_store(2);
    http_server_rules(&server, "PUT status 503 -");
    tap_ok(store_put(store, "never", "text", 4) == ERR_IO &&
               strstr(err_text(), "status 503") != NULL,
           "busy until the deadline: %s", err_text());
    http_server_rules(&server, "PUT slow 2000 1");
    tap_ok(store_put(store, "slow", large, 100000) == ERR_OK &&
               is_there("slow", large, 100000),
           "a connection that stalls is replaced");
    http_server_rules(&server, "");
    store_close(store);
    struct store_options options = { .deadline_s = 2 };
    fixture_need(store_open("s3://none", &options, &store));
    tap_ok(store_put(store, "x", "text", 4) == ERR_DATA &&
               strstr(err_text(), "NoSuchBucket") != NULL,
           "no bucket: %s", err_text());
    store_close(store);
    fixture_need(store_open("http://127.0.0.1:1/x", &options, &store));
    tap_ok(store_put(store, "x", "text", 4) == ERR_USAGE, "http:// is not "
                                                          "written to");
    store_close(store);
}

/* Each put ends well or with an error, and what is said to be there is whole, also
 * where it goes in parts. STORE_SEEDS: so many courses. */
static void test_chance(void)
{
    int wrong = 0, failed = 0, files = 0;
    char rule[64];
    const char *seeds = getenv("STORE_SEEDS");
    server.faults = 0;
    for (int seed = 1; seed <= (seeds != NULL ? atoi(seeds) : 30); seed++) {
        struct store *store = open_store(60);
        snprintf(rule, sizeof rule, "* chance %d:30 -", seed);
        http_server_rules(&server, rule);
        for (int i = 0; i < 6; i++, files++) {
            char name[32];
            bool parts = i == 0 && seed % 15 == 0;
            size_t bytes = parts ? LARGE : (size_t)(seed * 1000 + i);
            snprintf(name, sizeof name, "chance/%d", i);
            enum err rc = parts ? store_put_file(store, name,
                                                 fixture_path(folder, "large"),
                                                 (int64_t)bytes)
                                : store_put(store, name, large, bytes);
            failed += rc != ERR_OK;
            wrong += rc == ERR_OK && !is_there(name, large, bytes);
        }
        store_close(store);
    }
    http_server_rules(&server, "");
    tap_ok(wrong == 0 && failed == 0 && server.faults > 0,
           "%d faults by chance in %d files: %d wrong, %d failed",
           server.faults, files, wrong, failed);
}

int main(void)
{
    char url[64], path[1100];
    folder = tap_folder();
    http_server_start(&server, folder);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", server.port);
    setenv("AWS_ENDPOINT_URL_S3", url, 1);
    setenv("AWS_ACCESS_KEY_ID", "id", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    snprintf(path, sizeof path, "%s/bucket", folder);
    mkdir(path, 0777);
    log_init("test", -1, LOG_ERROR);
    large = malloc(LARGE);
    for (size_t i = 0; i < LARGE; i++)
        large[i] = (uint8_t)(i * 2654435761u >> 13);
    fixture_write_file(fixture_path(folder, "large"), large, LARGE);
    test_small();
    test_tags();
    test_large();
    test_failures();
    test_chance();
    free(large);
    http_server_stop(&server);
    return tap_done();
}
