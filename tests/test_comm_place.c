/* Places of many ranks, as lines for people, and who has begun another operation. */
#include "src/comm/comm_impl.h"
#include "tests/tap.h"

#define RANKS 64
#define MANY 160

static char hosts[MANY][COMM_HOST_BYTES];
static struct comm_place places[MANY];
static char lines[COMM_PLACE_LINES][COMM_TEXT_BYTES];

static struct comm_place waits(void)
{
    return (struct comm_place){ .state = COMM_WAITS,
                                .since_s = 10.2,
                                .step = 120,
                                .at = "gradients, exchange, all-to-all" };
}

static void prepare(void)
{
    for (int r = 0; r < RANKS; r++) {
        snprintf(hosts[r], sizeof hosts[r], "n%d", r / 2);
        places[r] = waits();
    }
    places[9].since_s = 10.0;
    places[7].state = COMM_WORKS;
    snprintf(places[7].at, sizeof places[7].at, "microbatch, block forward");
    memset(&places[40], 0, sizeof places[40]);
    places[40].step = 119;
    places[63] = (struct comm_place){ .state = COMM_RESTS, .step = 119 };
}

static void test_lines(void)
{
    static const char *const want[] = {
        "61 ranks (0-6, 8-39, 41-62) wait: step 120, gradients, exchange, "
        "all-to-all, since 10.2 s",
        "rank 7 (n3) computes: step 120, microbatch, block forward, since "
        "10.2 s",
        "rank 40 (n20) does not answer; last seen at step 119, between two "
        "phases, since 0.0 s",
        "rank 63 (n31) is busy: step 119, between two phases, since 0.0 s",
    };
    prepare();
    int count = comm_place_lines(places, RANKS, hosts, lines);
    tap_ok(count == 4, "64 ranks at four places are four lines");
    for (int i = 0; i < 4 && i < count; i++)
        if (!tap_ok(strcmp(lines[i], want[i]) == 0, "line %d", i))
            tap_note("%s", lines[i]);
}

static void test_scattered(void)
{
    prepare();
    for (int r = 0; r < MANY; r++) {
        places[r] = waits();
        places[r].step = r % 2 == 0 ? 1 : r;
    }
    int count = comm_place_lines(places, MANY, hosts, lines);
    tap_ok(count == COMM_PLACE_LINES &&
               strstr(lines[count - 1], "more ranks") != NULL,
           "what is at too many places is counted");
    tap_ok(strstr(lines[0], ", ...)") != NULL, "a list of ranks has an end");
}

/* Of the ranks 0 .. count - 1, those from `first` on began another operation. */
static int odd(int count, int first, char *text, size_t bytes)
{
    static struct comm comm = { .size = RANKS, .number = 3 };
    struct comm_request request = { .comm = &comm,
                                    .what = "barrier",
                                    .tag = 7 };
    for (int r = 0; r < RANKS; r++) {
        places[r] = waits();
        request.what = r < first ? "barrier" : "all-reduce";
        if (r < count)
            places[r].ops[r % COMM_PLACE_OPS] = comm_place_op(&request, 1);
        request.tag = 8; /* and all the one that follows */
        places[r].ops[(r + 1) % COMM_PLACE_OPS] = comm_place_op(&request, 9);
        request.tag = 7;
    }
    return comm_place_odd(places, RANKS, hosts, comm_place_op(&request, 0),
                          text, bytes);
}

static void test_odd(void)
{
    char text[256];
    prepare();
    tap_ok(odd(64, 63, text, sizeof text) == 1 &&
               strcmp(text, "rank 63 (n31)") == 0,
           "the one that differs from all others is named");
    tap_ok(odd(64, 64, text, sizeof text) == 0, "nobody, if all are the same");
    tap_ok(odd(64, 32, text, sizeof text) == 0, "nobody, if half differ");
    tap_ok(odd(30, 29, text, sizeof text) == 0,
           "nobody, as long as most have not begun it");
    tap_ok(odd(34, 33, text, sizeof text) == 1, "who is early does not matter");
}

int main(void)
{
    test_lines();
    test_scattered();
    test_odd();
    return tap_done();
}
