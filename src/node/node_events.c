/* Texts are printable already but for quotes and backslashes: words of our own, of a
 * check's or of Slurm's. */
#include "src/node/node_events.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "src/control/cluster.h"

const char *const node_state_names[] = { "ok", "warn", "bad", "unknown" };

/* Appends ,"KEY":"TEXT"; a text that is too long is cut. */
static void add(char *line, const char *key, const char *text, size_t most)
{
    size_t n = strlen(line);
    n += (size_t)snprintf(line + n, NODE_EVENT_BYTES - n, ",\"%s\":\"", key);
    for (; *text != '\0' && most > 0 && n + 8 < NODE_EVENT_BYTES;
         text++, most--) {
        if (strchr("\"\\", *text) != NULL)
            line[n++] = '\\';
        line[n++] = isprint((unsigned char)*text) ? *text : '?';
    }
    memcpy(line + n, "\"", 2);
}

/* The first word of a reason, without our mark. */
static void code_of(const char *reason, char *code, size_t size)
{
    if (strncmp(reason, CLUSTER_OURS, strlen(CLUSTER_OURS)) == 0)
        reason += strlen(CLUSTER_OURS);
    snprintf(code, size, "%.*s", (int)strcspn(reason, " "), reason);
}

void node_event_line(const struct node *node, double time_s,
                     const char *outcome, const char *reason, const char *text,
                     char line[NODE_EVENT_BYTES])
{
    char code[64];
    code_of(reason, code, sizeof code);
    snprintf(line, NODE_EVENT_BYTES,
             "{\"schema\":\"tessera-event/1\",\"time\":%.3f", time_s);
    add(line, "host", node->name, 64);
    add(line, "phase", node->phase, 16);
    size_t n = strlen(line);
    snprintf(line + n, NODE_EVENT_BYTES - n,
             ",\"job\":%ld,\"uid\":%u,\"settings\":\"%08x\"", node->job,
             (unsigned)node->uid, (unsigned)node->settings);
    add(line, "event", outcome == NULL ? "result" : "decision", 16);
    if (outcome == NULL)
        add(line, "state", node_state_names[node->state], 16);
    else
        add(line, "outcome", outcome, 32);
    add(line, "code", code, sizeof code);
    if (outcome == NULL)
        add(line, "codes", node->codes, 400);
    add(line, "text", text, 700);
    strcat(line, "}\n");
}

void node_event_metrics(const struct node *node, double time_s, double look_s,
                        char *text, size_t size)
{
    char codes[NODE_TEXT_BYTES], *rest = codes;
    int n = snprintf(
        text, size,
        "# HELP tessera_node_state Of the last look: 0 ok, 1 warn, 2 bad, "
        "3 unknown.\n"
        "# TYPE tessera_node_state gauge\n"
        "tessera_node_state{node=\"%s\",phase=\"%s\"} %d\n"
        "# HELP tessera_node_look_time_seconds When that was.\n"
        "# TYPE tessera_node_look_time_seconds gauge\n"
        "tessera_node_look_time_seconds{node=\"%s\"} %.0f\n"
        "# HELP tessera_node_look_seconds How long it took.\n"
        "# TYPE tessera_node_look_seconds gauge\n"
        "tessera_node_look_seconds{node=\"%s\"} %.3f\n"
        "# HELP tessera_node_fault What was not ok then.\n"
        "# TYPE tessera_node_fault gauge\n",
        node->name, node->phase, (int)node->state, node->name, time_s,
        node->name, look_s);
    snprintf(codes, sizeof codes, "%s", node->codes);
    for (char *code; (code = strsep(&rest, ",")) != NULL && (size_t)n < size;)
        if (*code != '\0' && *code != '-')
            n += snprintf(text + n, size - (size_t)n,
                          "tessera_node_fault{node=\"%s\",code=\"%s\"} 1\n",
                          node->name, code);
}
