/* Every small fault must be blamed on the right rank or link, and nobody
 * else. Meetings are simulated. */
#include "healthcheck/health_rounds.h"

#include "tests/tap.h"

#define SIZE_MAX_HERE 65

struct fault {
    int rank;           /* -1: none */
    int second;         /* another sick rank; -1: none */
    int link_a, link_b; /* equal: none */
    double factor;      /* of the speed */
    int64_t wrong;
};

static void simulate(struct health_meeting *meetings, int first, int count,
                     const struct fault *fault)
{
    for (int i = first; i < count; i++) {
        int a = meetings[i].a;
        int b = meetings[i].b;
        bool link = fault->link_a != fault->link_b &&
                    ((a == fault->link_a && b == fault->link_b) ||
                     (a == fault->link_b && b == fault->link_a));
        bool sick = link || a == fault->rank || b == fault->rank ||
                    a == fault->second || b == fault->second;
        /* some spread, the same in every run */
        double spread = 1 + 0.03 * (double)((a * 7 + b * 3) % 5 - 2) / 2;
        meetings[i].gbps = 10 * spread * (sick ? fault->factor : 1);
        meetings[i].wrong = sick ? fault->wrong : 0;
    }
}

/* False: two meetings of a wave share a rank, or two ranks meet twice. */
static bool well_formed(const struct health_meeting *meetings, int count,
                        int size)
{
    for (int i = 0; i < count; i++) {
        const struct health_meeting *m = &meetings[i];
        if (m->a == m->b || m->a < 0 || m->b < 0 || m->a >= size ||
            m->b >= size)
            return false;
        for (int j = 0; j < i; j++) {
            const struct health_meeting *o = &meetings[j];
            bool shared =
                m->a == o->a || m->a == o->b || m->b == o->a || m->b == o->b;
            bool same = (m->a == o->a && m->b == o->b) ||
                        (m->a == o->b && m->b == o->a);
            if (same || (shared && m->round == o->round && m->wave == o->wave))
                return false;
        }
    }
    return true;
}

static int play(int size, const struct fault *fault, double floor,
                struct health_meeting *meetings, enum health_state *states)
{
    int first = 0;
    int count = health_rounds_neighbours(size, meetings);
    double median = 0;
    for (int round = 1; round <= HEALTH_ROUNDS && first < count; round++) {
        simulate(meetings, first, count, fault);
        if (round == 1)
            median = health_rounds_median(meetings, count);
        health_rounds_judge(meetings, first, count, median, floor, 0.8);
        first = count;
        if (round < HEALTH_ROUNDS)
            count += health_rounds_retest(size, meetings, count, round + 1);
    }
    health_rounds_blame(size, meetings, count, states);
    return count;
}

static void test_single_faults(void)
{
    static const struct {
        const char *name;
        double factor;
        int64_t wrong;
        double floor;
        enum health_state want;
    } kinds[] = {
        { "healthy", 1, 0, 0, HEALTH_OK },
        { "slow", 0.6, 0, 0, HEALTH_WARN },
        { "slow below a floor", 0.6, 0, 8, HEALTH_BAD },
        { "wrong", 1, 3, 0, HEALTH_BAD },
    };
    struct health_meeting meetings[4 * SIZE_MAX_HERE];
    enum health_state states[SIZE_MAX_HERE];
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        int mistakes = 0;
        int games = 0;
        for (int size = 3; size <= SIZE_MAX_HERE; size++) {
            for (int sick = 0; sick < size; sick++, games++) {
                struct fault fault = { sick,          -1, 0, 0, kinds[k].factor,
                                       kinds[k].wrong };
                int count =
                    play(size, &fault, kinds[k].floor, meetings, states);
                bool good = well_formed(meetings, count, size);
                for (int r = 0; r < size; r++)
                    good &=
                        states[r] == (r == sick ? kinds[k].want : HEALTH_OK);
                for (int i = 0; i < count; i++)
                    good &= !health_rounds_is_link(&meetings[i], states);
                /* of three ranks, the first met both in round 1: when it is
                 * sick nobody had a good meeting, and nobody is cleared */
                bool hopeless = size == 3 && sick == 0;
                if (!good && !hopeless) {
                    mistakes++;
                    tap_note("%s: size %d, rank %d", kinds[k].name, size, sick);
                }
            }
        }
        tap_is_int(mistakes, 0, "%s: right in %d games", kinds[k].name, games);
    }
}

static void test_two_faults(void)
{
    struct health_meeting meetings[4 * SIZE_MAX_HERE];
    enum health_state states[SIZE_MAX_HERE];
    int mistakes = 0;
    int size = 16;
    for (int a = 0; a < size; a++) {
        for (int b = a + 1; b < size; b++) {
            struct fault fault = { a, b, 0, 0, 0.5, 0 };
            int count = play(size, &fault, 0, meetings, states);
            bool good = well_formed(meetings, count, size);
            for (int r = 0; r < size; r++)
                good &=
                    states[r] == (r == a || r == b ? HEALTH_WARN : HEALTH_OK);
            mistakes += !good;
        }
    }
    tap_is_int(mistakes, 0, "two slow ranks of %d are named", size);
}

static void test_links(void)
{
    struct health_meeting meetings[4 * SIZE_MAX_HERE];
    enum health_state states[SIZE_MAX_HERE];
    int mistakes = 0;
    for (int size = 6; size <= 32; size += 2) {
        for (int a = 0; a < size; a += 2) {
            struct fault fault = { -1, -1, a, a + 1, 0.5, 0 };
            int links = 0;
            int count = play(size, &fault, 0, meetings, states);
            for (int i = 0; i < count; i++)
                links += health_rounds_is_link(&meetings[i], states);
            bool good = links == 1;
            for (int r = 0; r < size; r++)
                good &= states[r] == HEALTH_OK;
            mistakes += !good;
        }
    }
    tap_is_int(mistakes, 0, "a slow link is blamed on no rank");
}

static void test_hopeless(void)
{
    struct health_meeting meetings[16];
    enum health_state states[4];
    struct fault fault = { 0, -1, 0, 0, 1, 5 };
    int count = play(2, &fault, 0, meetings, states);
    tap_is_int(count, 1, "two ranks meet once");
    tap_ok(states[0] == HEALTH_UNKNOWN && states[1] == HEALTH_UNKNOWN,
           "of two ranks neither can be blamed");
    struct fault all = { -1, -1, 0, 0, 1, 0 };
    count = play(4, &all, 1000, meetings, states);
    tap_is_int(count, 2, "nobody is good: no more rounds");
    tap_ok(states[0] == HEALTH_WARN && states[3] == HEALTH_WARN,
           "a floor that all miss names nobody");
}

int main(void)
{
    test_single_faults();
    test_two_faults();
    test_links();
    test_hopeless();
    return tap_done();
}
