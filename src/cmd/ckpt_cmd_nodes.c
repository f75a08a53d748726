/* tessera-ckpt nodes: what a launch script does with its nodes. Which of them
 * train is decided in src/control/nodes.h, of the facts that the script has, as
 * lines on stdin, and of the verdicts in FOLDER: each node's own in NODE.json, what
 * they found of each other in `pairs`, the words of srun in `log`.
 *
 * One call reads each verdict once, whatever the number of nodes, and lays it into
 * one file, `verdicts`. What is decided about a node is in the ledger before it is
 * told, and a bad verdict lies in SPOOL, for root's epilog, which looks for
 * itself. jobs/lib/nodes.sh reads what is printed. */
#include "src/cmd/ckpt_cmd.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "healthcheck/health.h"
#include "src/base/clean.h"
#include "src/base/lines.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/regular.h"
#include "src/control/nodes_words.h"
#include "src/job/ledger.h"

#define FACTS_BYTES_MAX ((size_t)256 << 20)

/* What a call keeps until its end. */
struct check {
    const struct ckpt_cmd *cmd;
    const char *run_dir, *folder, *spool;
    struct nodes_facts facts;
    json_t *kept; /* texts of verdicts */
    FILE *all;    /* FOLDER/verdicts */
    char log[1024];
};

/* The last words of srun about a step, or where there may be some. */
static enum err read_log(struct check *check)
{
    char path[FSIO_PATH_MAX];
    char *line = NULL;
    size_t room = 0;
    FILE *file = NULL;
    TRY(fsio_path(path, "%s/log", check->folder));
    TRY(regular_stream(path, &file));
    snprintf(check->log, sizeof check->log, "see %.1000s", path);
    while (file != NULL && getline(&line, &room, file) > 0) {
        const char *mark = strstr(line, ": ");
        const char *blank = strchr(line, ' ');
        if (mark != NULL && blank > mark &&
            (strncmp(line, "srun", 4) == 0 ||
             strncmp(line, "slurmstepd", 10) == 0))
            snprintf(check->log, sizeof check->log, "%.*s",
                     (int)strcspn(line, "\n"), line);
    }
    free(line);
    if (file != NULL)
        fclose(file);
    check->facts.nodes.log = check->log;
    return ERR_OK;
}

/* For the epilog of this job on that node. */
static enum err leave(const struct check *check, const struct nodes_node *node,
                      const json_t *verdict)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *text = json_dumps(verdict, JSON_COMPACT | JSON_REAL_PRECISION(15));
    if (text == NULL)
        return err_set(ERR_MEMORY, "no memory for the verdict");
    TRY_OUT(fsio_path(path, "%s/verdict.%" PRId64 ".%s", check->spool,
                      check->cmd->job, node->name));
    TRY_OUT(fsio_write_hint(path, text, strlen(text)));
    if (chmod(path, 0644) != 0)
        rc = err_errno("%s: chmod", path);
out:
    free(text);
    return rc;
}

static const char *word(struct check *check, const json_t *verdict,
                        const char *key)
{
    json_t *text = json_object_get(verdict, key);
    if (!json_is_string(text) || json_string_length(text) == 0)
        return "-";
    json_array_append(check->kept, text);
    return json_string_value(text);
}

/* The last verdict about a node that was asked counts. */
static void take(struct check *check, json_t *verdict)
{
    const char *host = json_string_value(json_object_get(verdict, "host"));
    const char *state = json_string_value(json_object_get(verdict, "verdict"));
    struct nodes_node *node =
        host != NULL ? nodes_words_find(&check->facts, host) : NULL;
    if (node == NULL || !node->asked || state == NULL)
        return;
    node->verdict = NODES_UNSURE;
    for (int i = 0; nodes_verdict_names[i] != NULL; i++)
        if (strcmp(nodes_verdict_names[i], state) == 0)
            node->verdict = (enum nodes_verdict)i;
    node->code = word(check, verdict, "code");
    node->reason = word(check, verdict, "reason");
    if (node->verdict == NODES_SICK && check->spool[0] != '\0' &&
        access(check->spool, W_OK) == 0 &&
        leave(check, node, verdict) != ERR_OK)
        log_warn("%s", err_text());
}

static enum err take_file(struct check *check, const char *path)
{
    json_t *verdicts = NULL;
    TRY(health_report_read(path, &verdicts));
    for (size_t i = 0; i < json_array_size(verdicts); i++)
        take(check, json_array_get(verdicts, i));
    if (check->all != NULL && json_array_size(verdicts) > 0 &&
        health_report_dump(verdicts, check->all) == ERR_OK)
        (void)unlink(path);
    json_decref(verdicts);
    return ERR_OK;
}

/* Verdicts that cannot be read are none. */
static enum err read_verdicts(struct check *check)
{
    const struct nodes *nodes = &check->facts.nodes;
    char path[FSIO_PATH_MAX];
    int fd = -1;
    if (nodes->at == NODES_AT_PAIRS) {
        TRY(fsio_path(path, "%s/pairs", check->folder));
        return take_file(check, path);
    }
    TRY(lines_open(check->folder, "verdicts", path, &fd));
    check->all = fdopen(fd, "a");
    if (check->all == NULL)
        close(fd);
    for (int i = 0; i < nodes->count; i++) {
        if (!nodes->list[i].asked)
            continue;
        TRY(fsio_path(path, "%s/%s.json", check->folder, nodes->list[i].name));
        if (take_file(check, path) != ERR_OK)
            log_warn("%s", err_text());
    }
    return read_log(check);
}

/* --- what is told --- */

static void write_row(const struct check *check, const char *event,
                      char *const *words, int count)
{
    if (ledger_append_words(check->run_dir, event, (int)check->cmd->attempt,
                            words, count) != ERR_OK)
        log_warn("%s", err_text());
}

static void tell_node(const struct check *check, const struct nodes_node *node)
{
    char text[1024], job[32], name[320], code[64], reason[512];
    const char *event = nodes_event(node);
    snprintf(job, sizeof job, "job=%" PRId64, check->cmd->job);
    if (event != NULL) {
        snprintf(name, sizeof name, "node=%s", node->name);
        snprintf(code, sizeof code, "code=%s", node->code);
        snprintf(reason, sizeof reason, "reason=%s", node->reason);
        write_row(check, event, (char *[]){ job, name, code, reason }, 4);
    }
    nodes_say(node, text, sizeof text);
    clean_text(text, false);
    if (text[0] != '\0')
        printf("say %s\n", text);
}

static enum err tell_check(const struct check *check, const int *order,
                           int good)
{
    const struct nodes *nodes = &check->facts.nodes;
    char job[32], phase[16], tried[32], count[32], seconds[32];
    char *names = NULL;
    size_t bytes;
    int usable = 0;
    FILE *out = open_memstream(&names, &bytes);
    if (out == NULL)
        return err_set(ERR_MEMORY, "no memory for the names of nodes");
    fputs("nodes=", out);
    nodes_words_good(nodes, order, good, ',', out);
    fclose(out);
    for (int i = 0; i < nodes->count; i++)
        usable += nodes->list[i].usable;
    snprintf(job, sizeof job, "job=%" PRId64, check->cmd->job);
    snprintf(phase, sizeof phase, "phase=%s", nodes->quick ? "quick" : "job");
    snprintf(tried, sizeof tried, "tried=%d", usable);
    snprintf(count, sizeof count, "good=%d", good);
    snprintf(seconds, sizeof seconds, "seconds=%d", check->facts.total);
    write_row(check, "check",
              (char *[]){ job, phase, tried, count, names, seconds }, 6);
    free(names);
    return ERR_OK;
}

static enum err tell(const struct check *check, enum nodes_what what)
{
    const struct nodes *nodes = &check->facts.nodes;
    enum err rc = ERR_OK;
    int *order = NULL;
    TRY(new_room(&order, (size_t)nodes->count + 1));
    int good = nodes_order(nodes, order);
    for (int i = 0; i < nodes->count; i++)
        tell_node(check, &nodes->list[i]);
    nodes_words_write(&check->facts, what, order, good, stdout);
    if (what == NODES_GO)
        rc = tell_check(check, order, good);
    free(order);
    return rc;
}

enum err ckpt_cmd_nodes(struct ckpt_cmd *cmd)
{
    enum err rc = ERR_OK;
    char *text = NULL;
    size_t bytes = 0;
    struct check check = { .cmd = cmd,
                           .run_dir = cmd->paths[0],
                           .folder = cmd->paths[1],
                           .spool = cmd->word_count > 1 ? cmd->words[1] : "",
                           .kept = json_array() };
    TRY_OUT(fsio_read_file("/dev/stdin", FACTS_BYTES_MAX, &text, &bytes));
    TRY_OUT(nodes_words_read(text, &check.facts));
    if (check.facts.nodes.at != NODES_AT_BEGIN)
        TRY_OUT(read_verdicts(&check));
    TRY_OUT(tell(&check, nodes_next(&check.facts.nodes)));
out:
    if (check.all != NULL)
        fclose(check.all);
    nodes_words_free(&check.facts);
    json_decref(check.kept);
    free(text);
    return rc;
}
