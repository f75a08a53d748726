/* What root reads on a node: the site's settings, a user's verdict, Slurm's Gres.
 * What is done with them is tests/health_admin.bats's. */
#include <jansson.h>

#include "src/node/node_events.h"
#include "src/node/node_gpus.h"
#include "src/node/node_site.h"
#include "src/node/node_verdict.h"
#include "tests/tap.h"

static void test_settings(void)
{
    static const struct {
        const char *text,
            *wrong; /* a part of what is said; NULL: all is well */
    } rows[] = {
        { "", NULL },
        { "# a comment\n\n  TESSERA_ENFORCE=1  # yes\n", NULL },
        { "TESSERA_LOG=\"/var/log/t.log\"\nTESSERA_CLEAN='/dev/shm /tmp'",
          NULL },
        { "TESSERA_SPOOL=", NULL },
        { "TESSERA_DRAIN_PERCENT=10%", "from 1 to 100" },
        { "TESSERA_DRAIN_PERCENT=0", "from 1 to 100" },
        { "TESSERA_DRAIN_PERCENT=0000010", "from 1 to 100" },
        { "TESSERA_DRAIN_PERCENT=", "from 1 to 100" },
        { "TESSERA_AGAIN_S=21", "from 0 to 20" },
        { "TESSERA_ENFORCE=$X", "from 0 to 1" },
        { "TESSERA_ENFORCE=-1", "from 0 to 1" },
        { "TESSERA_LOG=log", "a path from /" },
        { "TESSERA_LOG=/a b", "a path from /" },
        { "TESSERA_LOG=/$(x)", "a path from /" },
        { "TESSERA_CLEAN=/home", "/dev/shm, /tmp or both" },
        { "TESSERA_ENFORC=1", "no such setting" },
        { "exit 1", "no such setting" },
        { "TESSERA_ENFORCE = 1", "no such setting" },
        { "=1", "no such setting" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct node_site site;
        char wrong[200];
        node_site_defaults(&site, "/p/libexec/tessera");
        node_site_parse(rows[i].text, &site, wrong, sizeof wrong);
        tap_ok(rows[i].wrong == NULL ? wrong[0] == '\0'
                                     : strstr(wrong, rows[i].wrong) != NULL,
               "'%s' says '%s'", rows[i].text, wrong);
    }
    struct node_site site;
    char wrong[200], many[4096] = "";
    node_site_defaults(&site, "/p/libexec/tessera");
    tap_is_str(site.probes, "/p/libexec/tessera/../../bin/tessera-health",
               "probes beside our own programs");
    node_site_parse("TESSERA_ENFORCE=1\nTESSERA_STORM_S=60\n"
                    "TESSERA_CLEAN=\nTESSERA_LOG='/l'\n",
                    &site, wrong, sizeof wrong);
    tap_ok(site.enforce == 1 && site.storm_s == 60 && site.again_s == 3 &&
               site.clean[0] == '\0' && strcmp(site.log, "/l") == 0,
           "what is said counts, the rest has its default");
    for (int i = 0; i < 80; i++)
        strcat(many, "TESSERA_WRONG_SETTING_OF_MANY=1\n");
    node_site_parse(many, &site, wrong, sizeof wrong);
    tap_ok(strlen(wrong) == sizeof wrong - 1, "many wrong lines are cut");
}

#define BAD "\"host\":\"n1.x\",\"verdict\":\"bad\",\"code\":\"GEMM_WRONG\""
#define CHECK(id, st)                                                          \
    "{\"id\":\"" id "\",\"v\":0,\"st\":\"" st "\",\"t\":\"x\"}"

static void test_verdicts(void)
{
    static const struct {
        const char *text;
        bool ours, bad;
        const char *code, *probes;
    } rows[] = {
        { "", true, false, "", "" },
        { "{\"host\":\"n1\",\"verdict\":\"ok\"}", true, false, "", "" },
        { "{" BAD "}", true, true, "GEMM_WRONG", "" },
        { "{" BAD ",\"checks\":[" CHECK("gemm", "bad") "]}\n", true, true,
          "GEMM_WRONG", "gemm" },
        { "{" BAD
          ",\"checks\":[" CHECK("gemm", "ok") "," CHECK("hbm", "bad") "]}",
          true, true, "GEMM_WRONG", "hbm" },
        { "{" BAD
          ",\"checks\":[" CHECK("hbm", "bad") "," CHECK("triad", "bad") "]}",
          true, true, "GEMM_WRONG", "triad,hbm" },
        { "{" BAD
          ",\"checks\":[" CHECK("shm", "bad") "," CHECK("gemm;x", "bad") "]}",
          true, true, "GEMM_WRONG", "" },
        { "{ \"verdict\": \"bad\", \"host\": \"n1\" }", true, true, "", "" },
        { "{\"host\":\"n2\",\"verdict\":\"bad\"}", false, false, "", "" },
        { "{\"host\":\"n11\",\"verdict\":\"bad\"}", false, false, "", "" },
        { "{\"host\":\"\",\"verdict\":\"bad\"}", false, false, "", "" },
        { "{\"verdict\":\"bad\"}", false, false, "", "" },
        { "{\"verdict\":\"bad", true, false, "", "" },
        { "\"verdict\":", true, false, "", "" },
        { "\"id\":\"gemm\",\"st\":\"bad\"", true, false, "", "" },
        { "{\"host\":\"n1\",\"verdict\":\"bad\",\"code\":\"a;b A\\\"$(x)_9\"}",
          true, true, "A", "" },
        { "{" BAD "}\n{\"host\":\"n2\",\"verdict\":\"bad\"}", false, false, "",
          "" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct node_verdict verdict;
        bool ours = node_verdict_read(rows[i].text, "n1", &verdict);
        tap_ok(ours == rows[i].ours && verdict.bad == rows[i].bad &&
                   strcmp(verdict.code, rows[i].code) == 0 &&
                   strcmp(verdict.probes, rows[i].probes) == 0,
               "%s: %s [%s] [%s]", rows[i].text,
               verdict.bad ? "bad" : "not bad", verdict.code, verdict.probes);
    }
}

static void test_gres(void)
{
    static const struct {
        const char *gres;
        int gpus;
    } rows[] = { { "", 0 },
                 { "(null)", 0 },
                 { "gpu:8", 8 },
                 { "gpu:h100:4(S:0-1),gpu:a100:2(S:2),shard:80", 6 },
                 { "gpu:a100_1g.5gb:7(S:0)", 0 },
                 { "gpu:mig20gb:14", 14 },
                 { "gpu:", 0 },
                 { "gpu", 0 },
                 { "gpu:h100", 0 },
                 { "gpu:99999", 0 },
                 { "shard:4,gpu:2\ngpu:8", 2 },
                 { "mgpu:3", 0 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        tap_is_int(node_gpus_of_gres(rows[i].gres), rows[i].gpus, "'%s'",
                   rows[i].gres);
}

static void test_reasons(void)
{
    static const struct {
        const char *reason, *probe;
    } rows[] = { { "tessera: GEMM_WRONG gemm on 3", "gemm" },
                 { "tessera: HBM_SLOW hbm", "hbm" },
                 { "tessera: SHM_FULL shm 0MiB/32", "" },
                 { "tessera: GEMM_WRONG gemm;x", "" },
                 { "tessera: GEMM_WRONG", "" },
                 { "Kill task failed gemm", "" },
                 { "", "" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char probe[16] = "";
        bool is = node_verdict_probe(rows[i].reason, probe, sizeof probe);
        tap_ok(is == (rows[i].probe[0] != '\0') &&
                   strcmp(probe, rows[i].probe) == 0,
               "'%s' was drained by probe '%s'", rows[i].reason, probe);
    }
}

/* Whatever a node, a check or Slurm says, a line is a line of JSON. */
static void test_events(void)
{
    struct node node = { .phase = "prolog",
                         .name = "n1",
                         .job = 7,
                         .state = NODE_WARN,
                         .codes = "SHM_USED,LOAD_HIGH",
                         .settings = 0xabc };
    char line[NODE_EVENT_BYTES], text[4096];
    memset(line, 'x', sizeof line);
    node_event_line(&node, 12.5, NULL, "tessera: SHM_USED shm 0MiB/32",
                    "t\"e\\\n", line);
    tap_is_str(
        line,
        "{\"schema\":\"tessera-event/1\",\"time\":12.500,\"host\":"
        "\"n1\",\"phase\":\"prolog\",\"job\":7,\"uid\":0,"
        "\"settings\":\"00000abc\",\"event\":\"result\",\"state\":"
        "\"warn\",\"code\":\"SHM_USED\",\"codes\":\"SHM_USED,LOAD_HIGH\","
        "\"text\":\"t\\\"e\\\\?\"}\n",
        "what looks found");
    memset(text, '"', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    node_event_line(&node, 1e9, "floor", text, text, line);
    json_t *json = json_loads(line, 0, NULL);
    tap_ok(json != NULL && strlen(line) < sizeof line - 1,
           "texts that are too long are cut: %zu bytes", strlen(line));
    tap_is_str(json_string_value(json_object_get(json, "outcome")), "floor",
               "a decision has its outcome");
    json_decref(json);
    node_event_metrics(&node, 1e9, 0.5, text, sizeof text);
    tap_ok(strstr(text,
                  "\ntessera_node_state{node=\"n1\",phase=\"prolog\"} 1\n") &&
               strstr(text, "{node=\"n1\",code=\"SHM_USED\"} 1\n") &&
               strstr(text, "{node=\"n1\",code=\"LOAD_HIGH\"} 1\n"),
           "Prometheus reads state and faults");
    memset(node.codes, ',', sizeof node.codes - 1);
    node_event_metrics(&node, 1e9, 0.5, text, 64);
    tap_ok(strlen(text) < 64, "in the room that there is");
}

int main(void)
{
    test_reasons();
    test_events();
    test_settings();
    test_verdicts();
    test_gres();
    return tap_done();
}
