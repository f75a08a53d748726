/* A scan for "KEY": and what stands behind it, which never leaves the line. */
#include "src/node/node_verdict.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "src/base/clean.h"
#include "src/control/cluster.h"

/* The probes that root can run as well, alone on the node. */
static const char *const probes[] = { "gemm", "triad", "gpugemm",  "hbm",
                                      "pcie", "peer",  "allreduce" };

/* Behind "KEY": and a blank or none; NULL: it is not in [from, end). */
static const char *behind_key(const char *from, const char *end,
                              const char *key)
{
    size_t length = strlen(key);
    for (; from + length + 3 <= end; from++)
        if (*from == '"' && strncmp(from + 1, key, length) == 0 &&
            from[length + 1] == '"' && from[length + 2] == ':') {
            from += length + 3;
            return from < end && *from == ' ' ? from + 1 : from;
        }
    return NULL;
}

/* The first string of that name; "" where there is none. */
static void string_of(const char *from, const char *end, const char *key,
                      char *out, size_t size)
{
    size_t n = 0;
    from = behind_key(from, end, key);
    if (from != NULL && from < end && *from++ == '"')
        for (; from < end && *from != '"' && n < size - 1; from++)
            out[n++] = *from;
    out[n] = '\0';
}

static bool is_string(const char *at, const char *end, const char *word)
{
    size_t length = strlen(word);
    return at != NULL && (size_t)(end - at) >= length + 2 && *at == '"' &&
           strncmp(at + 1, word, length) == 0 && at[length + 1] == '"';
}

/* "id":"NAME" and, before the next brace, "st":"bad". */
static bool finds_bad(const char *from, const char *end, const char *name)
{
    while ((from = behind_key(from, end, "id")) != NULL) {
        if (!is_string(from, end, name))
            continue;
        const char *stop = from;
        while (stop < end && *stop != '{' && *stop != '}')
            stop++;
        if (is_string(behind_key(from, stop, "st"), stop, "bad"))
            return true;
    }
    return false;
}

bool node_verdict_read(const char *text, const char *name,
                       struct node_verdict *out)
{
    const char *line = NULL, *end = NULL;
    char host[256], code[4096];
    size_t n = 0;
    *out = (struct node_verdict){ .bad = false };
    for (size_t length; *text != '\0';
         text += length + (text[length] != '\0')) {
        length = strcspn(text, "\n");
        if (is_string(behind_key(text, text + length, "verdict"), text + length,
                      "bad")) {
            line = text;
            end = text + length;
        }
    }
    if (line == NULL)
        return true;
    string_of(line, end, "host", host, sizeof host);
    host[strcspn(host, ".")] = '\0';
    if (strlen(host) != strcspn(name, ".") ||
        strncmp(host, name, strlen(host)) != 0)
        return false;
    out->bad = true;
    string_of(line, end, "code", code, sizeof code);
    for (const char *at = code; *at != '\0' && n < sizeof out->code - 1; at++)
        if (isupper((unsigned char)*at) || isdigit((unsigned char)*at) ||
            *at == '_')
            out->code[n++] = *at;
    for (size_t i = 0; i < sizeof probes / sizeof *probes; i++)
        if (finds_bad(line, end, probes[i]))
            clean_join(out->probes, sizeof out->probes, ",", "%s", probes[i]);
    return true;
}

bool node_verdict_probe(const char *reason, char *probe, size_t size)
{
    char check[16];
    if (sscanf(reason, CLUSTER_OURS "%*s %15s", check) == 1)
        for (size_t i = 0; i < sizeof probes / sizeof *probes; i++)
            if (strcmp(check, probes[i]) == 0) {
                snprintf(probe, size, "%s", check);
                return true;
            }
    return false;
}
