/* Files from file://, http:// and s3:// against a server that fails in every
 * way it can. */

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/data/remote/store.h"
#include "src/data/remote/store_sign.h"
#include "tests/data_fixture.h"
#include "tests/http_server.h"

#define BYTES 300000
#define HERE "http://127.0.0.1:%d"

static const char *folder;
static uint8_t content[BYTES];
static struct http_server server;

static struct store *open_store(const char *format, double deadline_s,
                                double hedge)
{
    struct store *store = NULL;
    char url[256];
    struct store_options options = { .deadline_s = deadline_s, .hedge = hedge };
    snprintf(url, sizeof url, format, server.port);
    fixture_need(store_open(url, &options, &store));
    return store;
}

/* Whether the file is there, and what it has to be. */
static bool arrived(const char *path)
{
    char *data = NULL;
    size_t bytes = 0;
    bool same = fsio_read_file(path, 1 << 20, &data, &bytes) == ERR_OK &&
                bytes == BYTES && memcmp(data, content, BYTES) == 0;
    free(data);
    return same;
}

static enum err get(struct store *store, const char *name, int64_t expected,
                    int64_t *bytes)
{
    unlink(fixture_path(folder, "got"));
    *bytes = -1;
    return store_get(store, name, fixture_path(folder, "got"), expected, bytes);
}

static void fails(struct store *store, const char *name, int64_t expected,
                  enum err code, const char *text)
{
    int64_t bytes = 0;
    enum err rc = get(store, name, expected, &bytes);
    bool right = rc == code && strstr(err_text(), text) != NULL;
    tap_ok(right, "%s: %s, '%s'", name, err_name(code), text);
    if (!right)
        tap_note("%s: %s", err_name(rc), err_text());
}

static void test_addresses(void)
{
    static const struct {
        const char *url, *text;
    } wrong[] = {
        { "ftp://host/x", "there is no 'ftp://'" },
        { "http://user:pass@host/x", "~/.netrc" },
        { "s3://key:secret@bucket/x", "~/.aws/credentials" },
        { "http://host/x?sig=1", "'?'" },
        { "http://host/a b", "blank" },
        { "http://host/a/../b", "'..'" },
        { "http://", "names no host" },
        { "s3:///x", "names no bucket" },
        { "file://host/x", "has no host" },
        { "file://", "names no folder" },
        { "file:///a%zz", "two digits" },
        { "file:///a%00", "two digits" },
        { "no address", "is not an address" },
        { "http://host/a\\b", "'\\'" },
    };
    struct store_options options = { .deadline_s = 1.0 };
    struct store *store = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        enum err rc = store_open(wrong[i].url, &options, &store);
        bool right = rc == ERR_USAGE && strstr(err_text(), wrong[i].text) &&
                     !strstr(err_text(), "pass@") &&
                     !strstr(err_text(), "secret@");
        tap_ok(right, "refused: %s", wrong[i].url);
        if (!right)
            tap_note("%s", err_text());
    }
}

static void test_file(void)
{
    char url[FSIO_PATH_MAX + 16];
    int64_t bytes = 0;
    struct store_options options = { .deadline_s = 5.0 };
    struct store *store = NULL;
    snprintf(url, sizeof url, "file://%s/", folder);
    fixture_need(store_open(url, &options, &store));
    tap_ok(get(store, "shard a+b%.mds", BYTES, &bytes) == ERR_OK &&
               bytes == BYTES && arrived(fixture_path(folder, "got")),
           "file: a file with an odd name");
    fails(store, "missing", -1, ERR_DATA, "no such file");
    fails(store, "shard a+b%.mds", BYTES + 1, ERR_DATA, "the index says");
    store_close(store);
}

static void test_http(void)
{
    int64_t bytes = 0;
    struct store *store = open_store("http://127.0.0.1:%d/", 5.0, 0.0);
    for (int i = 0; i < 3; i++)
        tap_ok(get(store, "shard a+b%.mds", i == 0 ? -1 : BYTES, &bytes) ==
                       ERR_OK &&
                   bytes == BYTES && arrived(fixture_path(folder, "got")),
               "http: a file, number %d", i);
    tap_is_int(server.connections, 1, "one connection for all");
    tap_ok(get(store, "empty", 0, &bytes) == ERR_OK && bytes == 0,
           "an empty file");
    fails(store, "missing", -1, ERR_DATA, "status 404, NoSuchKey; is the");
    fails(store, "shard a+b%.mds", BYTES + 1, ERR_DATA, "but the index says");
    fails(store, "shard a+b%.mds", BYTES - 1, ERR_DATA, "has more than");
    store_close(store);
}

/* Faults that pass, and how many requests they take. */
static void test_retries(void)
{
    static const struct {
        const char *rules;
        int requests;
    } cases[] = {
        { "* status 503 1", 2 },
        { "* status 429 1", 2 },
        { "* drop - 1", 2 },
        { "* cut 1000 2", 3 },
        { "* stall 100000 1", 2 },
        { "* wait 1 1", 2 },
        { "* more 1 1", 2 },
        { "* cut 7 1\n* change - 1", 3 },
        { "* redirect http://127.0.0.1:%d/sub 1", 2 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char rules[256];
        int64_t bytes = 0;
        bool redirects = strstr(cases[i].rules, "redirect") != NULL;
        struct store *store = open_store(HERE, 2.0, 0.0);
        snprintf(rules, sizeof rules, cases[i].rules, server.port);
        http_server_rules(&server, rules);
        int before = server.requests;
        enum err rc = get(store, "shard.mds", -1, &bytes);
        if (strstr(rules, "more"))
            rc = get(store, "shard.mds", BYTES, &bytes);
        tap_ok(rc == ERR_OK && bytes == BYTES &&
                   arrived(fixture_path(folder, "got")),
               "passes: %s", cases[i].rules);
        if (rc != ERR_OK)
            tap_note("%s", err_text());
        tap_is_int(server.requests - before, cases[i].requests, "%s requests",
                   redirects ? "two" : "so many");
        store_close(store);
    }
}

/* Faults that do not pass, and errors in time: what passes at once has long, and the
 * others wait for longer than IN_TIME_S without their deadline. */
#define IN_TIME_S 25.0
static void test_failures(void)
{
    static const struct {
        const char *rules;
        double deadline_s;
        int64_t expected;
        enum err code;
        const char *text;
    } cases[] = {
        { "* status 401 -", 100, -1, ERR_DATA, "password of ~/.netrc" },
        { "* status 403 -", 100, -1, ERR_DATA, "may not be read: status 403" },
        { "* status 410 -", 100, -1, ERR_DATA,
          "410, Injected: a fault; is the" },
        { "* status 400 -", 100, -1, ERR_DATA, "status 400" },
        { "* less 5 -", 100, BYTES, ERR_DATA,
          "has 299995 bytes, but the index" },
        { "* status 408 -", 0.6, BYTES, ERR_IO, "last: status 408" },
        { "* status 500 -", 0.6, BYTES, ERR_IO, "last: status 500" },
        { "* stall 200 -", 0.6, BYTES, ERR_IO, " of 300000 bytes came in " },
        { "* wait 100 -", 0.6, BYTES, ERR_IO, "data.remote_deadline = 0.6" },
        { "* redirect http://127.0.0.1:1 -", 0.6, -1, ERR_IO,
          "data.remote_deadline" },
        { "* redirect file:///etc/passwd? -", 0.6, -1, ERR_DATA,
          "nsupported protocol" },
        { "* redirect " HERE " -", 100, -1, ERR_DATA,
          "the address that it leads to" },
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        char rules[256];
        struct store *store = open_store(HERE, cases[c].deadline_s, 0.0);
        double begin = clock_now();
        snprintf(rules, sizeof rules, cases[c].rules, server.port);
        http_server_rules(&server, rules);
        fails(store, "shard.mds", cases[c].expected, cases[c].code,
              cases[c].text);
        tap_ok(clock_now() - begin < IN_TIME_S, "... in time: %s", rules);
        store_close(store);
    }
    http_server_rules(&server, "");
    struct store *store = open_store("http://tessera.invalid:%d", 60.0, 0.0);
    fails(store, "x", -1, ERR_IO, "is the address right");
    store_close(store);
}

static void test_hedge(void)
{
    int64_t bytes = 0;
    struct store *store = open_store(HERE, 120.0, 3.0);
    for (int i = 0; i < 8; i++)
        fixture_need(get(store, "shard.mds", BYTES, &bytes));
    http_server_rules(&server, "* stall 5000 1");
    double begin = clock_now();
    tap_ok(get(store, "shard.mds", BYTES, &bytes) == ERR_OK &&
               arrived(fixture_path(folder, "got")),
           "a second transfer beside one that stalls");
    tap_ok(clock_now() - begin < IN_TIME_S, "and no wait for the first");
    tap_ok(!fsio_exists(fixture_path(folder, "got.second")), "nothing is left");
    http_server_rules(&server, "* delay 0.3 1");
    tap_ok(get(store, "shard.mds", BYTES, &bytes) == ERR_OK,
           "a second one where the first is only slow");
    store_close(store);
    http_server_rules(&server, "");
}

static void *stop_soon(void *store)
{
    clock_sleep(0.2);
    store_stop(store, true);
    return NULL;
}

static void test_stop(void)
{
    pthread_t thread;
    struct store *store = open_store(HERE, 100.0, 0.0);
    http_server_rules(&server, "* stall 10 -");
    double begin = clock_now();
    pthread_create(&thread, NULL, stop_soon, store);
    fails(store, "shard.mds", BYTES, ERR_IO, "given up");
    tap_ok(clock_now() - begin < IN_TIME_S, "soon");
    pthread_join(thread, NULL);
    http_server_rules(&server, "");
    store_close(store);
}

static void test_signature(void)
{
    char header[512], date[STORE_SIGN_DATE_BYTES];
    /* the example "GET Bucket Lifecycle" of Amazon's reference */
    struct store_sign sign = {
        .id = "AKIAIOSFODNN7EXAMPLE",
        .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        .token = "",
        .region = "us-east-1",
        .host = "examplebucket.s3.amazonaws.com",
        .path = "/",
        .query = "lifecycle=",
    };
    store_sign_date(1369353600, date);
    tap_is_str(date, "20130524T000000Z", "the date of a signature");
    fixture_need(store_sign(&sign, date, header, sizeof header));
    tap_is_str(strstr(header, "Signature="),
               "Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200"
               "a0136783543",
               "Amazon's example of a signature");
    sign.token = "tok";
    fixture_need(store_sign(&sign, date, header, sizeof header));
    tap_ok(strstr(header, "x-amz-security-token,") != NULL,
           "a session's token is signed, too");
}

/* What is said of credentials and regions, with ~/.aws as the cases so far have
 * left it. */
static const struct {
    const char *variable, *value, *file, *data;
    enum err code;
    const char *text;
} s3_cases[] = {
    { "AWS_ACCESS_KEY_ID", "id", NULL, NULL, ERR_USAGE, "only one is set" },
    { "AWS_PROFILE", "lab", NULL, NULL, ERR_USAGE,
      "AWS_PROFILE is 'lab', but" },
    { "AWS_PROFILE", "", NULL, NULL, ERR_DATA,
      "AWS_ENDPOINT_URL_S3 without credentials" },
    { "AWS_PROFILE", "lab", ".aws/credentials",
      "; [lab]\n[lab\nx\n[lab]\naws_access_key_id = 1\n", ERR_USAGE,
      "'lab' has only half of a pair" },
    { "AWS_REGION", "Mars!", NULL, NULL, ERR_USAGE,
      "'Mars!' is no name of a region" },
    { "AWS_DEFAULT_REGION", "earth", ".aws/credentials",
      "[default]\naws_access_key_id = 1\naws_secret_access_key = 2\n"
      "aws_session_token = 3\n",
      ERR_DATA, "in region earth with the credentials of profile 'default'" },
    { "AWS_PROFILE", "", ".aws/config", "[default]\nregion = moon\n", ERR_DATA,
      "in region moon with" },
};

static void test_s3(void)
{
    char endpoint[64];
    int64_t bytes = 0;
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", server.port);
    setenv("AWS_ENDPOINT_URL_S3", endpoint, 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", fixture_path(folder, "credentials"),
           1);
    setenv("AWS_PROFILE", "lab", 1);
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    fixture_write_file(fixture_path(folder, "credentials"),
                       "[lab]\naws_access_key_id=KEY\n"
                       "aws_secret_access_key = very/secret\n",
                       63);
    struct store *store = open_store("s3://bucket/my sets/", 3.0, 0.0);
    tap_ok(get(store, "shard a+b%.mds", BYTES, &bytes) == ERR_OK,
           "s3: a file with an odd name at an endpoint");
    tap_ok(strncmp(server.last,
                   "GET /bucket/my%20sets/shard%20a%2Bb%25.mds HTTP/1.1",
                   51) == 0,
           "the bucket is the first part of the path");
    tap_ok(strstr(server.last, "Credential=KEY/") != NULL &&
               strstr(server.last, "secret") == NULL,
           "signed by the profile's key");
    http_server_rules(&server, "* status 403 -");
    fails(store, "x", -1, ERR_DATA, "credentials of profile 'lab' of");
    tap_ok(strstr(err_text(), "very/secret") == NULL, "without the secret");
    http_server_rules(&server, "* redirect http://127.0.0.1:1 -");
    fails(store, "x", -1, ERR_DATA, "AWS_REGION");
    http_server_rules(&server, "* status 403 -");
    unsetenv("AWS_SHARED_CREDENTIALS_FILE");
    setenv("HOME", folder, 1);
    fixture_need(fsio_mkdirs(fixture_path(folder, ".aws")));
    for (size_t c = 0; c < sizeof s3_cases / sizeof *s3_cases; c++) {
        setenv(s3_cases[c].variable, s3_cases[c].value, 1);
        if (s3_cases[c].file != NULL)
            fixture_write_file(fixture_path(folder, s3_cases[c].file),
                               s3_cases[c].data, strlen(s3_cases[c].data));
        fails(store, "x", -1, s3_cases[c].code, s3_cases[c].text);
        unsetenv(s3_cases[c].variable);
    }
    http_server_rules(&server, "");
    fails(store, "x", -1, ERR_DATA, "asked AWS_ENDPOINT_URL_S3 in region moon");
    store_close(store);
}

int main(void)
{
    log_init("test", -1, LOG_ERROR);
    folder = tap_folder();
    for (size_t i = 0; i < BYTES; i++)
        content[i] = (uint8_t)(i * i >> 7);
    static const char *const places[] = { "shard.mds", "sub/shard.mds",
                                          "shard a+b%.mds",
                                          "bucket/my sets/shard a+b%.mds" };
    fixture_need(fsio_mkdirs(fixture_path(folder, "sub")));
    fixture_need(fsio_mkdirs(fixture_path(folder, "bucket/my sets")));
    for (size_t p = 0; p < 4; p++)
        fixture_write_file(fixture_path(folder, places[p]), content, BYTES);
    fixture_write_file(fixture_path(folder, "empty"), "", 0);
    http_server_start(&server, folder);
    unsetenv("http_proxy");
    test_addresses();
    test_file();
    test_http();
    test_retries();
    test_failures();
    test_hedge();
    test_stop();
    test_signature();
    test_s3();
    http_server_stop(&server);
    return tap_done();
}
