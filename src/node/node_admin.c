/* Each test of selftest is a row; it asks as prolog and epilog will ask, by the same
 * children with the same limits. */
#include "src/node/node_admin.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/job/slurm_run.h"
#include "src/node/node_child.h"
#include "src/node/node_drain.h"
#include "src/node/node_events.h"
#include "src/node/node_look.h"
#include "src/node/node_verdict.h"
#include "src/node/node_words.h"

#define RECHECK_S 300.0
#define ASK_S 8.0
#define FILE_S 3.0
#define ANSWER_BYTES_MAX ((size_t)4 << 20)
#define TIMEOUT_LEAST_S 60

/* --- recheck --- */

struct recheck {
    struct node *node;
    char reason[128];
};

static bool look(void *arg, const char *reason)
{
    struct recheck *recheck = arg;
    struct node *node = recheck->node;
    char probe[16];
    snprintf(recheck->reason, sizeof recheck->reason, "%s", reason);
    node_look(node, node->site.epilog_s);
    if (node->state <= NODE_WARN &&
        node_verdict_probe(reason, probe, sizeof probe))
        node_probe(node, probe, NODE_END_S);
    return node->state <= NODE_WARN;
}

static void say_undrain(void *arg, const char *outcome, const char *text)
{
    struct recheck *recheck = arg;
    puts(text);
    node_decide(recheck->node, outcome, recheck->reason, "%s", text);
}

int node_recheck(struct node *node, bool undrain)
{
    struct recheck recheck = { .node = node };
    const struct node_drain_calls calls = { say_undrain, look, &recheck };
    const struct undrain_request request = { .node = node->name,
                                             .enforce = undrain,
                                             .pause_s = node->site.again_s };
    node->end_s = clock_now() + RECHECK_S;
    return !node_undrain(&request, node->end_s, &calls);
}

/* --- selftest --- */

enum finding { FINE, NOTHING, WRONG };

struct tested {
    struct node *node;
    char text[512];
};

__attribute__((format(printf, 3, 4))) static enum finding
tell(struct tested *t, enum finding finding, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(t->text, sizeof t->text, format, args);
    va_end(args);
    return finding;
}

static enum finding test_settings(struct tested *t)
{
    const struct node *node = t->node;
    if (node->wrong[0] != '\0')
        return tell(t, WRONG, "%.400s", node->wrong);
    if (!node->settings_read)
        return tell(t, WRONG, "not read, see above");
    return tell(t, FINE, "%s",
                node->site.enforce ? "sick nodes are drained"
                                   : "dry run: no node is drained");
}

static int try_to_write(void *arg)
{
    struct stat st;
    const char *path = arg;
    bool there = stat(path, &st) == 0;
    if (there && access(path, W_OK) == 0) {
        printf("%o", (unsigned)st.st_mode & 07777);
        return 0;
    }
    printf("%s", strerror(errno));
    return 1;
}

/* *mode of what is there and can be written. */
static enum finding test_path(struct tested *t, const char *path,
                              const char *without, unsigned *mode)
{
    struct buffer out = { 0 };
    struct node_child child = { NODE_CHILD(FILE_S, try_to_write,
                                           (void *)path) };
    if (*path == '\0')
        return tell(t, NOTHING, "not set: %s", without);
    int code = node_child(&child, &out);
    const char *said = code == NODE_NO_ANSWER ? "no answer" : (char *)out.data;
    if (code == 0 && mode != NULL)
        *mode = (unsigned)strtoul(said, NULL, 8);
    tell(t, FINE, "%s%s%s", path, code == 0 ? "" : ": ", code == 0 ? "" : said);
    buffer_free(&out);
    return code == 0 ? FINE : WRONG;
}

static enum finding test_spool(struct tested *t)
{
    unsigned mode = 0;
    enum finding found = test_path(t, t->node->site.spool,
                                   "jobs cannot say what they found", &mode);
    if (found == FINE && mode != 01777)
        return tell(t, WRONG, "%.400s has mode %o, give it 1777",
                    t->node->site.spool, mode);
    return found;
}

/* A log that is not there yet is made by the first word. */
static enum finding test_log(struct tested *t)
{
    char path[NODE_SITE_TEXT];
    snprintf(path, sizeof path, "%s", t->node->site.log);
    if (path[0] != '\0' && access(path, F_OK) != 0 && strrchr(path, '/') > path)
        *strrchr(path, '/') = '\0';
    return test_path(t, path, "only syslog is written", NULL);
}

static enum finding test_events(struct tested *t)
{
    return test_path(t, t->node->site.events, "no report can be made", NULL);
}

static enum finding test_metrics(struct tested *t)
{
    return test_path(t, t->node->site.metrics, "nothing for Prometheus", NULL);
}

static int say_hello(void *arg)
{
    (void)arg;
    openlog("tessera", 0, LOG_USER);
    syslog(LOG_INFO, "selftest");
    return 0;
}

static enum finding test_syslog(struct tested *t)
{
    struct buffer out = { 0 };
    struct node_child child = { NODE_CHILD(FILE_S, say_hello, NULL) };
    int code = node_child(&child, &out);
    buffer_free(&out);
    return code == 0 ? tell(t, FINE, "answers")
                     : tell(t, WRONG, "does not answer within %.0f s", FILE_S);
}

static enum finding test_program(struct tested *t, const char *path,
                                 const char *without)
{
    if (*path == '\0')
        return tell(t, NOTHING, "not set: %s", without);
    if (!node_child_owned(path, t->text, sizeof t->text))
        return WRONG;
    return tell(t, FINE, "%s", path);
}

static enum finding test_notify(struct tested *t)
{
    return test_program(t, t->node->site.notify, "nobody is told");
}

static enum finding test_probes(struct tested *t)
{
    char library[NODE_SITE_TEXT + 32];
    char *argv[] = { t->node->site.probes, "--version", NULL };
    char *environment[] = { library, NULL };
    struct buffer out = { 0 };
    struct node_child child = { .seconds = ASK_S,
                                .argv = argv,
                                .environment = environment };
    enum finding found = test_program(t, t->node->site.probes, "");
    if (found == WRONG && access(t->node->site.probes, F_OK) != 0)
        return tell(t, WRONG,
                    "%.200s is not there: name bin/tessera-health of the "
                    "installed tree, or no node is drained for what jobs find",
                    t->node->site.probes);
    snprintf(library, sizeof library, "LD_LIBRARY_PATH%s%s",
             t->node->site.library_path[0] != '\0' ? "=" : "",
             t->node->site.library_path);
    if (found == FINE && node_child(&child, &out) != 0)
        found = tell(t, WRONG, "%.200s: %.250s", t->node->site.probes,
                     out.bytes > 0 ? (char *)out.data : "no answer");
    buffer_free(&out);
    return found;
}

/* What Slurm answers, and in which time. */
static enum finding ask(struct tested *t, char *const *argv, struct buffer *out)
{
    double begin_s = clock_now();
    int status = slurm_run(argv, ASK_S, ANSWER_BYTES_MAX, out);
    const char *said = out->bytes > 0 ? (char *)out->data : "no answer";
    if (status != 0)
        return tell(t, WRONG, "%.*s", (int)strcspn(said, "\n"), said);
    return tell(t, FINE, "%s answers within %.2f s", argv[0],
                clock_now() - begin_s);
}

static enum finding test_sinfo(struct tested *t)
{
    char *argv[] = { "sinfo",       "-a", "-h",          "-N", "-n",
                     t->node->name, "-o", "%N|%T|%R|%E", NULL };
    struct buffer out = { 0 };
    struct cluster_node node;
    enum finding found = ask(t, argv, &out);
    if (found == FINE &&
        cluster_node_parse((char *)out.data, t->node->name, &node) != ERR_OK)
        found = tell(t, WRONG, "sinfo knows no node %s", t->node->name);
    else if (found == FINE)
        tell(t, FINE, "this node is %s", node.state);
    buffer_free(&out);
    return found;
}

static enum finding test_reservations(struct tested *t)
{
    char *argv[] = { "scontrol", "-o", "show", "reservation", NULL };
    struct buffer out = { 0 };
    struct cluster_marks *marks = malloc(sizeof *marks);
    enum finding found = ask(t, argv, &out);
    if (found == FINE && marks != NULL &&
        cluster_marks_parse((char *)out.data, marks) != ERR_OK)
        found = tell(t, WRONG, "scontrol's reservations cannot be read");
    else if (found == FINE && marks != NULL && marks->latched_count > 0)
        found = tell(t, WRONG,
                     "latched: delete the reservation %s%s when its "
                     "cause is gone",
                     CLUSTER_LATCHED, marks->latched[0]);
    free(marks);
    buffer_free(&out);
    return found;
}

static enum finding test_timeout(struct tested *t)
{
    char *argv[] = { "scontrol", "show", "config", NULL };
    struct buffer out = { 0 };
    int seconds = 0;
    enum finding found = ask(t, argv, &out);
    const char *line =
        found == FINE ? strstr((char *)out.data, "PrologEpilogTimeout") : NULL;
    if (line != NULL &&
        sscanf(line, "PrologEpilogTimeout = %d", &seconds) == 1 &&
        seconds < TIMEOUT_LEAST_S)
        found = tell(t, WRONG, "PrologEpilogTimeout is %d s, give it %d",
                     seconds, TIMEOUT_LEAST_S);
    else if (found == FINE)
        tell(t, FINE, "PrologEpilogTimeout is %s",
             seconds > 0 ? "long enough" : "not limited");
    buffer_free(&out);
    return found;
}

static enum finding test_check(struct tested *t)
{
    node_look(t->node, t->node->site.prolog_s);
    return tell(t, t->node->state == NODE_UNKNOWN ? WRONG : FINE,
                "finds this node %s %.400s", node_state_names[t->node->state],
                t->node->reason);
}

int node_selftest(struct node *node)
{
    static const struct {
        const char *name;
        enum finding (*test)(struct tested *t);
    } tests[] = {
        { "settings", test_settings },
        { "TESSERA_SPOOL", test_spool },
        { "TESSERA_LOG", test_log },
        { "TESSERA_EVENTS", test_events },
        { "TESSERA_METRICS", test_metrics },
        { "TESSERA_NOTIFY", test_notify },
        { "TESSERA_PROBES", test_probes },
        { "syslog", test_syslog },
        { "node", test_sinfo },
        { "reservations", test_reservations },
        { "slurm.conf", test_timeout },
        { "check", test_check },
    };
    static const char *const words[] = { "ok", "-", "wrong" };
    struct tested t = { .node = node };
    bool wrong = false;
    node->end_s = clock_now() + RECHECK_S;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        enum finding found = tests[i].test(&t);
        wrong = wrong || found == WRONG;
        printf("%-5s  %-15s  %s\n", words[found], tests[i].name, t.text);
    }
    return wrong;
}
