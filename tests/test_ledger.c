#include "src/job/ledger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "tests/tap.h"

static char folder[FSIO_PATH_MAX];
static char ledger[FSIO_PATH_MAX];

static void write_ledger(const char *text)
{
    FILE *file = fopen(ledger, "w");
    if (file == NULL || fputs(text, file) == EOF || fclose(file) != 0)
        tap_ok(false, "write %s", ledger);
}

static char *read_ledger(void)
{
    char *text = NULL;
    size_t bytes;
    if (fsio_read_file(ledger, 1 << 20, &text, &bytes) != ERR_OK)
        return strdup("");
    return text;
}

static void test_events(void)
{
    json_t *events = NULL;
    unlink(ledger);
    tap_ok(ledger_events(folder, "save", &events) == ERR_OK &&
               json_array_size(events) == 0,
           "no ledger: no events");
    json_decref(events);
    write_ledger("{\"event\":\"save\",\"n\":1}\n{\"event\":\"start\"}\n[1]\n"
                 "{\"event\":\"save\",\"n\":2}\n{\"event\":\"save\",\"n");
    tap_ok(ledger_events(folder, "save", &events) == ERR_OK &&
               json_array_size(events) == 2,
           "those of the name, without a torn line");
    tap_is_int(
        json_integer_value(json_object_get(json_array_get(events, 1), "n")), 2,
        "in their order");
    json_decref(events);
}

static void test_next_attempt(void)
{
    static const struct {
        const char *name;
        const char *text; /* NULL: no file */
        int want;
    } cases[] = {
        { "no ledger", NULL, 1 },
        { "empty ledger", "", 1 },
        { "one start", "{\"event\":\"start\"}\n", 2 },
        { "other events do not count",
          "{\"event\":\"start\"}\n{\"event\":\"commit\"}\n"
          "{\"event\":\"stop\"}\n{\"event\":\"start\"}\n",
          3 },
        { "torn last line", "{\"event\":\"start\"}\n{\"event\":\"start\",\"ti",
          2 },
        { "whole last line without its end",
          "{\"event\":\"start\"}\n{\"event\":\"start\"}", 3 },
        { "healed torn line",
          "{\"event\":\"start\"}\n{\"eve\n{\"event\":\"start\"}\n", 3 },
        { "rubbish", "start\n\n[1]\n\"start\"\n{\"event\":7}\n", 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int attempt = -1;
        unlink(ledger);
        if (cases[i].text != NULL)
            write_ledger(cases[i].text);
        tap_is_int(ledger_next_attempt(folder, &attempt), ERR_OK, "%s: read",
                   cases[i].name);
        tap_is_int(attempt, cases[i].want, "%s: attempt", cases[i].name);
    }
}

static void test_append(void)
{
    unlink(ledger);
    double before = clock_wall();
    tap_is_int(
        ledger_append(folder, "start", 1,
                      json_pack("{s:i, s:s}", "ranks", 4, "hosts", "n1\nn2")),
        ERR_OK, "append start");
    tap_is_int(ledger_append(folder, "stop", 1, NULL), ERR_OK,
               "append without fields");
    char *text = read_ledger();
    char *second = strchr(text, '\n');
    tap_ok(second != NULL && strchr(second + 1, '\n') != NULL &&
               strchr(second + 1, '\n')[1] == '\0',
           "two lines, nothing after them");
    json_t *object = json_loads(text, JSON_DISABLE_EOF_CHECK, NULL);
    double time_s = json_real_value(json_object_get(object, "time"));
    tap_ok(time_s >= before - 0.001 && time_s <= clock_wall() + 0.001,
           "time is now");
    tap_is_int(json_integer_value(json_object_get(object, "attempt")), 1,
               "attempt");
    tap_is_int(json_integer_value(json_object_get(object, "ranks")), 4,
               "field");
    tap_is_str(json_string_value(json_object_get(object, "hosts")), "n1\nn2",
               "a newline in a field stays inside");
    json_decref(object);
    free(text);
}

static void test_heal(void)
{
    write_ledger("{\"event\":\"start\",\"attempt\":1}\n{\"event\":\"com");
    tap_is_int(ledger_append(folder, "start", 2, NULL), ERR_OK,
               "append after a torn line");
    char *text = read_ledger();
    tap_ok(strstr(text, "\n{\"event\":\"com\n{\"event\": \"start\"") != NULL,
           "the torn line got its end");
    int attempt = 0;
    tap_is_int(ledger_next_attempt(folder, &attempt), ERR_OK, "read healed");
    tap_is_int(attempt, 3, "attempt after healing");
    free(text);
}

static void test_failures(void)
{
    char missing[FSIO_PATH_MAX];
    snprintf(missing, sizeof missing, "%.900s/missing", folder);
    tap_ok(ledger_append(missing, "start", 1, NULL) != ERR_OK,
           "append to a missing folder fails");
    tap_ok(strstr(err_text(), "missing/ledger.jsonl") != NULL,
           "the error names the file: %s", err_text());
    unlink(ledger);
    mkdir(ledger, 0777);
    int attempt;
    tap_ok(ledger_next_attempt(folder, &attempt) != ERR_OK,
           "a folder is not a ledger");
    rmdir(ledger);
    tap_is_int(ledger_append(folder, "start\xff", 1, json_object()),
               ERR_INTERNAL, "an event that is not UTF-8");
    tap_ok(!fsio_exists(ledger), "nothing was written");
}

int main(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.800s/test_ledger.XXXXXX",
             base != NULL ? base : "/tmp");
    if (mkdtemp(folder) == NULL)
        return 1;
    snprintf(ledger, sizeof ledger, "%.900s/ledger.jsonl", folder);
    test_events();
    test_next_attempt();
    test_append();
    test_heal();
    test_failures();
    fsio_remove_tree(folder);
    return tap_done();
}
