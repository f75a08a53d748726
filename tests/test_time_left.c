/* squeue is a script of the test that prints what a file says. */
#include "src/job/slurm.h"

#include <sys/stat.h>

#include "src/base/fsio.h"
#include "tests/tap.h"

static const char *folder;

static void answer(const char *text)
{
    char path[FSIO_PATH_MAX];
    snprintf(path, sizeof path, "%.900s/squeue", folder);
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return;
    fprintf(file, "#!/bin/sh\n%s\n", text);
    fclose(file);
    chmod(path, 0755);
}

int main(void)
{
    static const struct {
        const char *name, *script;
        bool under_100, under_1000;
    } cases[] = {
        { "five minutes", "echo 7 5:00", false, true },
        { "one minute", "echo 7 1:00", true, true },
        { "a day", "echo 7 1-00:00:00", false, false },
        { "no limit", "echo 7 UNLIMITED", false, false },
        { "no answer", "exit 1", false, false },
    };
    char path[2048];
    struct time_left left;
    folder = tap_folder();
    snprintf(path, sizeof path, "%s:/usr/bin:/bin", folder);
    setenv("PATH", path, 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        answer(cases[i].script);
        time_left_begin(&left, 7);
        tap_is_int(time_left_under(&left, 100), cases[i].under_100,
                   "%s: under 100 s", cases[i].name);
        tap_is_int(time_left_under(&left, 1000), cases[i].under_1000,
                   "%s: under 1000 s", cases[i].name);
    }
    answer("echo 7 1:00");
    time_left_begin(&left, 0);
    tap_ok(!time_left_under(&left, 1000), "not in a job");
    time_left_begin(&left, 7);
    answer("echo 7 2:00:00");
    tap_ok(time_left_under(&left, 100), "asked a moment ago");
    left.asked_at -= 31;
    tap_ok(!time_left_under(&left, 100), "the limit was moved");
    answer("exit 1");
    left.asked_at -= 31;
    tap_ok(time_left_under(&left, 10000), "no answer: what was known counts");
    time_left_begin(&left, 7);
    answer("echo 7 1:00");
    tap_ok(!time_left_under(&left, 100), "never an answer: nothing is known");
    left.asked_at -= 301;
    tap_ok(time_left_under(&left, 100), "but it is asked again");
    return tap_done();
}
