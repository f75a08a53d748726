/* Which nodes train: a row for each course of a check, by the lines with which the
 * launch script hands the facts over and over again. */
#include "src/control/nodes_words.h"

#include "src/base/clock.h"
#include "tests/tap.h"

/* What a step has found: "n1=ok n2=bad:CODE", "code=1" and "late=1" of the step. */
static void play(struct nodes_facts *facts, char *step)
{
    for (char *word; (word = strsep(&step, " ")) != NULL;) {
        char *value = strchr(word, '=');
        if (value == NULL)
            continue;
        *value++ = '\0';
        struct nodes_node *node = nodes_words_find(facts, word);
        char *code = strchr(value, ':');
        if (strcmp(word, "code") == 0)
            facts->nodes.code = atoi(value);
        if (strcmp(word, "late") == 0)
            facts->nodes.late = atoi(value);
        if (node == NULL)
            continue;
        if (code != NULL)
            *code++ = '\0';
        for (int i = 0; nodes_verdict_names[i] != NULL; i++)
            if (strcmp(nodes_verdict_names[i], value) == 0)
                node->verdict = (enum nodes_verdict)i;
        node->code = code != NULL ? code : "-";
        node->reason = "x";
    }
}

/* What was said, without the state of the check. */
static void note(const struct nodes_facts *facts, char *lines, FILE *out)
{
    char said[640];
    for (int i = 0; i < facts->nodes.count; i++) {
        const struct nodes_node *node = &facts->nodes.list[i];
        nodes_say(node, said, sizeof said);
        if (said[0] != '\0')
            fprintf(out, "[%s%s] ", nodes_event(node) != NULL ? "+" : "", said);
    }
    for (char *line; (line = strsep(&lines, "\n")) != NULL;) {
        const char *name = strsep(&line, " ");
        if (line != NULL && *line != '\0' &&
            (strcmp(name, "say") == 0 || strcmp(name, "do") == 0 ||
             strcmp(name, "given") == 0 || strcmp(name, "asked") == 0 ||
             strcmp(name, "good") == 0))
            fprintf(out, "%s %s; ", name, line);
    }
}

/* The facts that the script keeps of what it was told. */
static void keep(char *lines, FILE *out)
{
    for (char *line; (line = strsep(&lines, "\n")) != NULL;)
        if (strncmp(line, "say ", 4) != 0 && strncmp(line, "do ", 3) != 0 &&
            strncmp(line, "given ", 6) != 0 && strncmp(line, "kept ", 5) != 0 &&
            strncmp(line, "elsewhere ", 10) != 0 &&
            strncmp(line, "spare ", 6) != 0)
            fprintf(out, "%s\n", line);
}

/* One call, as the program makes it; `kept` becomes what is handed over next. */
static enum nodes_what call(const char *given, char **kept, char *step,
                            FILE *out)
{
    struct nodes_facts facts = { 0 };
    int order[64];
    char *text = NULL, *lines = NULL, *copy, *next = NULL;
    size_t bytes;
    asprintf(&text, "%s%s", given, *kept != NULL ? *kept : "");
    tap_is_int(nodes_words_read(text, &facts), ERR_OK, "the facts");
    play(&facts, step);
    enum nodes_what what = nodes_next(&facts.nodes);
    FILE *stream = open_memstream(&lines, &bytes);
    nodes_words_write(&facts, what, order, nodes_order(&facts.nodes, order),
                      stream);
    fclose(stream);
    copy = strdup(lines);
    note(&facts, copy, out);
    stream = open_memstream(&next, &bytes);
    keep(lines, stream);
    fclose(stream);
    free(*kept);
    *kept = next;
    free(copy);
    free(lines);
    free(text);
    nodes_words_free(&facts);
    return what;
}

#define JOB                                                                    \
    "allocated n1 n2 n3\nusable n1 n2 n3\nhost n1\nwanted 2\nwanted_min 1\n"
#define ALL "n1=ok n2=ok n3=ok;"
#define CHECK "asked n1 n2 n3; do check; "
#define PAIRS "asked n1 n2 n3; good n1 n2 n3; do pairs; "

static void test_rows(void)
{
    static const struct {
        const char *facts, *steps, *said;
    } rows[] = {
        { JOB, ALL ALL, CHECK PAIRS "asked n1 n2 n3; good n1 n2 n3; do go; " },
        { JOB "quick 1\n", ALL,
          CHECK "asked n1 n2 n3; good n1 n2 n3; do go; " },
        /* who is suspect is spared where the others are enough, and asked where they
         * are not */
        { JOB "quick 1\nsuspect n2\n", "n1=ok n3=ok;",
          "asked n1 n3; do check; asked n1 n3; good n1 n3; do go; " },
        { JOB "quick 1\nsuspect n2 n3\n", ALL,
          CHECK "asked n1 n2 n3; good n1 n2 n3; do go; " },
        { JOB "quick 1\nsuspect n2 n3\nlost n3\n", "n1=ok n2=ok;",
          "asked n1 n2; do check; asked n1 n2; good n1 n2; do go; " },
        { JOB "quick 1\nwanted_min 2\nsuspect n2\n", "n1=ok; n2=ok n3=ok;",
          "asked n1 n3; do check; [no verdict on node n3: NO_VERDICT: no "
          "verdict, the check ended with code 0 after 0 s: ] say 1 good nodes, "
          "2 wanted: checking n2,n3 again; asked n2 n3; good n1; do again; "
          "asked n2 n3; good n1 n2 n3; do go; " },
        /* warned, by either step, and bad lately: last */
        { JOB "excluded n2\n", "n1=warn:MEM n2=ok n3=ok;" ALL,
          CHECK "[+node n1, a warning: MEM: x] asked n1 n2 n3; good n3 n1 n2; "
                "do pairs; asked n1 n2 n3; good n3 n1 n2; do go; " },
        { JOB, ALL "n1=ok n2=warn:PAIR_SLOW n3=ok;",
          CHECK PAIRS "[+node n2, a warning: PAIR_SLOW: x] asked n1 n2 n3; "
                      "good n1 n3 n2; do go; " },
        { JOB "quick 1\nwarned n1\n", ALL,
          CHECK "asked n1 n2 n3; good n2 n3 n1; do go; " },
        /* slow lately: behind a warning, before one that was bad, and no spare */
        { JOB "quick 1\nslow n1.cluster\n", ALL,
          CHECK "asked n1 n2 n3; good n2 n3 n1; do go; " },
        { "allocated n1 n2 n3 n4\nusable n1 n2 n3 n4\nwanted 2\nwanted_min 2\n"
          "quick 1\nslow n2 n9\nexcluded n1\nwarned n3\n",
          "n1=ok n2=ok n3=ok n4=ok;",
          "asked n1 n2 n3 n4; do check; asked n1 n2 n3 n4; "
          "good n4 n3 n2 n1; do go; " },
        /* those of the last attempt first, whose memory has what was saved there: a
         * spare takes the place of the lost alone */
        { "allocated n1 n2 n3 n4 n5\nusable n1 n2 n3 n4 n5\nwanted 3\n"
          "wanted_min 3\nquick 1\ntrained n1 n4 n5\nlost n4\n",
          "n1=ok n2=ok n3=ok n5=ok;",
          "asked n1 n2 n3 n5; do check; asked n1 n2 n3 n5; good n1 n5 n2 n3; "
          "do go; " },
        { JOB "quick 1\ntrained n2 n3\nwarned n2\n", ALL,
          CHECK "asked n1 n2 n3; good n3 n1 n2; do go; " },
        /* bad: given back, but not by a job that goes back with all of them, nor
         * the node of the launch script */
        { JOB, "n1=ok n2=bad:SHM n3=ok; n1=ok n3=ok;",
          CHECK "[+node n2 is bad and left out: SHM: x] asked n1 n3; good n1 "
                "n3; do pairs; asked n1 n3; good n1 n3; given n2; do go; " },
        { "allocated n1 n2\nusable n1 n2\nwanted 2\nwanted_min 2\n",
          "n1=ok n2=bad:SHM;",
          "asked n1 n2; do check; [+node n2 is bad and left out: SHM: x] "
          "asked n1 n2; good n1; do go; " },
        { JOB "quick 1\n", "n1=bad:SHM n2=ok n3=ok;",
          CHECK "[+node n1 is bad and left out: SHM: x] asked n1 n2 n3; good "
                "n2 n3; do go; " },
        { JOB, ALL "n1=ok n2=bad:PAIR n3=ok;",
          CHECK PAIRS "[+node n2 is bad and left out: PAIR: x] asked n1 n2 n3; "
                      "good n1 n3; given n2; do go; " },
        /* no verdict: asked again where nodes are wanting, and not used */
        { JOB, "n1=ok late=1; n2=ok; n1=ok n2=ok;",
          CHECK "[no verdict on node n2: NO_VERDICT: no verdict within 0 s] "
                "[no verdict on node n3: NO_VERDICT: no verdict within 0 s] "
                "say 1 good nodes, 2 wanted: checking n2,n3 again; asked n2 "
                "n3; good n1; do again; "
                "[no verdict on node n3: NO_VERDICT: no verdict, the check "
                "ended with code 0 after 0 s: ] asked n1 n2; good n1 n2; do "
                "pairs; asked n1 n2; good n1 n2; do go; " },
        { JOB "quick 1\n", "n1=ok n2=unknown:HANG n3=ok;",
          CHECK "[no verdict on node n2: HANG: x] asked n1 n2 n3; good n1 n3; "
                "do go; " },
        /* nothing began, or nothing is known: three times */
        { "allocated n1\nusable n1\nwanted 1\nwanted_min 1\nquick 1\n",
          "n1=unknown:BUDGET code=76;code=1;code=1;",
          "asked n1; do check; [no verdict on node n1: BUDGET: x] say no node "
          "is known to be good, trying again; asked n1; do restart; "
          "[no verdict on node n1: NO_VERDICT: no verdict, the check ended "
          "with code 1 after 0 s: ] say the check did not start, trying again; "
          "asked n1; do restart; "
          "[no verdict on node n1: NO_VERDICT: no verdict, the check ended "
          "with code 1 after 0 s: ] asked n1; do go; " },
        /* nobody is blamed for a pair check that tells nothing */
        { JOB, ALL "code=9 late=1;",
          CHECK PAIRS "say the pair check gave no verdict (code 9), going on; "
                      "asked n1 n2 n3; good n1 n2 n3; do go; " },
        { JOB, ALL "n1=ok n2=ok;",
          CHECK PAIRS "[no verdict on node n3: NO_VERDICT: no verdict of the "
                      "pair check] asked n1 n2 n3; good n1 n2; do go; " },
        /* what Slurm does not lend is not asked */
        { "allocated n1,n2\nusable n2\nwanted 2\nwanted_min 1\n", "n2.x=ok;",
          "asked n2; do check; asked n2; good n2; do go; " },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *steps = strdup(rows[i].steps), *rest = steps, *kept = NULL;
        char *said = NULL;
        size_t bytes;
        FILE *out = open_memstream(&said, &bytes);
        char none[] = "", *step = none;
        while (call(rows[i].facts, &kept, step, out) != NODES_GO &&
               (step = strsep(&rest, ";")) != NULL)
            ;
        fclose(out);
        tap_is_str(said, rows[i].said, "row %zu", i);
        tap_ok(rest != NULL && *rest == '\0', "all its steps are taken");
        free(said);
        free(kept);
        free(steps);
    }
}

static void test_elsewhere(void)
{
    struct nodes_node list[] = { { .name = "n1", .was_bad = true },
                                 { .name = "n2", .excluded = true } };
    struct nodes nodes = { .list = list, .count = 2 };
    tap_ok(nodes_elsewhere(&nodes), "the next start has others");
    list[1].was_bad = true;
    tap_ok(!nodes_elsewhere(&nodes), "Slurm gives the same again");
    nodes.count = 0;
    tap_ok(!nodes_elsewhere(&nodes), "a want of nodes has another cause");
}

/* What a slow node can be given up for: beyond those that are wanted. */
static void test_spare(void)
{
    static const struct nodes_node n = { .allocated = true,
                                         .place = NODES_GOOD };
    struct nodes_node list[5] = { n, n, n, n, n };
    struct nodes nodes = { .list = list, .count = 5, .wanted = 2 };
    list[0].slow = list[1].excluded = list[2].warned = true;
    tap_is_int(nodes_spare(&nodes), 1, "neither a slow nor a bad node is one");
    list[4].place = NODES_BAD;
    tap_is_int(nodes_spare(&nodes), 0, "and there need be none");
    nodes.wanted = 4;
    tap_is_int(nodes_spare(&nodes), 0, "nor where nodes are wanting");
}

static void test_words(void)
{
    static const char *const wrong[] = {
        "wanted 1\n",
        "wanted 0\nwanted_min 1\n",
        "at x\n",
        "wanted -1\n",
        "nothing 1\n",
        "good\n",
        "wanted 1\nwanted_min 1\nat 3\n",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct nodes_facts facts = { 0 };
        char text[64];
        snprintf(text, sizeof text, "%s", wrong[i]);
        tap_is_int(nodes_words_read(text, &facts), ERR_USAGE,
                   "wrong facts, %zu", i);
        nodes_words_free(&facts);
    }
}

/* What a call costs beside reading verdicts, at most as many nodes as a job may
 * have. */
static void test_growth(void)
{
    for (int count = 1024; count <= 16384; count *= 4) {
        struct nodes_facts facts = { 0 };
        char *text = NULL, *lines = NULL;
        size_t bytes;
        int *order = calloc((size_t)count, sizeof *order);
        FILE *out = open_memstream(&text, &bytes);
        fputs("wanted 1\nwanted_min 1\nat 1\n", out);
        for (int list = 0; list < 3; list++) {
            fputs((const char *[]){ "allocated", "usable", "asked" }[list],
                  out);
            for (int i = 0; i < count; i++)
                fprintf(out, " node%05d", i);
            fputc('\n', out);
        }
        fclose(out);
        double begin = clock_now();
        tap_is_int(nodes_words_read(text, &facts), ERR_OK, "%d nodes", count);
        (void)nodes_next(&facts.nodes);
        out = open_memstream(&lines, &bytes);
        nodes_words_write(&facts, NODES_GO, order,
                          nodes_order(&facts.nodes, order), out);
        fclose(out);
        tap_note("%d nodes: %.2f us each", count,
                 (clock_now() - begin) / count * 1e6);
        free(lines);
        free(text);
        free(order);
        nodes_words_free(&facts);
    }
}

int main(void)
{
    test_rows();
    test_elsewhere();
    test_spare();
    test_words();
    test_growth();
    return tap_done();
}
