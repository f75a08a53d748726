/* A check is a program with an exit status and lines of words; each pair of the two
 * that fits is a row below, and any other is said as what it is. */
#include "src/node/node_look.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/processes.h"
#include "src/base/sysfile.h"
#include "src/node/node_child.h"
#include "src/node/node_clean.h"
#include "src/node/node_events.h"
#include "src/node/node_gpus.h"
#include "src/node/node_words.h"

#define STEPS_S 2.0
#define HEALTH_CUT 76 /* the check ran out of its time */
/* For what comes after a look, and after a probe. */
#define REST_S 5.0
#define PROBE_REST_S 10.0

/* --- one check --- */

/* "verdict HOST STATE CODE CODES REASON", "bad CHECKS", and what else is said. */
static void take_line(struct node *node, char *line, char *words, size_t size,
                      bool *judged)
{
    char state[16], code[32], codes[NODE_TEXT_BYTES];
    int at = 0;
    if (strncmp(line, "bad ", 4) == 0) {
        snprintf(node->bad, sizeof node->bad, "%s", line + 4);
    } else if (sscanf(line, "verdict %*s %15s %31s %511s %n", state, code,
                      codes, &at) == 3 &&
               at > 0) {
        *judged = false;
        for (int i = NODE_OK; i <= NODE_UNKNOWN; i++)
            if (strcmp(state, node_state_names[i]) == 0) {
                node->state = (enum node_state)i;
                *judged = true;
            }
        snprintf(node->codes, sizeof node->codes, "%s",
                 strcmp(codes, "-") != 0 ? codes : code);
        snprintf(node->reason, sizeof node->reason, "%s",
                 strcmp(line + at, "-") != 0 ? line + at : "");
    } else if (line[0] != '\0') {
        snprintf(words + strlen(words), size - strlen(words), " %s", line);
    }
}

static void say_state(struct node *node, int code, bool judged,
                      const char *words, double seconds)
{
    char *reason = node->reason;
    size_t size = sizeof node->reason;
    bool fits = judged && (code == (int)node->state ||
                           (node->state == NODE_UNKNOWN && code == HEALTH_CUT));
    if (code == NODE_NO_ANSWER)
        snprintf(reason, size, "the check does not answer within %.0f s",
                 seconds);
    else if (code == 64)
        snprintf(reason, size, "nothing is checked, the settings are wrong:");
    else if (code == 126 || code == 127)
        snprintf(reason, size, "nothing is checked, the check does not start:");
    else if (!fits)
        snprintf(reason, size,
                 "nothing is checked, the check ended with code %d:", code);
    if (!fits) {
        node->state = NODE_UNKNOWN;
        node->codes[0] = '\0';
        node_say(node, "%s%s", reason, words);
    } else if (node->state == NODE_UNKNOWN) {
        node_say(node, "not known: %s%s", reason, words);
    } else if (node->state == NODE_OK && words[0] != '\0') {
        node_say(node, "the check is ok, but says:%s", words);
    } else if (node->state == NODE_WARN) {
        node_say(node, "warning: %s%s", reason, words);
    } else if (node->state == NODE_BAD) {
        node_say(node, "bad: %s%s", reason, words);
    }
}

static void check(struct node *node, const char *program, const char *phase,
                  double seconds, const char *only, char *const *environment)
{
    char budget[16], gpus[16], words[300] = "";
    char *argv[11] = { (char *)program, (char *)phase, "--words", "--budget",
                       budget };
    struct buffer out = { 0 };
    int count = 5;
    bool judged = false;
    double left_s = node->end_s - clock_now();
    snprintf(budget, sizeof budget, "%.0f", seconds);
    snprintf(gpus, sizeof gpus, "%d", node->gpus);
    if (node->gpus > 0) {
        argv[count++] = "--gpus";
        argv[count++] = gpus;
    }
    if (node->shared)
        argv[count++] = "--shared";
    if (only != NULL && *only != '\0') {
        argv[count++] = "--only";
        argv[count++] = (char *)only;
    }
    struct node_child child = { .seconds =
                                    seconds + 2 < left_s ? seconds + 2 : left_s,
                                .argv = argv,
                                .environment = environment };
    node->state = NODE_UNKNOWN;
    node->reason[0] = node->codes[0] = node->bad[0] = '\0';
    int code = node_child(&child, &out);
    char *rest = (char *)out.data;
    for (char *line; rest != NULL && (line = strsep(&rest, "\n")) != NULL;)
        take_line(node, line, words, sizeof words, &judged);
    say_state(node, code, judged, words, seconds);
    buffer_free(&out);
}

/* --- other jobs --- */

/* "slurmstepd: [JOB.STEP]" is what a step's manager calls itself; slurmctld need
 * not be asked. */
static int find_steps(void *arg)
{
    const struct node *node = arg;
    struct process *list;
    size_t count;
    int others = processes_list("", &list, &count) != ERR_OK;
    for (size_t i = 0; i < count; i++) {
        char text[64];
        long job;
        if (list[i].user != 0 || strcmp(list[i].name, "slurmstepd") != 0)
            continue;
        (void)sysfile_text(text, sizeof text, "/proc/%d/cmdline",
                           (int)list[i].pid);
        if (sscanf(text, "slurmstepd: [%ld", &job) == 1 && job != node->job)
            others = 1;
    }
    free(list);
    return others;
}

/* --- the job's probes --- */

/* Whether another job is on the node; false too where that is not known, with
 * `why`. */
static bool alone(const struct node *node, char *why, size_t size)
{
    struct node_users users = { 0 };
    bool known = node_clean_jobs(node, &users, why, size);
    if (known)
        snprintf(why, size, "other jobs are on the node");
    free(users.list);
    return known && users.count == 0;
}

void node_probe(struct node *node, const char *checks, double seconds)
{
    char why[NODE_SITE_TEXT + 64], library[NODE_SITE_TEXT + 32];
    char *environment[] = { "CUDA_VISIBLE_DEVICES", library, NULL };
    double left_s = node->end_s - clock_now() - PROBE_REST_S;
    node->state = NODE_UNKNOWN;
    node->shared = false; /* or it is not probed */
    snprintf(library, sizeof library, "LD_LIBRARY_PATH=%s",
             node->site.library_path);
    if (node->site.library_path[0] == '\0')
        environment[1] = NULL;
    if (!node_child_owned(node->site.probes, why, sizeof why))
        node_say(node, "not probed for %s, see TESSERA_PROBES: %s", checks,
                 why);
    else if (!alone(node, why, sizeof why))
        node_say(node, "not probed for %s: %s", checks, why);
    else if (left_s < REST_S)
        node_say(node, "not probed for %s: no time is left", checks);
    else
        check(node, node->site.probes, "job",
              left_s < seconds ? left_s : seconds, checks, environment);
}

/* --- a look --- */

/* Whether users' files fill that folder. */
static bool used_up(const struct node *node, const char *folder)
{
    char codes[NODE_TEXT_BYTES + 2];
    snprintf(codes, sizeof codes, ",%s,", node->codes);
    return strstr(codes, strcmp(folder, "/tmp") == 0 ? ",TMP_USED,"
                                                     : ",SHM_USED,") != NULL;
}

void node_look(struct node *node, int seconds)
{
    static const char *const folders[] = { "/dev/shm", "/tmp" };
    char program[sizeof node->here + 16], bad[sizeof node->bad];
    char reason[sizeof node->reason];
    /* of a node without a job, as after one */
    const char *phase =
        strcmp(node->phase, "prolog") == 0 || strcmp(node->phase, "quick") == 0
            ? node->phase
            : "epilog";
    snprintf(program, sizeof program, "%s/node-health", node->here);
    struct node_child child = { NODE_CHILD(STEPS_S, find_steps, node) };
    struct buffer nothing = { 0 };
    node->shared = node_child(&child, &nothing) != 0;
    buffer_free(&nothing);
    node_gpus_find(node);
    check(node, program, phase, seconds, NULL, NULL);
    for (int i = 0; i < 2; i++)
        if (strstr(node->site.clean, folders[i]) != NULL &&
            used_up(node, folders[i]) && node_clean_leavings(node, folders[i]))
            check(node, program, phase, seconds, NULL, NULL);
    for (int i = 0; i < 2; i++)
        if (used_up(node, folders[i]))
            node_clean_tell_owner(node, folders[i]);
    if (node->state != NODE_BAD)
        return;
    if (clock_now() + node->site.again_s + REST_S > node->end_s) {
        node_decide(node, "no-time", node->reason,
                    "no time for a second look: left as it is: %s",
                    node->reason);
        node->state = NODE_UNKNOWN;
        return;
    }
    clock_sleep(node->site.again_s);
    snprintf(bad, sizeof bad, "%s", node->bad);
    snprintf(reason, sizeof reason, "%s", node->reason);
    check(node, program, phase, seconds, bad, NULL);
    if (node->state != NODE_BAD)
        node_decide(node, "second-look", reason, NODE_NOT_TWICE, reason);
}
